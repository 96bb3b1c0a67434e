"""AFL, and the projection that it takes: limits, the paper's step by loops, and who gains."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import add

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from heterophony import Data, Federation
from heterophony.engines import Network, local
from heterophony.kernel.topology import star
from heterophony.methods import AFL, FedAvg
from heterophony.parts.cohort import Cohort
from heterophony.parts.simplex import onto_simplex
from heterophony.parts.training import Training
from toys.by_hand import equal, server
from toys.federations import B16, weights_star
from toys.watched import sent
from toys.world import certain, net, points

reals = st.floats(-1e3, 1e3)


# -- the projection --------------------------------------------------------------------------------------------
def projected(values):
    return onto_simplex(torch.tensor(values, dtype=torch.float64)).tolist()


def bisected(values):
    """The level by which all are lowered, sought where the sum of what is left above zero is one; no sorting."""
    low, high = min(values) - 1, max(values)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(0.0, v - middle) for v in values) > 1 else (low, middle)
    return [max(0.0, v - high) for v in values]


@given(st.lists(reals, min_size=1, max_size=12))
@example([0.25] * 4)
@example([3.0, 3.0, -1.0])
def test_the_projection_is_that_of_a_bisection(values):
    found = projected(values)
    assert found == pytest.approx(bisected(values), abs=1e-9)
    assert min(found) >= 0
    assert sum(found) == pytest.approx(1, abs=1e-12)


@given(st.lists(reals, min_size=2, max_size=8), st.lists(st.floats(0.01, 1), min_size=8, max_size=8))
def test_no_other_mixture_is_nearer(values, other):
    found, other = projected(values), [w / sum(other[: len(values)]) for w in other[: len(values)]]
    near, far = (sum((a - b) ** 2 for a, b in zip(point, values, strict=True)) for point in (found, other))
    assert near <= far + 1e-9 * (1 + far)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).filter(any))
def test_a_mixture_stays_as_it_is(weights):
    mixture = [w / sum(weights) for w in weights]
    assert projected(mixture) == pytest.approx(mixture, abs=1e-12)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.7], [1.0]),
        ([0.5, 0.25, 0.5], [5 / 12, 2 / 12, 5 / 12]),  # all lowered by 1/12
        ([1.5, 0.5, -1.0], [1.0, 0.0, 0.0]),  # by a half, and the last would be negative
        ([1.2, 0.3, 0.5], [0.85, 0.0, 0.15]),  # by 0.35
        ([1e300, 0.0], [1.0, 0.0]),
        ([1e300, 1e300, -1e300], [0.5, 0.5, 0.0]),
        ([1 / 3 + 2.0] * 3, [1 / 3] * 3),
    ],
)
def test_golden_projections(values, expected):
    assert projected(values) == pytest.approx(expected, abs=1e-15)


def test_every_row_has_a_projection_of_its_own():
    rows = [[0.2, 0.3, 0.5], [1.2, 0.3, 0.5], [3.0, 0.0, 0.0], [-1.0, -1.0, -1.0], [1e20, 0.0, 0.0]]
    assert projected(rows) == [projected(row) for row in rows]


# -- AFL -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{}, {"fraction": 0.67}])
def test_afl_that_does_not_move_its_mixture_is_fedavg_of_equals(options):
    for build in (net(), certain):
        found = local(weights_star(AFL(local=B16, ascent=0.0, cohort=Cohort(**options)), build)).run(4)
        plain = local(weights_star(FedAvg(local=B16, cohort=Cohort(weighted=False, **options)), build)).run(4)
        assert equal(server(found), server(plain))
    moved = local(weights_star(AFL(local=B16, cohort=Cohort(**options)))).run(4)
    still = local(weights_star(AFL(local=B16, ascent=0.0, cohort=Cohort(**options)))).run(4)
    assert not equal(server(moved), server(still))


def seven(method):
    """As many as no binary fraction divides evenly, and networks that would show it."""
    clients = [f"c{i}" for i in range(7)]
    models = {role: {"model": lambda: net()().double()} for role in ("server", "client")}
    data = {c: {"train": Data(x=own.x.double(), y=own.y, classes=4)} for c in clients for own in [points(c, 20)]}
    return Federation(method, star(clients), models, data)


def test_equal_shares_are_fedavgs_whatever_their_number():
    """Seven times a seventh, added one by one, is not one."""
    assert reduce(add, [1 / 7] * 7) != 1  # `sum` makes up for rounding from Python 3.12 on
    found = local(seven(AFL(local=B16, ascent=0.0))).run(3)
    assert equal(server(found), server(local(seven(FedAvg(local=B16, cohort=Cohort(weighted=False)))).run(3)))


LABELS = {"c0": [1, 1], "c1": [1, 1, 1, 1], "c2": [0]}  # of rows that are all the same


def leaning(method, labels=LABELS):
    """One number w: the logits of a row are (0, w), so that it is of class 1 with probability 1 / (1 + exp(-w))."""

    class Lean(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, x):
            return torch.stack([torch.zeros_like(x[:, 0]), self.w * x[:, 0]], 1)

    data = {
        c: {"train": Data(x=torch.ones(len(y), 1).double(), y=torch.tensor(y), classes=2)} for c, y in labels.items()
    }
    models = {role: {"model": Lean} for role in ("server", "client")}
    return Federation(method, star(list(labels)), models, data)


def test_with_one_full_batch_afl_is_the_papers_step_by_loops():
    """w <- w - rate sum_k lambda_k L_k'(w) and lambda <- P(lambda + ascent L(w)), both from the same w and lambda."""
    rate, ascent, w = 0.7, 0.4, 0.0
    mixture = [1 / 3] * 3
    for _ in range(5):
        losses = [math.log(1 + math.exp(-w if own[0] else w)) for own in LABELS.values()]
        slopes = [1 / (1 + math.exp(-w)) - own[0] for own in LABELS.values()]
        w -= rate * sum(share * slope for share, slope in zip(mixture, slopes, strict=True))
        mixture = bisected([share + ascent * loss for share, loss in zip(mixture, losses, strict=True)])
    found = local(leaning(AFL(ascent=ascent, local=Training(batch=None, lr=rate)))).run(5)
    assert server(found)["w"].item() == pytest.approx(w, rel=1e-9)
    assert found.state("server")["vars"]["mixture"] == pytest.approx(dict(zip(LABELS, mixture, strict=True)), rel=1e-9)
    noted = [row["sum"] for row in found.table.select(quantity="mixture.largest")]
    assert noted[-1] == pytest.approx(max(mixture), rel=1e-9)


