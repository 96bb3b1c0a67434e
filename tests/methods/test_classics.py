"""FedBABU, FedRoD, FedDBE, GPFL, FedAS, kNN-Per, FedDyn, FedAMP, APPLE, FedALA: limits, golden toys, plain loops."""

import math

import pytest
import torch
import torch.nn.functional as F

from heterophony import Data, Federation, Model
from heterophony.engines import local
from heterophony.kernel.topology import complete, star
from heterophony.methods import (
    APPLE,
    GPFL,
    FedALA,
    FedAMP,
    FedAS,
    FedAvg,
    FedBABU,
    FedDBE,
    FedDyn,
    FedPer,
    FedRE,
    FedRoD,
    KNNPer,
    Solo,
)  # fmt: skip
from heterophony.parts.cohort import Cohort
from heterophony.parts.heads import TaughtHead
from heterophony.parts.neighbours import Neighbours
from heterophony.parts.training import Training
from heterophony.parts.two_heads import ShiftedFeatures, TwoHeads
from toys.by_hand import equal, scalar_net, server, squared
from toys.federations import ALIKE, B16, CLIENTS, headed_twice, own_star, personal_star, turned_star, weights_star
from toys.world import halves, net, private

WHOLE = Training(batch=None, lr=0.2)
STEP = Training(batch=None, lr=0.5)
PLAIN = Cohort(weighted=False)


def two(method, rounds):
    """Run a method on two clients that hold (x = 1, y), y = 0 and 8; their models are one number, from zero on."""
    data = {c: {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), y))} for c, y in (("c0", 0.0), ("c1", 8.0))}
    models = {role: {"model": scalar_net} for role in ("server", "client")}
    result = local(Federation(method, star(["c0", "c1"]), models, data)).run(rounds)
    return [server(result, node)["weight"].item() for node in ("server", "c0", "c1")]


def near(a, b):
    return all(torch.allclose(a[n], t, atol=1e-6) for n, t in b.items())


def part(weights, name):
    return {n.removeprefix(f"{name}."): t for n, t in weights.items() if n.startswith(f"{name}.")}


def mean_of(states):
    return {n: sum(state[n] for state in states) / len(states) for n in states[0]}


# -- FedBABU ---------------------------------------------------------------------------------------------------
def test_fedbabu_trains_bodies_as_fedper_without_turns_for_the_head_and_no_head():
    made = personal_star(FedBABU(local=B16, adapt=0), client=("model", "own"), build=lambda: ALIKE)
    found = local(made).run(3)
    fedper = local(weights_star(FedPer(alone=0, local=B16), ALIKE)).run(3)
    assert equal(server(found), server(fedper))
    before = made.node("server").weights()
    for node in ("server", *CLIENTS):
        assert equal(part(server(found, node), "head"), part(before, "head"))


@pytest.mark.parametrize("tune", ["", "head"])
def test_fedbabu_by_a_plain_loop(tune):
    """One round of full batches: bodies step and are averaged; then each client's copy takes a step of `tune`."""
    method = FedBABU(local=WHOLE, cohort=PLAIN, tune=tune)
    federation = personal_star(method, client=("model", "own"), build=lambda: ALIKE)

    def stepped(state, rows, which):
        module = halves()()
        module.load_state_dict(state)
        F.cross_entropy(module(rows.x), rows.y).backward()
        return {n: p.detach() - 0.2 * p.grad * n.startswith(which) for n, p in module.named_parameters()}

    start = federation.node("server").weights()
    rows = [federation.data[c]["train"] for c in CLIENTS]
    common = mean_of([stepped(start, each, "body") for each in rows])
    found = local(federation).run(1)
    assert near(server(found), common)
    for client, each in zip(CLIENTS, rows, strict=True):
        assert near(found.state(client)["models"]["own"], stepped(common, each, tune))


# -- FedRoD ----------------------------------------------------------------------------------------------------
def test_fedrod_without_balance_has_fedavgs_common_network():
    found = local(headed_twice(FedRoD(balanced=False, local=B16), TwoHeads)).run(3)
    plain = local(weights_star(FedAvg(local=B16), halves())).run(3)
    assert equal(server(found), server(plain))
    balanced = local(headed_twice(FedRoD(local=B16), TwoHeads)).run(3)
    assert not equal(server(balanced), server(plain))


