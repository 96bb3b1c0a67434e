"""Methods that exchange softmax outputs on public rows: limits, golden toys by loops, and bad answers."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import Data, Federation
from heterophony.base.seeds import generator
from heterophony.data.stream import Drift, Stream
from heterophony.engines import Network, local
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.topology import complete, star
from heterophony.methods import DSFL, Cronus, FedMD, KTpFL, Solo
from heterophony.methods.kt_pfl import divergence_slope
from heterophony.parts.aggregate import average
from heterophony.parts.cohort import Cohort
from heterophony.parts.combine import Combine
from heterophony.parts.losses import soft_ce
from heterophony.parts.public import PublicRows
from heterophony.parts.robust import filtered
from heterophony.parts.training import Training
from toys.by_hand import equal
from toys.federations import B16, CLIENTS, logits_star
from toys.watched import sent
from toys.world import PUBLIC, TESTS, joined, net, private

STILL = Training(epochs=0)
RATE = 0.5
STEP = Training(batch=None, lr=RATE)  # one full batch
LABELS = {"c0": [0, 1, 0], "c1": [1, 2]}


def drawn(name, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator("soft labels", name))


def model(result, node):
    return result.state(node)["models"]["model"]


def alone(method, **options):
    """A star of one client."""
    models = {"c0": {"model": net(8)}, "server": {"model": net(10)}}
    data = {**private(["c0"]), "server": {"public": PUBLIC}}
    return Federation(method, star(["c0"]), models, data, TESTS, **options)


def solo(local_training=B16):
    models = {c: {"model": net(h)} for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    return local(Federation(Solo(local=local_training), complete(CLIENTS), models, private(CLIENTS))).run(3)


# -- a world that can be computed by hand: linear networks of two inputs and three outputs, in float64 -----------
def linear():
    return nn.Linear(2, 3, bias=False).double()


class Hand:
    """The same federation by plain loops: weights as lists, softmax and gradients written out."""

    def __init__(self, method, server=True):
        self.x = {c: drawn(c, len(own), 2) for c, own in LABELS.items()}
        self.public = drawn("public", 4, 2)
        shared = {"public": Data(x=self.public, classes=3)}
        data = {c: {"train": Data(x=self.x[c], y=torch.tensor(own), classes=3), **shared} for c, own in LABELS.items()}
        for c in LABELS:
            data[c]["all"] = Data(x=torch.cat([self.x[c], self.public]), classes=3)
        models = {node: {"model": linear} for node in (*LABELS, *(["server"] if server else []))}
        self.federation = Federation(method, star(list(LABELS)), models, {**data, "server": shared})
        self.weights = {n: self.federation.node(n).models["model"].weight.tolist() for n in models}

    def outputs(self, node, x, temperature=1.0):
        z = [math.exp(sum(w * v for w, v in zip(row, x, strict=True)) / temperature) for row in self.weights[node]]
        return [value / sum(z) for value in z]

    def predictions(self, node, temperature=1.0):
        return [self.outputs(node, x, temperature) for x in self.public.tolist()]

    def step(self, node, xs, targets, temperature=1.0):
        """One step down the mean cross-entropy with these targets: (p - t) x^T / temperature, mean over rows."""
        slope = [[0.0] * 2 for _ in range(3)]
        for x, target in zip(xs, targets, strict=True):
            p = self.outputs(node, x, temperature)
            for k in range(3):
                for i in range(2):
                    slope[k][i] += (p[k] - target[k]) * x[i] / temperature / len(xs)
        rows = zip(self.weights[node], slope, strict=True)
        self.weights[node] = [[w - RATE * g for w, g in zip(*both, strict=True)] for both in rows]

    def private(self, c):
        return self.x[c].tolist(), [[float(k == y) for k in range(3)] for y in LABELS[c]]

    def check(self, rounds):
        found = local(self.federation).run(rounds)
        for node, expected in self.weights.items():  # what travels is float32
            weight = model(found, node)["weight"]
            assert torch.allclose(weight, torch.tensor(expected, dtype=torch.float64), atol=1e-6), node
        return found


def test_cross_entropy_with_probabilities_by_loops():
    target, z = drawn("t", 5, 3).softmax(-1).requires_grad_(), drawn("z", 5, 3).requires_grad_()
    total = 0.0
    for t, row in zip(target.tolist(), z.tolist(), strict=True):
        total -= sum(p * (v - math.log(sum(map(math.exp, row)))) for p, v in zip(t, row, strict=True))
    loss = soft_ce(target, z)
    assert loss.item() == pytest.approx(total / 5, rel=1e-12)
    loss.backward()
    assert target.grad is None


# -- DS-FL -----------------------------------------------------------------------------------------------------
def test_ds_fl_that_does_not_distil_is_solo():
    quiet = local(logits_star(DSFL(local=B16, distil=STILL))).run(3)
    taught = local(logits_star(DSFL(local=B16, distil=B16))).run(3)
    for client in CLIENTS:
        assert equal(model(quiet, client), model(solo(), client))
        assert not equal(model(taught, client), model(quiet, client))


def test_ds_fl_of_one_is_fedmd_with_its_order_turned_round():
    """Update and distil, again and again, is FedMD after one update, looked at between its two steps, to the bit."""
    one = local(alone(DSFL(aggregation="sa", local=B16, distil=B16))).run(3).table
    other = local(alone(FedMD(measure="ce", local=replace(B16, initial=1), distil=B16))).run(3).table
    found, expected = ([row["sum"] for row in table.select(product="distilled")] for table in (one, other))
    assert len(found) >= 6
    assert found == expected


@pytest.mark.parametrize("aggregation", ["era", "sa"])
def test_golden_ds_fl_by_loops(aggregation):
    """Two clients, two rounds: a step on private rows, the mean of softmax outputs, softmax(mean / 0.1), a step."""
    hand = Hand(DSFL(aggregation=aggregation, local=STEP, distil=STEP))
    for _ in range(2):
        for c in LABELS:
            hand.step(c, *hand.private(c))
        both = zip(*(hand.predictions(c) for c in LABELS), strict=True)
        labels = [[(a + b) / 2 for a, b in zip(*rows, strict=True)] for rows in both]
        if aggregation == "era":
            sharp = [[math.exp(10 * v) for v in row] for row in labels]
            labels = [[v / sum(row) for v in row] for row in sharp]
        for node in (*LABELS, "server"):
            hand.step(node, hand.public.tolist(), labels)
    hand.check(2)


def test_era_sharpens_below_a_temperature_of_its_own_and_keeps_the_order():
    mean = sent(logits_star(DSFL(aggregation="sa", local=B16, distil=B16)), "labels", 1)[0].body["probabilities"]
    spread = {}
    for temperature in (0.1, 10.0):
        method = DSFL(temperature=temperature, local=B16, distil=B16)
        labels = sent(logits_star(method), "labels", 1)[0].body["probabilities"]
        assert torch.equal(labels.argsort(-1), mean.argsort(-1))
        spread[temperature] = float(-(labels * labels.log()).sum())
    assert spread[0.1] < float(-(mean * mean.log()).sum()) < spread[10.0]


def test_the_servers_own_network_is_an_option_that_changes_nothing_for_the_clients():
    having, none = (local(logits_star(DSFL(local=B16, distil=B16, global_model=on))).run(2) for on in (True, False))
    assert having.table.select(product="global").rows
    assert not none.table.select(product="global").rows
    for client in CLIENTS:
        assert equal(model(having, client), model(none, client))


@pytest.mark.parametrize("method", [DSFL, KTpFL])
def test_epochs_before_the_first_round_come_first(method):
    began = local(logits_star(method(local=replace(B16, initial=2), distil=STILL))).run(1)
    longer = local(logits_star(method(local=Training(batch=16, epochs=3), distil=STILL))).run(1)
    assert all(equal(model(began, c), model(longer, c)) for c in CLIENTS)


@pytest.mark.parametrize("method", [DSFL, KTpFL, Cronus])
def test_public_rows_that_are_drawn_once_are_a_smaller_set(method):
    """To the bit, in predictions and in training; others are drawn in each round unless asked for once."""
    options = {"local": B16, **({} if method is Cronus else {"distil": B16})}
    made = logits_star(method(**options))
    few = PUBLIC.take(PublicRows(sample=10, fresh=False).of(made.node("c0")))
    smaller = {n: {**own, "public": few} for n, own in made.data.items()}
    for client in CLIENTS:
        smaller[client]["all"] = joined(smaller[client]["train"], few)
    whole = local(replace(made, data=smaller)).run(3)
    ten = [PublicRows(sample=10, fresh=fresh) for fresh in (False, True)]
    once, anew = (local(logits_star(method(rows=rows, **options))).run(3) for rows in ten)
    for client in CLIENTS:
        assert equal(model(once, client), model(whole, client))
        assert not equal(model(anew, client), model(once, client))


# -- KT-pFL ----------------------------------------------------------------------------------------------------
def coefficients(result):
    names, matrix = result.state("server")["vars"]["coefficients"]
    return names, matrix


def test_kt_pfl_that_does_not_distil_is_solo():
    quiet = local(logits_star(KTpFL(local=B16, distil=STILL))).run(3)
    taught = local(logits_star(KTpFL(local=B16, distil=B16))).run(3)
    for client in CLIENTS:
        assert equal(model(quiet, client), model(solo(), client))
        assert not equal(model(taught, client), model(quiet, client))


def test_kt_pfl_whose_coefficients_stay_equal_is_ds_fl_without_sharpening():
    """To the bit where there is one; of several, sums are in another order."""
    plain = DSFL(aggregation="sa", global_model=False, local=B16, distil=B16)
    one, other = (local(alone(method)).run(3) for method in (KTpFL(local=B16, distil=B16), plain))
    assert equal(model(one, "c0"), model(other, "c0"))
    equally, mean = (local(logits_star(m)).run(2) for m in (KTpFL(rate=0.0, local=B16, distil=B16), plain))
    for client in CLIENTS:
        found = model(mean, client)
        assert all(torch.allclose(tensor, found[name], atol=1e-5) for name, tensor in model(equally, client).items())
    assert torch.allclose(coefficients(equally)[1], torch.full((3, 3), 1 / 3, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_golden_kt_pfl_by_loops(temperature):
    """Two clients, three rounds. A row (a, b) of c is put on the simplex by taking (a + b - 1) / 2 from both.

    The slope by c_nm is the mean over rows of sum_k s_mk (log p_nk - log s_nk + 1), and 2 rho (c_nm - 1/2).
    """
    rho, rate, c = 0.3, 0.4, [[0.5, 0.5], [0.5, 0.5]]
    hand = Hand(KTpFL(rho=rho, rate=rate, temperature=temperature, local=STEP, distil=STEP), server=False)
    for _ in range(3):
        for name in LABELS:
            hand.step(name, *hand.private(name))
        s = [hand.predictions(name, temperature) for name in LABELS]
        p = [[[row[0] * s[0][r][k] + row[1] * s[1][r][k] for k in range(3)] for r in range(4)] for row in c]
        for n, name in enumerate(LABELS):
            hand.step(name, hand.public.tolist(), p[n], temperature)
            moved = []
            for m in range(2):
                slope = (
                    sum(s[m][r][k] * (math.log(p[n][r][k] / s[n][r][k]) + 1) for r in range(4) for k in range(3)) / 4
                )
                moved.append(c[n][m] - rate * (slope + 2 * rho * (c[n][m] - 0.5)))
            over = (sum(moved) - 1) / 2
            c[n] = [v - over for v in moved]
            assert min(c[n]) > 0  # else the nearest is a corner
    found = hand.check(3)
    names, matrix = coefficients(found)
    assert names == list(LABELS)
    noted = found.table.select(quantity="share.own").rows[-1]["sum"]
    assert noted == pytest.approx((c[0][0] + c[1][1]) / 2, abs=1e-6)
    assert torch.allclose(matrix, torch.tensor(c, dtype=torch.float64), atol=1e-6)
    assert abs(c[0][0] - 0.5) > 0.01  # it has learnt something


def test_the_slope_of_the_coefficients_is_that_of_the_divergence():
    spoken, c = drawn("spoken", 3, 5, 4).softmax(-1), drawn("c", 3, 3).softmax(-1).requires_grad_()
    combined = torch.einsum("nm,mrk->nrk", c, spoken)
    (combined * (combined / spoken).log()).sum((1, 2)).sum().div(5).backward()
    assert torch.allclose(divergence_slope(combined.detach(), spoken) + 1, c.grad, atol=1e-12)


def test_without_rho_a_client_listens_to_itself_and_with_much_of_it_to_all():
    def share(rho):
        method = KTpFL(rho=rho, rate=0.05, local=B16, distil=STILL)
        return float(coefficients(local(logits_star(method)).run(6))[1].diagonal().mean())

    assert share(0.0) > share(0.5) > share(10.0) > 1 / 3
    assert share(10.0) < 0.4


def test_coefficients_of_absent_clients_keep_their_share_and_newcomers_begin_equal():
    some = local(logits_star(KTpFL(local=B16, distil=B16, cohort=Cohort(fraction=0.67)))).run(6)
    names, matrix = coefficients(some)
    assert sorted(names) == CLIENTS
    assert torch.allclose(matrix.sum(1), torch.ones(3, dtype=torch.float64), atol=1e-12)
    assert (matrix >= 0).all()
    late = logits_star(KTpFL(rate=0.0, local=B16, distil=B16), joins={"c2": 0.05})
    down = sent(late, "personal", 4)
    assert {m.round for m in down if m.receiver == "c2"} < {m.round for m in down if m.receiver == "c0"}
    assert torch.allclose(coefficients(local(late).run(4))[1], torch.full((3, 3), 1 / 3, dtype=torch.float64))


def test_the_loss_of_a_client_is_the_divergence_by_loops():
    personal, z = drawn("personal", 5, 3).softmax(-1), drawn("own", 5, 3)
    personal[0] = torch.tensor([0.0, 1.0, 0.0])
    total = 0.0
    for p, row in zip(personal.tolist(), z.tolist(), strict=True):
        q = [math.exp(v / 2) / sum(math.exp(w / 2) for w in row) for v in row]
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a)
    batch = Data(x=z, personal=personal)
    assert float(KTpFL(temperature=2.0).follow({"model": lambda x: x}, batch)["model"]["kl"]) == pytest.approx(
        total / 5
    )


def test_whoever_has_put_all_on_those_who_are_absent_hears_all_who_are_there_alike():
    """And does not forget: c0 has put all on c2, who is not heard this time."""
    method = KTpFL(local=B16, distil=B16)
    server = logits_star(method).node("server")
    matrix = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.5, 0.0], [0.2, 0.2, 0.6]], dtype=torch.float64)
    server.vars["coefficients"] = [list(CLIENTS), matrix.clone()]
    mail = Inbox(m for m in sent(logits_star(method), "predictions", 1) if m.sender != "c2")
    first, *_ = method.transfer(server, mail)
    mean = average([m.probabilities for m in mail])
    assert torch.allclose(first.body["probabilities"], mean, atol=1e-6)
    assert first.to == ("c0",)
    after = server.vars["coefficients"][1]
    assert after[0].tolist() == [0.0, 0.0, 1.0]
    assert not torch.equal(after[1], matrix[1])


# -- Cronus ----------------------------------------------------------------------------------------------------
def draw(seed=0):
    return generator("filter", seed)


def row(*values):
    return torch.tensor([list(values)])


def test_golden_filter():
    """Three say (1, 0), one says (0, 1): along (1, -1) the variance is 2 * 1/4 * 3/4 = 0.375, and 0.375 = 9 * 0.2041^2.

    From the mean the three are at a third of the fourth's distance, so that any draw that leaves somebody leaves them.
    """
    said = [row(1.0, 0.0)] * 3 + [row(0.0, 1.0)]
    for seed in range(20):
        assert filtered(said, 0.204, draw(seed)).tolist() == [[1.0, 0.0]]
        assert filtered(said, 0.205, draw(seed)).tolist() == [[0.75, 0.25]]


def test_the_filter_leaves_alone_what_it_cannot_tell_apart():
    apart = [row(1.0, 0.0), row(0.1, 0.9)]
    assert torch.allclose(filtered(apart, 0.01, draw()), row(0.55, 0.45))  # two are equally far from their mean
    assert torch.equal(filtered(apart[:1], 0.01, draw()), apart[0])
    assert torch.equal(filtered([row(0.5, 0.5)] * 5, 1e-9, draw()), row(0.5, 0.5))


def test_the_filter_looks_at_each_row_on_its_own_and_at_the_mean_when_there_is_nothing_to_see():
    honest = [0.05 * drawn(i, 6, 4).softmax(-1) + 0.95 * drawn("truth", 6, 4).softmax(-1) for i in range(7)]
    assert torch.allclose(filtered(honest, 1.0, draw()), average(honest), atol=1e-6)
    lies = [own.clone() for own in honest]
    for own in lies[:2]:
        own[3] = torch.tensor([0.0, 0.0, 0.0, 1.0])
    found = filtered(lies, 0.05, draw())
    assert torch.allclose(found[3], average(honest[2:])[3], atol=1e-6)  # both liars are as far, and so go together
    others = torch.tensor([0, 1, 2, 4, 5])
    assert torch.allclose(found[others], average(honest)[others], atol=1e-6)


def test_the_filters_threshold_has_density_2z():
    """Places -1, 1, -1/2, 1/2 and 0.1 of mean 0.02 and variance 0.5016, which is above 9 * 0.23^2 only before a draw.

    All but the last go where the share of the greatest distance, 1.02, is at most 0.48; below 0.08 nobody would stay.
    """
    places = [torch.full((4000, 1), place) for place in (-1.0, 1.0, -0.5, 0.5, 0.1)]
    alone = (filtered(places, 0.23, draw()) - 0.1).abs() < 1e-6
    expected = (0.48**2 - 0.08**2) / (1.02**2 - 0.08**2)  # 0.2166; were the share uniform, 0.4255
    assert float(alone.double().mean()) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("seed", range(8))
def test_the_filter_by_loops(seed):
    """Of one dimension: the variance of those who are left, and in each turn a draw for what goes."""
    left, numbers, turns = drawn(("places", seed), 12).tolist(), draw(seed), 0
    places = [torch.tensor([[place]], dtype=torch.float64) for place in left]
    while True:
        middle = sum(left) / len(left)
        far = [abs(place - middle) for place in left]
        if sum(f * f for f in far) / len(left) <= 9 * 0.1**2 or len(left) == 2:
            break
        least, u = min(far) / max(far), float(torch.rand(1, generator=numbers, dtype=torch.float64))
        threshold = math.sqrt(least**2 + (1 - least**2) * u) * max(far)
        left, turns = [place for place, f in zip(left, far, strict=True) if f < threshold], turns + 1
    assert turns > 1
    assert float(filtered(places, 0.1, draw(seed))) == pytest.approx(middle, abs=1e-6)


def test_the_filter_always_leaves_somebody():
    """However they disagree: what comes out are still probabilities."""
    said = [(3 * drawn(("said", i), 1000, 4)).softmax(-1) for i in range(5)]
    assert torch.allclose(filtered(said, 0.02, draw()).sum(-1), torch.ones(1000))


@pytest.mark.parametrize("rule", ["filter", "mean"])
def test_golden_cronus_by_loops(rule):
    """Two clients, two rounds: the mean of two predictions labels four public rows, which join the private ones."""
    hand = Hand(Cronus(cohort=Cohort(combine=rule), local=replace(STEP, initial=1)), server=False)
    for c in LABELS:
        hand.step(c, *hand.private(c))
    for _ in range(2):
        both = zip(*(hand.predictions(c) for c in LABELS), strict=True)
        labels = [[(a + b) / 2 for a, b in zip(*rows, strict=True)] for rows in both]
        for c in LABELS:
            xs, own = hand.private(c)
            hand.step(c, [*xs, *hand.public.tolist()], [*own, *labels])
    hand.check(2)


def test_cronus_takes_its_part_of_the_public_rows():
    """With so many rows a round as there are, and with all, the bits are the same; with fewer it trains on fewer."""
    every, named = (
        local(logits_star(Cronus(local=B16, rows=PublicRows(sample=n)))).run(2) for n in (None, len(PUBLIC))
    )
    assert every.digest != local(logits_star(Cronus(local=B16, rows=PublicRows(sample=10)))).run(2).digest
    assert all(equal(model(every, c), model(named, c)) for c in CLIENTS)
    steps = [Cronus(local=Training(batch=None, initial=0), rows=PublicRows(sample=n)) for n in (2, 3)]
    found = [local(logits_star(method)).run(1) for method in steps]
    assert not equal(model(found[0], "c0"), model(found[1], "c0"))


def test_a_participant_that_lies_moves_the_mean_and_not_the_filtered_one():
    names = [f"c{i}" for i in range(6)]
    models = {c: {"model": net(8 + i)} for i, c in enumerate(names)}

    def labels(rule, network):
        seen = []

        class Watched(network):
            def arrivals(self, message, *rest):
                seen.extend([message.body["probabilities"]] if message.kind == "labels" else [])
                return super().arrivals(message, *rest)

        method = Cronus(cohort=Cohort(combine=rule), local=replace(B16, initial=20))
        federation = Federation(method, star(names), models, {**private(names), "server": {"public": PUBLIC}})
        local(federation, network=Watched).run(1)
        return seen[0]

    honest = labels("mean", Network)
    moved = {rule: float((labels(rule, Sure) - honest).abs().mean()) for rule in ("filter", "median", "mean")}
    assert moved["filter"] < 0.8 * moved["mean"]
    assert moved["median"] < 0.8 * moved["mean"]


def test_what_is_filtered_depends_on_sigma():
    """A sigma of 1/3 is more than probabilities can spread by: nothing is filtered."""

    def labels(combine):
        return sent(logits_star(Cronus(local=B16, cohort=Cohort(combine=combine))), "labels", 1)[0].body[
            "probabilities"
        ]

    assert torch.allclose(labels(Combine("filter", sigma=1 / 3)), labels("mean"), atol=1e-6)
    assert not torch.allclose(labels(Combine("filter", sigma=0.01)), labels("mean"), atol=1e-3)


def test_medians_that_do_not_sum_to_one_are_made_to():
    """Where three are sure of three classes, no class has a median above zero: then all are equally likely."""

    class Torn(Network):
        def arrivals(self, message, *rest):
            if message.kind == "predictions":
                p = message.body["probabilities"]
                p.copy_(torch.eye(4)[torch.full((len(p),), int(message.sender[1]))])
                message.body.versions = message.body._versions()
            if message.kind == "labels":
                assert torch.equal(message.body["probabilities"], torch.full((len(PUBLIC), 4), 0.25))
                said.append(message.receiver)
            return super().arrivals(message, *rest)

    said = []
    local(logits_star(Cronus(cohort=Cohort(combine="median"), local=B16)), network=Torn).run(1)
    assert said == CLIENTS


# -- bad answers -----------------------------------------------------------------------------------------------
class Liar(Network):
    """A client whose predictions are not what they should be."""

    def arrivals(self, message, *rest):
        if message.kind == "predictions" and message.sender == "c0":
            message.body["probabilities"] = self.forged(message.body["probabilities"].clone())
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


class Nan(Liar):
    def forged(self, p):
        return p * math.nan


class Short(Liar):
    def forged(self, p):
        return p[1:].clone()


class Wide(Liar):
    def forged(self, p):
        return torch.full((len(p), 7), 1 / 7)


class Unlikely(Liar):
    def forged(self, p):
        return 2 * p


class Sure(Liar):
    """Probabilities, but zero for all classes but one."""

    def forged(self, p):
        return torch.eye(p.shape[1], dtype=torch.float64)[torch.zeros(len(p), dtype=torch.int64)]


METHODS = [DSFL(local=B16, distil=B16), KTpFL(local=B16, distil=B16), Cronus(local=B16)]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__.lower())
@pytest.mark.parametrize("liar", [Nan, Short, Wide, Unlikely])
def test_what_are_no_predictions_is_refused_and_the_round_goes_on(method, liar):
    found = local(logits_star(method), network=liar).run(2)
    assert found.rounds == 2
    assert [row["incident"] for row in found.ledger.incidents] == ["refused", "refused"]
    assert all(torch.isfinite(t).all() for c in CLIENTS for t in model(found, c).values())


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__.lower())
def test_a_liar_alone_does_not_end_a_run(method):
    for liar in (Nan, Sure):
        found = local(alone(method), network=liar).run(3)
        assert found.rounds == 3
        assert all(torch.isfinite(t).all() for t in model(found, "c0").values())
    found = local(logits_star(method), network=Sure).run(3)
    assert all(torch.isfinite(t).all() for c in CLIENTS for t in model(found, c).values())


@pytest.mark.parametrize("method", [*METHODS, FedMD(local=B16, distil=B16)], ids=lambda m: type(m).__name__.lower())
def test_public_rows_that_do_not_say_how_many_classes_there_are_are_refused(method):
    """With them a liar whose outputs are of another width would pass the door, and end the run."""
    made = logits_star(method)
    bare = Data(x=PUBLIC.x, y=PUBLIC.y)
    data = {n: {k: bare if k == "public" else view for k, view in own.items()} for n, own in made.data.items()}
    with pytest.raises(ReactionError, match="public data need `classes`, as many as networks have outputs") as caught:
        local(replace(made, data=data), network=Wide).run(1)
    assert "\n" not in str(caught.value)


def coming(data):
    """The same rows as a stream."""
    return Stream([lambda: data], Drift("sudden", 1, 1), arrivals=8)


def test_misfits_are_refused_in_one_line():
    with pytest.raises(ValueError, match=r"temperature is a number > 0, got 0.0"):
        DSFL(temperature=0.0)
    for wrong in ({"rho": -1.0}, {"rate": math.nan}, {"temperature": 0.0}):
        with pytest.raises(ValueError, match="rho and rate are numbers >= 0 and temperature is one > 0, got"):
            KTpFL(**wrong)
    with pytest.raises(ValueError, match="sigma a number > 0"):
        Cronus(cohort=Cohort(combine=Combine("filter", sigma=-1.0)))
    with pytest.raises(ValueError, match=r"the private ones itself: local\.data must be train, got all"):
        Cronus(local=Training(data="all"))
    whole = logits_star(Cronus(local=B16))
    views = {c: {"train": coming(own["train"]), "public": own["public"]} for c, own in private(CLIENTS).items()}
    with pytest.raises(ReactionError, match="private and public rows are trained on together") as caught:
        local(replace(whole, data={**whole.data, **views})).run(1)
    assert "\n" not in str(caught.value)
