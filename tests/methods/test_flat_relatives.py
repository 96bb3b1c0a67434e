"""FedAvg's relatives on a star: limits, and numbers that can be checked by hand."""

import math
from dataclasses import replace

import pytest
import torch

from heterophony import Data, Dropout, Federation, Profile
from heterophony.engines import Network, local
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.topology import star
from heterophony.methods import (
    ASOFed,
    Cyclic,
    FedAsync,
    FedAvg,
    FedBuff,
    Moon,
    Scaffold,
    fedadagrad,
    fedadam,
    fedavgm,
    fedyogi,
)
from heterophony.parts.cohort import Cohort
from heterophony.parts.engagement import engage, release
from heterophony.parts.node_optimiser import NodeOptimiser
from heterophony.parts.staleness import Staleness
from heterophony.parts.training import Training
from toys.by_hand import equal, scalar_net, server, squared
from toys.federations import B16, buffered, contrasted, weights_star
from toys.watched import sent
from toys.world import halves, net, normed, private

STEP = Training(batch=None, lr=0.5)


def numbers(method, ys, speeds=None):
    """One number a model; client k holds one (x = 1, y = y_k), so that a step at rate 0.5 halves the way to y_k."""
    clients = [f"c{i}" for i in range(len(ys))]
    data = {
        c: {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), float(y)))} for c, y in zip(clients, ys, strict=True)
    }
    models = {role: {"model": scalar_net} for role in ("server", "client")}
    profiles = {c: Profile(seconds_per_sample=s) for c, s in zip(clients, speeds or [1.0] * len(ys), strict=True)}
    return Federation(method, star(clients), models, data, profiles=profiles)


def weight(method, ys, rounds, speeds=None):
    return server(local(numbers(method, ys, speeds)).run(rounds))["weight"].item()


# -- Cyclic ----------------------------------------------------------------------------------------------------
def test_cyclic_with_one_client_is_fedavg_with_one_client():
    cyclic, plain = (numbers(make(local=STEP, loss=squared), [8]) for make in (Cyclic, FedAvg))
    assert equal(server(local(cyclic).run(3)), server(local(plain).run(3)))


def test_golden_cyclic_on_one_number():
    """Each client halves the way to its target, in turn. 0 -> 4 (8), 4 -> 0 (-4), 0 -> 1 (2), then 8 again: 4.5."""
    method = Cyclic(local=STEP, loss=squared)
    assert [weight(method, [8, -4, 2], rounds) for rounds in (1, 2, 3, 4)] == [4.0, 0.0, 1.0, 4.5]


def test_each_cycle_asks_everyone_once_shuffled_or_not():
    rounds, clients = 12, ["c0", "c1", "c2"]
    for shuffle in (False, True):
        result = local(numbers(Cyclic(local=STEP, loss=squared, shuffle=shuffle), [8, -4, 2])).run(rounds)
        asked = [row["to"] for row in result.ledger.messages if row["kind"] == "global"]
        cycles = [asked[at : at + 3] for at in range(0, rounds, 3)]
        assert [sorted(cycle) for cycle in cycles] == [clients] * 4
        assert (cycles == [clients] * 4) != shuffle


def test_a_client_that_is_out_is_passed_over():
    """8 and -4 alone are left: 0 -> 4, out, 4 -> 0, 0 -> 4."""
    made = replace(numbers(Cyclic(local=STEP, loss=squared), [8, 2, -4]), dropout=Dropout(always=("c1",)))
    assert [server(local(made).run(rounds))["weight"].item() for rounds in (1, 2, 3, 4)] == [4.0, 4.0, 0.0, 4.0]


# -- FedOPT ----------------------------------------------------------------------------------------------------
def test_without_memory_momentum_is_plain_averaging():
    plain = local(weights_star(FedAvg(local=B16))).run(3)
    assert local(weights_star(FedAvg(local=B16, server=NodeOptimiser("sgd", 1.0)))).run(3).digest == plain.digest
    still = fedavgm(NodeOptimiser("momentum", 1.0, beta1=0.0), local=B16)
    other = server(local(weights_star(still)).run(3))
    assert all(torch.allclose(other[n], t, atol=1e-6) for n, t in server(plain).items())


def test_golden_fedavgm_on_one_number():
    """Targets 8 / 2 + w / 2. From 0: D = 4, m = 4, w = 4. Then D = 6 - 4 = 2, m = 0.5 * 4 + 2 = 4, w = 8."""
    method = fedavgm(NodeOptimiser("momentum", 1.0, beta1=0.5), local=STEP, loss=squared)
    assert [weight(method, [8], rounds) for rounds in (1, 2)] == [4.0, 8.0]


