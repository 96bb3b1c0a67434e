"""FedBE, one-shot ensembles, FedKT, FedSEM and RHFL: limits, golden toys, and rounds taken by plain loops."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from heterophony import Data, Validation
from heterophony.engines import local
from heterophony.kernel.mailbox import Inbox
from heterophony.methods import RHFL, FedAvg, FedBE, FedKT, FedSEM, OneShot
from heterophony.methods.fedkt import counted
from heterophony.methods.fedsem import nearest, spread
from heterophony.methods.rhfl import SymmetricLoss, confidence
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from toys.by_hand import equal, server
from toys.federations import B16, CLIENTS, ensemble_star, logits_star, personal_star, shared_star, weights_star
from toys.watched import sent
from toys.world import PUBLIC, points

WHOLE = Training(batch=None, lr=0.2)
STILL = Training(epochs=0)


def stepped(module, loss, rate=0.2):
    """Take a step of gradient descent."""
    for weight, slope in zip(module.parameters(), torch.autograd.grad(loss, list(module.parameters())), strict=True):
        weight.data -= rate * slope


def near(found, module):
    return all(torch.allclose(found[name], tensor, atol=1e-6) for name, tensor in module.state_dict().items())


# -- FedBE -----------------------------------------------------------------------------------------------------
def test_fedbe_that_does_not_distil_is_fedavg():
    found, plain = local(shared_star(FedBE(local=B16, cycles=0))).run(3), local(weights_star(FedAvg(local=B16))).run(3)
    assert equal(server(found), server(plain))


def test_fedbe_by_a_plain_loop():
    """A round of full batches without draws: the mean and the clients' models teach; two cycles are averaged."""
    federation = shared_star(FedBE(local=WHOLE, distil=WHOLE, draws=0, cycles=2, cohort=Cohort(weighted=False)))
    student, teachers = federation.node("server").models["model"], []
    for c in CLIENTS:
        node = federation.node(c)
        module, rows = node.models["model"], node.data["train"]
        module.load_state_dict(student.state_dict())
        stepped(module, F.cross_entropy(module(rows.x), rows.y))
        teachers.append(module)
    student.load_state_dict(
        {n: torch.stack([m.state_dict()[n] for m in teachers]).mean(0) for n in student.state_dict()}
    )
    with torch.no_grad():
        labels = torch.stack([m(PUBLIC.x).softmax(1) for m in (student, *teachers)]).mean(0)
    states = []
    for _ in range(2):
        stepped(student, -(labels * student(PUBLIC.x).log_softmax(1)).sum(1).mean())
        states.append({name: tensor.clone() for name, tensor in student.state_dict().items()})
    student.load_state_dict({name: (states[0][name] + states[1][name]) / 2 for name in states[0]})
    assert near(server(local(federation).run(1)), student)


def test_models_are_drawn_with_the_clients_mean_and_deviation():
    """Values 0 and 4, which count 1 and 3: the mean is 3, the variance (9 + 3 * 1) / 4 = 3."""
    known = [{"w": torch.zeros(20000)}, {"w": torch.full((20000,), 4.0)}]
    centre = {"w": torch.full((20000,), 3.0)}
    drawn = FedBE().drawn(known, [1.0, 3.0], centre, torch.Generator().manual_seed(1))["w"]
    assert drawn.mean().item() == pytest.approx(3, abs=0.05)
    assert drawn.var().item() == pytest.approx(3, abs=0.1)


def test_models_of_the_dirichlet_mix_those_of_clients():
    known = [{"w": torch.tensor([1.0, 0.0])}, {"w": torch.tensor([0.0, 1.0])}]
    mixed = FedBE(around="dirichlet")
    drawn = [mixed.drawn(known, [1.0, 1.0], {}, torch.Generator().manual_seed(i))["w"] for i in range(200)]
    assert all(weights.sum().item() == pytest.approx(1) for weights in drawn)
    shares = torch.stack(drawn)[:, 0]  # uniform on [0, 1] at alpha = 1
    assert shares.mean().item() == pytest.approx(0.5, abs=0.07)
    assert shares.var().item() == pytest.approx(1 / 12, abs=0.02)


