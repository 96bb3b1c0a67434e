"""FedGen: the generator and both losses by loops, heads of groups, what it equals without what is generated, liars."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import Data, Federation, Model
from heterophony.base.seeds import generator
from heterophony.catalogue import registry
from heterophony.engines import Network, local
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, fedgen, lg_fedavg
from heterophony.methods.fedgen import FedGen, FedGenWhole
from heterophony.models.blocks import Halves
from heterophony.parts.cohort import Cohort
from heterophony.parts.features import pooled
from heterophony.parts.generator import Generator, likeness, made
from heterophony.parts.heads import grouped, repeated, replaced
from heterophony.parts.training import Training
from toys.by_hand import equal
from toys.federations import B16, CLIENTS, SMALL, headed_star, own_star, weights_star
from toys.watched import sent
from toys.world import halves, net, private, unbiased, wide


def drawn(name, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator("fedgen", name))


def model(result, node):
    return result.state(node)["models"]["model"]


def layers(part, classes, width, name="layers"):
    return {key: drawn(f"{name} {key}", *shape) for key, shape in part.shapes(classes, width).items()}


def softmax(row):
    return [math.exp(v) / sum(map(math.exp, row)) for v in row]


def linear(weight, bias, row):
    return [b + sum(w * v for w, v in zip(line, row, strict=True)) for line, b in zip(weight, bias, strict=True)]


def generated(weights, labels, noise, classes):
    """By loops: the features of each label."""
    w = {name: tensor.tolist() for name, tensor in weights.items()}
    rows = [[*eps, *(float(k == y) for k in range(classes))] for eps, y in zip(noise, labels, strict=True)]
    inner = [[max(0.0, v) for v in linear(w["inner"], w["inner bias"], row)] for row in rows]
    return [linear(w["outer"], w["outer bias"], row) for row in inner]


# -- the generator ---------------------------------------------------------------------------------------------
LABELS = [2, 0, 1, 2]


def loss_by_loops(weights, head, noise, diversity):
    features = generated(weights, LABELS, noise, 3)
    told = [softmax(linear([row[:-1] for row in head], [row[-1] for row in head], f)) for f in features]
    found = -sum(math.log(p[y]) for p, y in zip(told, LABELS, strict=True)) / 4
    pairs = [
        sum(abs(a - b) for a, b in zip(f, g, strict=True))
        / 5
        * sum((a - b) ** 2 for a, b in zip(d, e, strict=True))
        / 2
        for f, d in zip(features, noise, strict=True)
        for g, e in zip(features, noise, strict=True)
    ]
    return found + diversity * math.exp(-sum(pairs) / 16)


def test_the_generators_loss_by_loops():
    part = Generator(noise=2, hidden=6, diversity=0.7)
    weights, head, noise = layers(part, 3, 5), drawn("head", 3, 6), drawn("noise", 4, 2)
    found = made(weights, torch.tensor(LABELS), noise)
    expected = generated(weights, LABELS, noise.tolist(), 3)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64))
    loss = part.loss(weights, head, torch.tensor(LABELS), noise)
    assert float(loss) == pytest.approx(loss_by_loops(weights, head.tolist(), noise.tolist(), 0.7))
    assert float(likeness(found, noise)) < 1.0 == float(likeness(found[:1].repeat(4, 1), noise))


def test_a_step_of_the_generator_goes_down_the_slope_of_its_loss():
    """Adam's first step moves every weight by its rate against the sign of its slope, here found by differences."""
    part = Generator(noise=2, hidden=3, steps=1, batch=4, lr=0.01, diversity=0.7)
    weights, head = {n: t.float() for n, t in layers(part, 3, 5, "step").items()}, drawn("head", 3, 6).float()
    shares = torch.tensor([0.2, 0.3, 0.5])
    after = part.trained(weights, head, shares, generator("training"))
    labels, noise = part.drawn(shares, 4, generator("training"))
    for name, tensor in weights.items():
        for place in range(tensor.numel()):
            near = []
            for shift in (1e-5, -1e-5):
                moved = {key: value.double().clone() for key, value in weights.items()}
                moved[name].view(-1)[place] += shift
                near.append(float(part.loss(moved, head.double(), labels, noise.double())))
            slope = (near[0] - near[1]) / 2e-5
            expected = -0.01 * math.copysign(1.0, slope) if abs(slope) > 1e-6 else 0.0
            assert float(after[name].view(-1)[place] - tensor.view(-1)[place]) == pytest.approx(expected, abs=2e-4)


