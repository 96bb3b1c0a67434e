"""The ways of computing on a GPU: they agree, repeat to the bit, and leave alone what cannot be captured."""

import logging
from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import Compute, Data, Federation
from heterophony.base.seeds import seeded
from heterophony.compute import batched as batched_module
from heterophony.compute.batched import Batched
from heterophony.compute.choice import COMPILED, EVERY, PRODUCTS, STACKED
from heterophony.compute.stack import Stack
from heterophony.engines import local
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, FedMD
from heterophony.parts.schedules import Ramp, Stairs, Warmup
from heterophony.parts.training import Training
from toys.federations import METHODS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CLIENTS = ["c0", "c1", "c2", "c3"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HETEROPHONY_CACHE", str(tmp_path))


def small(dropout=0.0, norm=False, channels=1):
    layers = [nn.Conv2d(channels, 6, 3), nn.BatchNorm2d(6) if norm else nn.Identity(), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(dropout), nn.Linear(54, 4))


def federation(factory=small, pixels=False, channels=1, **how):
    def images(i):
        with seeded("cuda images", i):
            pictures = (torch.randint(0, 256, (50, channels, 8, 8)).float() / 255 - 0.5) / 0.5
            x = pictures if pixels else torch.randn(50, channels, 8, 8)
            return Data(x=x, y=torch.randint(4, (50,)), classes=4)

    data = {c: {"train": images(i)} for i, c in enumerate(CLIENTS)}
    models = {role: {"model": factory} for role in ("server", "client")}
    method = FedAvg(local=Training(epochs=3, batch=16, lr=0.05, momentum=0.9))
    return Federation(method, star(CLIENTS), models, data, {"test": images(9)}, compute=Compute(device="cuda", **how))


def weights(result):
    return [t.cpu() for t in result.state("server")["models"]["model"].values()]


SCHEDULED = {
    "nesterov": Training(
        epochs=3, batch=16, lr={"c0": Stairs(0.05, 0.5, every=2), "*": Ramp(0.05, 0.01, 3)}, momentum=0.9,
        nesterov=True, clip=1.0,
    ),
    "adamw": Training(epochs=3, batch=16, lr=Warmup(1, Ramp(2e-3, 5e-4, 2)), optimiser="adamw", weight_decay=0.1),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULED)
@pytest.mark.parametrize("executor", ["branches", "stacked", "auto"])
def test_rates_that_change_agree_with_one_at_a_time_and_are_no_new_graphs(executor, name):
    """Float32 sums in another order, four rounds: 1e-4. AdamW's steps do not shrink with gradients: 2e-3."""
    method = FedAvg(local=SCHEDULED[name])
    one = replace(federation(executor="eager"), method=method).run(4)
    made = replace(federation(executor=executor), method=method)
    batched = Batched(made.test_sets, executor=executor)
    other = local(made, executor=batched).run(4)
    for a, b in zip(weights(one), weights(other), strict=True):
        torch.testing.assert_close(a, b, atol=2e-3 if name == "adamw" else 1e-4, rtol=0)
    again = local(made, executor=Batched(made.test_sets, executor=executor, choices=batched.choices)).run(4)
    assert again.digest == other.digest
    if executor == "branches":
        assert sum(map(len, batched.captured_fits.values())) == len(CLIENTS)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("executor", ["branches", "stacked", "auto"])
def test_ways_agree_with_one_at_a_time_within_rounding(executor, norm):
    """Float32 sums in another order, four rounds: 1e-4."""
    factory = lambda: small(norm=norm)  # noqa: E731
    one = federation(factory, executor="eager").run(4)
    other = federation(factory, executor=executor).run(4)
    for a, b in zip(weights(one), weights(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


FORMS = [(way, *form) for way in EVERY for form in ((1, False), (1, True), (3, True))]


@pytest.mark.parametrize(
    ("way", "channels", "norm"),
    [row for row in FORMS if row[0].stacked or not row[0].compiled or row[1] == 3],  # compiling takes long
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_each_way_agrees(way, channels, norm):
    factory = lambda: small(norm=norm, channels=channels)  # noqa: E731
    made = federation(factory, channels=channels)
    batched = Batched(made.test_sets, executor="auto", only=way)
    found = local(made, executor=batched).run(2)
    assert not batched.alone
    captured_fits = [captured for found in batched.captured_fits.values() for captured in found]
    assert any(isinstance(captured, Stack) for captured in captured_fits) == way.stacked
    one = federation(factory, channels=channels, executor="eager").run(2)
    for a, b in zip(weights(one), weights(found), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_compiled_way_is_checked_with_dropout_in_the_network(monkeypatch):
    made = federation(lambda: small(dropout=0.5, norm=True, channels=3), channels=3)
    batched = Batched(made.test_sets, executor="auto")
    checked = []
    agrees = batched._agrees
    monkeypatch.setattr(batched, "_agrees", lambda way, entries: checked.append(agrees(way, entries)) or checked[-1])
    always_pays = dict.fromkeys(batched_module.COMPILING, (0.0, 0.0, 1.0))
    monkeypatch.setattr(batched_module, "COMPILING", always_pays)
    local(made, executor=batched).run(2)
    chosen = [entry["way"] for entry in batched.choices.made.values()]
    assert len(checked) == sum("compiled" in way for way in chosen)  # and none was turned down
    assert PRODUCTS.name in {name for entry in batched.choices.made.values() for name in entry["milliseconds"]}


def test_what_a_participant_is_fitted_to_shares_memory():
    """FCCL fits in two ways: captured twice a participant, on one stream, with the results of one at a time."""
    row = next(row for row in METHODS if row.name == "fccl")
    made = row.build().computed(device="cuda")
    batched = Batched(made.test_sets)
    found = local(made, executor=batched, **row.options).run(2)
    captured_fits = [captured for found in batched.captured_fits.values() for captured in found]
    streams = {}  # by participant
    for captured in captured_fits:
        streams.setdefault(captured.served, set()).add(id(captured.shared_stream))
    assert len(captured_fits) > len(streams)
    assert all(len(own) == 1 for own in streams.values())
    assert len({stream for own in streams.values() for stream in own}) == len(streams)
    assert local(made, executor=Batched(made.test_sets), **row.options).run(2).digest == found.digest


@pytest.mark.parametrize("way", [STACKED, COMPILED], ids=lambda way: way.name)
def test_stacks_in_bf16_take_running_statistics_and_channels_last_weights(way):
    def factory():
        return small(norm=True).to(memory_format=torch.channels_last)

    made = federation(factory, precision="bf16")
    batched = Batched(made.test_sets, "bf16", executor="auto", only=way)
    found = local(made, executor=batched).run(2)
    assert not batched.alone
    for a, b in zip(weights(federation(factory, executor="eager").run(2)), weights(found), strict=True):
        torch.testing.assert_close(a, b, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("executor", ["branches", "stacked", "auto"])
def test_with_dropout_a_run_repeats_and_resumes_to_the_bit(executor, tmp_path):
    made = federation(lambda: small(dropout=0.5), executor=executor)
    whole = made.run(5)
    assert made.run(5).digest == whole.digest
    made.run(2, tmp_path / "run")
    assert made.resume(tmp_path / "run", 5).digest == whole.digest
    assert replace(made, seed=1).run(5).digest != whole.digest


def test_precisions_differ_and_are_close():
    exact = weights(federation().run(2))
    for precision, gap in (("tf32", 1e-2), ("bf16", 5e-2)):
        found = weights(federation(precision=precision).run(2))
        assert all((a - b).abs().max() < gap for a, b in zip(exact, found, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(exact, found, strict=True))


class Asking(nn.Module):
    """Looks at a value on the way: cannot be captured."""

    def __init__(self):
        super().__init__()
        self.net = small()

    def forward(self, x):
        return self.net(x) if float(x.sum()) > 1e9 else self.net(x) + 0


def test_what_asks_for_a_value_runs_one_at_a_time(caplog):
    made = federation(Asking)
    batched = Batched(made.test_sets)
    with caplog.at_level(logging.WARNING):
        found = local(made, executor=batched).run(2)
    assert batched.alone == set(CLIENTS)
    assert len([r for r in caplog.records if "one at a time" in r.message]) == len(CLIENTS)
    for a, b in zip(weights(federation(Asking, executor="eager").run(2)), weights(found), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("executor", ["eager", "branches", "stacked"])
def test_images_are_bytes_on_the_device_and_change_nothing(executor, monkeypatch):
    made = federation(pixels=True, executor=executor)
    packed = local(made)
    found = packed.run(2)
    train = packed.host.node("c0").data
    assert train.placed("train").columns["x"].dtype == torch.uint8
    assert torch.equal(train.placed("train").x.cpu(), train["train"].x)
    monkeypatch.setattr(Data, "packed", Data.to)
    plain = federation(pixels=True, executor=executor).run(2)
    assert found.digest == plain.digest
    assert found.table.rows == plain.table.rows


def test_evaluations_side_by_side_are_those_of_one_at_a_time():
    """Every client's model on every set, all under way at once, twice as many as there are streams."""
    clients = [f"c{i}" for i in range(8)]
    with seeded("side by side"):
        draw = {c: Data(x=torch.randn(40, 1, 8, 8), y=torch.randint(4, (40,)), classes=4) for c in clients}
    models = {"client": {"model": small}, "server": {"model": small}}
    made = Federation(
        FedMD(),
        star(clients),
        models,
        {c: {"train": d, "public": d} for c, d in draw.items()} | {"server": {"public": draw["c0"]}},
        dict(draw),
        compute=Compute(device="cuda"),
    )
    tables = [made.computed(executor=executor).run(2).table.rows for executor in ("eager", "branches")]
    assert len(tables[0]) == len(tables[1]) > 8 * 8
    for a, b in zip(*tables, strict=True):
        assert {k: v for k, v in a.items() if k != "sum"} == {k: v for k, v in b.items() if k != "sum"}
        assert a["sum"] == pytest.approx(b["sum"], rel=1e-3, abs=1.01 if a["quantity"] in ("accuracy", "top5") else 0.3)