# -- one-shot --------------------------------------------------------------------------------------------------
def test_the_ensemble_is_of_the_best_members():
    node = ensemble_star().node("server")

    class Told:
        def __init__(self, sender, examples, score):
            self.sender, self.examples, self.score = sender, examples, score

    mail = Inbox([Told("a", 5, 0.9), Told("b", 9, 0.2), Told("c", 7, 0.5)])
    for choose, expected in (("data", "bc"), ("validation", "ac"), ("all", "abc")):
        chosen = OneShot(choose=choose, members=2).chosen(node, mail)
        assert "".join(m.sender for m in chosen) == expected
    assert len(OneShot(choose="random", members=2).chosen(node, mail)) == 2


def test_one_shot_by_a_plain_loop():
    """The two with the most rows, c1 and c2, of two architectures, teach a student of a third one."""
    federation = replace(ensemble_star(), method=OneShot(members=2, local=WHOLE, distil=WHOLE))
    student, said = federation.node("server").models["model"], []
    for c in ("c1", "c2"):
        module, rows = federation.node(c).models["model"], federation.node(c).data["train"]
        stepped(module, F.cross_entropy(module(rows.x), rows.y))
        said.append(module(PUBLIC.x).detach().softmax(1))
    stepped(student, -((said[0] + said[1]) / 2 * student(PUBLIC.x).log_softmax(1)).sum(1).mean())
    assert near(server(local(federation).run(1)), student)


def test_scores_come_from_validation_rows():
    federation = replace(ensemble_star(), method=OneShot(choose="validation", members=1, local=B16, distil=STILL))
    good, bad = points("validation", 24), points("validation", 24)
    bad = Data(x=bad.x, y=(bad.y + 1) % 4, classes=4)
    views = {c: {**own, "validation": good if c == "c0" else bad} for c, own in federation.data.items()}
    scores = {m.sender: m.body["score"] for m in sent(replace(federation, data=views), "model", 1)}
    assert scores["c0"] > max(scores["c1"], scores["c2"]) > 0
    assert any(isinstance(need, Validation) for need in federation.method.needs())
    assert not any(isinstance(need, Validation) for need in OneShot().needs())


# -- FedKT -----------------------------------------------------------------------------------------------------
def test_votes_count_where_all_students_of_a_party_agree():
    one, other = torch.tensor([[1, 0], [0, 1]]), torch.tensor([[1, 0], [1, 0]])
    assert counted([one, other], consistent=True).tolist() == [[2, 0], [0, 0]]
    assert counted([one, other], consistent=False).tolist() == [[2, 0], [1, 1]]


def test_fedkt_by_a_plain_loop():
    """One partition, one teacher: the student learns its teacher's votes, and the server the majority of students."""
    federation = shared_star(FedKT(partitions=1, teachers=1, local=WHOLE, distil=WHOLE))
    votes = torch.zeros(len(PUBLIC), 4)
    for c in CLIENTS:
        module, rows = federation.node(c).models["model"], federation.node(c).data["train"]
        start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        stepped(module, F.cross_entropy(module(rows.x), rows.y))
        labels = module(PUBLIC.x).argmax(1)
        module.load_state_dict(start)
        stepped(module, F.cross_entropy(module(PUBLIC.x), labels))
        votes += F.one_hot(module(PUBLIC.x).argmax(1), 4)
    own = federation.node("server").models["model"]
    stepped(own, F.cross_entropy(own(PUBLIC.x), votes.argmax(1)))
    assert near(server(local(federation).run(1)), own)


def test_every_row_has_a_teacher_in_each_partition():
    seen = []

    class Counting(Training):
        def fit(self, models, loss, **more):
            seen.append(more["rows"])
            return super().fit(models, loss, **more)

    one = Cohort(fraction=0.3)
    found = local(shared_star(FedKT(local=Counting(batch=16), distil=STILL, teachers=3, cohort=one))).run(1)
    (message,) = [m for m in found.ledger.messages if m["kind"] == "students"]
    rows = len(shared_star(FedKT()).data[message["from"]]["train"])
    parts = [torch.cat(seen[:3]), torch.cat(seen[3:])]
    assert [part.sort().values.tolist() for part in parts] == [list(range(rows))] * 2
    assert not torch.equal(*parts)


# -- FedSEM ----------------------------------------------------------------------------------------------------
def test_fedsem_with_one_cluster_is_fedavg():
    found = local(weights_star(FedSEM(clusters=1, local=B16))).run(3)
    assert equal(server(found), server(local(weights_star(FedAvg(local=B16))).run(3)))


def test_golden_centres():
    """Of 0, 1, 5 and 6 on a line: first 0, then 6, which is the farthest, then 5 and 1 alike: 1 comes first."""
    models = [{"w": torch.tensor([value])} for value in (0.0, 1.0, 5.0, 6.0)]
    assert [float(m["w"]) for m in spread(models, 3)] == [0.0, 6.0, 1.0]
    assert [nearest(m, spread(models, 2)) for m in models] == [0, 0, 1, 1]


