"""FedKD: factors of matrices, what is refused of them, its losses by loops, its limits, and who is sent what."""

import math
from dataclasses import replace

import pytest
import torch

from heterophony import Data, Dropout, Federation, Kind, Model, Refused
from heterophony.base.seeds import generator
from heterophony.engines import Network, local
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.fields import LowRank, Shape
from heterophony.kernel.message import Body
from heterophony.kernel.topology import complete, star
from heterophony.methods import FedAvg, FedKD, Solo
from heterophony.methods.fedkd import LEAST
from heterophony.parts.aggregate import mean
from heterophony.parts.cohort import Cohort
from heterophony.parts.lowrank import compressed, restored
from heterophony.parts.schedules import Ramp, at
from heterophony.parts.training import Training
from toys.by_hand import equal
from toys.bytes import formula
from toys.federations import B16, CLIENTS, mentored_star
from toys.watched import sent
from toys.world import TESTS, halves, net, private, wide

MOMENTUM = Training(batch=16, momentum=0.9)


def drawn(name, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator("fedkd", name))


def model(result, node, slot="model"):
    return result.state(node)["models"][slot]


# -- factors ---------------------------------------------------------------------------------------------------
def test_golden_factors_of_a_diagonal_matrix():
    """Singular values 4, 2, 1 have energies 16, 4, 1 of 21; a rank takes 12 numbers each, so three would not be fewer
    than the 36 of the matrix."""
    matrix = torch.diag(torch.tensor([1.0, 0.0, 4.0, 0.0, 2.0, 0.0]))
    for energy, kept in ((16 / 21 - 0.01, [4.0]), (16 / 21 + 0.01, [4.0, 2.0]), (20 / 21 - 0.01, [4.0, 2.0])):
        found = compressed({"w": matrix}, energy)
        assert found["w/left"].shape == (6, len(kept))
        assert found["w/right"].shape == (len(kept), 6)
        expected = torch.diag(torch.tensor([v if v in kept else 0.0 for v in matrix.diag().tolist()]))
        assert torch.equal(restored(found, {"w": matrix})["w"], expected)
    assert compressed({"w": matrix}, 20 / 21 + 0.01)["w"] is matrix
    assert compressed({"w": matrix}, 1.0)["w"] is matrix


def test_what_is_kept_has_its_share_of_the_energy_and_one_value_less_would_not():
    tensors = {"dense": drawn("dense", 20, 30), "kernel": drawn("kernel", 12, 4, 3, 3), "bias": drawn("bias", 20)}
    for energy in (0.3, 0.6, 0.8):
        found = compressed(tensors, energy)
        assert found["bias"] is tensors["bias"]
        again = restored(found, tensors)
        for name in ("dense", "kernel"):
            rank, matrix = found[f"{name}/left"].shape[1], tensors[name].flatten(1)
            assert again[name].shape == tensors[name].shape
            total = float(matrix.square().sum())
            assert float((again[name] - tensors[name]).square().sum()) <= (1 - energy) * total + 1e-9
            squares = torch.linalg.svdvals(matrix).square()
            assert float(squares[: rank - 1].sum()) < energy * total


WANTED = {"w": ((6, 2, 2), torch.float32), "b": ((6,), torch.float32)}
GOOD = {"w/left": torch.ones(6, 1), "w/right": torch.ones(1, 4), "b": torch.ones(6)}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"w/left": torch.ones(6, 2), "w/right": torch.ones(2, 4)}, ""),
        ({"w/left": torch.zeros(6, 0), "w/right": torch.zeros(0, 4)}, ""),
        ({"w/left": torch.ones(6, 3), "w/right": torch.ones(3, 4)}, "w has 24 entries, its factors must have fewer"),
        ({"w": torch.ones(6, 2, 2)}, "w has 24 entries, its factors must have fewer and come alone"),
        ({"w/right": None}, r"w comes in \[\(6, 1\)\], which are no factors"),
        ({"w/left": None}, r"w comes in \[\(1, 4\)\], which are no factors"),
        ({"w/left": torch.ones(5, 1)}, "which are no factors of"),
        ({"w/left": torch.ones(6, 2)}, "which are no factors of"),
        ({"w/right": torch.ones(1, 2, 2)}, "which are no factors of"),
        ({"w/left": torch.ones(6, 1).double()}, "which are no factors of"),
        ({"b": None, "b/left": torch.ones(6, 1), "b/right": torch.ones(1, 1)}, "which are no factors of"),
        ({"v/left": torch.ones(6, 1), "v/right": torch.ones(1, 4)}, "names do not match"),
        ({"w/left": torch.full((6, 1), math.nan)}, "w/left: holds values that are not finite"),
        ({"w/left": torch.full((6, 1), 1e10), "w/right": torch.full((1, 4), 1e10)}, "product of its factors may be"),
        ({"w/left": 1.0}, "expected a float tensor"),
    ],
)
def test_bad_factors_are_refused(changes, text):
    kind, value = Kind("update", to="parent", update=LowRank("model")), {**GOOD, **changes}
    body = Body({"update": {name: tensor for name, tensor in value.items() if tensor is not None}})
    if not text:
        kind.check(body, Shape({"model": WANTED}))
        return
    with pytest.raises(Refused, match=text):
        kind.check(body, Shape({"model": WANTED}))


