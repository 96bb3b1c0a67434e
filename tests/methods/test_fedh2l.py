"""FedH2L: its loss by plain loops, two peers by hand, what it must equal, and peers that come, go, lag and lie."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heterophony import Data, Federation, Fit, Kind, Probabilities, Profile, Refused, Scalar
from heterophony.base.seeds import generator
from heterophony.compute.eager import fit
from heterophony.engines import local, process
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Body, Message
from heterophony.kernel.topology import complete, graph, ring
from heterophony.methods import FedH2L, FedH2LAsync, Solo
from heterophony.methods.fedh2l import TEACH
from heterophony.parts.cohort import Cohort
from heterophony.parts.mutual import MutualTeaching, Signal
from heterophony.parts.training import Training
from heterophony.tables.metrics import conflicts
from toys.bytes import formula
from toys.federations import PEERS, STEP, peers, unhurried
from toys.world import PUBLIC, net, points, private


def h2l(**options):
    return FedH2L(**{"local": STEP, "sample": 8, **options})


def ran(method, rounds=4, topology=complete, **options):
    return local(peers(topology, method, **options)).run(rounds)


def incidents(result, what):
    return [i["detail"] for i in result.ledger.incidents if i["incident"] == what]


# -- the loss --------------------------------------------------------------------------------------------------
def order(signals, mutual=None):
    """The work that learning from these signals asks for."""
    mutual = mutual or MutualTeaching()
    return next(mutual.learn(signals, STEP, {"weight": torch.ones(1)}))


def signals():
    draw = generator("signals")
    lengths, accuracies, ages = (3, 5, 4), (0.5, 1.0, 0.25), (0, 0, 3)
    return [
        Signal(torch.rand(n, 4, generator=draw).softmax(-1), accuracy, torch.randint(32, (n,), generator=draw), age)
        for n, accuracy, age in zip(lengths, accuracies, ages, strict=True)
    ]


@pytest.mark.parametrize(
    ("kl", "ce", "labelled"), [(1.0, 1.0, True), (0.0, 1.0, True), (2.0, 0.5, True), (1.0, 1.0, False)]
)
def test_the_loss_is_eq_3_to_6(kl, ce, labelled):
    """Teachers of different numbers of rows count alike; a late one's KL fades, the labels of its rows do not."""
    heard = signals()
    fit = order(heard, MutualTeaching(kl=kl, ce=ce))
    model = net()().double()
    columns = {**PUBLIC.columns, **({} if labelled else {"y": None})}
    public = Data(classes=4, **{name: column for name, column in columns.items() if column is not None})
    batch = public.take(fit.rows).with_columns(**fit.extra)
    batch = Data(**{n: c.double() if c.is_floating_point() else c for n, c in batch.columns.items()})
    terms = fit.loss({"model": model}, batch)["model"]
    imitation = supervision = 0.0
    for taught, accuracy, rows, age in heard:
        weight = accuracy * (1 + age) ** -0.5
        for p, row in zip(taught.double().tolist(), rows.tolist(), strict=True):
            q = model(PUBLIC.x[row : row + 1].double())[0].softmax(-1).tolist()
            imitation += weight * sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True)) / len(rows)
            supervision += -math.log(q[int(PUBLIC.y[row])]) / len(rows)
    assert terms["kl"].item() == pytest.approx(kl * imitation / 3, abs=1e-6)  # weights are float32
    assert ("ce" in terms) == labelled
    if labelled:
        assert terms["ce"].item() == pytest.approx(ce * supervision / 3, abs=1e-6)


def test_a_certain_teacher_is_no_trouble():
    sure = Signal(torch.eye(4), 1.0, torch.arange(4))
    fit = order([sure])
    loss = fit.loss({"model": net()()}, PUBLIC.take(fit.rows).with_columns(**fit.extra))["model"]["kl"]
    assert torch.isfinite(loss)


def test_nobody_heard_is_no_step():
    nobody = Signal(torch.empty(0, 4), 1.0, torch.empty(0, dtype=torch.int64))
    for heard in ([], [nobody]):
        assert list(MutualTeaching().learn(heard, STEP, {})) == []


# -- by hand ---------------------------------------------------------------------------------------------------
def zeros():
    module = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(module.weight)
    return module


