"""FedMRL: spliced networks, both heads' losses by loops, what it equals, and what travels of which network."""

import json
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from heterophony import Data, Federation, Model
from heterophony.base.seeds import generator
from heterophony.data.errors import DataError
from heterophony.engines import Network, local
from heterophony.kernel.topology import star
from heterophony.methods import FedMRL, FedPer
from heterophony.models import create
from heterophony.models.blocks import Halves
from heterophony.parts.cohort import Cohort
from heterophony.parts.spliced import Spliced
from heterophony.parts.training import Training
from heterophony.runs import exported
from heterophony.runs.population import population
from heterophony.settings import Setting, assemble, reassemble
from toys.by_hand import equal
from toys.bytes import formula
from toys.deployed import CASES
from toys.federations import B16, CLIENTS, spliced_star
from toys.watched import sent
from toys.world import halves, net, private, wide


def drawn(name, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator("fedmrl", name))


def model(result, node):
    return result.state(node)["models"]["model"]


def lines(width):
    """A body of so many numbers a x, and a head of two classes."""
    return Halves(nn.Linear(1, width, bias=False), width, 2).double()


def joined(small, own):
    return Spliced(lines(small), lines(own)).double()


# -- the network -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("small", "own"), [(2, 3), (3, 2), (2, 2)])
def test_a_spliced_network_by_loops(small, own):
    """The private head reads the first of what the projector gives, which is all of it where it is not the narrower."""
    network, xs = joined(small, own), drawn("x", 4, 1)
    assert network.projector.weight.shape == (max(small, own), small + own)
    for (x,), found in zip(xs.tolist(), network(xs).tolist(), strict=True):
        features = [w * x for part in (network.small, network.own) for (w,) in part.body.weight.tolist()]
        rows = zip(network.projector.weight.tolist(), network.projector.bias.tolist(), strict=True)
        fused = [b + sum(w * f for w, f in zip(row, features, strict=True)) for row, b in rows]
        head = zip(network.own.head.weight.tolist(), network.own.head.bias.tolist(), strict=True)
        expected = [b + sum(w * f for w, f in zip(row, fused[:own], strict=True)) for row, b in head]
        assert found == pytest.approx(expected)


def test_what_cannot_be_spliced_is_said_in_one_line():
    with pytest.raises(DataError, match="splicing needs networks of two parts, `body` and a linear `head`") as caught:
        Spliced(lines(2), net()())
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="inner is a weight >= 0, got -1"):
        FedMRL(inner=-1.0)


# -- limits and golden toys ------------------------------------------------------------------------------------
def test_without_the_small_heads_loss_it_is_fedper_that_shares_the_small_network():
    """Different private networks and projectors stay, the small network is averaged; the heads' names differ only."""
    found = local(spliced_star(FedMRL(local=B16, inner=0.0))).run(3)
    both = local(spliced_star(FedMRL(local=B16))).run(3)
    federation = spliced_star(FedPer(local=B16, part="small"))
    models = {
        node: {"model": replace(own["model"], share="")} for node, own in federation.models.items() if node in CLIENTS
    }
    models["server"] = {"model": lambda: Spliced(halves(8, 5)(), wide(8)())}
    other = local(replace(federation, models=models)).run(3)
    for client in CLIENTS:
        assert equal(model(found, client), model(other, client))
        assert not equal(model(both, client), model(other, client))
    small = {n.removeprefix("small."): t for n, t in model(other, "server").items() if n.startswith("small.")}
    assert equal(model(found, "server"), small)