def test_the_mean_of_logits_is_what_the_mean_of_heads_tells():
    heads, features = drawn("heads", 3, 4, 6), drawn("features", 7, 5)
    logits = [features @ head[:, :-1].T + head[:, -1] for head in heads]
    together = heads.mean(0)
    assert torch.allclose(sum(logits) / 3, features @ together[:, :-1].T + together[:, -1])


def test_a_trained_generator_makes_features_that_the_head_knows_and_that_differ():
    part, head = Generator(), drawn("head", 4, 11).float()
    labels, noise = part.drawn(torch.tensor([0.25] * 4), 64, generator("asked"))

    def told(steps, diversity=1.0):
        some = Generator(steps=steps, diversity=diversity)
        weights = some.trained(some.fresh(4, 10, generator("w")), head, torch.ones(4), generator("training"))
        features = made(weights, labels, noise)
        right = (features @ head[:, :-1].T + head[:, -1]).argmax(1) == labels
        return float(right.float().mean()), float(likeness(features, noise))

    assert told(0)[0] < 0.5 < 0.95 < told(50)[0]
    assert told(50)[1] < told(50, diversity=0.0)[1]


def test_labels_are_drawn_by_their_shares():
    labels, noise = SMALL.drawn(torch.tensor([0.5, 0.0, 1.5]), 4000, generator("shares"))
    assert (torch.bincount(labels, minlength=3) / 4000).tolist() == pytest.approx([0.25, 0.0, 0.75], abs=0.03)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.03)
    assert float(noise.std()) == pytest.approx(1.0, abs=0.03)


