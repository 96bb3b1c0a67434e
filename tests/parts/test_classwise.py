"""Methods whose messages have a row a class (FD, FedProto, FedTGP, FedGH): by loops, limits, bad answers."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import Data, Federation, Kind, Refused
from heterophony.base.seeds import generator
from heterophony.engines import Network, local
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.fields import Counts, PerClass, Shape
from heterophony.kernel.message import Body
from heterophony.kernel.topology import complete, star
from heterophony.methods import FD, FedGH, FedProto, Solo, fedtgp
from heterophony.methods.fedgh import with_labels
from heterophony.models.blocks import Halves
from heterophony.parts.classwise import ClassMeans, by_label, columns_for, merged, renewed, usual
from heterophony.parts.cohort import Cohort
from heterophony.parts.contrast import Contrast, contrast, fresh, gap, prototypes
from heterophony.parts.features import pooled
from heterophony.parts.heads import TaughtHead, replaced, taught_head
from heterophony.parts.training import Training
from toys.by_hand import equal
from toys.federations import B16, CLIENTS, FEW, own_star
from toys.watched import sent
from toys.world import halves, net, private, unbiased, wide

MOMENTUM = Training(batch=16, momentum=0.9)
ALL = [FD(local=B16, gamma=0.5), FedProto(local=B16), FedGH(local=B16), fedtgp(local=B16, server=FEW)]
LABELS = [2, 0, 2, 2, 0]  # of three classes; nobody has the second


def drawn(name, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator("classwise", name))


def model(result, node):
    return result.state(node)["models"]["model"]


# -- tables ----------------------------------------------------------------------------------------------------
def test_means_by_label_by_loops():
    outputs = drawn("outputs", 5, 4)
    table = by_label(outputs, Data(x=torch.zeros(5, 1), y=torch.tensor(LABELS), classes=3))
    for label in range(3):
        own = [row for row, y in zip(outputs.tolist(), LABELS, strict=True) if y == label]
        expected = [sum(column) / len(own) for column in zip(*own, strict=True)] if own else [0.0] * 4
        assert table.means[label].tolist() == pytest.approx(expected, abs=1e-6)
        assert table.counts[label] == len(own)
    rows = columns_for(table, torch.tensor([1, 0]))
    assert rows["heard"].tolist() == [0.0, 1.0]
    assert torch.equal(rows["mean"][1], table.means[0])


def test_merged_tables_by_loops():
    counts = [[3.0, 0.0, 1.0], [1.0, 0.0, 0.0], [4.0, 0.0, 2.0]]
    tables = [ClassMeans(drawn(i, 3, 2), torch.tensor(own)) for i, own in enumerate(counts)]
    together = merged(tables)
    for label in range(3):
        total = sum(own[label] for own in counts)
        for k in range(2):
            value = sum(own[label] * float(t.means[label, k]) for own, t in zip(counts, tables, strict=True))
            assert float(together.means[label, k]) == pytest.approx(value / total if total else 0.0, abs=1e-6)
        assert together.counts[label] == total


def test_a_table_of_another_shape_is_left_out():
    tables = {name: ClassMeans(torch.zeros(3, width), torch.ones(3)) for name, width in (("a", 4), ("b", 5), ("c", 5))}
    assert list(usual(tables)) == ["b", "c"]
    assert list(usual({"a": tables["a"], "b": tables["b"]})) == ["a"]
    assert usual({}) == {}
    empty = {name: ClassMeans(torch.zeros(0, 0), torch.zeros(0)) for name in "def"}
    assert list(usual({**empty, **tables})) == ["b", "c"]
    assert usual(empty) == {}
    assert list(usual(tables, {"a": [3, 4], "x": [3, 4], "b": [3, 5], "c": [3, 5], "y": [3, 4]})) == ["a"]


# -- what is refused -------------------------------------------------------------------------------------------
KIND = Kind("means", to="children", means=PerClass("train", rows="held", soft=True), held=Counts)
SHAPE = Shape({}, {"train": (40, 3)}.get)


@pytest.mark.parametrize(
    ("means", "held", "text"),
    [
        (torch.eye(4), torch.ones(4), "means: 4 classes, the receiver's 'train' has 3"),
        (torch.eye(3).double(), torch.ones(3), "means: expected float32, got torch.float64"),
        (torch.eye(3), torch.ones(3).double(), "held: expected float32, got torch.float64"),
        (torch.eye(3) * math.nan, torch.ones(3), "means: holds values that are not finite"),
        (torch.eye(3) * 2, torch.ones(3), "means: rows are neither probabilities nor zeros"),
        (torch.eye(3), torch.ones(2), "means: 3 rows, but held names 2"),
        (torch.eye(3), -torch.ones(3), "held: holds numbers that are no counts"),
        (torch.eye(3), torch.full((3,), math.inf), "held: holds values that are not finite"),
        (torch.eye(3), torch.ones(3, 1), "held: expected 1 dimensions"),
        (torch.zeros(3), torch.ones(3), "means: expected 2 dimensions"),
    ],
)
def test_a_bad_table_is_refused(means, held, text):
    with pytest.raises(Refused) as caught:
        KIND.check(Body({"means": means, "held": held}), SHAPE)
    assert str(caught.value).startswith(text)


def test_a_good_table_passes_and_costs_its_numbers():
    for means, held in (
        (torch.eye(3), torch.ones(3)),
        (torch.zeros(3, 3), torch.zeros(3)),
        (torch.zeros(0, 0), torch.zeros(0)),
    ):
        sent = KIND(means=means, held=held)
        KIND.check(sent.body, SHAPE)
        assert KIND.payload(sent.body) == 4 * (means.numel() + held.numel())


# -- FD --------------------------------------------------------------------------------------------------------
def solo(build=net):
    models = {c: {"model": build(h)} for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    return local(Federation(Solo(local=MOMENTUM), complete(CLIENTS), models, private(CLIENTS))).run(3)


def test_fd_without_its_weight_and_fd_of_one_are_solo():
    alone, quiet = solo(), local(own_star(FD(local=MOMENTUM, gamma=0.0))).run(3)
    taught = local(own_star(FD(local=MOMENTUM, gamma=0.5))).run(3)
    for client in CLIENTS:
        assert equal(model(quiet, client), model(alone, client))
        assert not equal(model(taught, client), model(alone, client))
    one = Federation(FD(local=MOMENTUM, gamma=0.5), star(["c0"]), {"client": {"model": net(8)}}, private(["c0"]))
    assert equal(model(local(one).run(3), "c0"), model(alone, "c0"))  # nobody else: what is left out is all there is


def linear():
    return nn.Linear(2, 3, bias=False).double()


def test_golden_fd_by_loops():
    """Three clients, full batches, two rounds: the second learns from the others' means of the first, by loops."""
    rate, gamma, labels = 0.5, 0.7, {"c0": [0, 1, 0], "c1": [1, 1], "c2": [0, 1, 2]}
    xs = {c: drawn(c, len(own), 2) for c, own in labels.items()}
    data = {c: {"train": Data(x=xs[c], y=torch.tensor(own), classes=3)} for c, own in labels.items()}
    method = FD(gamma=gamma, local=Training(batch=None, lr=rate))
    federation = Federation(method, star(list(labels)), {"client": {"model": linear}}, data)
    weights = {c: federation.node(c).models["model"].weight.tolist() for c in labels}

    def outputs(c, x):
        z = [math.exp(sum(w * v for w, v in zip(row, x, strict=True))) for row in weights[c]]
        return [value / sum(z) for value in z]

    def step(c, teachers):
        slope = [[0.0] * 2 for _ in range(3)]
        for x, y in zip(xs[c].tolist(), labels[c], strict=True):
            p = outputs(c, x)
            for k in range(3):
                push = p[k] - (k == y) + (gamma * (p[k] - teachers[y][k]) if y in teachers else 0.0)
                for i in range(2):
                    slope[k][i] += push * x[i] / len(labels[c])
        weights[c] = [
            [w - rate * g for w, g in zip(*both, strict=True)] for both in zip(weights[c], slope, strict=True)
        ]

    means = {}
    for c in labels:
        step(c, {})
    for c, own in labels.items():
        for y in set(own):
            rows = [outputs(c, x) for x, label in zip(xs[c].tolist(), own, strict=True) if label == y]
            means[c, y] = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    for c in labels:
        heard = {y: [m for (other, label), m in means.items() if label == y and other != c] for y in range(3)}
        step(c, {y: [sum(v) / len(own) for v in zip(*own, strict=True)] for y, own in heard.items() if own})
    found = local(federation).run(2)
    for c in labels:  # tables travel as float32
        assert torch.allclose(model(found, c)["weight"], torch.tensor(weights[c], dtype=torch.float64), atol=1e-6)


