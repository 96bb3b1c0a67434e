"""Against forgetting: EWC's penalty and LwoF recomputed by loops, their limits, and that they do keep something."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import Data, Federation
from heterophony.base.seeds import generator
from heterophony.engines import local
from heterophony.kernel.topology import complete
from heterophony.methods import BHFL, Ditto, Solo
from heterophony.parts.ewc import Ewc, faded, fisher
from heterophony.parts.losses import cross_entropy
from heterophony.parts.packing import begin_training, end_training, tasks_network
from heterophony.parts.retention import Remembering, Retention
from heterophony.parts.training import Training
from heterophony.parts.transforms import Chain, Proximal
from toys.by_hand import equal
from toys.federations import bhfl, drifting_ditto, forgetful, hierarchy, peers, personal_star, streaming
from toys.world import net, normed, points

DOUBLE = {"dtype": torch.float64}


def named(purpose):
    draw = generator("retention", purpose)
    return {name: torch.randn(shape, generator=draw, **DOUBLE) for name, shape in (("w", (3, 2)), ("b", (3,)))}


def test_the_ewc_penalty_by_loops():
    """Its gradient, entry by entry, and by autograd of the penalty summed in plain Python."""
    weights, centre, start, strength = named("w"), named("c"), named("g"), 0.7
    importance = {name: tensor.square() for name, tensor in named("F").items()}
    found = Ewc(strength)(start, weights, fisher=importance, centre=centre)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    penalty = sum(
        strength / 2 * f * (w - c) ** 2
        for name in leaves
        for w, f, c in zip(leaves[name].flatten(), importance[name].flatten(), centre[name].flatten(), strict=True)
    )
    penalty.backward()
    for name in weights:
        for place in range(weights[name].numel()):
            w, f, c, g = (t[name].flatten()[place].item() for t in (weights, importance, centre, start))
            assert found[name].flatten()[place].item() == pytest.approx(g + strength * f * (w - c), rel=1e-12)
        assert torch.allclose(found[name], start[name] + leaves[name].grad, rtol=1e-12)


def test_a_stiff_pull_is_limited():
    one = {"w": torch.ones(1, **DOUBLE)}
    zero = {"w": torch.zeros(1, **DOUBLE)}
    pull = Ewc(100.0, limit=4.0)(zero, one, fisher=one, centre=zero)
    assert pull["w"].item() == 4.0
    assert Ewc(0.0)(one, one, fisher=one, centre=zero)["w"].item() == 1.0


def test_fisher_by_loops():
    gradients, rows = [named("1"), named("2"), named("3")], [4, 4, 2]
    found = fisher(gradients, rows)
    for name in found:
        for place in range(found[name].numel()):
            parts = [g[name].flatten()[place].item() ** 2 * n for g, n in zip(gradients, rows, strict=True)]
            assert found[name].flatten()[place].item() == pytest.approx(sum(parts) / 3, rel=1e-12)
    again = faded(found, found, 0.5)
    assert torch.allclose(again["w"], 1.5 * found["w"])
    assert faded(None, found, 0.5)["w"] is found["w"]


def test_fisher_in_a_run_is_that_of_its_batches():
    """One batch that is all rows: the square of the mean gradient at the end of the first round, times the rows."""
    data = {"c0": {"train": points("fisher", 12)}}
    method = Solo(local=Training(batch=None), retain=Retention(ewc=1.0, batches=1))
    result = local(Federation(method, complete(["c0"]), {"peer": {"model": net()}}, data)).run(1)
    module = net()()
    module.load_state_dict(result.state("c0")["models"]["model"])
    cross_entropy({"model": module}, data["c0"]["train"])["model"]["ce"].backward()
    kept = result.state("c0")["vars"]["retained"]
    for name, parameter in module.named_parameters():
        assert torch.allclose(kept["fisher"][name], 12 * parameter.grad.square(), rtol=1e-4)
        assert torch.equal(kept["centre"][name], parameter.detach())


def test_lwof_by_loops():
    draw = generator("lwof")
    logits, kept = (torch.randn(5, 3, generator=draw, **DOUBLE) for _ in range(2))
    labels = torch.tensor([0, 1, 2, 1, 0])
    batch = Data(x=logits, y=labels, kept=kept)
    asked = []
    found = Remembering(cross_entropy, 0.3, 2.0)({"model": lambda x: asked.append(1) or x}, batch)["model"]

    def softmax(row):
        parts = [math.exp(value / 2.0) for value in row]
        return [part / sum(parts) for part in parts]

    total = -sum(
        p * math.log(q)
        for old, new in zip(kept.tolist(), logits.tolist(), strict=True)
        for p, q in zip(softmax(old), softmax(new), strict=True)
    )
    assert float(found["lwof"]) == pytest.approx(0.3 * total / 5, rel=1e-12)
    assert float(found["ce"]) == pytest.approx(float(nn.functional.cross_entropy(logits, labels)), rel=1e-12)
    assert asked == [1]  # one forward pass


def test_one_transform_after_the_other():
    g, w, c, f = named("g"), named("w"), named("c"), {n: t.square() for n, t in named("F").items()}
    both = Chain(Proximal(0.2), Ewc(0.5))(g, w, first={"anchor": c}, then={"fisher": f, "centre": c})
    for name in g:
        gap = w[name] - c[name]
        assert torch.allclose(both[name], g[name] + 0.2 * gap + 0.5 * f[name] * gap, rtol=1e-12)


@pytest.mark.parametrize(
    "build",
    [
        lambda retain: peers(method=Solo(local=Training(batch=16), retain=retain)),
        lambda retain: personal_star(Ditto(local=Training(batch=16), retain=retain), client=("model", "fork")),
        lambda retain: hierarchy(bhfl(retain=retain)),
        lambda retain: hierarchy(bhfl(retain=retain, merge={"l0": "l2", "leaf": "mutual", "*": "mix"})),
    ],
    ids=["solo", "ditto", "bhfl", "bhfl-learned"],
)
def test_each_part_changes_the_run_and_a_model_of_an_outsider_stays(build):
    parts = (Retention(), Retention(lwof=1.0), Retention(ewc=5.0), Retention(packnet=0.5, task=2))
    plain, lwof, ewc, packed = (local(build(r)).run(2) for r in parts)
    assert len({plain.digest, lwof.digest, ewc.digest, packed.digest}) == 4
    if "server" in plain.nodes:  # Ditto's global model knows nothing of it, but for the order of the batches
        assert equal(*(r.state("server")["models"]["model"] for r in (plain, lwof)))


def test_weights_that_matter_move_less():
    """The stronger EWC, the nearer the model stays to where it was after the first concept."""

    def moved(strength):
        method = Solo(local=Training(batch=8, lr=0.05, epochs=2), retain=Retention(ewc=strength))
        made = streaming(peers(method=method), "sudden", memory=0)
        before, after = (local(made).run(r).state("p0")["models"]["model"] for r in (2, 4))
        return sum(float((after[n] - before[n]).detach().square().sum()) for n in after)

    assert moved(0.0) > moved(5.0) > moved(100.0)


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="retention needs"):
        Retention(ewc=-1.0)
    with pytest.raises(ValueError, match="rho > 0"):
        Retention(rho=0.0)
    with pytest.raises(ValueError, match="packnet is a share"):
        Retention(packnet=1.5)
    assert BHFL().retain == Retention()


@pytest.mark.parametrize("build", [forgetful, drifting_ditto], ids=["solo", "ditto"])
def test_streams_and_retention_in_lanes_equal_one_at_a_time(build):
    assert local(build().computed(executor="branches")).run(4).digest == local(build()).run(4).digest


def test_looking_at_what_matters_changes_nothing():
    """With next to no strength EWC is plain training, BatchNorm's statistics and the order of batches included."""
    runs = []
    for strength in (0.0, 1e-30):
        method = Solo(local=Training(batch=16), retain=Retention(ewc=strength))
        federation = peers(method=method)
        models = {peer: {"model": normed} for peer in federation.models}
        runs.append(local(replace(federation, models=models)).run(3))
    assert runs[0].digest == runs[1].digest