def test_golden_fedadam_and_its_relatives_on_one_number():
    """beta1 = 0.5, beta2 = 0.75, tau = 2, rate 1; D = 4, so m = 2 and D^2 = 16, from v = tau^2 = 4.
    Adam: v = 0.75 * 4 + 0.25 * 16 = 7. Yogi: v = 4 + 0.25 * 16 = 8. Adagrad: v = 4 + 16 = 20. w = 2 / (sqrt(v) + 2).
    """
    for make, kind, v in ((fedadam, "adam", 7), (fedyogi, "yogi", 8), (fedadagrad, "adagrad", 20)):
        method = make(NodeOptimiser(kind, 1.0, 0.5, 0.75, 2.0), local=STEP, loss=squared)
        assert weight(method, [8], 1) == pytest.approx(2 / (v**0.5 + 2), rel=1e-5)


def test_servers_moments_are_kept_and_statistics_have_none():
    state = local(weights_star(fedadam(local=B16), normed)).run(2).state("server")["vars"]["states"]["up"]
    names = set(dict(normed().named_parameters()))
    assert set(state) == {"m", "v"}
    assert set(state["m"]) == set(state["v"]) == names


# -- FedAsync --------------------------------------------------------------------------------------------------
def test_fedasync_with_one_client_is_fedavg_with_one_client():
    models = {role: {"model": net()} for role in ("server", "client")}
    runs = [
        local(Federation(method, star(["c0"]), models, private(["c0"]))).run(4)
        for method in (FedAsync(alpha=1.0, rho=0.0, local=B16), FedAvg(local=B16))
    ]
    assert equal(*(server(run) for run in runs))


def test_golden_fedasync_on_one_number():
    """y = (8, -8), c1 takes three times as long as c0; alpha = 0.5, a = 1, rate 0.5, from w = 0.
    Time 1: c0 brings 4, fresh: w = 2. Time 2: from 2 it brings 5: w = 3.5. Time 3: c0, from 3.5, brings 5.75 and c1,
    from 0, brings -4; c0 comes first: w = 4.625. Then c1's is three merges old: share 0.5 / 4,
    w = 4.625 + (-4 - 4.625) / 8 = 3.546875.
    """
    method = FedAsync(alpha=0.5, rho=0.0, staleness=Staleness(a=1.0), local=STEP, loss=squared)
    found = [weight(method, [8, -8], rounds, [1.0, 3.0]) for rounds in (1, 2, 3, 4)]
    assert found == [2.0, 3.5, 4.625, 3.546875]
    notes = local(numbers(method, [8, -8], [1.0, 3.0])).run(4).table.select(quantity="staleness")
    assert [row["sum"] for row in notes] == [0, 0, 0, 3]


def test_the_proximal_pull_holds_clients_back():
    """Two full steps at rate 0.5 from 0 to y = 8: 4, then 4 + 2 - rho 4 / 2; with rho = 0.5 that is 5, without 6."""
    two = Training(batch=None, lr=0.5, epochs=2)
    for rho, wanted in ((0.0, 6.0), (0.5, 5.0)):
        assert weight(FedAsync(alpha=1.0, rho=rho, local=two, loss=squared), [8], 1) == wanted


# -- FedBuff ---------------------------------------------------------------------------------------------------
def test_golden_fedbuff_on_one_number():
    """y = (8, -8), c1 takes three times as long; K = 2, a = 1/2, rate 0.5, from w = 0.
    Time 1: c0 brings +4; it starts again at once, from the same 0. Time 2: again +4, the buffer is full:
    w = (4 + 4) / 2 = 4. Time 3: c0, from 4, brings (8 - 4) / 2 = 2; c1, from 0, brings -4, one step late: share
    2^-1/2. w = 4 + (2 - 4 / sqrt(2)) / 2 = 5 - sqrt(2).
    """
    method = FedBuff(buffer=2, local=STEP, loss=squared)
    assert weight(method, [8, -8], 1, [1.0, 3.0]) == 4.0
    assert weight(method, [8, -8], 2, [1.0, 3.0]) == pytest.approx(5 - 2**0.5)