# -- FedProto --------------------------------------------------------------------------------------------------
def test_fedproto_without_its_pull_is_solo():
    alone, quiet = solo(halves), local(own_star(FedProto(local=MOMENTUM, pull=0.0), halves)).run(3)
    pulled = local(own_star(FedProto(local=MOMENTUM), halves)).run(3)
    for client in CLIENTS:
        assert equal(model(quiet, client), model(alone, client))
        assert not equal(model(pulled, client), model(alone, client))


def test_prototypes_come_together_the_stronger_the_pull():
    def apart(pull):
        federation = own_star(FedProto(local=B16, pull=pull), halves)
        means = [r.body for r in sent(federation, "prototypes", 6)][-3:]
        middle = merged([ClassMeans(m["means"], m["counts"]) for m in means])
        return sum(float((m["means"] - middle.means).pow(2).sum()) for m in means)

    assert apart(0.0) > apart(1.0) > apart(10.0)


def test_golden_fedproto_by_loops():
    """A body and a head of single numbers a feature: features f = a x, logits B f; two rounds of one full batch."""
    rate, pull, labels = 0.3, 2.0, {"c0": [0, 0, 1], "c1": [1, 0]}
    xs = {c: drawn(c, len(own), 1) for c, own in labels.items()}
    data = {c: {"train": Data(x=xs[c], y=torch.tensor(own), classes=2)} for c, own in labels.items()}
    build = lambda: Halves(nn.Linear(1, 2, bias=False), 2, 2).double()  # noqa: E731
    method = FedProto(pull=pull, local=Training(batch=None, lr=rate))
    federation = Federation(method, star(list(labels)), {"client": {"model": build}}, data)
    state = {c: {n: p.tolist() for n, p in federation.node(c).models["model"].named_parameters()} for c in labels}

    def features(c, x):
        return [row[0] * x for row in state[c]["body.weight"]]

    def step(c, prototypes):
        own, n = state[c], len(labels[c])
        slope = {"a": [0.0] * 2, "B": [[0.0] * 2 for _ in range(2)], "b": [0.0] * 2}
        for (x,), y in zip(xs[c].tolist(), labels[c], strict=True):
            f = features(c, x)
            z = [own["head.bias"][k] + sum(own["head.weight"][k][i] * f[i] for i in range(2)) for k in range(2)]
            p = [math.exp(v) / sum(map(math.exp, z)) for v in z]
            push = [p[k] - (k == y) for k in range(2)]
            for i in range(2):
                down = sum(push[k] * own["head.weight"][k][i] for k in range(2)) / n
                if prototypes:  # the mean is over rows and features
                    down += pull * 2 * (f[i] - prototypes[y][i]) / (2 * n)
                slope["a"][i] += down * x
            for k in range(2):
                slope["b"][k] += push[k] / n
                for i in range(2):
                    slope["B"][k][i] += push[k] * f[i] / n
        for i in range(2):
            own["body.weight"][i][0] -= rate * slope["a"][i]
            own["head.bias"][i] -= rate * slope["b"][i]
            for k in range(2):
                own["head.weight"][k][i] -= rate * slope["B"][k][i]

    for c in labels:
        step(c, None)
    prototypes = {}
    for y in range(2):  # the mean of means by examples is the mean over all rows
        rows = [features(c, x) for c in labels for (x,), own in zip(xs[c].tolist(), labels[c], strict=True) if own == y]
        prototypes[y] = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    for c in labels:
        step(c, prototypes)
    found = local(federation).run(2)
    for c in labels:
        for name, expected in state[c].items():
            assert torch.allclose(model(found, c)[name], torch.tensor(expected, dtype=torch.float64), atol=1e-6)