def test_fedrod_by_a_plain_loop():
    """Two rounds of full batches. The common network's loss is that of logits plus log n_c / n; the own head, from zero
    on, goes down the loss of the sum by features and common logits from before the step."""
    federation = headed_twice(FedRoD(local=WHOLE, cohort=PLAIN), TwoHeads)
    common, heads = federation.node("server").weights(), {c: torch.zeros(4, 7) for c in CLIENTS}
    for _ in range(2):
        states = []
        for client in CLIENTS:
            rows, module = federation.data[client]["train"], halves()()
            module.load_state_dict(common)
            features = module.body(rows.x)
            logits, frequent = module.head(features), torch.bincount(rows.y, minlength=4) / len(rows)
            F.cross_entropy(logits + frequent.log(), rows.y).backward()
            own = heads[client].clone().requires_grad_()
            together = logits.detach() + features.detach() @ own[:, :6].T + own[:, 6]
            F.cross_entropy(together, rows.y).backward()
            heads[client] = own.detach() - 0.2 * own.grad
            states.append({n: p.detach() - 0.2 * p.grad for n, p in module.named_parameters()})
        common = mean_of(states)
    found = local(federation).run(2)
    assert near(server(found), common)
    for client, head in heads.items():
        own = part(server(found, client), "own")
        assert near(own, {"weight": head[:, :6], "bias": head[:, 6]})


# -- FedDBE ----------------------------------------------------------------------------------------------------
def test_feddbe_begins_as_fedavg_and_goes_on_by_a_plain_loop():
    """Round one is FedAvg's, to the bit. In round two, with kappa = 3: cross-entropy of features plus the own shift,
    from zero on, and 3/2 of the mean square of the batch's mean features less the mean of those after round one."""
    federation = headed_twice(FedDBE(kappa=3.0, local=WHOLE, cohort=PLAIN), ShiftedFeatures)
    first = local(headed_twice(FedDBE(kappa=3.0, local=B16), ShiftedFeatures)).run(1)
    assert equal(server(first), server(local(weights_star(FedAvg(local=B16), halves())).run(1)))

    rows, common = {c: federation.data[c]["train"] for c in CLIENTS}, federation.node("server").weights()
    modules = {c: halves()() for c in CLIENTS}

    def stepped(loss, module, *more):
        module.load_state_dict(common)
        module.zero_grad()
        loss(module).backward()
        with torch.no_grad():
            for p in (*module.parameters(), *more):
                p -= 0.2 * p.grad
        return {n: p.detach().clone() for n, p in module.named_parameters()}

    states = [stepped(lambda m, c=c: F.cross_entropy(m(rows[c].x), rows[c].y), modules[c]) for c in CLIENTS]
    middle = torch.stack([modules[c].body(rows[c].x).mean(0).detach() for c in CLIENTS]).mean(0)
    common = mean_of(states)
    shifts = {c: torch.zeros(6, requires_grad=True) for c in CLIENTS}

    def loss(module, client):
        features = module.body(rows[client].x)
        apart = (features.mean(0) - middle).pow(2).mean()
        return F.cross_entropy(module.head(features + shifts[client]), rows[client].y) + 1.5 * apart

    states = [stepped(lambda m, c=c: loss(m, c), modules[c], shifts[c]) for c in CLIENTS]
    found = local(federation).run(2)
    assert near(server(found), mean_of(states))
    for client, shift in shifts.items():
        assert torch.allclose(server(found, client)["own.by"], shift, atol=1e-6)


# -- FedDyn ----------------------------------------------------------------------------------------------------
def test_golden_feddyn_on_one_number():
    """alpha = 1; a step at rate 0.5 goes down (w - y) - g + (w - w_t), where the last is zero at first.
    From 0: w = (0, 4), g = (0, -4), h = -2, and the server has 2 + 2 = 4, the optimum of both.
    From 4: slopes are 4 - 0 and -4 + 4, so w = (2, 4), g = (2, -4), h = -2 + 1 = -1, and the server 3 + 1 = 4.
    FedAvg would have been at 2, then 3: it comes to 4 only in the end.
    """
    method = FedDyn(alpha=1.0, local=STEP, loss=squared)
    assert two(method, 1) == [4.0, 0.0, 4.0]
    assert two(method, 2) == [4.0, 2.0, 4.0]
    assert two(FedAvg(local=STEP, loss=squared), 2)[0] == 3.0


# -- FedAMP ----------------------------------------------------------------------------------------------------
def test_fedamp_without_shares_is_solo():
    common = {"model": Model(net(), common=True)}
    alone = local(Federation(Solo(local=B16), complete(CLIENTS), {"peer": common}, private(CLIENTS))).run(3)
    found = local(weights_star(FedAMP(alpha=0.0, local=B16), common["model"])).run(3)
    assert all(equal(server(found, client), server(alone, client)) for client in CLIENTS)