def test_fedbuff_of_one_client_is_fedavg_of_one_client():
    """With more, some begin anew before the buffer is full, on purpose. w + (w_k - w) costs the last bit."""
    models = {role: {"model": net()} for role in ("server", "client")}
    a, b = (
        server(local(Federation(method, star(["c0"]), models, private(["c0"]))).run(4))
        for method in (FedBuff(buffer=1, local=B16), FedAvg(local=B16))
    )
    assert all(torch.allclose(a[n], b[n], atol=1e-6) for n in a)


def test_statistics_of_batch_norm_never_become_negative():
    federation = buffered(FedBuff(buffer=2, local=B16))
    models = {role: {"model": normed} for role in ("server", "client")}
    state = server(local(replace(federation, models=models)).run(5))
    assert (state["1.running_var"] > 0).all()
    assert not torch.equal(state["1.running_var"], torch.ones(12))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FedBuff(buffer=0), "at least 1"),
        (lambda: FedBuff(concurrency=0.0), "concurrency"),
        (lambda: FedAsync(alpha=0.0), "alpha"),
    ],
)
def test_options_out_of_range_are_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_as_many_are_at_work_as_was_said():
    node = replace(weights_star(FedBuff()), topology=star(10), data={}).node("server")
    first = engage(node, 0.3)
    assert len(first) == 3
    assert engage(node, 0.3) == ()
    release(node, first[:2])
    drawn = set()
    for _ in range(40):
        new = engage(node, 0.3)
        assert len(new) == 2
        assert first[2] not in new
        drawn |= set(new)
        release(node, new)
    assert drawn == set(node.children) - {first[2]}


# -- SCAFFOLD --------------------------------------------------------------------------------------------------
def test_scaffolds_first_round_is_fedavgs_and_later_ones_are_not():
    """No control variate is known yet; afterwards they say something, as clients take several steps."""
    for rounds in (1, 2):
        plain = local(weights_star(FedAvg(local=B16, cohort=Cohort(weighted=False)))).run(rounds)
        found = local(weights_star(Scaffold(local=B16))).run(rounds)
        assert equal(server(found), server(plain)) == (rounds == 1)


def test_scaffold_with_one_full_step_of_all_is_fedavg():
    """Then c_i is the gradient at x, and the corrections cancel in the mean."""
    one = Training(batch=None)
    plain = server(local(weights_star(FedAvg(local=one, cohort=Cohort(weighted=False)))).run(4))
    found = server(local(weights_star(Scaffold(local=one))).run(4))
    assert all(torch.allclose(found[name], plain[name], atol=1e-6) for name in plain)


CURVED = {"c0": (1.0, 0.0), "c1": (2.0, 6.0), "c2": (0.5, 3.0)}  # (x, y): the loss (w x - y)^2 / 2


def curved(method, nothing=None, **more):
    data = {
        c: {"train": Data(x=torch.tensor([[x]]).double(), y=torch.tensor([[y]]).double())}
        for c, (x, y) in CURVED.items()
    }
    if nothing:
        data[nothing] = {"train": data[nothing]["train"].take(torch.arange(0))}
    models = {role: {"model": lambda: scalar_net().double()} for role in ("server", "client")}
    return Federation(method, star(list(CURVED)), models, data, **more)


@pytest.mark.parametrize(("momentum", "rate"), [(0.0, 1.0), (0.0, 0.5), (0.9, 1.0)])
def test_golden_scaffold_by_loops(momentum, rate):
    steps, lr = 5, 0.05
    x, c, own = 0.0, 0.0, dict.fromkeys(CURVED, 0.0)
    divisor = lr * sum(sum(momentum**j for j in range(k)) for k in range(1, steps + 1))
    for _ in range(4):
        ends, changes = [], []
        for client, (a, b) in CURVED.items():
            y, speed = x, 0.0
            for _ in range(steps):
                speed = momentum * speed + (y * a - b) * a - own[client] + c
                y -= lr * speed
            change = (x - y) / divisor - c
            own[client] += change
            ends.append(y)
            changes.append(change)
        x += rate * (sum(ends) / 3 - x)
        c += sum(changes) / 3
    training = Training(batch=None, epochs=steps, lr=lr, momentum=momentum)
    found = local(curved(Scaffold(local=training, loss=squared, server=NodeOptimiser(rate=rate)))).run(4)
    assert server(found)["weight"].item() == pytest.approx(x, rel=1e-12)
    assert found.state("server")["vars"]["control"]["weight"].item() / 3 == pytest.approx(c, rel=1e-12)
    for client, control in own.items():
        assert found.state(client)["vars"]["control"]["weight"].item() == pytest.approx(control, rel=1e-12)


