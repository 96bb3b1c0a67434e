"""FedMatch: FedAvg is its limit, its loss by loops, which half moves, who helps whom, and what helpers cost."""

import math

import pytest
import torch

from heterophony import Data
from heterophony.base.seeds import generator
from heterophony.compute.eager import predict
from heterophony.data.augment import CropFlip
from heterophony.engines import Network, local
from heterophony.kernel.fields import family
from heterophony.methods import FedAvg, FedMatch
from heterophony.parts.cohort import Cohort
from heterophony.parts.consistency import InterClientConsistency, nearest
from heterophony.parts.public import PublicRows
from heterophony.parts.training import Training
from heterophony.parts.transforms import Sparse
from heterophony.settings import SettingError, assemble
from toys.bytes import formula
from toys.federations import B16, CLIENTS, GENTLE, matched, weights_star
from toys.world import PUBLIC, certain


def models_sent(federation, rounds):
    """By kind, sender, recipient and round, what was in a message."""
    said = {}

    class Heard(Network):
        def arrivals(self, message, *rest):
            said[message.kind, message.sender, message.receiver, message.round] = message.body
            return super().arrivals(message, *rest)

    return local(federation, network=Heard).run(rounds), said


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("weighted", [True, False])
def test_without_unlabelled_rows_it_is_fedavg(weighted):
    """psi begins as zero and nothing moves it: sigma is all there is, to the bit, BatchNorm's statistics too."""
    options = {"local": B16, "cohort": Cohort(weighted=weighted)}
    still = Training(epochs=0)
    ours = local(matched(FedMatch(distil=still, begin=0.0, **options), certain)).run(3)
    theirs = local(weights_star(FedAvg(**options), certain)).run(3)
    assert same(ours.state("server")["models"]["model"], theirs.state("server")["models"]["model"])
    divided = local(matched(FedMatch(distil=still, **options), certain)).run(3)
    for name, tensor in theirs.state("server")["models"]["model"].items():
        found = divided.state("server")["models"]["model"][name]
        assert torch.allclose(found.float(), tensor.float(), atol=1e-5)  # dividing the start changes only rounding


def softmax(row):
    parts = [math.exp(value) for value in row]
    return [part / sum(parts) for part in parts]


def test_the_loss_by_loops():
    """Two helpers, five rows of which two are not sure enough; the own network says something else of changed rows."""
    draw = generator("fedmatch loss")
    own, first, second, changed = (2 * torch.randn(5, 3, generator=draw, dtype=torch.float64) for _ in range(4))
    own[1], own[3] = torch.tensor([0.1, 0.0, 0.0]), torch.tensor([0.0, 0.2, 0.1])
    own[0], first[0], second[0] = torch.eye(3, dtype=torch.float64) * 5  # three votes for three classes: the first
    own[2], first[2], second[2] = (torch.tensor(v).double() for v in ([5.0, 0, 0], [0, 0, 5.0], [0, 0, 5.0]))  # 2 to 1
    own[4] = torch.tensor([0.0, 0.0, 4.0])
    answers = iter((own, changed))
    nets = {"model": lambda x: next(answers), "helper-0": lambda x: first, "helper-1": lambda x: second}
    loss = InterClientConsistency(("helper-0", "helper-1"), 0.75, 0.5, 0.25, None)(nets, Data(x=torch.zeros(5, 1)))[
        "model"
    ]
    consistency = agreement = 0.0
    for i in (0, 2, 4):
        p = softmax(own[i].tolist())
        assert max(p) >= 0.75
        votes = [0, 0, 0]
        for q in (p, softmax(first[i].tolist()), softmax(second[i].tolist())):
            votes[q.index(max(q))] += 1
            consistency += sum(b * math.log(b / a) for a, b in zip(p, q, strict=True)) / 2 / 3
        agreement -= math.log(softmax(changed[i].tolist())[votes.index(max(votes))]) / 3
    assert float(loss["consistency"]) == pytest.approx(0.5 * consistency, rel=1e-10)
    assert float(loss["agreement"]) == pytest.approx(0.25 * agreement, rel=1e-10)


def test_rows_that_nobody_is_sure_of_teach_nothing():
    flat = torch.zeros(4, 3, requires_grad=True)
    loss = InterClientConsistency((), 0.75, 1.0, 1.0, None)({"model": lambda x: flat}, Data(x=torch.zeros(4, 1)))[
        "model"
    ]
    assert set(loss) == {"agreement"}
    loss["agreement"].backward()
    assert not flat.grad.any()


def test_the_changed_rows_are_cropped_by_their_own_draw():
    crop, x = CropFlip(2, False), torch.rand(3, 1, 4, 4)
    params, asked = crop.draw(3, generator("crop")), []
    net = lambda x: asked.append(x) or torch.zeros(3, 2)  # noqa: E731
    InterClientConsistency((), 0.0, 1.0, 1.0, crop)({"model": net}, Data(x=x, crop=params))
    assert torch.equal(asked[0], x)
    assert torch.equal(asked[1], crop.apply(x, params))
    assert not torch.equal(asked[1], x)