def pair(label=1, **mutual):
    """Peers a and b with one private row each, x = (1, 0) of class 0 and 1; public x = (1, 1), row 0 a's, row 1 b's."""
    one, two = torch.tensor([[1.0, 0.0]]), torch.ones(2, 2)
    public = Data(classes=2, x=two, y=torch.tensor([0, label]))
    data = {
        name: {"train": Data(x=one, y=torch.tensor([i])), "public": public, "mine": Data(row=torch.tensor([i]))}
        for i, name in enumerate("ab")
    }
    method = FedH2L(local=Training(batch=None, lr=1.0, steps=1), mutual=MutualTeaching(eta=0.5, **mutual))
    return Federation(method, complete(["a", "b"]), {"peer": {"model": zeros}}, data)


S = 1 / (1 + math.exp(-1))
K = 3 * S - 1


@pytest.mark.parametrize(
    ("options", "column"),
    [
        ({}, (0, K)),
        ({"projection": "none"}, (K, K)),
        ({"projection": "none", "kl": 0.0}, (S, S)),
        ({"projection": "pcgrad"}, (-1 / 8, (K + 1 / 4) / 2)),
        ({"projection": "gem", "eps": 0.0}, (0, K)),
        ({"projection": "gem", "eps": 0.0, "margin": 4.0}, (K - 2, K)),
        ({"label": 0}, (S - 1, S - 1)),
    ],
    ids=["closed", "none", "no KL", "pcgrad", "gem", "gem with a margin", "a teacher that is wrong"],
)
def test_golden_two_peers(options, column):
    """Weights W (classes x features) start at 0; plain SGD, rate 1 locally and 0.5 mutually.

    Local: p = (1/2, 1/2), so a's gradient is (p - e_0) x^T = [[-1/2, 0], [1/2, 0]] = g_loc, and W = -g_loc; b is the
    mirror image. On the public x = (1, 1) a says (s, 1 - s) with s = sigmoid(1), b (1 - s, s), both accurate.
    a learns on b's row (label 1): KL gives p_a - p_b = (2s - 1)(1, -1), CE gives p_a - e_1 = s (1, -1), so g_pub =
    k [[1, 1], [-1, -1]] with k = 3s - 1 (k = s without KL). <g_pub, g_loc> = -k, |g_loc|^2 = 1/2, |g_pub|^2 = 4 k^2.
    closed: v = 2k takes the first column away. gem: the same with margin 1/2 < 2k; v = 4 leaves k - 2 in it.
    pcgrad: that and g_loc + k / (4 k^2) g_pub, whose first row is (-1/4, 1/4), averaged.
    If b's row is of class 0, b's accuracy is 0 and only CE is left, k = s - 1, which does not conflict.
    """
    weight = local(pair(**options)).run(1).state("a")["models"]["model"]["weight"]
    expected = [0.5 - 0.5 * column[0], -0.5 * column[1]]
    assert weight[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert weight[1].tolist() == pytest.approx([-w for w in expected], abs=1e-6)


def test_the_cosine_of_the_gradients_is_noted():
    """As above: <g_pub, g_loc> = -k, norms 2|k| and 1/sqrt(2): the cosine is -1/sqrt(2), or +1/sqrt(2) where k < 0."""
    for label, sign in ((1, -1), (0, 1)):
        table = local(pair(label)).run(1).table
        noted = table.select(product="note", quantity="gradients.cosine")
        assert noted.select(node="a").mean() == pytest.approx(sign / math.sqrt(2), abs=1e-6)
        found = conflicts(table)["a"]
        assert found == {
            "rounds": 1,
            "share": float(sign < 0),
            "cosine": pytest.approx(min(0, sign) / math.sqrt(2), abs=1e-6),
        }


# -- what it must equal ----------------------------------------------------------------------------------------
def alone(training=STEP, rounds=4, **options):
    return local(peers(method=Solo(local=training), **options)).run(rounds)


@pytest.mark.parametrize("steps", [1, 3])
def test_with_eta_zero_and_two_optimisers_it_is_solo(steps):
    training = replace(STEP, steps=steps)
    still = MutualTeaching(eta=0.0, moments="two")
    solo = alone(training).digest
    assert ran(h2l(local=training, mutual=still)).digest == solo
    assert ran(h2l(local=training, mutual=replace(still, moments="one"))).digest != solo
    assert ran(h2l(local=training, mutual=replace(still, eta=0.01))).digest != solo


def test_with_one_peer_it_is_solo():
    models, data = {"peer": {"model": net()}}, private(["p0"])
    both = [Federation(m, complete(["p0"]), models, data) for m in (h2l(), Solo(local=STEP), FedH2LAsync(local=STEP))]
    digests = [local(federation).run(4).digest for federation in both]
    assert digests[0] == digests[1] == digests[2]


def test_peers_of_equal_speed_without_delay_never_wait_in_vain():
    """Asynchronous peers hear in round t what was said in round t - 1, so with eta = 0 they too are solo."""
    still = MutualTeaching(eta=0.0, moments="two")
    assert ran(FedH2LAsync(local=STEP, mutual=still, sample=8)).digest == alone().digest


def test_over_several_steps_the_local_gradient_is_the_sum():
    """With plain SGD, (theta_0 - theta_E) / beta is the sum of the E gradients."""
    training = Training(batch=16, lr=0.05, steps=3)
    node, module = peers().node("p0"), peers().node("p0").models["model"]
    data, rows = node.data["train"], torch.randperm(40, generator=generator(0, "p0", "train", 0))
    total = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    for batch in (rows[:16], rows[16:32], rows[32:]):
        F.cross_entropy(module(data.x[batch]), data.y[batch]).backward()
        for name, p in module.named_parameters():
            total[name] += p.grad
            p.data -= 0.05 * p.grad
            p.grad = None
    study = MutualTeaching().study(node, training)
    with pytest.raises(StopIteration) as end:
        study.send(fit(node, next(study)))
    found = end.value.value
    assert found.keys() == total.keys()
    assert all(torch.allclose(found[name], total[name], atol=1e-5) for name in total)


# -- who talks to whom -----------------------------------------------------------------------------------------
def test_any_graph_of_peers_will_do():
    edges = [("p0", "p1"), ("p1", "p2")]
    sent = {}
    for name, topology in (("ring", ring), ("line", lambda _: graph(edges))):
        result = ran(h2l(), topology=topology)
        sent[name] = {(row["from"], row["to"]) for row in result.ledger.messages}
    assert sent["ring"] == set(itertools.permutations(PEERS, 2))
    assert sent["line"] == {*edges, *((b, a) for a, b in edges)}


def test_a_peer_teaches_on_rows_of_its_own_domain_only():
    """And on others each round: 8 of its 11 (or 10) rows, never one of somebody else's."""
    spoken = {name: set() for name in PEERS}
    federation = peers()
    for name in PEERS:
        node = federation.node(name)
        for round in range(6):
            node.round = round
            speech = MutualTeaching().signal(node, 8)
            predict = next(speech)
            assert len(set(predict.rows.tolist())) == 8
            spoken[name] |= set(predict.rows.tolist())
    assert [rows == set(range(i, 32, 3)) for i, rows in enumerate(spoken.values())] == [True] * 3


def test_without_a_domain_of_its_own_a_peer_teaches_on_any_row():
    federation = peers()
    data = {name: {k: v for k, v in own.items() if k != "mine"} for name, own in federation.data.items()}
    result = local(replace(federation, data=data)).run(2)
    assert result.ledger.bytes() == {"teach": formula(federation, 2)["teach"]}


# -- unlabelled public data ------------------------------------------------------------------------------------
def unlabelled(method):
    bare = Data(classes=4, x=PUBLIC.x)
    federation = peers(method=method)
    data = {
        name: {**own, "public": bare, "own": own["train"], "validation": points(f"validation of {name}", 16)}
        for name, own in federation.data.items()
    }
    return replace(federation, data=data)


def accuracies(federation, monkeypatch):
    """What the peers claim in one round."""
    said, make = [], TEACH.fields["accuracy"].freeze
    monkeypatch.setattr(Scalar, "freeze", lambda self, value: said.append(value) or make(value))
    return local(federation).run(1), said


def test_without_labels_there_is_kl_alone(monkeypatch):
    own = replace(STEP, data="own")
    result, said = accuracies(unlabelled(h2l(local=own)), monkeypatch)
    assert said == [1.0] * 3
    assert {row["quantity"] for row in result.table.select(product="training", set="public")} == {"model.kl"}


def test_a_teachers_weight_may_be_its_accuracy_on_its_own_validation_data(monkeypatch):
    method = h2l(local=replace(STEP, data="own"), mutual=MutualTeaching(confidence="validation"))
    federation = unlabelled(method)
    result, said = accuracies(federation, monkeypatch)
    assert result.rounds == 1
    assert len(set(said)) > 1
    assert all(value in [i / 16 for i in range(17)] for value in said)
    assert (
        accuracies(unlabelled(h2l(mutual=MutualTeaching(confidence="one"), local=method.local)), monkeypatch)[1]
        == [1.0] * 3
    )


# -- peers that go, lag and return -----------------------------------------------------------------------------
@pytest.mark.parametrize("gone", [some for n in (1, 2) for some in itertools.combinations(PEERS, n)], ids="-".join)
def test_whoever_disappears_the_others_are_trained(gone):
    profiles = {name: Profile(available=((0.0, 0.07),)) for name in gone}
    method = h2l(cohort=Cohort(deadline=0.05))
    result = ran(method, rounds=12, profiles=profiles)
    staying = set(PEERS) - set(gone)
    assert {name for name in PEERS if result.state(name)["round"] == 12} == staying
    for name in staying:
        curve = result.table.select(node=name, product="training", set="all", quantity="model.ce").rows
        assert [row["round"] for row in curve] == list(range(12))
        assert curve[-1]["sum"] < curve[0]["sum"]
    assert {row["node"] for row in result.table if row["product"] == "local" and row["round"] == 11} == staying


def test_a_peer_that_returns_is_heard_again_and_hears_again():
    """Away from 0.05 to 0.3 s; the others wait 0.06 s for it in each round, and use what it says late by its age.

    What they said meanwhile reaches it when it is back, so that it needs not wait, and is in step after a few rounds.
    """
    away = {"p1": Profile(available=((0.0, 0.05), (0.3, math.inf)))}
    forever = {"p1": Profile(available=((0.0, 0.05),))}
    rounds, method = 16, h2l(cohort=Cohort(deadline=0.06))
    result, without = (ran(method, rounds, profiles=profiles) for profiles in (away, forever))
    assert [result.state(name)["round"] for name in PEERS] == [rounds] * 3
    sent = [row["time"] for row in result.ledger.messages if (row["from"], row["status"]) == ("p1", "sent")]
    assert [moment for moment in sent if 0.06 < moment < 0.3] == []  # what it has begun it finishes
    spoken = [{r["time"] for r in result.ledger.messages if r["round"] == t and r["to"] != "p1"} for t in range(rounds)]
    assert [len(times) > 1 for times in spoken] == [2 <= round < 8 for round in range(rounds)]
    assert incidents(result, "late") == []
    for name in ("p0", "p2"):
        assert not torch.equal(*(r.state(name)["models"]["model"]["0.weight"] for r in (result, without)))
    learned = result.table.select(node="p1", product="note", quantity="gradients.cosine").rows
    assert any(row["time"] > 0.3 for row in learned)


def test_of_several_late_signals_of_one_peer_the_newest_is_used():
    def message(sender, round, staleness):
        body = {"probabilities": torch.full((2, 4), 0.25), "accuracy": 0.5, "rows": torch.tensor([round, round + 1])}
        return Message("teach", sender, "p0", round, (round, 0), Body(body), staleness)

    node = peers().node("p0")
    node.vars["g_loc"] = {}
    mail = Inbox([message("p1", 3, 0), message("p2", 1, 2), message("p2", 2, 1)])
    work = next(h2l().learn(node, mail))
    assert sorted(work.rows.tolist()) == [2, 3, 3, 4]
    asked = dict(zip(work.rows.tolist(), work.extra["trust"].tolist(), strict=True))
    assert asked[2] == pytest.approx(0.5 * 2**-0.5, abs=1e-6)
    assert asked[4] == 0.5


# -- peers that never wait -------------------------------------------------------------------------------------
def test_asynchronous_peers_each_keep_their_own_pace():
    result = local(unhurried()).run(6)
    ends = {name: max(row["time"] for row in result.table if row["node"] == name) for name in PEERS}
    assert ends["p0"] < ends["p1"] < ends["p2"]
    assert incidents(result, "timeout") == []
    # The first round of all is alone; from then on everyone has heard somebody.
    assert {name: n["rounds"] for name, n in conflicts(result.table).items()}.keys() == set(PEERS)


def test_a_slow_peers_signal_is_used_with_its_age_and_then_forgotten():
    """p0's rounds take about 0.05 s, p2 speaks once and is gone: p0 hears it for `forget` rounds more, ever fainter."""
    node = peers(method=FedH2LAsync(local=STEP, sample=8, forget=2)).node("p0")
    body = {"probabilities": torch.full((2, 4), 0.25), "accuracy": 1.0, "rows": torch.tensor([2, 5])}
    mail = Inbox()
    mail.also = (Message("teach", "p2", "p0", 0, (1, 0), Body(body)),)
    weights = []
    for round in range(6):
        node.round = round
        reaction = FedH2LAsync(local=STEP, sample=8, forget=2).step(node, mail if round == 1 else Inbox())
        study = next(reaction)
        predict = reaction.send(fit(node, study))
        reaction.send(torch.zeros(len(predict.rows), 4))
        work = next(reaction)
        weights.append(work.extra["trust"].tolist() if isinstance(work, Fit) else None)
        assert len(node.vars["heard"]) <= 1
    faint = [pytest.approx([(1 + age) ** -0.5] * 2, abs=1e-6) for age in range(3)]
    assert weights == [None, *faint, None, None]


def test_asynchronous_peers_go_on_without_those_who_are_gone():
    profiles = {"p1": Profile(available=((0.0, 0.07),))}
    result = ran(FedH2LAsync(local=STEP, sample=8), rounds=8, profiles=profiles)
    assert [result.state(name)["round"] == 8 for name in PEERS] == [True, False, True]


# -- peers that lie --------------------------------------------------------------------------------------------
def body(probabilities, rows, accuracy=1.0):
    return TEACH(probabilities=probabilities, accuracy=accuracy, rows=rows).body


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (body(torch.full((3, 4), 0.25), torch.arange(5)), "probabilities: 3 rows, but rows names 5"),
        (body(torch.full((3, 5), 0.2), torch.arange(3)), "probabilities: 5 classes, the receiver's 'public' has 4"),
        (body(torch.full((9, 4), 0.25), torch.arange(9)), "probabilities: 9 rows, the receiver expects at most 8"),
        (body(torch.full((1, 4), 0.25), torch.tensor([32])), "rows: row 32 is beyond the receiver's 'public'"),
        (body(torch.full((1, 4), 0.5), torch.tensor([0])), "probabilities: rows are no probabilities"),
        (body(torch.full((1, 4), 0.25), torch.tensor([0]), 1.5), "accuracy: 1.5 is outside"),
    ],
)
def test_a_signal_that_does_not_fit_is_refused_in_one_line(said, complaint):
    method = h2l()
    shape = replace(peers(method=method).node("p0").shape, setting=method.setting)
    with pytest.raises(Refused) as caught:
        TEACH.check(said, shape)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
    TEACH.check(body(torch.full((3, 4), 0.25), torch.arange(3)), shape)