def test_golden_packing():
    """Eight weights in a row, without gradients of their own (a rate of next to nothing): two trainings a task, and a
    half of what is free is taken. Of 8 .. 1 the first task takes 8 .. 5 and zeros the rest; what is free learns on.
    """
    models, data = {"peer": {"model": lambda: nn.Linear(8, 1, bias=False)}}, {"p0": {"train": points("packing", 4)}}
    node = Federation(Solo(), complete(["p0"]), models, data).node("p0")
    with torch.no_grad():
        node.models["model"].weight.copy_(torch.tensor([[8.0, 1, 7, 2, 6, 3, 5, 4]]))
    weight = node.models["model"].weight
    packed, free = begin_training(node, {}, 0.5, 2)
    assert free["weight"].tolist() == [[1.0] * 8]
    packed = end_training(node, packed, free)
    packed, free = begin_training(node, packed, 0.5, 2)
    assert weight.tolist() == [[8.0, 0, 7, 0, 6, 0, 5, 0]]
    assert free["weight"].tolist() == [[1.0, 0, 1, 0, 1, 0, 1, 0]]
    with torch.no_grad():
        weight += 0.5  # training moves what is free; anything else that moves is undone
    packed = end_training(node, packed, free)
    assert weight.tolist() == [[8.5, 0, 7.5, 0, 6.5, 0, 5.5, 0]]
    with torch.no_grad():
        weight.copy_(torch.tensor([[0.0, 4, 0, 3, 0, 2, 0, 1]]))  # what a mean with others may make of it
    packed, free = begin_training(node, packed, 0.5, 2)
    assert weight.tolist() == [[8.5, 4, 7.5, 3, 6.5, 2, 5.5, 1]]
    packed, free = begin_training(node, end_training(node, packed, free), 0.5, 2)
    assert weight.tolist() == [[8.5, 4, 7.5, 3, 6.5, 0, 5.5, 0]]
    packed = end_training(node, packed, free)
    assert tasks_network(packed, 1)["weight"].tolist() == [[8.5, 0, 7.5, 0, 6.5, 0, 5.5, 0]]
    assert tasks_network(packed, 2)["weight"].tolist() == [[8.5, 4, 7.5, 3, 6.5, 0, 5.5, 0]]


def test_the_network_of_a_task_is_the_same_ever_after():
    """Also with momentum, decay and a tree that mixes models. `task` trainings are one round of a leaf each."""
    method = bhfl(
        retain=Retention(packnet=0.5, task=2, ewc=1.0), local=Training(batch=16, momentum=0.9, weight_decay=0.1)
    )
    short, long = (local(hierarchy(method)).run(rounds).state("l0") for rounds in (1, 3))
    packed = [state["vars"]["retained"] for state in (short, long)]
    assert [known["tasks"] for known in packed] == [1, 3]
    assert equal(tasks_network(packed[0], 1), tasks_network(packed[1], 1))
    assert not equal(tasks_network(packed[1], 1), tasks_network(packed[1], 3))