def test_options_reach_the_unlabelled_phase():
    """Images are cropped, each by a draw of its own; points are taken as they are."""
    weights = {"confidence": 0.3, "consistency": 0.5, "agreement": 0.25, "l1": 0.1, "l2": 0.2}
    method = FedMatch(crop=2, flip=True, rows=PublicRows(sample=5), distil=GENTLE, **weights)
    client = matched(method).node("c0")
    order = next(method.match(client, client.weights(), ("helper-0",)))
    assert order.loss == InterClientConsistency(("helper-0",), 0.3, 0.5, 0.25, None)
    assert order.transform == Sparse(0.1, 0.2)
    assert order.teachers == ("helper-0",)
    assert (order.data, len(order.rows), order.extra) == ("public", 5, {})
    client.data["public"] = Data(x=torch.zeros(9, 1, 4, 4), classes=4)
    order = next(method.match(client, client.weights(), ()))
    assert order.loss.crop == CropFlip(2, True)
    assert len(order.extra["crop"].unique(dim=0)) > 1
    assert len(order.extra["crop"]) == 5


def test_the_pull_on_psi_by_hand():
    """sigma 1 and psi 2 - 1 = 1, -3 - 1 = -4: gradients 0 + 0.5 sign(psi) + 2 x 0.25 (psi - sigma)."""
    found = Sparse(0.5, 0.25)(
        {"w": torch.zeros(2), "private": torch.ones(1)},
        {"w": torch.tensor([2.0, -3.0]), "private": torch.ones(1)},
        sigma={"w": torch.ones(2)},
    )
    assert found["w"].tolist() == [0.5 + 0.0, -0.5 - 2.5]
    assert found["private"].tolist() == [1.0]


def test_labelled_rows_move_sigma_and_unlabelled_rows_psi():
    """Without labelled steps sigma stays; without unlabelled ones psi does. Together they are the network."""
    still = Training(epochs=0)
    for local_, distil, moved in ((B16, still, "sigma"), (still, GENTLE, "psi")):
        result, said = models_sent(matched(FedMatch(local=local_, distil=distil, confidence=0.3)), 1)
        down, up = said["model", "server", "c0", 0], said["update", "c0", "server", 0]
        other = {"sigma": "psi", "psi": "sigma"}[moved]
        assert all(torch.allclose(up[other][n], down[other][n], atol=1e-6) for n in down[other])
        assert not any(torch.allclose(up[moved][n], down[moved][n], atol=1e-6) for n in down[moved])
        begin = down["psi"]["0.weight"] / down["sigma"]["0.weight"]
        assert torch.allclose(begin, torch.full_like(begin, 0.2), atol=1e-4)
        model = result.state("server")["models"]["model"]
        sigma, psi = (result.state("server")["vars"][half] for half in ("sigma", "psi"))
        assert same(model, {name: sigma[name] + psi[name] for name in sigma})


def test_who_helps_whom_by_hand():
    """On a line at 0, 1, 3 and 3.5; what is no number is the farthest; one who has not been heard gets nobody."""
    places = {"a": 0.0, "b": 1.0, "c": 3.0, "d": 3.5, "e": math.nan}
    known = {name: ({}, torch.tensor([place])) for name, place in places.items()}
    assert nearest(known, "a", 2) == ["b", "c"]
    assert nearest(known, "c", 2) == ["d", "b"]
    assert nearest(known, "b", 9) == ["a", "c", "d", "e"]
    assert nearest(known, "new", 2) == []
    assert nearest({"a": known["a"]}, "a", 2) == []


def test_helpers_are_what_the_nearest_have_sent_and_come_when_they_are_due():
    method = FedMatch(local=B16, distil=GENTLE, helpers=1, every=2, probe=8)
    federation = matched(method)
    _, said = models_sent(federation, 4)
    assert [len(said["model", "server", "c0", r]["helpers"]) > 0 for r in range(4)] == [False, False, True, False]
    answers, net = {}, federation.node("server").models["model"]
    for client in CLIENTS:
        update = said["update", client, "server", 1]
        net.load_state_dict({name: update["sigma"][name] + update["psi"][name] for name in update["psi"]})
        answers[client] = predict(net, PUBLIC, torch.arange(8)).softmax(-1)
    for client in CLIENTS:
        others = {c: float((answers[c] - answers[client]).norm()) for c in CLIENTS if c != client}
        wanted = said["update", min(others, key=others.get), "server", 1]["psi"]
        assert same(said["model", "server", client, 2]["helpers"], family([wanted]))


def test_no_helpers_are_helpers_that_never_come():
    options = {"local": B16, "distil": GENTLE, "confidence": 0.3}
    none, never, always = (
        local(matched(FedMatch(**options, **more))).run(3).state("server")["models"]["model"]
        for more in ({"helpers": 0}, {"every": 9}, {})
    )
    assert same(none, never)
    assert not same(none, always)


def test_traffic_counts_helpers():
    """Three clients, three rounds: nobody helps in the first, each gets two in the others; models are two halves."""
    federation = matched(FedMatch(local=B16, distil=GENTLE))
    size = federation.first("server").payload()
    expected = {"model": (3 * 3 * 2 + 2 * 3 * 2) * size, "update": 3 * 3 * (2 * size + 8)}
    assert formula(federation, 3) == expected


def test_misfits_are_refused():
    for bad in ({"helpers": -1}, {"l2": math.nan}, {"begin": -0.1}, {"crop": -1}):
        with pytest.raises(ValueError, match="are at least 0"):
            FedMatch(**bad)
    for bad in ({"every": 0}, {"probe": 0}):
        with pytest.raises(ValueError, match="every and probe are numbers >= 1"):
            FedMatch(**bad)
    with pytest.raises(SettingError, match="fedmatch averages parameters, so that all must have the same network"):
        assemble("fedmatch", "rotated-mnist-mixed")