def test_scaffold_finds_the_optimum_of_all_where_fedavg_drifts():
    best = sum(x * y for x, y in CURVED.values()) / sum(x * x for x, _ in CURVED.values())
    training = Training(batch=None, epochs=5, lr=0.05)
    found = server(local(curved(Scaffold(local=training, loss=squared))).run(60))["weight"].item()
    drifted = server(local(curved(FedAvg(local=training, loss=squared, cohort=Cohort(weighted=False)))).run(60))[
        "weight"
    ].item()
    assert found == pytest.approx(best, abs=1e-6)
    assert abs(drifted - best) > 0.05


class Lossy(Network):
    """The first updates of c1 do not arrive whole."""

    def arrivals(self, message, *rest):
        if message.kind == "update" and message.sender == "c1" and message.round < 2:
            message.body["weights"] = {"weight": torch.full((1, 1), math.nan, dtype=torch.float64)}
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


SLOW = {"profiles": {"": Profile(seconds_per_sample=0.2)}}


@pytest.mark.parametrize(
    ("more", "share", "network"),
    [({}, 1.0, Lossy), ({**SLOW, "joins": {"c2": 5.0}}, 1.0, Network), ({}, 0.67, Network), ({}, 0.67, Lossy)],
    ids=["lost updates", "a late joiner", "two of three", "two of three, lost updates"],
)
def test_scaffold_still_finds_it(more, share, network):
    """The server's control variate is the mean of the clients', whatever was lost, whoever came later."""
    best = sum(x * y for x, y in CURVED.values()) / sum(x * x for x, _ in CURVED.values())
    method = Scaffold(local=Training(batch=None, epochs=5, lr=0.05), loss=squared, cohort=Cohort(fraction=share))
    found = local(curved(method, **more), network=network).run(400)
    assert server(found)["weight"].item() == pytest.approx(best, abs=1e-4)
    total = sum(found.state(c)["vars"]["control"]["weight"].item() for c in CURVED)
    assert found.state("server")["vars"]["control"]["weight"].item() == pytest.approx(total, abs=1e-9)


def test_scaffold_in_a_cohort_by_loops():
    """Two of three take part: c moves by the sum of their changes over all three."""
    steps, lr, rounds = 2, 0.05, 5
    training = Training(batch=None, epochs=steps, lr=lr)
    federation = curved(Scaffold(local=training, loss=squared, cohort=Cohort(fraction=0.67)))
    x, c, own = 0.0, 0.0, dict.fromkeys(CURVED, 0.0)
    cohorts = [m.sender for m in sent(federation, "update", rounds)]
    assert len(set(map(frozenset, zip(cohorts[::2], cohorts[1::2], strict=True)))) > 1  # not always the same two
    for i in range(rounds):
        ends, changes = [], []
        for client in cohorts[2 * i : 2 * i + 2]:
            a, b = CURVED[client]
            y = x
            for _ in range(steps):
                y -= lr * ((y * a - b) * a - own[client] + c)
            changes.append((x - y) / (steps * lr) - c)
            own[client] += changes[-1]
            ends.append(y)
        x, c = sum(ends) / 2, c + sum(changes) / 3
    found = local(curved(Scaffold(local=training, loss=squared, cohort=Cohort(fraction=0.67)))).run(rounds)
    assert server(found)["weight"].item() == pytest.approx(x, rel=1e-12)


def test_a_client_without_rows_changes_no_control():
    training = Training(batch=None, epochs=5, lr=0.05)
    empty = curved(Scaffold(local=training, loss=squared), nothing="c2")
    state = local(empty).run(3).state("c2")["vars"]["control"]
    assert state["weight"].item() == 0.0


def test_what_scaffold_cannot_correct_is_refused():
    assert Training().reach(3) == 3
    assert Training(momentum=0.5).reach(2) == 2.5
    with pytest.raises(ValueError, match=r"set local\.optimiser=sgd, not adam"):
        Scaffold(local=Training(optimiser="adam"))


# -- MOON ------------------------------------------------------------------------------------------------------
def test_moon_without_its_loss_is_fedavg_and_so_is_a_first_round():
    plain = {rounds: server(local(weights_star(FedAvg(local=B16), halves())).run(rounds)) for rounds in (1, 3)}
    assert equal(server(local(contrasted(Moon(local=B16, mu=0.0))).run(3)), plain[3])
    assert equal(server(local(contrasted(Moon(local=B16))).run(1)), plain[1])
    assert not equal(server(local(contrasted(Moon(local=B16))).run(3)), plain[3])


