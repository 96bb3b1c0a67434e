"""Our networks for series and for masks: shapes, counts by hand, body and head, repeatability, equal executors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from heterophony import Data
from heterophony.base.seeds import seeded
from heterophony.compute.batched import Batched
from heterophony.compute.eager import Eager, Job
from heterophony.compute.stack import Stack
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.work import Fit
from heterophony.models import create
from heterophony.parts import task_loss
from heterophony.settings import Setting, SettingError
from heterophony.settings.assemble import assemble
from heterophony.tasks.classification import Classification
from heterophony.tasks.segmentation import Segmentation

COUNTS = [
    # 5*6*64 + 64, 5*64*64 + 64, 3*64*128 + 128, 128*6 + 6
    ("cnn1d", (6, 128), 6, 1_984 + 20_544 + 24_704 + 774),
    # four gates: 4*64*(6 + 64) weights and 2*4*64 biases; 64*6 + 6
    ("lstm", (6, 128), 6, 17_920 + 512 + 390),
    # three gates
    ("gru", (6, 128), 6, 13_440 + 384 + 390),
    # patches 4*4*3*64 + 64, places 64*64, four blocks of 2*(2*64) + 64*192 + 192 + 64*64 + 64 + 2*64*256 + 256 + 64,
    # the last norm 128, 64*10 + 10
    ("vit-tiny", (3, 32, 32), 10, 3_136 + 4_096 + 4 * (256 + 12_480 + 4_160 + 33_088) + 128 + 650),
]
SHAPES = [
    ("cnn1d", (6, 30), (5,)),
    ("cnn1d", (50,), (5,)),
    ("lstm", (6, 30), (5,)),
    ("gru", (30,), (5,)),
    ("vit-tiny", (3, 30, 44), (5,)),
    ("vit-tiny", (1, 8, 8), (5,)),
    ("unet", (1, 16, 24), (5, 16, 24)),
    ("unet", (3, 17, 21), (5, 17, 21)),
]


def made(name: str, shape: tuple[int, ...], classes: int = 5, **more: str) -> nn.Module:
    torch.manual_seed(1)
    return create(name, shape=shape, classes=classes, **more)


@pytest.mark.parametrize(("name", "shape", "given"), SHAPES)
def test_outputs_are_head_after_body_and_every_parameter_learns(name, shape, given):
    network, x = made(name, shape), torch.randn(3, *shape)
    outputs = network(x)
    assert outputs.shape == (3, *given)
    assert torch.equal(outputs, network.head(network.body(x)))
    assert {key.split(".")[0] for key in network.state_dict()} == {"body", "head"}
    outputs.square().mean().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize(("name", "shape", "given"), SHAPES)
def test_the_same_seed_gives_the_same_network_and_nothing_is_drawn_while_it_runs(name, shape, given):
    one, two, x = made(name, shape), made(name, shape), torch.randn(2, *shape)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))
    state = torch.random.get_rng_state()
    assert torch.equal(one(x), two(x))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(("name", "shape", "classes", "expected"), COUNTS)
def test_counted_by_hand(name, shape, classes, expected):
    network = made(name, shape, classes)
    assert sum(p.numel() for p in network.parameters()) == expected
    assert f"{expected:,}" in (network.__doc__ or "").replace("\n", " ")


def test_the_unet_counted_by_hand():
    # two convolutions 3x3 of a level with GroupNorm: 9*(a + w)*w + 4*w; on the way up 4*2w*w + w, and a = 2w
    down = [9 * (a + w) * w + 4 * w for a, w in ((1, 16), (16, 32), (32, 64), (64, 128))]
    up = [4 * 2 * w * w + w + 9 * (2 * w + w) * w + 4 * w for w in (16, 32, 64)]
    network = made("unet", (1, 32, 32), 2)
    count = sum(p.numel() for p in network.parameters())
    assert count == sum(down) + sum(up) + 16 * 2 + 2
    assert f"{count:,}" in (network.__doc__ or "")


def test_padding_of_the_unet_changes_nothing_where_none_is_needed():
    """Of an image whose sides are not multiples of 8, the mask is that of the image with zeros added, cut back."""
    odd, even = made("unet", (1, 17, 21)), made("unet", (1, 24, 24))
    even.load_state_dict({k.replace("body.inner.", "body."): v for k, v in odd.state_dict().items()})
    x = torch.randn(2, 1, 17, 21)
    grown = torch.zeros(2, 1, 24, 24)
    grown[:, :, :17, :21] = x
    torch.testing.assert_close(odd(x), even(grown)[:, :, :17, :21], rtol=1e-5, atol=1e-6)


def test_recurrent_networks_answer_at_each_step_where_the_task_is_a_sequence():
    network, x = made("gru", (2, 12), task="sequence"), torch.randn(3, 2, 12)
    outputs = network(x)
    assert outputs.shape == (3, 5, 12)
    x[:, :, 8:] = 0  # what comes later changes nothing before
    assert torch.equal(network(x)[:, :, :8], outputs[:, :, :8])


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("cnn1d", (3, 8, 8), "reads rows (channels, steps) or (steps,), got rows of the shape (3, 8, 8)"),
        ("cnn1d", (6, 3), "at least 4 steps, got 3"),
        ("lstm", (3, 8, 8), "LSTM reads rows (channels, steps)"),
        ("unet", (64,), "UNet reads rows (channels, height, width)"),
        ("unet", (1, 7, 32), "at least 8x8 pixels, got 7x32"),
        ("vit-tiny", (6, 30), "ViT reads rows (channels, height, width)"),
        ("gru", (0, 5), "needs rows with values"),
        ("lenet5", (6, 30), "network 'lenet5' reads images; the rows here are arrays of (6, 30)"),
    ],
)
def test_rows_that_a_network_cannot_read_are_refused_in_one_line(name, shape, text):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (its text is looked at)
        made(name, shape)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


# -- executors -------------------------------------------------------------------------------------------------
def job(name: str, shape: tuple[int, ...], place: int) -> Job:
    masks = name == "unet"
    task = Segmentation(3) if masks else Classification(3)
    with seeded("arrays", place):
        model = create(name, shape=shape, classes=3, task=task.kind)
        y = torch.randint(3, (20, *shape[1:]) if masks else (20,))
        data = Data(x=torch.randn(20, *shape), y=y, task=task)
    node = Node(f"c{place}", "client", slots={"model": Slot(model)}, data={"train": data})
    return Job(node, Fit("model", task_loss, batch=8, optimiser=sgd(0.01)), "0")


@pytest.mark.parametrize(
    ("name", "shape"),
    [("cnn1d", (3, 16)), ("lstm", (3, 10)), ("gru", (10,)), ("vit-tiny", (1, 16, 16)), ("unet", (1, 16, 16))],
)
@pytest.mark.parametrize("executor", ["branches", "stacked"])
def test_captured_and_stacked_fits_equal_those_one_at_a_time(name, shape, executor):
    alone, together = ([job(name, shape, place) for place in range(2)] for _ in range(2))
    Eager()(alone)
    batched = Batched(executor=executor)
    batched(together)
    assert not batched.alone
    kinds = {type(fit) for fits in batched.captured_fits.values() for fit in fits}
    assert (kinds == {Stack}) == (executor == "stacked")
    noise = {"stacked": 1e-4, "branches": 0.0}[executor]  # sums of a stack round in another order
    for one, other in zip(alone, together, strict=True):
        states = [each.node.slots["model"].tensors() for each in (one, other)]
        for key, tensor in states[0].items():
            torch.testing.assert_close(states[1][key], tensor, rtol=0, atol=noise)


# -- settings --------------------------------------------------------------------------------------------------
@pytest.fixture
def source(tmp_path):
    """Writes rows of a shape, whose targets follow from them by a rule; returns the path as text."""

    def put(shape: tuple[int, ...], masks: bool = False) -> str:
        x = np.random.default_rng(0).normal(size=(60, *shape)).astype(np.float32)
        y = (x[:, 0] > 0.5) if masks else x.reshape(60, -1).sum(1) > 0
        np.savez(tmp_path / "rows.npz", x=x, y=y.astype(np.int64))
        return str(tmp_path / "rows.npz")

    return put


def setting(source: str, network: str, **data: object) -> Setting:
    more = {"source": source, "clients": 2, "test": 0.2, "arrays": {}, **data}
    return Setting.of({"name": "t", "data": more, "models": {"participants": network}, "local": {"batch": 16}})


@pytest.mark.parametrize(
    ("name", "shape"), [("cnn1d", (6, 16)), ("cnn1d", (16,)), ("lstm", (3, 8)), ("gru", (8,)), ("vit-tiny", (1, 8, 12))]
)
def test_settings_of_arrays_train_these_networks_and_repeat(source, name, shape):
    path = source(shape)
    one, two = (assemble("fedavg", setting(path, name), seed=3).run(1) for _ in range(2))
    assert one.digest == two.digest
    assert one.table.select(product="global", quantity="accuracy")


def test_a_setting_of_masks_trains_the_unet_and_repeats(source):
    path = source((1, 8, 8), masks=True)
    one, two = (
        assemble("fedavg", setting(path, "unet", task={"kind": "segmentation"}), seed=3).run(1) for _ in range(2)
    )
    assert one.digest == two.digest
    assert one.table.select(product="global", quantity="overlap 1")


def test_a_network_that_does_not_fit_the_task_is_refused_in_one_line(source, tmp_path, monkeypatch):
    with pytest.raises(SettingError, match=r"network 'unet' gives \(2, 2, 8, 8\) for 2 arrays; with 2 classes it is"):
        assemble("fedavg", setting(source((1, 8, 8)), "unet"))
    monkeypatch.chdir(tmp_path)
    np.savez("images.npz", train_x=np.zeros((40, 8, 8), np.uint8), train_y=np.arange(40) % 2)
    with pytest.raises(SettingError, match=r"models: unet reads arrays; t has images"):
        assemble("fedavg", setting("images.npz", "unet", arrays=None))