# -- losses ----------------------------------------------------------------------------------------------------
def nets(wide, narrow):
    """Two networks with these features, whatever they are asked."""
    heads = {"model": drawn("head", 4, wide.shape[1]), "mentee": drawn("small head", 4, narrow.shape[1])}
    return {
        "model.body": lambda _: wide,
        "mentee.body": lambda _: narrow,
        "model.head": lambda h: h @ heads["model"].T,
        "mentee.head": lambda h: h @ heads["mentee"].T,
    }


def test_both_losses_by_loops_and_the_other_model_and_the_divisor_are_constants():
    labels = [2, 0, 3, 1, 1]
    wide, narrow = drawn("wide", 5, 6).requires_grad_(), drawn("narrow", 5, 3).requires_grad_()
    batch = Data(x=torch.zeros(5, 1), y=torch.tensor(labels), classes=4)
    asked = nets(wide, narrow)
    terms = FedKD(distil=0.7, hidden=1.3).mutual(asked, batch)
    values = {own: {name: term.item() for name, term in found.items()} for own, found in terms.items()}

    logits = {n: asked[f"{n}.head"](h).tolist() for n, h in (("model", wide), ("mentee", narrow))}
    p = {n: [[math.exp(v) / sum(map(math.exp, row)) for v in row] for row in own] for n, own in logits.items()}
    task = {n: -sum(math.log(row[y]) for row, y in zip(own, labels, strict=True)) / 5 for n, own in p.items()}
    trust = 1 / (task["model"] + task["mentee"])
    grouped = [[(row[0] + row[1]) / 2, (row[2] + row[3]) / 2, (row[4] + row[5]) / 2] for row in wide.tolist()]
    pairs = [(a, b) for one, two in zip(grouped, narrow.tolist(), strict=True) for a, b in zip(one, two, strict=True)]
    apart = sum((a - b) ** 2 for a, b in pairs) / 15
    for own, other in (("model", "mentee"), ("mentee", "model")):
        kl = sum(b * math.log(b / a) for q, r in zip(p[own], p[other], strict=True) for a, b in zip(q, r, strict=True))
        assert values[own]["ce"] == pytest.approx(task[own])
        assert values[own]["kl"] == pytest.approx(0.7 * trust * kl / 5 / 4)
        assert values[own]["hidden"] == pytest.approx(1.3 * trust * apart)

    # d/dh of the hidden term alone is 2 (mean - other) / 15 times the weight, half of it for each of two neighbours
    slope = torch.autograd.grad(terms["model"]["hidden"], wide, retain_graph=True)[0]
    expected = [[1.3 * trust * (a - b) / 15 for a, b in zip(g, h, strict=True) for _ in range(2)]
                for g, h in zip(grouped, narrow.tolist(), strict=True)]  # fmt: skip
    assert torch.allclose(slope, torch.tensor(expected, dtype=torch.float64))
    for term in terms["model"].values():
        assert torch.autograd.grad(term, narrow, retain_graph=True, allow_unused=True) == (None,)
    for term in terms["mentee"].values():
        assert torch.autograd.grad(term, wide, retain_graph=True, allow_unused=True) == (None,)