def test_the_loss_is_of_all_rows_that_the_client_trains_on():
    made = weights_star(AFL(local=replace(B16, data="all")))
    model, views = made.node("server").models["model"], made.data
    for message in sent(made, "update", 1):
        rows = views[message.sender]["all"]()
        assert message.loss == pytest.approx(nn.functional.cross_entropy(model(rows.x), rows.y).item(), rel=1e-5)


def test_the_worst_client_gains():
    """Two of three say class 1. FedAvg of equals ends at p = 2/3, where the third has a loss of log 3. Whoever is
    worst has least to lose at p = 1/2, where all have log 2; there the slopes (p - 1, p - 1, p) cancel if the third
    has half of the mixture."""
    training = Training(batch=None, lr=0.5)
    worst = {}
    for method in (FedAvg(local=training, cohort=Cohort(weighted=False)), AFL(local=training, ascent=0.1)):
        found = local(leaning(method)).run(150)
        w = server(found)["w"].item()
        worst[type(method)] = max(math.log(1 + math.exp(-w)), math.log(1 + math.exp(w)))
    assert worst[FedAvg] == pytest.approx(math.log(3), abs=1e-3)
    assert worst[AFL] == pytest.approx(math.log(2), abs=1e-3)
    assert found.state("server")["vars"]["mixture"]["c2"] == pytest.approx(0.5, abs=1e-2)