# -- heads of groups -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("width", [3, 7])
def test_a_head_of_groups_is_what_the_head_makes_of_repeated_features(width):
    own, features = nn.Linear(7, 4), drawn("z", 5, width).float()
    head = grouped(own, width)
    assert torch.allclose(own(repeated(features, 7)), features @ head[:, :-1].T + head[:, -1], atol=1e-6)
    assert torch.allclose(pooled(repeated(features, 7), width), features, atol=1e-6)
    for k in range(4):
        sums = [sum(own.weight[k, i].item() for i in range(7) if i * width // 7 == g) for g in range(width)]
        assert head[k].tolist() == pytest.approx([*sums, own.bias[k].item()], abs=1e-6)


def test_a_head_that_is_put_in_is_what_leaves():
    node, head = headed_star(FedGen(width=4), wide).node("c1"), drawn("common", 4, 5).float()
    assert list(replaced(node, head, 4, "FedGen")) == []
    assert torch.allclose(grouped(node.models["model"].head, 4), head, atol=1e-6)


# -- limits ----------------------------------------------------------------------------------------------------
def alike(method):
    return weights_star(method, Model(halves(), common=True))


@pytest.mark.parametrize(("build", "width"), [(halves, None), (wide, None), (wide, 4)])
def test_without_what_is_generated_it_is_lg_fedavg(build, width):
    """To the bit, with one head for different bodies, and with momentum, which begins anew with each head."""
    hidden = (8, 8, 8) if build is wide and width is None else (8, 12, 16)
    options = {"local": Training(batch=16, momentum=0.9, initial=1), "width": width}
    methods = FedGen(**options, generated=0.0), lg_fedavg(**options), FedGen(**options, generator=SMALL)
    quiet, plain, loud = (local(headed_star(m, build, hidden)).run(3) for m in methods)
    for client in CLIENTS:
        assert equal(model(quiet, client), model(plain, client))
        assert not equal(model(loud, client), model(plain, client))


@pytest.mark.parametrize("method", [FedGen(local=B16, generator=SMALL), lg_fedavg(local=B16)])
def test_in_the_first_round_all_begin_with_the_head_of_the_server(method):
    """Bodies differ; heads that never were alike would have no mean that says anything."""
    federation = headed_star(method, hidden=(8, 12, 16))
    found = headed_star(replace(method, local=Training(epochs=0)), hidden=(8, 12, 16)).run(1)
    own = federation.node("server").models["model"].head
    for client in CLIENTS:
        assert torch.equal(model(found, client)["head.weight"], own.weight)
        assert torch.equal(model(found, client)["head.bias"], own.bias)
        assert not torch.equal(federation.node("c1").models["model"].head.weight, own.weight)


def test_fedgen_begins_with_the_head_of_a_server_that_has_a_network():
    with pytest.raises(ReactionError, match="FedGen's server needs a network: everyone begins with its head"):
        local(own_star(FedGen(local=B16), halves)).run(1)
    with pytest.raises(ValueError, match="server has no model 'model', which FedGen needs of each server"):
        own_star(FedGen(local=B16), halves).run(1)


def test_the_option_whole_chooses_between_two_methods():
    entry = registry.lookup("fedgen")
    assert entry.options()["whole"] == (bool, False)
    assert type(entry.build({})) is FedGen
    made = entry.build({"whole": True, "width": 2, "generator.steps": 3})
    assert (type(made), made.width, made.generator.steps) == (FedGenWhole, 2, 3)


def test_whole_and_without_what_is_generated_it_is_fedavg():
    momentum = Training(batch=16, momentum=0.9)
    for options in ({}, {"cohort": Cohort(weighted=False)}):
        plain = local(weights_star(FedAvg(local=momentum, **options), halves())).run(3)
        quiet = local(weights_star(FedGenWhole(local=momentum, generated=0.0, **options), halves())).run(3)
        loud = local(weights_star(FedGenWhole(local=momentum, **options), halves())).run(3)
        assert equal(model(quiet, "server"), model(plain, "server"))
        assert not equal(model(loud, "server"), model(plain, "server"))


def test_the_generator_comes_with_the_second_round():
    method = FedGen(local=B16, generator=SMALL)
    first, *_, last = sent(headed_star(method), "global", 2)
    own = headed_star(method).node("server").models["model"].head
    assert torch.equal(first.body["head"], torch.cat([own.weight, own.bias.unsqueeze(1)], 1))
    assert (first.body["generator"], first.body["shares"].tolist()) == ({}, [0.0] * 4)
    assert SMALL.fits(last.body["generator"], 4, 6)
    data = private(CLIENTS)
    counts = sum(torch.bincount(data[c]["train"].y, minlength=4) for c in CLIENTS)
    assert torch.allclose(last.body["shares"], counts / counts.sum())


@pytest.mark.parametrize("whole", [False, True])
def test_epochs_before_the_first_round_are_epochs_of_the_network_alone(whole):
    early, longer = (
        local(alike(fedgen(local=Training(batch=16, epochs=epochs, initial=first), whole=whole))).run(1)
        for epochs, first in ((1, 1), (2, 0))
    )
    for client in CLIENTS:
        assert equal(model(early, client), model(longer, client))


def mean_of_heads(state, shares, group):
    """Return the mean head by loops: for each of two classes, the weights of two groups of features and a bias."""
    common = [[0.0] * 3 for _ in range(2)]
    for c, share in shares.items():
        for k in range(2):
            for i, g in enumerate(group):
                common[k][g] += share * state[c]["head.weight"][k][i]
            common[k][2] += share * state[c]["head.bias"][k]
    return common


@pytest.mark.parametrize(("features", "weighted"), [(2, True), (3, True), (3, False)])
def test_golden_fedgen_by_loops(features, weighted):
    """Features f = a x, logits B f + b; two rounds of a full batch. Heads are first the server's, then the mean, by
    rows or not, of those of the first round, of two groups of features; there each row has a generated one beside it,
    which moves the head alone."""
    rate, weight, labels = 0.3, 0.7, {"c0": [0, 0, 1], "c1": [1, 0]}
    xs = {c: drawn(c, len(ys), 1) for c, ys in labels.items()}
    data = {c: {"train": Data(x=xs[c], y=torch.tensor(ys), classes=2)} for c, ys in labels.items()}
    method = FedGen(
        generated=weight,
        cohort=Cohort(weighted=weighted),
        width=2,
        generator=SMALL,
        local=Training(batch=None, lr=rate),
    )
    build = lambda: Halves(nn.Linear(1, features, bias=False), features, 2).double()  # noqa: E731
    models = {role: {"model": build} for role in ("server", "client")}
    federation = Federation(method, star(list(labels)), models, data)
    state = {c: {n: p.tolist() for n, p in federation.node(c).models["model"].named_parameters()} for c in labels}
    group = [i * 2 // features for i in range(features)]

    def step(c, beside):
        own, n = state[c], len(labels[c])
        a, big, bias = ([row[0] for row in own["body.weight"]], own["head.weight"], own["head.bias"])
        da, dbig, dbias = [0.0] * features, [[0.0] * features for _ in range(2)], [0.0] * 2
        rows = [([v * x for v in a], y, 1.0, x) for (x,), y in zip(xs[c].tolist(), labels[c], strict=True)]
        rows += [([z[g] for g in group], y, weight, None) for z, y in beside]
        for f, y, share, x in rows:
            push = [share * (p - (k == y)) / n for k, p in enumerate(softmax(linear(big, bias, f)))]
            for k in range(2):
                dbias[k] += push[k]
                for i in range(features):
                    dbig[k][i] += push[k] * f[i]
                    da[i] += push[k] * big[k][i] * x if x is not None else 0.0
        for i in range(features):
            own["body.weight"][i][0] -= rate * da[i]
        for k in range(2):
            bias[k] -= rate * dbias[k]
            for i in range(features):
                big[k][i] -= rate * dbig[k][i]

    first = federation.node("server").models["model"].head

    def put(head):
        for own in state.values():
            own["head.weight"] = [[row[g] / group.count(g) for g in group] for row in head]
            own["head.bias"] = [row[2] for row in head]

    put([[*(sum(w for w, h in zip(row, group, strict=True) if h == g) for g in range(2)), bias]
         for row, bias in zip(first.weight.tolist(), first.bias.tolist(), strict=True)])  # fmt: skip
    for c in labels:
        step(c, [])
    common = mean_of_heads(state, {"c0": 3 / 5, "c1": 2 / 5} if weighted else {"c0": 1 / 2, "c1": 1 / 2}, group)
    mail = sent(federation, "global", 2)[-1].body
    assert torch.allclose(mail["head"].double(), torch.tensor(common, dtype=torch.float64), atol=1e-6)
    assert mail["shares"].tolist() == pytest.approx([3 / 5, 2 / 5], abs=1e-6)
    put(common)
    for c in labels:
        node = federation.node(c)
        node.round = 1
        asked, noise = SMALL.drawn(mail["shares"], len(labels[c]), node.rng("generated"))
        beside = generated(mail["generator"], asked.tolist(), noise.tolist(), 2)
        step(c, list(zip(beside, asked.tolist(), strict=True)))
    found = local(federation).run(2)
    for c in labels:
        for name, expected in state[c].items():
            assert torch.allclose(model(found, c)[name], torch.tensor(expected, dtype=torch.float64), atol=1e-6), name


# -- bad answers -----------------------------------------------------------------------------------------------
class Liar(Network):
    """Whoever sends such a kind (of the clients, c0) sends something else."""

    kind = "head"

    def arrivals(self, message, *rest):
        if message.kind == self.kind and message.sender in ("c0", "server"):
            message.body.update(self.forged(dict(message.body)))
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


class Wider(Liar):
    def forged(self, body):
        return {"head": torch.ones(4, 99)}


class Flat(Liar):
    def forged(self, body):
        return {"head": torch.ones(4, 1)}


class Fewer(Liar):
    def forged(self, body):
        return {"counts": torch.ones(3)}


class Endless(Liar):
    def forged(self, body):
        return {"head": body["head"] * math.nan}


class Huge(Liar):
    def forged(self, body):
        return {"head": torch.full_like(body["head"], 3e38)}


class Empty(Liar):
    def forged(self, body):
        return {"head": torch.zeros(0, 0), "counts": torch.zeros(0)}


class Nobody(Liar):
    def forged(self, body):
        return {"counts": torch.zeros(4)}


@pytest.mark.parametrize("liar", [Wider, Flat, Fewer, Endless, Huge, Empty, Nobody])
@pytest.mark.parametrize("share", [1.0, 0.34])
def test_no_liar_ends_a_run_not_even_alone_in_its_cohort(liar, share):
    method = FedGen(local=B16, generator=SMALL, cohort=Cohort(fraction=share))
    found = local(headed_star(method), network=liar).run(6)
    assert found.rounds == 6
    refused = {row["incident"] for row in found.ledger.incidents} - {"skipped"}
    assert refused == ({"refused"} if liar in (Fewer, Endless) else set()) or liar is Huge
    if liar is not Huge:  # whoever is given that trains to no number
        assert all(torch.isfinite(t).all() for c in CLIENTS for t in model(found, c).values())


class Strange(Liar):
    kind = "global"

    def forged(self, body):
        wrong = {"outer": torch.ones(3, 3)} if self.what == "generator" else body["generator"]
        shares = torch.zeros_like(body["shares"]) if self.what == "shares" else body["shares"]
        return {"generator": wrong, "shares": shares}


class StrangeGenerator(Strange):
    what = "generator"


class NoShares(Strange):
    what = "shares"


@pytest.mark.parametrize("liar", [StrangeGenerator, NoShares])
def test_whoever_hears_of_no_generator_that_fits_trains_without(liar):
    found = local(headed_star(FedGen(local=B16, generator=SMALL)), network=liar).run(3)
    quiet = local(headed_star(FedGen(local=B16, generator=SMALL, generated=0.0))).run(3)
    for client in CLIENTS:
        assert equal(model(found, client), model(quiet, client))


def test_whoever_no_head_fits_keeps_its_own_and_says_so(caplog):
    found = local(headed_star(FedGen(local=B16, generator=SMALL), wide)).run(3)
    assert any(row["quantity"] == "misfit" for row in found.table)
    assert "set width, or take networks whose last layers read equally many" in caplog.text


class Gaps(Liar):
    kind = "update"

    def forged(self, body):
        return {"counts": torch.ones(2)}


def test_counts_of_other_classes_do_not_end_a_whole_run():
    method = FedGenWhole(local=B16, generator=SMALL)
    found = local(weights_star(method, halves()), network=Gaps).run(3)
    assert found.rounds == 3
    data = private(CLIENTS)
    counts = sum(torch.bincount(data[c]["train"].y, minlength=4) for c in ("c1", "c2"))
    assert torch.allclose(found.state("server")["vars"]["shares"], counts / counts.sum())


def test_what_fedgen_needs_is_said_in_one_line():
    for build, method, text in (
        (net, FedGen(local=B16), "FedGen needs networks of two parts, `body` and a linear `head`"),
        (wide, FedGen(local=B16, width=10), "width = 10, but this network has 8 features"),
        (unbiased, FedGen(local=B16), "FedGen needs networks whose head has a bias"),
    ):
        with pytest.raises(ReactionError, match=text) as caught:
            local(headed_star(method, build)).run(2)
        assert "\n" not in str(caught.value)
    with pytest.raises(ReactionError, match="the network's head does not travel: share the whole"):
        local(weights_star(FedGenWhole(), Model(halves(), share="body"))).run(1)
    for wrong, text in (
        ({"generated": -1.0}, "generated is a weight >= 0"),
        ({"width": 0}, "width a number >= 1"),
    ):
        for whole in (False, True):
            with pytest.raises(ValueError, match=text):
                fedgen(whole=whole, **wrong)
    for wrong, text in (
        ({"hidden": 0}, "noise, hidden and batch are numbers >= 1"),
        ({"steps": -1}, "steps one >= 0"),
        ({"lr": 0.0}, "lr is a rate > 0"),
        ({"diversity": -1.0}, "diversity a weight >= 0"),
    ):
        with pytest.raises(ValueError, match=text):
            Generator(**wrong)