def test_golden_fedamp_on_one_number():
    """sigma = 16, alpha = 1, pull 1, rate 0.5. From 0 with mixtures 0: w = (0, 4). Their distance is 4, so the share is
    s = exp(-1) / 16, and mixtures are 4 s and 4 - 4 s. c0 goes down 0 - 4 s, to 2 s. c1 goes down -4 + 4 s, to 6 - 2 s.
    """
    s = math.exp(-1) / 16
    found = two(FedAMP(alpha=1.0, sigma=16.0, pull=1.0, local=STEP, loss=squared), 2)
    assert found[1:] == pytest.approx([2 * s, 6 - 2 * s])


def test_shares_of_fedamp_never_leave_less_than_nothing_for_ones_own():
    found = two(FedAMP(alpha=100.0, sigma=16.0, pull=1.0, local=STEP, loss=squared), 2)
    assert found[1:] == pytest.approx([2.0, 4.0])  # each is pulled to the other's: 0 - 0.5 (0 - 4), 4 - 0.5 (-4 + 4)


# -- APPLE -----------------------------------------------------------------------------------------------------
def test_golden_apple_on_one_number():
    """mu = 0, rates 0.5 and 0.01. At first each has its own core alone, with share 1: cores go from 0 to (0, 4).
    Then both have both, with shares of a half: the mixture is 2. c0: G = 2, its core goes to 0 - 0.5 * 0.5 * 2 = -0.5,
    its shares to 0.5 - 0.01 * 2 * 0 = 0.5 and 0.5 - 0.01 * 2 * 4 = 0.42: it predicts with -0.25 + 1.68 = 1.43.
    c1: G = -6, its core goes to 4 + 1.5 = 5.5, its shares to 0.5 + 0.24 = 0.74 and 0.5: it predicts with 4.07.
    With mu = 1 the hold on shares changes nothing yet, because they are where they began.
    """
    for mu in (0.0, 1.0):
        found = two(APPLE(mu=mu, share_lr=0.01, local=STEP, loss=squared), 2)
        assert found[1:] == pytest.approx([1.43, 4.07])


def test_apple_lets_shares_go_by_half_a_cosine_wave():
    held = APPLE(fade=4)
    assert [held.hold(round) for round in range(6)] == pytest.approx([1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0, 0])


# -- FedALA ----------------------------------------------------------------------------------------------------
def test_fedala_at_rate_zero_is_fedavg():
    found = local(weights_star(FedALA(rate=0.0, local=B16), halves())).run(3)
    plain = local(weights_star(FedAvg(local=B16), halves())).run(3)
    assert all(equal(server(found, node), server(plain, node)) for node in ("server", *CLIENTS))


def test_golden_fedala_on_one_number():
    """After a round of FedAvg clients have (0, 4), the server 2. eta = 0.125, one pass, from W = 1: both are at 2.
    c0: the slope is 2 * 2, W = 0.5, so it begins at 1 and goes to 0.5. c1: the slope is -6 * -2, W = max(0, -0.5) = 0,
    so it begins at its own 4 and goes to 6. The server has 3.25.
    """
    method = FedALA(part="", rate=0.125, share=1.0, most=1, local=STEP, loss=squared)
    assert two(method, 2) == [3.25, 0.5, 6.0]


def test_fedala_mixes_its_part_alone():
    found = local(weights_star(FedALA(local=B16, most=3), halves())).run(3)
    names = {n for c in CLIENTS for n in found.state(c)["vars"]["mix"]}
    assert names == {"head.weight", "head.bias"}
    assert all(w.min() >= 0 and w.max() <= 1 for c in CLIENTS for w in found.state(c)["vars"]["mix"].values())


# -- FedAS -----------------------------------------------------------------------------------------------------
def test_fedas_by_a_plain_loop():
    """Two rounds of full batches. A trace is the full batch's squared gradient times its rows, which estimates one
    row's."""
    federation = weights_star(FedAS(local=WHOLE, align_lr=0.1, batches=1), ALIKE)
    rows = {c: federation.data[c]["train"] for c in CLIENTS}
    modules = {c: federation.node(c).models["model"] for c in CLIENTS}
    common = part(federation.node("server").weights(), "body")

    def step(module, loss, rate, parameters):
        module.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= rate * p.grad

    for round in range(2):
        traces, bodies = [], []
        for client, module in modules.items():
            x, y = rows[client].x, rows[client].y
            features = module.body(x).detach()
            module.body.load_state_dict(common)
            if round:
                loss = 0
                for label in y.unique():
                    apart = module.body(x)[y == label] - features[y == label].mean(0)
                    loss = loss + apart.pow(2).mean()
                step(module, loss, 0.1, module.body.parameters())
            step(module, F.cross_entropy(module(x), y), 0.2, module.parameters())
            module.zero_grad()
            F.cross_entropy(module(x), y).backward()
            traces.append(len(y) * sum(float(p.grad.pow(2).sum()) for p in module.parameters()))
            bodies.append({n: t.clone() for n, t in module.body.state_dict().items()})
        common = {n: sum(t * body[n] for t, body in zip(traces, bodies, strict=True)) / sum(traces) for n in bodies[0]}
    found = local(federation).run(2)
    assert near(part(server(found), "body"), common)
    for client, module in modules.items():
        assert near(server(found, client), dict(module.state_dict()))