def test_those_who_are_heard_count_for_all():
    """One of three is asked, always another by the seed: its loss counts three times, and its weights are the mean.
    At w = 0 all losses are log 2: lambda is P(1/3, 1/3, 1/3 + 3 ascent log 2), so that with 3 ascent log 2 = 1/2 it is
    raised by 1/3 and the others lowered by 1/6."""
    ascent = 1 / (6 * math.log(2))
    found = local(leaning(AFL(ascent=ascent, cohort=Cohort(fraction=0.34), local=Training(batch=None, lr=0.5)))).run(1)
    (asked,) = {row["from"] for row in found.ledger.messages if row["kind"] == "update"}
    shares = found.state("server")["vars"]["mixture"]
    assert shares == pytest.approx({c: Fraction(2, 3) if c == asked else Fraction(1, 6) for c in LABELS})
    assert server(found)["w"].item() == pytest.approx(0.5 * (LABELS[asked][0] - 0.5))


def test_whoever_has_no_share_moves_nothing():
    """With a large step all goes to the worst; what comes from one without a share, alone in its cohort, is dropped."""
    found = local(leaning(AFL(ascent=1e6, cohort=Cohort(fraction=0.34), local=Training(batch=None, lr=0.5)))).run(12)
    asked = [row["from"] for row in found.ledger.messages if row["kind"] == "update"]
    assert len(set(asked)) > 1
    assert sorted(found.state("server")["vars"]["mixture"].values()) == [0.0, 0.0, 1.0]
    assert math.isfinite(server(found)["w"].item())


def test_a_client_without_rows_and_one_that_comes_later():
    clients = ["c0", "c1", "c2"]
    data = {c: {"train": points(c, 20) if c != "c1" else points(c, 1).take(torch.arange(0))} for c in clients}
    models = {"server": {"model": net()}, "client": {"model": net()}}
    made = Federation(AFL(local=B16), star(clients), models, data, joins={"c2": 0.03})
    found = local(made).run(6)
    shares = found.state("server")["vars"]["mixture"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["c1"] < shares["c0"]
    assert shares["c2"] > 0
    assert {row["incident"] for row in found.ledger.incidents} == {"joined"}


def test_whoever_comes_later_begins_with_an_equal_share():
    """Where lambda does not move: (1/2, 1/2) and a third are 1/3 too much, of which each gives a third."""
    made = leaning(AFL(ascent=0.0, local=Training(batch=None, lr=0.5)))
    found = local(replace(made, joins={"c2": 0.01})).run(6)
    shares = found.state("server")["vars"]["mixture"]
    assert shares == pytest.approx({"c0": 7 / 18, "c1": 7 / 18, "c2": 4 / 18})


@pytest.mark.parametrize(
    ("loss", "refused"), [(1e30, False), (math.nan, True), (math.inf, True), (-1.0, True), (1e31, True)]
)
def test_no_reported_loss_ends_a_run(loss, refused):
    class Liar(Network):
        def arrivals(self, message, *rest):
            if message.kind == "update" and message.sender == "c0":
                message.body.update(loss=loss)
                message.body.verdict, message.body.versions = None, message.body._versions()
            return super().arrivals(message, *rest)

    found = local(leaning(AFL(local=Training(batch=None, lr=0.5))), network=Liar).run(3)
    assert {row["incident"] for row in found.ledger.incidents} == ({"refused"} if refused else set())
    shares = found.state("server")["vars"]["mixture"]
    assert sum(shares.values()) == pytest.approx(1)
    assert (shares["c0"] == 1) == (not refused)
    assert math.isfinite(server(found)["w"].item())


def test_a_rate_below_zero_is_refused():
    for bad in (-0.1, math.inf, math.nan):
        with pytest.raises(ValueError, match="ascent is a rate >= 0"):
            AFL(ascent=bad)