def test_fedsem_tells_apart_clients_that_want_opposite_things():
    made = personal_star(FedSEM(local=WHOLE), ("model", "model-1"))
    wrong = made.data["c2"]["train"]
    turned = Data(x=wrong.x, y=(wrong.y + 2) % 4, classes=4)
    found = local(replace(made, data={**made.data, "c2": {**made.data["c2"], "train": turned}})).run(4)
    homes = found.state("server")["vars"]["homes"]
    assert homes["c0"] == homes["c1"] != homes["c2"]


# -- RHFL ------------------------------------------------------------------------------------------------------
def test_golden_confidence():
    """Losses 2 and 4 fall to 1 and 3: by 1 and 1/3 of what they are now, which are 3/4 and 1/4 of their sum."""
    found = confidence({"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 4.0}, eta=2.0)
    assert found["a"] == pytest.approx(1 / (1 + math.exp(2 * (1 / 4 - 3 / 4))))
    assert sum(found.values()) == pytest.approx(1)
    for before in ({}, {"a": 1.0, "b": 3.0}, {"a": 0.5, "b": 2.0}):
        assert confidence({"a": 1.0, "b": 3.0}, before, eta=2.0) == {"a": 0.5, "b": 0.5}


def test_symmetric_cross_entropy_by_loops():
    logits, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = [0.0, 0.0]
    for row, label in zip(logits.softmax(1).tolist(), labels.tolist(), strict=True):
        expected[0] -= 0.3 * math.log(row[label]) / 6
        expected[1] -= 0.7 * math.log(1e-4) * sum(p for k, p in enumerate(row) if k != label) / 6
    terms = SymmetricLoss(0.3, 0.7).terms(logits, labels)
    assert [float(term) for term in terms.values()] == pytest.approx(expected, rel=1e-5)


def test_rhfl_by_a_plain_loop():
    """Two rounds of full batches, by the weighted sum of KL: each client's weight is the softmax over all of them."""
    federation = logits_star(RHFL(eta=0.5, local=WHOLE, distil=WHOLE))
    nodes = {c: federation.node(c) for c in CLIENTS}
    nets, rows, before = (
        {c: n.models["model"] for c, n in nodes.items()},
        {c: n.data["train"] for c, n in nodes.items()},
        {},
    )

    def symmetric(c):
        logits = nets[c](rows[c].x)
        wrong = 1 - logits.softmax(1).gather(1, rows[c].y.unsqueeze(1))
        return 0.1 * F.cross_entropy(logits, rows[c].y) - math.log(1e-4) * wrong.mean()

    for _ in range(2):
        losses = {c: float(symmetric(c).detach()) for c in CLIENTS}
        fallen = {c: (before.get(c, loss) - loss) / loss for c, loss in losses.items()}
        total = sum(fallen.values())
        scores = [0.5 + (0.5 * q / total if total > 0 else 0) for q in fallen.values()]
        weights = dict(zip(CLIENTS, torch.tensor(scores).softmax(0).tolist(), strict=True))
        said, before = {c: nets[c](PUBLIC.x).detach().softmax(1) for c in CLIENTS}, losses
        for c in CLIENTS:
            told = nets[c](PUBLIC.x).log_softmax(1)
            stepped(
                nets[c], sum(weights[o] * F.kl_div(told, said[o], reduction="batchmean") for o in CLIENTS if o != c)
            )
        for c in CLIENTS:
            stepped(nets[c], symmetric(c))
    found = local(federation).run(2)
    for c in CLIENTS:
        assert near(server(found, c), nets[c])


def test_one_alone_learns_from_nobody():
    found = local(logits_star(RHFL(forward=1.0, reverse=0.0, local=B16, cohort=Cohort(fraction=0.3)))).run(1)
    messages = [m for m in found.ledger.messages if m["kind"] == "others"]
    client = messages[0]["to"]
    module = logits_star(RHFL()).node(client)
    net_, rows = module.models["model"], module.data["train"]
    optimiser = torch.optim.SGD(net_.parameters(), 0.1)
    for batch in module.order("train", len(rows)).split(16):
        optimiser.zero_grad()
        F.cross_entropy(net_(rows.x[batch]), rows.y[batch]).backward()
        optimiser.step()
    assert len(messages) == 1
    assert near(server(found, client), net_)