# -- kNN-Per ---------------------------------------------------------------------------------------------------
def test_knn_per_has_fedavgs_global_model():
    found = local(headed_twice(KNNPer(local=B16), Neighbours)).run(3)
    plain = local(weights_star(FedAvg(local=B16), halves())).run(3)
    assert equal(server(found), server(plain))


def test_neighbours_by_a_plain_loop():
    network, rows = Neighbours(halves()()), private(["c0"])["c0"]["train"]
    new = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    common = network.common(new).softmax(1)
    assert torch.allclose(network(new).exp(), common, atol=1e-6)  # nothing is remembered yet
    network.remember(network.common.body(rows.x), rows.y)
    network.nearest.fill_(3)
    network.share.fill_(0.25)
    for i in range(5):
        apart = (network.common.body(rows.x) - network.common.body(new[i : i + 1])).norm(dim=1)
        votes = torch.zeros(4)
        for j in apart.argsort()[:3]:
            votes[rows.y[j]] += (-apart[j]).exp()
        expected = 0.25 * votes / votes.sum() + 0.75 * common[i]
        assert torch.allclose(network(new)[i].exp(), expected, atol=1e-5)


# -- GPFL ------------------------------------------------------------------------------------------------------
def test_gpfl_by_a_plain_loop():
    """One round of full batches at one client."""
    federation = turned_star(GPFL(pull=0.5, local=WHOLE, cohort=PLAIN))
    module, rows = federation.node("c1").models["model"], federation.data["c1"]["train"]
    sent = federation.node("server").weights()
    module.load_state_dict({**module.state_dict(), **sent})
    table = sent["classes.table"]
    own = table[rows.y].mean(0)
    features = module.network.body(rows.x)

    def turned(condition):
        v = module.valve
        return (features * (1 + v.scale(condition)) + v.shift(condition)).relu()

    common = turned(table.mean(0))
    cosines = torch.stack([F.cosine_similarity(common, vector.unsqueeze(0)) for vector in module.classes.table], 1)
    loss = F.cross_entropy(module.network.head(turned(own)), rows.y) + F.cross_entropy(cosines, rows.y)
    (loss + 0.5 * (common - table[rows.y]).norm(dim=1).mean()).backward()
    stepped = {n: p.detach() - 0.2 * p.grad for n, p in module.named_parameters()}
    found = server(local(federation).run(1), "c1")
    assert near(found, stepped)
    assert torch.allclose(found["own"], own, atol=1e-6)


# -- FedRE -----------------------------------------------------------------------------------------------------
def test_fedre_by_a_plain_loop():
    """One round: full batches, mixtures of class means, and the server's head by autograd, a step for each mixture."""
    federation = own_star(FedRE(taught=TaughtHead(3, 0.1), local=WHOLE), halves)
    head, sent = torch.zeros(4, 7, requires_grad=True), []
    for client in CLIENTS:
        node, rows = federation.node(client), federation.data[client]["train"]
        module, classes = node.models["model"], rows.y.unique()
        F.cross_entropy(module(rows.x), rows.y).backward()
        torch.optim.SGD(module.parameters(), 0.2).step()
        features = module.body(rows.x).detach()
        drawn = torch.rand(4, generator=node.rng("mixture"))[classes]
        shares = drawn / drawn.sum()
        mixture = sum(w * features[rows.y == c].mean(0) for w, c in zip(shares, classes, strict=True))
        sent.append((mixture, classes, shares))
    for _ in range(3):
        for mixture, classes, shares in sent:
            logits = head[:, :6] @ mixture + head[:, 6]
            loss = sum(w * F.cross_entropy(logits, c) for w, c in zip(shares, classes, strict=True))
            (slope,) = torch.autograd.grad(loss, head)
            head = (head - 0.1 * slope).detach().requires_grad_()
    found = local(federation).run(1).state("server")["vars"]["head"]
    assert torch.allclose(found, head, atol=1e-5)