def test_the_divisor_has_a_floor_where_both_models_are_sure():
    sure = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    asked = {"model.body": lambda _: sure, "mentee.body": lambda _: sure + 1, "model.head": lambda h: h}
    batch = Data(x=sure, y=torch.tensor([0, 1]), classes=2)
    terms = FedKD().mutual({**asked, "mentee.head": lambda h: h}, batch)
    assert float(terms["model"]["hidden"]) == pytest.approx(1 / LEAST)


# -- limits ----------------------------------------------------------------------------------------------------
def test_without_distillation_mentors_are_solo_and_the_mentee_is_fedavgs():
    """The mentors to the bit; the mentee moves by the mean of differences, which rounds otherwise than their mean."""
    method = FedKD(local=MOMENTUM, distil=0.0, hidden=0.0, energy=1.0)
    found = local(mentored_star(method, net)).run(3)
    models = {c: {"model": net(h)} for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    alone = local(Federation(Solo(local=MOMENTUM), complete(CLIENTS), models, private(CLIENTS), TESTS)).run(3)
    small = {"server": {"model": net(6)}, "client": {"model": net(6)}}
    avg = Federation(FedAvg(local=MOMENTUM, cohort=Cohort(weighted=False)), star(CLIENTS), small, private(CLIENTS))
    average = model(local(avg).run(3), "server")
    for client in CLIENTS:
        assert equal(model(found, client), model(alone, client))
    figures = [
        [row["sum"] for row in run.table.select(product=p)] for run, p in ((found, "personalised"), (alone, "local"))
    ]
    assert figures[0] == figures[1]
    assert len(figures[0]) >= 9
    for name, tensor in model(found, "server").items():
        assert torch.allclose(tensor, average[name], atol=1e-6)


@pytest.mark.parametrize(("option", "build"), [("distil", net), ("hidden", wide)])
def test_each_loss_teaches_both(option, build):
    method = FedKD(local=B16, energy=1.0, **{"distil": 0.0, "hidden": 0.0, option: 1.0})
    taught, alone = (local(mentored_star(m, build)).run(1) for m in (method, replace(method, **{option: 0.0})))
    for client in CLIENTS:
        assert not equal(model(taught, client), model(alone, client))
    assert not equal(model(taught, "server"), model(alone, "server"))


def test_epochs_before_the_first_round_are_the_mentors():
    """Where nobody teaches, they come before the round's own, and the mentee has no part in them."""
    quiet = FedKD(local=B16, distil=0.0, hidden=0.0, energy=1.0)
    began, longer, plain = (
        local(mentored_star(method, net)).run(1)
        for method in (
            replace(quiet, local=replace(B16, initial=2)),
            replace(quiet, local=replace(B16, epochs=3)),
            quiet,
        )
    )
    for client in CLIENTS:
        assert equal(model(began, client), model(longer, client))
    assert began.table.select(product="global").rows
    assert not equal(model(began, "server"), model(plain, "server"))  # its batches come in a later order
    assert not equal(model(began, "server"), model(longer, "server"))


@pytest.mark.parametrize("share", ["", "body"])
def test_a_server_with_a_part_of_the_mentee_has_nothing_to_evaluate(share):
    made, mentee = mentored_star(FedKD(local=B16)), Model(halves(8, 5), share=share)
    models = {c: {"model": own["model"], "mentee": mentee} for c, own in made.models.items() if c != "server"}
    found = local(replace(made, models={**models, "server": {"model": mentee}})).run(2)
    assert bool(found.table.select(product="global").rows) is (not share)
    assert not found.ledger.incidents


# -- what travels ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
def test_whoever_follows_stands_where_the_server_stands(seed):
    """Steps reach only those who have the mentee that they begin from, whoever drops out or is not asked."""
    method = FedKD(local=B16, energy=0.7, cohort=Cohort(fraction=0.67))
    result = local(mentored_star(method, dropout=Dropout(rate=0.3), seed=seed)).run(6)
    kept = result.state("server")["vars"]
    assert {r["kind"] for r in result.ledger.messages} == {"global", "step", "update"}
    for client in kept["heard"]:
        mentee = model(result, client, "mentee")
        for name, step in restored(kept["step"], mentee).items():
            assert torch.allclose(mentee[name] + step, model(result, "server")[name], rtol=1e-4, atol=1e-6)


def test_after_a_skipped_round_all_get_the_whole():
    """The last step has been taken by then, and another one there is not."""
    seen = []

    class Watched(Network):
        def arrivals(self, message, *rest):
            seen.extend([message] if message.kind in ("global", "step") else [])
            return super().arrivals(message, *rest)

    method = FedKD(local=B16, energy=0.7, cohort=Cohort(quorum=3))
    found = local(mentored_star(method, dropout=Dropout(rate=0.2)), network=Watched).run(10)
    skipped = {row["round"] for row in found.ledger.messages if row["status"] == "dropped"}  # the quorum is everyone
    kinds = {done: {m.kind for m in seen if (m.round - 1 in skipped) is done and m.round} for done in (True, False)}
    assert kinds == {True: {"global"}, False: {"step"}}


def test_a_step_is_the_compressed_mean_of_the_last_rounds_changes():
    """Compressed by that round's share, the server's as the clients'."""
    energy = Ramp(0.5, 0.9, 1)
    made = lambda: mentored_star(FedKD(local=B16, energy=energy))  # noqa: E731
    like, updates = made().node("server").weights(), sent(made(), "update", 3)
    steps = {m.round: m.update for m in sent(made(), "step", 3)}
    assert sorted(steps) == [1, 2]
    for round, step in steps.items():
        changes = [restored(m.update, like) for m in updates if m.round == round - 1]
        expected = compressed(mean(changes), at(energy, round - 1))
        assert equal(step, expected)
        assert any(name.endswith("/left") for name in step)


def test_bytes_are_those_of_the_factors_and_grow_with_the_energy():
    def cost(energy):
        federation = mentored_star(FedKD(local=B16, energy=energy))
        numbers = sum(t.numel() for m in sent(federation, "update", 2) for t in m.body["update"].values())
        assert local(federation).run(2).ledger.bytes()["update"] == 4 * numbers
        return numbers

    most = formula(mentored_star(FedKD(local=B16)), 2)["update"] // 4
    assert cost(0.5) < cost(0.8) < cost(0.999) <= most == cost(1.0)
    assert cost(0.5) < cost(Ramp(0.5, 0.9, 1)) < cost(0.9)  # the second round has the higher share


# -- bad answers -----------------------------------------------------------------------------------------------
class Liar(Network):
    """A client whose updates are as large as a float can be, or as factors whose product is larger still."""

    def arrivals(self, message, *rest):
        if message.kind == "update" and message.sender == "c0":
            huge = {name: torch.full_like(t, self.size) for name, t in message.body["update"].items()}
            message.body["update"] = huge
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


class Huge(Liar):
    size = 3e38


class Endless(Liar):
    size = 1e20


@pytest.mark.parametrize(("liar", "energy"), [(Huge, 1.0), (Endless, 0.6)])
@pytest.mark.parametrize("share", [1.0, 0.34])
def test_no_liar_ends_a_run_not_even_alone_in_its_cohort(liar, energy, share):
    """Factors whose product is no number are refused; what can only be added once is not added twice."""
    federation = mentored_star(FedKD(local=B16, energy=energy, cohort=Cohort(fraction=share), hidden=0.0))
    found = local(federation, network=liar).run(8)
    assert found.rounds == 8
    assert all(torch.isfinite(t).all() for t in model(found, "server").values())


def test_a_client_that_diverges_is_refused_and_the_others_go_on():
    federation = mentored_star(FedKD(local=B16, energy=0.6))
    bad = federation.data["c1"]["train"]
    data = {**federation.data, "c1": {"train": Data(x=bad.x * math.nan, y=bad.y, classes=4)}}
    found = local(replace(federation, data=data, tests={})).run(3)
    assert [r["incident"] for r in found.ledger.incidents] == ["refused"] * 3
    assert all(torch.isfinite(t).all() for t in model(found, "server").values())


def test_what_fedkd_needs_is_said_in_one_line():
    with pytest.raises(ReactionError, match="FedKD needs networks of two parts, `body` and a linear `head`") as caught:
        local(mentored_star(FedKD(local=B16), net)).run(1)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="distil and hidden are weights >= 0, got -1"):
        FedKD(distil=-1.0)
    with pytest.raises(ValueError, match=r"energy is a share in \(0, 1\]"):
        FedKD(energy=Ramp(0.9, 1.1, 5))
