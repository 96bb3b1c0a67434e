"""Optimisers and clipping against torch's own, stepped by plain loops."""

import pytest
import torch
from torch import nn

from heterophony import Data
from heterophony.base.seeds import generator, seeded
from heterophony.compute.eager import fit
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.optimisers import Descent, adamw, clipped, sgd
from heterophony.kernel.work import Fit
from heterophony.parts.losses import cross_entropy
from heterophony.parts.training import Training
from heterophony.parts.transforms import Proximal

ROWS = 24


def made():
    """A node with a network and some rows, the same each time."""
    with seeded("optimisers"):
        network = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4))
        data = Data(x=torch.randn(ROWS, 8), y=torch.randint(4, (ROWS,)), classes=4)
    return Node("c", "client", slots={"model": Slot(network)}, data={"train": data})


def by_loops(node, optimiser, epochs, batch, clip=None, anchor=None):
    """Torch's own loop: backward, what is added to gradients, clipping, step."""
    network, data = node.models["model"], node.data["train"]
    for _ in range(epochs):
        order = node.order("train", ROWS)
        for rows in torch.split(order, batch):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(data.x[rows]), data.y[rows]).backward()
            for name, parameter in network.named_parameters():
                if anchor is not None:
                    parameter.grad += 0.5 * (parameter.detach() - anchor[name])
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimiser.step()
    return node.weights()


RIGHT = {
    "adamw": (
        {"optimiser": "adamw", "lr": 0.01, "weight_decay": 0.1},
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    ),
    "adamw without decay": (
        {"optimiser": "adamw", "lr": 0.01},
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.0),
    ),
    "nesterov": (
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "adam": ({"optimiser": "adam", "lr": 0.01}, lambda parameters: torch.optim.Adam(parameters, lr=0.01)),
    "sgd": ({"lr": 0.1}, lambda parameters: torch.optim.SGD(parameters, lr=0.1)),
}


@pytest.mark.parametrize("clip", [None, 0.3, 1e6])
@pytest.mark.parametrize("name", RIGHT)
def test_training_is_torchs_own_loop_to_the_bit(name, clip):
    options, right = RIGHT[name]
    one, other = made(), made()
    fit(one, Training(epochs=3, batch=10, clip=clip, **options).fit("model", cross_entropy))
    expected = by_loops(other, right(other.models["model"].parameters()), 3, 10, clip)
    assert all(torch.equal(tensor, expected[key]) for key, tensor in one.weights().items())


def test_clipping_comes_after_what_a_method_adds_to_gradients():
    one, other = made(), made()
    anchor = {name: tensor + 1 for name, tensor in one.weights().items()}
    how = Training(epochs=2, batch=10, clip=0.2)
    fit(one, how.fit("model", cross_entropy, transform=Proximal(0.5), aux={"anchor": anchor}))
    right = torch.optim.SGD(other.models["model"].parameters(), lr=0.1)
    expected = by_loops(other, right, 2, 10, 0.2, anchor)
    for name, tensor in one.weights().items():
        torch.testing.assert_close(tensor, expected[name])
    plain = made()
    fit(
        plain, Training(epochs=2, batch=10).fit("model", cross_entropy, transform=Proximal(0.5), aux={"anchor": anchor})
    )
    assert not torch.allclose(plain.weights()["0.weight"], one.weights()["0.weight"])


def test_networks_that_step_together_are_clipped_each_by_itself():
    def both(nets, batch):
        return {name: {"ce": nn.functional.cross_entropy(nets[name](batch.x), batch.y)} for name in ("model", "other")}

    node, alone = made(), made()
    with seeded("other"):
        node.slots["other"] = Slot(nn.Linear(8, 4))
    with torch.no_grad():
        node.slots["other"].module.weight.mul_(100)  # whose gradients are long
    how = Training(epochs=1, batch=None, clip=0.3)
    fit(node, how.fit(("model", "other"), both))
    fit(alone, how.fit("model", cross_entropy))
    assert all(torch.equal(tensor, alone.weights()[name]) for name, tensor in node.weights().items())


def test_no_step_is_longer_than_the_rate_times_the_clip():
    node = made()
    before = node.weights()
    fit(node, Training(epochs=1, batch=None, lr=0.5, clip=0.01).fit("model", cross_entropy))
    moved = torch.cat([(node.weights()[name] - tensor).flatten() for name, tensor in before.items()])
    assert moved.norm().item() == pytest.approx(0.5 * 0.01, rel=1e-4)


@pytest.mark.parametrize("longest", [0.1, 1.0, 100.0])
def test_clipping_is_torchs_to_the_bit(longest):
    draw = generator("clipping")
    gradients = {name: torch.randn(shape, generator=draw) for name, shape in (("a", (3, 4)), ("b", (5,)), ("c", ()))}
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients.values()]
    for parameter, gradient in zip(parameters, gradients.values(), strict=True):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(parameters, longest)
    for parameter, gradient in zip(parameters, clipped(gradients, longest).values(), strict=True):
        assert torch.equal(parameter.grad, gradient)
    assert clipped({}, longest) == {}


def test_what_the_loss_does_not_reach_is_neither_clipped_nor_moved():
    node = made()
    before = node.weights()

    def loss(nets, batch):
        return (nets["model.0"](batch.x) ** 2).mean()

    fit(node, Training(batch=None, clip=0.1, weight_decay=0.1).fit("model", loss, parts=("model.0",)))
    after = node.weights()
    assert [name for name in before if torch.equal(before[name], after[name])] == ["2.weight", "2.bias"]


def test_state_that_is_kept_goes_on_and_another_optimisers_is_refused():
    node, whole = made(), made()
    how = Training(epochs=1, batch=10, lr=0.01, optimiser="adamw", weight_decay=0.1)
    for _ in range(2):
        fit(node, how.fit("model", cross_entropy, keep="own"))
    fit(whole, how.fit("model", cross_entropy, epochs=2))
    assert all(torch.equal(tensor, whole.weights()[name]) for name, tensor in node.weights().items())
    with pytest.raises(ValueError, match=r"the kept state .* is another optimiser's: SGD needs momentum_buffer"):
        fit(node, Fit("model", cross_entropy, optimiser=sgd(0.1, 0.9, nesterov=True), keep="own"))
    fresh = made()
    fit(fresh, Fit("model", cross_entropy, optimiser=sgd(0.1, 0.9, nesterov=True), keep="own"))
    with pytest.raises(ValueError, match="another optimiser's: AdamW needs step"):
        fit(fresh, Fit("model", cross_entropy, optimiser=adamw(0.01), keep="own"))


def test_nesterovs_momentum_is_written_out_too():
    made_of = sgd(0.1, momentum=0.9, nesterov=True).plain([nn.Parameter(torch.zeros(2))])
    assert isinstance(made_of, Descent)