def test_moons_loss_by_loops():
    made = {name: torch.randn(5, 3, dtype=torch.float64) for name in ("model.body", "common.body", "previous.body")}
    logits, labels = torch.randn(5, 2, dtype=torch.float64), [0, 1, 1, 0, 1]
    nets = {**{name: lambda x, own=own: own for name, own in made.items()}, "model.head": lambda features: logits}
    found = Moon(mu=2.0, tau=0.5).contrast(nets, Data(x=torch.zeros(5, 1), y=torch.tensor(labels), classes=2))["model"]

    def cosine(a, b):
        dot = sum(p * q for p, q in zip(a, b, strict=True))
        return dot / math.sqrt(sum(p * p for p in a)) / math.sqrt(sum(q * q for q in b))

    total = 0.0
    for z, g, p in zip(*(own.tolist() for own in made.values()), strict=True):
        near, away = math.exp(cosine(z, g) / 0.5), math.exp(cosine(z, p) / 0.5)
        total -= math.log(near / (near + away))
    assert float(found["contrast"]) == pytest.approx(2.0 * total / 5, rel=1e-10)
    rows = zip(logits.tolist(), labels, strict=True)
    expected = sum(math.log(sum(map(math.exp, row))) - row[label] for row, label in rows) / 5
    assert float(found["ce"]) == pytest.approx(expected, rel=1e-10)


def test_moon_remembers_the_global_model_and_its_own_last_one():
    """After two rounds: `common` is what the first merge gave, `previous` what the client had sent for it."""
    first, second = (local(contrasted(Moon(local=B16))).run(rounds) for rounds in (1, 2))
    for client in ("c0", "c1", "c2"):
        models = second.state(client)["models"]
        assert equal(models["common"], server(first))
        assert equal(models["previous"], server(first, client))
        assert not equal(models["model"], models["previous"])


def test_what_moon_needs_is_said_in_one_line():
    with pytest.raises(ReactionError, match="MOON needs networks of two parts"):
        local(weights_star(Moon(local=B16))).run(1)
    with pytest.raises(ValueError, match="tau a temperature > 0"):
        Moon(tau=0.0)


# -- ASO-Fed ---------------------------------------------------------------------------------------------------
def test_golden_aso_fed_on_one_number():
    """A step halves the way to 8. From 0 the change is 4. Then 2, less the last one, plus h = 0: -2, so that the model
    is at 2. There the change is 3; less 2, plus h = half of 4, it is 3, so that the model comes to 5."""
    method = ASOFed(rho=0.0, beta=0.5, local=STEP, loss=squared)
    assert [weight(method, [8], rounds) for rounds in (1, 2, 3)] == [4.0, 2.0, 5.0]


def test_aso_fed_of_one_client_without_memory_is_fedavg():
    plain, ours = (
        local(Federation(m, star(["c0"]), {r: {"model": net()} for r in ("server", "client")}, private(["c0"]))).run(3)
        for m in (FedAvg(local=B16), ASOFed(rho=0.0, balance=False, local=B16))
    )
    assert all(torch.allclose(server(plain)[n], server(ours)[n], atol=1e-6) for n in server(plain))


def test_who_is_asked_seldom_goes_further_in_aso_fed():
    """Asked at rounds 0, 40 and 80, its mean delay is 40: it goes log 40 times as far. Asked each round, once."""
    made = weights_star(ASOFed())
    client, method = made.node("c0"), made.method
    found = []
    for client.round in (0, 40, 80):
        found.append(method.further(client))
    assert found == [1.0, pytest.approx(math.log(40)), pytest.approx(math.log(40))]
    often = made.node("c1")
    for often.round in (0, 1, 2):
        assert method.further(often) == 1.0


def test_feature_learning_of_aso_fed_leaves_equal_weights_and_lifts_large_ones():
    node = weights_star(ASOFed(features=True)).node("server")
    weights = node.weights()
    first = next(name for name, tensor in weights.items() if tensor.dim() > 1)
    even = {**weights, first: torch.full_like(weights[first], -0.5)}
    assert torch.allclose(ASOFed().featured(node, even)[first], even[first])
    one = torch.zeros_like(weights[first])
    one[:, 0] = 2.0
    grown = ASOFed().featured(node, {**weights, first: one})[first]
    share = math.exp(2) / (math.exp(2) + one.shape[1] - 1)
    assert torch.allclose(grown[:, 0], torch.full_like(grown[:, 0], 2 * share * one.shape[1]))