@pytest.mark.parametrize("engine", [local, process])
def test_a_lying_peer_is_done_without(engine, monkeypatch):
    honest = MutualTeaching.signal

    def lie(self, peer, sample):
        said = yield from honest(self, peer, sample)
        return Signal(said.probabilities[:3], 1.0, said.rows) if peer.id == "p1" else said

    monkeypatch.setattr(MutualTeaching, "signal", lie)
    result = engine(peers(method=h2l())).run(3)
    assert result.rounds == 3
    assert incidents(result, "refused") == [
        f"'teach' of round {round} from p1: probabilities: 3 rows, but rows names 8"
        for round in range(3)
        for _ in range(2)
    ]


def test_rows_that_no_field_names_are_a_mistake_in_the_kind():
    with pytest.raises(ValueError, match="the field 'places' names its rows, but there is no such field"):
        Kind("odd", to="peers", probabilities=Probabilities("public", rows="places"))


def test_mistaken_options_are_told():
    with pytest.raises(ValueError, match="at least 0"):
        MutualTeaching(eta=-1.0)
    with pytest.raises(ValueError, match="steps >= 1"):
        Training(steps=0)
    with pytest.raises(ValueError, match="sample is a number of rows"):
        FedH2L(sample=0)


# -- it learns -------------------------------------------------------------------------------------------------
def test_peers_learn_each_others_domains():
    """Here and there are labelled by one rule but shifted apart; heard from each other, all are better at both."""
    taught, solo = ran(h2l(local=replace(STEP, data="train")), rounds=60), alone(replace(STEP, data="train"), rounds=60)
    assert taught.metrics().acc > solo.metrics().acc + 0.02