@pytest.mark.parametrize(("small", "own"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("weighted", [True, False])
def test_golden_fedmrl_by_loops(small, own, weighted):
    """Features s = (a x, b x), fused h = P s + q; heads read the first of h. Two rounds of a full batch, with momentum.

    dL/dh_j is what each head that reads h_j sends back; P's gradient is dL/dh s', and s gets P' dL/dh.
    """
    rate, momentum, inner, labels = 0.3, 0.5, 0.7, {"c0": [0, 0, 1], "c1": [1, 0]}
    xs = {c: drawn(c, len(ys), 1) for c, ys in labels.items()}
    data = {c: {"train": Data(x=xs[c], y=torch.tensor(ys), classes=2)} for c, ys in labels.items()}
    method = FedMRL(
        inner=inner, cohort=Cohort(weighted=weighted), local=Training(batch=None, lr=rate, momentum=momentum)
    )
    models = {
        "server": {"model": lambda: lines(small)},
        "client": {"model": Model(partial(joined, small, own), "small")},
    }
    federation = Federation(method, star(list(labels)), models, data)
    state = {c: {n: p.tolist() for n, p in federation.node(c).models["model"].named_parameters()} for c in labels}
    common = {n: p.tolist() for n, p in federation.node("server").models["model"].named_parameters()}

    def push(head, bias, fused, y, weight):
        z = [b + sum(w * f for w, f in zip(row, fused, strict=False)) for row, b in zip(head, bias, strict=True)]
        return [weight * (math.exp(v) / sum(map(math.exp, z)) - (k == y)) for k, v in enumerate(z)]

    def step(c):
        own_state, n = state[c], len(labels[c])
        slope = {name: torch.zeros(torch.tensor(value).shape).tolist() for name, value in own_state.items()}
        for (x,), y in zip(xs[c].tolist(), labels[c], strict=True):
            bodies = [
                (f"{part}.body.weight", i) for part, count in (("small", small), ("own", own)) for i in range(count)
            ]
            features = [own_state[name][i][0] * x for name, i in bodies]
            rows = zip(own_state["projector.weight"], own_state["projector.bias"], strict=True)
            fused = [b + sum(w * f for w, f in zip(row, features, strict=True)) for row, b in rows]
            back = [0.0] * len(fused)
            for part, width, weight in (("small", small, inner), ("own", own, 1.0)):
                head, bias = own_state[f"{part}.head.weight"], own_state[f"{part}.head.bias"]
                for k, p in enumerate(push(head, bias, fused, y, weight / n)):
                    slope[f"{part}.head.bias"][k] += p
                    for j in range(width):
                        slope[f"{part}.head.weight"][k][j] += p * fused[j]
                        back[j] += p * head[k][j]
            for j, b in enumerate(back):
                slope["projector.bias"][j] += b
                for i, (name, place) in enumerate(bodies):
                    slope["projector.weight"][j][i] += b * features[i]
                    slope[name][place][0] += b * own_state["projector.weight"][j][i] * x
        for name, value in own_state.items():
            speed[c, name] = momentum * speed.get((c, name), 0.0) + torch.tensor(slope[name], dtype=torch.float64)
            own_state[name] = (torch.tensor(value, dtype=torch.float64) - rate * speed[c, name]).tolist()

    speed = {}
    shares = {"c0": 3 / 5, "c1": 2 / 5} if weighted else dict.fromkeys(labels, 1 / 2)
    for _ in range(2):
        for c in labels:
            state[c] |= {f"small.{name}": value for name, value in common.items()}
            step(c)
        for name in common:
            parts = [s * torch.tensor(state[c][f"small.{name}"], dtype=torch.float64) for c, s in shares.items()]
            common[name] = sum(parts).tolist()
    found = local(federation).run(2)
    for node, expected in {**state, "server": common}.items():
        for name, value in expected.items():
            assert torch.allclose(model(found, node)[name], torch.tensor(value, dtype=torch.float64), atol=1e-9), name


# -- what travels ----------------------------------------------------------------------------------------------
def test_only_the_small_network_leaves_a_client():
    federation = spliced_star(FedMRL(local=B16))
    small = federation.node("server").weights().keys()
    updates, given = (sent(federation, kind, 2) for kind in ("update", "global"))
    assert len(updates) == len(given) == 6
    assert all(m.body["weights"].keys() == small for m in updates)
    assert all(m.body["weights"].keys() == {f"small.{name}" for name in small} for m in given)


def test_participants_with_different_classes_share_the_small_body_alone():
    def network(classes, width):
        return Halves(nn.Linear(8, width), width, classes)

    models = {
        c: {"model": Model(lambda n=n: Spliced(network(n, 5), network(n, 9)), share="small.body")}
        for c, n in (("c0", 4), ("c1", 6))
    }
    models["server"] = {"model": Model(partial(network, 4, 5), share="body")}
    federation = Federation(FedMRL(local=B16), star(["c0", "c1"]), models, private(["c0", "c1"]))
    found = local(federation).run(3)
    assert not found.ledger.incidents
    assert found.ledger.bytes() == formula(federation, 3)
    started = federation.node("c1").models["model"]
    for name, tensor in model(found, "c1").items():
        assert not torch.equal(tensor, started.state_dict()[name]), name


class Liar(Network):
    """A client whose network is of another shape, or not of numbers."""

    def arrivals(self, message, *rest):
        if message.kind == "update" and message.sender == "c0":
            message.body["weights"] = {name: self.forged(t) for name, t in message.body["weights"].items()}
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


class Wider(Liar):
    def forged(self, tensor):
        return torch.ones(7, *tensor.shape)


class Endless(Liar):
    def forged(self, tensor):
        return tensor * math.nan


@pytest.mark.parametrize("liar", [Wider, Endless])
@pytest.mark.parametrize("share", [1.0, 0.34])
def test_no_liar_ends_a_run_not_even_alone_in_its_cohort(liar, share):
    found = local(spliced_star(FedMRL(local=B16, cohort=Cohort(fraction=share))), network=liar).run(8)
    assert found.rounds == 8
    assert {row["incident"] for row in found.ledger.incidents} <= {"refused", "skipped"}
    assert any(row["incident"] == "refused" for row in found.ledger.incidents)
    assert all(torch.isfinite(t).all() for node in ("server", *CLIENTS) for t in model(found, node).values())


# -- from names ------------------------------------------------------------------------------------------------
def mixed(**changes):
    few = {"data.rotations": [0, 20], "models.participants": ["mlp", "wrn-10-1"], "models.global": "cnn1-3x3"}
    return Setting.load("rotated-mnist-mixed").changed({**few, **changes})


def spliced(small, own):
    """What a run folder and an exported model say of such a network."""
    return {"make": "heterophony.parts.spliced:Spliced", "of": {"small": small, "own": own}}


@pytest.mark.parametrize(
    ("share", "parts"), [("", {"body", "head"}), ("body", {"body"}), (("body", "head"), {"body", "head"})]
)
def test_a_setting_splices_its_global_network_with_each_participants_own(share, parts):
    federation = assemble("fedmrl", mixed(**{"models.share": share}))
    assert federation.recipe["networks"] == {
        "server": {"model": "cnn1-3x3"},
        "M0": {"model": spliced("cnn1-3x3", "mlp")},
        "M20": {"model": spliced("cnn1-3x3", "wrn-10-1")},
    }
    common = federation.node("server").weights()
    assert {name.partition(".")[0] for name in common} == parts
    for node in ("M0", "M20"):
        assert federation.node(node).weights().keys() == {f"small.{name}" for name in common}
    assert reassemble(json.loads(json.dumps(federation.recipe))).identity() == federation.identity()


def test_a_spliced_network_is_exported_whole(tmp_path):
    federation = assemble("fedmrl", mixed())
    federation.run(1, tmp_path / "run")
    exported.save(tmp_path / "run", "M20", tmp_path / "model")
    module, about = exported.load(tmp_path / "model")
    assert about["network"]["name"] == spliced("cnn1-3x3", "wrn-10-1")
    assert isinstance(module, Spliced)
    assert module(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert population(federation)["M20"]["network"] == "Spliced(cnn1-3x3, wrn-10-1)"


def test_organisations_splice_the_common_network_with_their_own():
    shape = {"in_channels": 1, "size": 28, "classes": 10}
    common = {"call": "heterophony.models:create", "arguments": {"name": "lenet5", **shape}}
    plan = CASES["fml"].plan(method="fedmrl", options={}, networks={"common": common, "share": "body"})
    method = plan.build_method()
    own = plan.slots(method, "client", Model(partial(create, "mlp", **shape)))["model"]
    server = plan.slots(method, "server", None)["model"]
    assert (own.share, server.share) == (("small.body",), "body")
    made, other = own.build(), server.build()
    assert made.small.state_dict().keys() == other.state_dict().keys()
    assert made(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    with pytest.raises(ValueError, match="client needs a network of a participant, which is not told"):
        plan.slots(method, "client", None)