def test_features_in_groups_by_loops():
    features = drawn("features", 3, 7)
    groups = [[j for j in range(7) if j * 3 // 7 == i] for i in range(3)]
    expected = [[sum(row[j] for j in own) / len(own) for own in groups] for row in features.tolist()]
    assert torch.allclose(pooled(features, 3), torch.tensor(expected, dtype=torch.float64))
    assert pooled(features, 7) is features


def test_a_class_that_nobody_has_now_keeps_its_prototype():
    before, now = (
        ClassMeans(torch.ones(2, 3), torch.tensor([4.0, 2.0])),
        ClassMeans(torch.zeros(2, 3), torch.tensor([0.0, 1.0])),
    )
    kept = renewed(before, now)
    assert kept.means.tolist() == [[1.0] * 3, [0.0] * 3]
    assert kept.counts.tolist() == [4.0, 1.0]
    assert renewed(ClassMeans(torch.ones(2, 5), torch.ones(2)), now) is now


def test_networks_that_fedproto_cannot_bring_together_are_refused_in_one_line():
    for build, method, text in (
        (net, FedProto(local=B16), "two parts, `body` and a linear `head`"),
        (wide, FedProto(local=B16, width=10), "width = 10, but this network has 8 features"),
    ):
        with pytest.raises(ReactionError, match=text) as caught:
            local(own_star(method, build)).run(2)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="pull is a weight >= 0"):
        FedProto(pull=-1.0)


def test_networks_that_do_not_go_together_are_named_and_train_alone(caplog):
    """Whoever sent the first table sets the width; those of another one do not stop, and say what to do."""
    found = local(own_star(FedProto(local=MOMENTUM), wide)).run(3)
    alone = solo(wide)
    assert caplog.text.count("prototypes of 4 classes and 8 features, but its own network has 4 and 12: set width") == 1
    assert {row["node"] for row in found.table.rows if row["quantity"] == "misfit"} == {"c1", "c2"}
    assert equal(model(found, "c1"), model(alone, "c1"))
    assert not equal(model(found, "c0"), model(alone, "c0"))


# -- FedTGP ----------------------------------------------------------------------------------------------------
def test_fedtgp_without_its_pull_is_solo_and_with_it_is_not_fedproto():
    alone, quiet = solo(halves), local(own_star(fedtgp(local=MOMENTUM, pull=0.0), halves)).run(3)
    pulled, plain = (local(own_star(m(local=MOMENTUM, pull=1.0), halves)).run(2) for m in (fedtgp, FedProto))
    for client in CLIENTS:
        assert equal(model(quiet, client), model(alone, client))
        assert not equal(model(pulled, client), model(plain, client))


def test_the_contrastive_loss_and_its_margin_by_loops():
    sent_, made, labels = drawn("sent", 5, 3), drawn("made", 4, 3), [2, 0, 0, 3, 1]
    for margin in (0.0, 1.5):
        total = 0.0
        for row, y in zip(sent_.tolist(), labels, strict=True):
            far = [math.dist(row, other) + margin * (k == y) for k, other in enumerate(made.tolist())]
            total += -math.log(math.exp(-far[y]) / sum(math.exp(-v) for v in far)) / 5
        assert float(contrast(sent_, made, torch.tensor(labels), margin)) == pytest.approx(total)
    centres = ClassMeans(
        torch.tensor([[0.0, 0.0], [3.0, 4.0], [9.0, 9.0], [0.0, 1.0]]), torch.tensor([1.0, 2.0, 0.0, 1.0])
    )
    assert gap(centres) == pytest.approx(5.0)  # nobody has the third


class Made(nn.Module):
    """A prototype a class, of torch's own layers."""

    def __init__(self, weights):
        super().__init__()
        classes, width = weights["vectors"].shape
        self.vectors = nn.Embedding(classes, width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        names = ("vectors", "inner", "inner bias", "outer", "outer bias")
        for parameter, name in zip(self.parameters(), names, strict=True):
            parameter.data = weights[name].double()

    def forward(self):
        return self.layers(self.vectors.weight)


@pytest.mark.parametrize("tau", [0.5, 100.0])
def test_the_servers_training_is_torchs_own(tau):
    """Full batches, so that their order says nothing; the margin is the clusters' largest distance, or tau."""
    node = own_star(fedtgp(), halves).node("server")
    tables = [ClassMeans(3 * drawn(("tgp", i), 4, 2).float(), torch.tensor([1.0, 1.0, i % 2, 0.0])) for i in range(3)]
    network = Made(fresh(4, 2, node.rng("prototypes")))
    centres = [
        sum(t.means[k] for t in tables if t.counts[k]) / sum(float(t.counts[k]) for t in tables) for k in (0, 1, 2)
    ]
    margin = min(tau, max(math.dist(a.tolist(), b.tolist()) for a in centres for b in centres))
    pairs = [(t.means[k].double(), k) for t in tables for k in range(4) if t.counts[k]]
    optimiser = torch.optim.SGD(network.parameters(), 0.05)
    for _ in range(20):
        optimiser.zero_grad()
        far = torch.stack([(x - network()).norm(dim=1) + margin * (torch.arange(4) == k) for x, k in pairs])
        nn.functional.cross_entropy(-far, torch.tensor([k for _, k in pairs])).backward()
        optimiser.step()
    found = Contrast(epochs=20, lr=0.05, margin=tau)(node, tables)
    assert found.counts.tolist() == [3.0, 3.0, 1.0, 0.0]
    assert torch.allclose(found.means[:3].double(), network()[:3], atol=1e-5)
    assert found.means[3].tolist() == [0.0, 0.0]
    assert torch.equal(prototypes(node.vars["trained"])[:3], found.means[:3])
    again = Contrast(epochs=0)(node, tables)  # goes on from where it was
    assert torch.equal(again.means, found.means)


def test_trained_prototypes_are_further_apart_than_means():
    """Two clients disagree about two classes, whose means are near; the trained ones keep the margin."""
    tables = [
        ClassMeans(torch.tensor(m), torch.ones(2)) for m in ([[4.0, 0.0], [0.0, 1.0]], [[-3.0, 0.0], [0.0, -1.0]])
    ]
    node = own_star(fedtgp(), halves).node("server")
    found, plain = Contrast(epochs=300, lr=0.05)(node, tables).means, merged(tables).means
    assert float((found[0] - found[1]).norm()) > 2 * float((plain[0] - plain[1]).norm())


def test_the_options_of_fedtgps_server_tell_and_divergence_leaves_means():
    def sent_back(**options):
        method = fedtgp(local=B16, server=replace(FEW, **options))
        return sent(own_star(method, halves), "global", 2)[-1].body["means"]

    for options in ({"epochs": 6}, {"batch": 5}, {"lr": 0.02}, {"margin": 0.01}):
        assert not torch.equal(sent_back(), sent_back(**options))
    plain = sent(own_star(FedProto(local=B16, cohort=Cohort(weighted=False)), halves), "global", 2)[-1].body["means"]
    assert torch.equal(sent_back(lr=1e200), plain)
    for options in ({"epochs": -1}, {"batch": 0}, {"lr": 0.0}, {"margin": -1.0}):
        with pytest.raises(ValueError, match="batch one >= 1 and lr a rate > 0, got"):
            Contrast(**options)


def test_what_is_not_used_does_not_leave():
    """How many rows a class has is said only where means are weighted by it."""
    for method, kind, field, told in (
        (fedtgp(local=B16), "prototypes", "counts", False),
        (FedProto(local=B16), "prototypes", "counts", True),
        (FedGH(local=B16), "means", "held", False),
        (FD(local=B16), "means", "held", False),
    ):
        counts = torch.stack([m.body[field] for m in sent(own_star(method, halves), kind, 1)])
        assert (float(counts.max()) > 1.0) is told


def test_what_was_sent_may_be_where_a_prototype_is():
    """A distance of zero has no slope, and none that is not a number."""
    made = drawn("made", 3, 2).requires_grad_()
    contrast(made.detach()[:1], made, torch.tensor([0]), 0.5).backward()
    assert torch.isfinite(made.grad).all()


def test_what_the_server_has_trained_is_kept_unless_it_has_diverged():
    server = own_star(fedtgp(local=B16, server=FEW), halves).node("server")
    there = ClassMeans(drawn("there", 3, 2).float(), torch.ones(3))
    FEW(server, [there])
    trained = server.vars["trained"]
    nobody = FEW(server, [ClassMeans(torch.zeros(3, 2), torch.zeros(3))])  # has any rows
    assert server.vars["trained"] is trained
    assert not nobody.counts.any()
    assert torch.equal(replace(FEW, lr=1e200)(server, [there]).means, there.means)
    assert server.vars["trained"] == {}


# -- FedGH -----------------------------------------------------------------------------------------------------
def test_fedghs_first_round_is_solo_and_so_is_whoever_no_head_fits(caplog):
    alone, found = (local(own_star(FedGH(local=MOMENTUM), halves)).run(n) for n in (1, 2))
    models = {c: {"model": halves(h)} for c, h in zip(CLIENTS, (8, 12, 16), strict=True)}
    solo_of_one = local(Federation(Solo(local=MOMENTUM), complete(CLIENTS), models, private(CLIENTS))).run(1)
    for client in CLIENTS:
        assert equal(model(alone, client), model(solo_of_one, client))
    misfits, apart = local(own_star(FedGH(local=MOMENTUM), wide)).run(3), solo(wide)
    assert caplog.text.count("a head of 4 classes and 8 features, but its own network has 4 and 12: set width") == 1
    assert {row["node"] for row in misfits.table.rows if row["quantity"] == "misfit"} == {"c1", "c2"}
    assert equal(model(misfits, "c1"), model(apart, "c1"))
    assert not equal(model(misfits, "c0"), model(apart, "c0"))
    assert found.rounds == 2


def taught(head, tables, epochs, lr):
    return taught_head(head, with_labels(tables), epochs, lr)


def test_the_servers_steps_by_loops():
    counts = [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    tables = [ClassMeans(drawn(("heads", i), 3, 2).float(), torch.tensor(own)) for i, own in enumerate(counts)]
    start = drawn("start", 3, 3).float()
    rows = [[float(v) for v in row] for row in start]
    for _ in range(2):
        for table, own in zip(tables, counts, strict=True):
            for label in range(3):
                if own[label]:
                    x = [*table.means[label].tolist(), 1.0]
                    z = [sum(w * v for w, v in zip(row, x, strict=True)) for row in rows]
                    p = [math.exp(v) / sum(map(math.exp, z)) for v in z]
                    rows = [[w - 0.3 * (p[k] - (k == label)) * v for w, v in zip(row, x, strict=True)]
                            for k, row in enumerate(rows)]  # fmt: skip
    assert torch.allclose(taught(start, tables, 2, 0.3), torch.tensor(rows), atol=1e-6)


def test_golden_head_after_one_step():
    """From zero, two classes have probability 1/2 each: a step of rate 1 on (x, class 0) is half of (x, 1), up for the
    class and down for the other."""
    table = ClassMeans(torch.tensor([[3.0, -1.0], [0.0, 0.0]]), torch.tensor([1.0, 0.0]))
    assert taught(torch.zeros(2, 3), [table], 1, 1.0).tolist() == [[1.5, -0.5, 0.5], [-1.5, 0.5, -0.5]]


ONCE = {"local": B16, "taught": TaughtHead(1, 0.1)}


@pytest.mark.parametrize(
    ("method", "build"), [(FedGH(**ONCE), halves), (FedGH(taught=TaughtHead(1, 0.1, width=4), local=B16), wide)]
)
def test_a_second_round_is_training_under_the_head_that_the_server_trained_on_the_means(method, build):
    """For networks of any width: outputs are those of the common head on the means of groups of features."""
    means = [ClassMeans(m.body["means"], m.body["held"]) for m in sent(own_star(method, build), "means", 1)]
    head = sent(own_star(method, build), "global", 2)[-1].body["head"]
    assert torch.equal(head, taught(torch.zeros_like(head), means, 1, 0.1))
    once, twice = (local(own_star(method, build)).run(n) for n in (1, 2))
    for client in CLIENTS:
        node = own_star(method, build).node(client)
        node.restore(once.state(client))
        network, data = node.models["model"], node.data["train"]
        assert list(replaced(node, head, head.shape[1] - 1, "FedGH")) == []
        features = pooled(network.body(data.x), head.shape[1] - 1)
        assert torch.allclose(network(data.x), features @ head[:, :-1].T + head[:, -1], atol=1e-5)
        optimiser = torch.optim.SGD(network.parameters(), 0.1)
        for rows in node.order("train", len(data)).split(16):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(data.x[rows]), data.y[rows]).backward()
            optimiser.step()
        assert equal(dict(network.state_dict()), model(twice, client))


def test_the_servers_head_goes_on_from_round_to_round():
    method = FedGH(**ONCE)
    heads = {m.round: m.body["head"] for m in sent(own_star(method, halves), "global", 3)}
    tables = [
        (m.round, ClassMeans(m.body["means"], m.body["held"])) for m in sent(own_star(method, halves), "means", 2)
    ]
    assert not len(heads[0])
    assert torch.equal(heads[2], taught(heads[1], [table for round, table in tables if round == 1], 1, 0.1))


def test_the_options_of_fedghs_server_tell():
    def head(**options):
        return sent(own_star(FedGH(taught=replace(TaughtHead(1, 0.1), **options), local=B16), halves), "global", 2)[
            -1
        ].body["head"]

    assert not torch.equal(head(), head(head_epochs=2))
    for few, many in zip(head(head_lr=1e-5)[:, :-1], head(head_lr=1e-4)[:, :-1], strict=True):
        assert torch.allclose(many, few * 10, rtol=0.02, atol=1e-7)  # steps so small that they add up


def test_by_default_the_head_has_learnt_what_it_is_shown():
    """In one round: it tells the classes of means that a single pass leaves undecided."""
    turned = torch.eye(4) + 0.3
    tables = [ClassMeans(turned, torch.ones(4))]
    columns = torch.cat([turned, torch.ones(4, 1)], 1).T
    usual = FedGH().taught
    passes = {"default": usual.head_epochs, "once": 1}
    heads = {name: taught(torch.zeros(4, 5), tables, count, usual.head_lr) for name, count in passes.items()}
    sure = {name: (head @ columns).softmax(0).diag() for name, head in heads.items()}
    assert sure["once"].max() < 0.3
    assert sure["default"].min() > 0.3


def test_golden_head_of_a_mean_that_is_far_away():
    """From zero the gradient of (x, class 0) is half of (x, 1), down and up: it is longer than 50, and shortened."""
    table = ClassMeans(torch.tensor([[300.0, -400.0], [0.0, 0.0]]), torch.tensor([1.0, 0.0]))
    head = taught(torch.zeros(2, 3), [table], 1, 0.1)
    assert float(head.norm()) == pytest.approx(0.1 * 50, rel=1e-5)
    assert (head[0] / head[0, 0]).tolist() == pytest.approx([1.0, -4 / 3, 1 / 300], rel=1e-5)
    assert torch.equal(head[1], -head[0])


class Boundless(Network):
    """A client whose means are at first as large as a message may hold."""

    def arrivals(self, message, *rest):
        if message.kind == "means" and message.sender == "c0" and not message.round:
            message.body["means"] = torch.full_like(message.body["means"], 9e14)
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


def test_huge_means_move_the_head_no_farther_than_others_may():
    """Four of them, by at most 0.1 * 50 each; and networks under that head still learn."""
    found = local(own_star(FedGH(**{**ONCE, "local": Training(batch=16, lr=0.01)}), halves), network=Boundless).run(4)
    assert not found.ledger.incidents
    assert 1.0 < float(found.state("server")["vars"]["head"].norm()) < 25.0
    assert all(torch.isfinite(t).all() for client in CLIENTS for t in model(found, client).values())


def test_networks_that_fedgh_cannot_give_a_head_are_refused_in_one_line():
    for build, method, text in (
        (net, FedGH(local=B16), "FedGH needs networks of two parts, `body` and a linear `head`"),
        (wide, FedGH(local=B16, taught=TaughtHead(width=10)), "width = 10, but this network has 8 features"),
        (unbiased, FedGH(local=B16), "needs networks whose head has a bias"),
    ):
        with pytest.raises(ReactionError, match=text) as caught:
            local(own_star(method, build)).run(1)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="head_lr is a rate > 0, got 100, 0"):
        TaughtHead(head_lr=0.0)


# -- options that tell ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ALL, ids=["fd", "fedproto", "fedgh", "fedtgp"])
def test_epochs_before_the_first_round_come_first(method):
    """One round after so many epochs alone is training alone for one more: nothing is known in a first round."""
    began = local(own_star(replace(method, local=replace(B16, initial=2)), halves)).run(1)
    alone = local(own_star(replace(method, local=replace(B16, epochs=3)), halves)).run(1)
    for client in CLIENTS:
        assert equal(model(began, client), model(alone, client))


def unequal(method):
    """Three clients of unequal numbers of rows; only the first has all four classes, the others have two."""
    data = private(CLIENTS)
    for client, rows in zip(CLIENTS, (40, 20, 10), strict=True):
        view = data[client]["train"]
        labels = view.y[:rows]
        data[client] = {"train": view.take(torch.arange(len(labels))[(labels < 2) | (client == "c0")])}
    return Federation(method, star(CLIENTS), {"client": {"model": halves(8)}}, data)


@pytest.mark.parametrize("weighted", [True, False])
def test_prototypes_are_means_by_examples_or_by_clients(weighted):
    method = FedProto(local=B16, cohort=Cohort(weighted=weighted))
    up = [m.body for m in sent(unequal(method), "prototypes", 1)]
    down = sent(unequal(method), "global", 2)[-1].body
    for label in range(4):
        shares = [float(m["counts"][label]) if weighted else float(m["counts"][label] > 0) for m in up]
        for k in range(down["means"].shape[1]):
            value = sum(share * float(m["means"][label, k]) for share, m in zip(shares, up, strict=True)) / sum(shares)
            assert float(down["means"][label, k]) == pytest.approx(value, abs=1e-5)


def test_prototypes_travel_in_groups_of_features():
    features = sent(own_star(FedProto(local=B16), wide), "prototypes", 1)
    grouped = sent(own_star(FedProto(local=B16, width=4), wide), "prototypes", 1)
    for whole, some in zip(features, grouped, strict=True):
        assert torch.allclose(some.body["means"], pooled(whole.body["means"], 4), atol=1e-6)


def test_a_class_without_a_prototype_pulls_at_nothing():
    """A row whose class nobody has yet has the cross-entropy alone, not a pull towards zero."""
    method, batch = FedProto(pull=3.0), Data(x=drawn("x", 4, 2).float(), y=torch.tensor([0, 1, 2, 1]), classes=3)
    table = ClassMeans(torch.ones(3, 2), torch.tensor([1.0, 0.0, 2.0]))
    nets = {"model.body": lambda x: x, "model.head": lambda f: torch.zeros(len(f), 3)}
    found = method.near(nets, batch.with_columns(**columns_for(table, batch.y)))["model"]["proto"]
    pulled = [row for row, y in zip(batch.x.tolist(), batch.y.tolist(), strict=True) if y != 1]
    expected = 3.0 * sum(sum((v - 1) ** 2 for v in row) / 2 for row in pulled) / 4
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_prototypes_of_a_class_that_nobody_in_the_cohort_has_stay():
    """One of three a round: what the only one who has a class said of it is said again when others were asked."""
    method = FedProto(local=B16, cohort=Cohort(fraction=0.34))
    asked = [m.sender for m in sent(unequal(method), "prototypes", 9)]
    first = asked.index("c0")
    assert set(asked[first + 1 :]) != {"c0"}
    for message in sent(unequal(method), "global", 9):
        if message.round > first:
            assert message.body["held"].tolist() == [1.0] * 4


def test_whoever_is_not_in_a_cohort_teaches_with_what_it_said_last():
    federation = lambda: own_star(FD(local=B16, gamma=0.5, cohort=Cohort(fraction=0.34)), halves)  # noqa: E731
    up = {(m.sender, m.round): m.body["means"] for m in sent(federation(), "means", 6)}
    down = sent(federation(), "teachers", 6)
    assert len({sender for sender, _ in up}) > 1
    for message in down:
        before = [key for key in up if key[1] < message.round and key[0] != message.receiver]
        last = {sender: max(r for s, r in before if s == sender) for sender, _ in before}
        if last:
            means = torch.stack([up[key] for key in last.items()])
            assert torch.allclose(message.body["means"], means.mean(0), atol=1e-6)


def test_a_joint_head_is_taught_whole():
    """Three private classes, five outputs: means are of all five, and they teach."""
    models = {"client": {"model": lambda: nn.Linear(2, 5)}}
    draw = {c: Data(x=drawn(c, 12, 2).float(), y=torch.arange(12) % 3, classes=3) for c in CLIENTS}
    data = {c: {"train": own} for c, own in draw.items()}
    found = {
        gamma: local(Federation(FD(local=B16, gamma=gamma), star(CLIENTS), models, data)).run(3) for gamma in (0.0, 5.0)
    }
    for result in found.values():
        assert not result.ledger.incidents
    assert not equal(model(found[0.0], "c0"), model(found[5.0], "c0"))


# -- bad answers -----------------------------------------------------------------------------------------------
class Liar(Network):
    """A client whose tables are of another world."""

    def arrivals(self, message, *rest):
        if message.kind in ("means", "prototypes") and message.sender == "c0":
            own = self.forged(message.body)
            message.body.update(own)
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


class Wider(Liar):
    def forged(self, body):
        return {key: torch.eye(7) if key == "means" else torch.ones(7) for key in body}


class Endless(Liar):
    def forged(self, body):
        return {"means": body["means"] * math.inf}


class Hollow(Liar):
    """Says that it has what it has not."""

    def forged(self, body):
        return {
            key: torch.zeros_like(value) if key == "means" else torch.ones_like(value) for key, value in body.items()
        }


class Double(Liar):
    def forged(self, body):
        return {
            key: torch.full_like(value, 1e300, dtype=torch.float64) for key, value in body.items() if key == "means"
        }


@pytest.mark.parametrize("liar", [Wider, Hollow, Double])
@pytest.mark.parametrize("share", [1.0, 0.34])
@pytest.mark.parametrize("method", ALL, ids=["fd", "fedproto", "fedgh", "fedtgp"])
def test_no_liar_ends_a_run_not_even_alone_in_its_cohort(method, share, liar):
    for seed in range(3):
        cohort = replace(method.cohort, fraction=share)
        federation = own_star(replace(method, cohort=cohort), halves, seed=seed)
        found = local(federation, network=liar).run(4)
        assert all(torch.isfinite(t).all() for c in ("c1", "c2") for t in model(found, c).values())


class Silent(Liar):
    def forged(self, body):
        return {key: torch.zeros(0, 0) if key == "means" else torch.zeros(0) for key in body}


@pytest.mark.parametrize("liar", [Silent, Wider])
@pytest.mark.parametrize("method", ALL[1:], ids=["fedproto", "fedgh", "fedtgp"])
def test_what_is_known_stays_when_the_only_one_who_was_asked_lies(method, liar):
    """By the seed c2 is asked three times, then c0, who lies: what c1 is told next is what c0 was told."""
    down = []

    class Watched(liar):
        def arrivals(self, message, *rest):
            down.extend([message] if message.kind == "global" else [])
            return super().arrivals(message, *rest)

    cohort = replace(method.cohort, fraction=0.34)
    local(own_star(replace(method, cohort=cohort), halves, seed=1), network=Watched).run(5)
    assert [m.receiver for m in down] == ["c2", "c2", "c2", "c0", "c1"]
    before, after = (next(iter(m.body.values())) for m in down[3:])
    assert len(before)
    assert torch.equal(before, after)


@pytest.mark.parametrize("method", ALL, ids=["fd", "fedproto", "fedgh", "fedtgp"])
def test_a_liar_of_another_shape_or_without_numbers_does_not_stop_the_others(method):
    honest = local(own_star(method, halves)).run(3)
    wider = local(own_star(method, halves), network=Wider).run(3)
    assert not wider.ledger.incidents
    endless = local(own_star(method, halves), network=Endless).run(3)
    assert {row["incident"] for row in endless.ledger.incidents} == {"refused"}
    for client in CLIENTS:  # in both, nobody hears of what c0 says
        assert equal(model(wider, client), model(endless, client))
        assert not equal(model(wider, client), model(honest, client))


def test_what_fd_needs_is_said_in_one_line():
    with pytest.raises(ValueError, match="gamma is a weight >= 0, got -1"):
        FD(gamma=-1.0)
    with pytest.raises(ValueError, match="one label a row"):
        by_label(torch.zeros(2, 3), Data(x=torch.zeros(2, 1), y=torch.zeros(2, 5, dtype=torch.int64), classes=3))


class Tied(nn.Module):
    """A body and a head that share a matrix, which has one name for both."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 8)
        self.head.weight = self.body[0].weight

    def forward(self, x):
        return self.head(self.body(x))


def test_parts_that_share_weights_train_as_one_at_a_time_where_others_are_stacked():
    data = {c: {"train": Data(x=drawn(c, 32, 8).float(), y=torch.arange(32) % 4, classes=4)} for c in CLIENTS}
    federation = Federation(FedProto(local=B16, pull=5.0), star(CLIENTS), {"client": {"model": Tied}}, data)
    eager = local(federation).run(3)
    stacked = local(federation.computed(executor="stacked")).run(3)
    for client in CLIENTS:
        for name, tensor in model(eager, client).items():
            assert torch.allclose(tensor, model(stacked, client)[name], atol=1e-6)
