"""FedMD, FedMD+Global with LwoF, FML, FCCL, FedDF: their limits, and their losses recomputed by loops in float64."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import Data, Federation, Model, Profile
from heterophony.base.seeds import generator
from heterophony.catalogue import registry
from heterophony.compute.eager import Eager, outputs_of, predict
from heterophony.engines import Network, local
from heterophony.kernel.message import Body, Message
from heterophony.kernel.topology import star
from heterophony.kernel.work import Fit
from heterophony.methods import FCCL, FML, FCCLCode, FedAvg, FedDF, FedMD, fccl_homogeneous, fedmd_global
from heterophony.parts.aggregate import average, mean
from heterophony.parts.cohort import Cohort
from heterophony.parts.correlation import correlation_loss, cross_correlation
from heterophony.parts.losses import cross_entropy, distance, soft_cross_entropy
from heterophony.parts.older_selves import LocalLoss
from heterophony.parts.public import PublicRows
from heterophony.parts.schedules import Ramp, at
from heterophony.parts.training import Training
from heterophony.runs.correlations import correlations
from toys.federations import ADAM, B16, CLIENTS, alike_star, distilled_star, logits_star, mutual_star, weights_star
from toys.world import PUBLIC, private


def logits(name, rows=6, classes=3):
    return torch.randn(rows, classes, dtype=torch.float64, generator=generator("distillation", name))


def softmax(row, temperature=1.0):
    parts = [math.exp(value / temperature) for value in row]
    return [part / sum(parts) for part in parts]


# -- losses by loops -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rho", [1.0, 2.0])
def test_soft_cross_entropy_by_loops(rho):
    teacher, student = logits("t"), logits("s")
    total = 0.0
    for t, s in zip(teacher.tolist(), student.tolist(), strict=True):
        total -= sum(p * math.log(q) for p, q in zip(softmax(t, rho), softmax(s, rho), strict=True))
    assert float(soft_cross_entropy(teacher, student, rho)) == pytest.approx(total / 6, rel=1e-12)


def test_distances_by_loops_and_the_target_is_a_constant():
    target, z = logits("t").requires_grad_(), logits("z").requires_grad_()
    gaps = [a - b for r, q in zip(target.tolist(), z.tolist(), strict=True) for a, b in zip(r, q, strict=True)]
    expected = {"l1": sum(map(abs, gaps)) / 18, "l2": sum(g * g for g in gaps) / 18}
    for kind, value in expected.items():
        assert distance(target, z, kind).item() == pytest.approx(value, rel=1e-12)
        assert distance(target, z, kind, "sum").item() == pytest.approx(3 * value, rel=1e-12)  # three outputs a row
    for kind in ("l1", "l2", "ce"):
        distance(target, z, kind).backward()
    assert torch.equal(distance(target, z, "ce", "sum"), distance(target, z, "ce"))
    assert target.grad is None
    assert z.grad is not None


def test_cross_correlation_by_loops():
    a, b = logits("a"), logits("b")
    matrix = cross_correlation(a, b)
    loss = 0.0
    for u in range(3):
        for v in range(3):
            x = [row[u] - sum(r[u] for r in a.tolist()) / 6 for row in a.tolist()]
            y = [row[v] - sum(r[v] for r in b.tolist()) / 6 for row in b.tolist()]
            top = sum(p * q for p, q in zip(x, y, strict=True))
            m = top / math.sqrt(sum(p * p for p in x)) / math.sqrt(sum(q * q for q in y))
            assert matrix[u, v].item() == pytest.approx(m, rel=1e-10)
            loss += (1 - m) ** 2 if u == v else 0.0051 * (1 + m) ** 2
    assert correlation_loss(matrix, 0.0051).item() == pytest.approx(loss, rel=1e-10)
    assert torch.allclose(cross_correlation(a, a).diagonal(), torch.ones(3, dtype=torch.float64))


def test_a_participant_that_sends_enormous_logits_does_not_sink_the_others():
    class Corrupt(Network):
        def arrivals(self, message, *rest):
            if message.kind == "logits" and message.sender == "c0":
                noise = torch.randn(message.body["logits"].shape, generator=generator("noise", message.round))
                message.body["logits"].copy_(1e4 * noise)
                message.body.versions = message.body._versions()
            return super().arrivals(message, *rest)

    distil, accuracy = Training(batch=16, epochs=20), {}
    for how in ("mean", "median"):
        federation = logits_star(
            FedMD(local=replace(B16, initial=30), distil=distil, cohort=Cohort(combine=how)), seed=2
        )
        table = local(federation, network=Corrupt).run(3).table
        accuracy[how] = table.select(product="distilled", quantity="accuracy", set="here").last().mean()
    assert accuracy["median"] > accuracy["mean"] + 0.05


# -- limits ----------------------------------------------------------------------------------------------------
def test_lwof_with_beta_zero_is_fedmd_global():
    options = {"local": replace(B16, initial=1), "distil": B16}
    plain = local(logits_star(fedmd_global(**options))).run(3)
    assert local(logits_star(fedmd_global(lwof=0.0, rho=5.0, **options))).run(3).digest == plain.digest
    assert local(logits_star(fedmd_global(lwof=1.0, **options))).run(3).digest != plain.digest


def test_a_sum_over_outputs_is_a_mean_with_as_many_times_the_rate():
    """Eq. 1 prints a norm: of a row's four outputs here."""
    mean_, sum_ = (
        local(logits_star(FedMD(local=B16, distil=Training(batch=16, lr=rate), reduction=how))).run(2)
        for how, rate in (("mean", 0.08), ("sum", 0.02))
    )
    assert mean_.digest != local(logits_star(FedMD(local=B16, distil=Training(batch=16, lr=0.02)))).run(2).digest
    for client in CLIENTS:
        a, b = (result.state(client)["models"]["model"] for result in (mean_, sum_))
        assert all(torch.allclose(a[name], b[name], atol=1e-6) for name in a)


def test_a_reduction_goes_with_a_distance_of_outputs():
    with pytest.raises(ValueError, match="goes with measure"):
        FedMD(measure="ce", reduction="sum")


def test_the_global_model_changes_nothing_for_the_clients():
    options = {"local": B16, "distil": B16}
    without, with_ = (local(logits_star(made)).run(3) for made in (FedMD(**options), fedmd_global(**options)))
    for client in CLIENTS:
        a, b = (result.state(client)["models"]["model"] for result in (without, with_))
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert with_.table.select(product="global").rows
    assert not without.table.select(product="global").rows


def fccl_star(method=None, **options):
    return logits_star(method or FCCL(pretrain=ADAM, collaborate=ADAM, local=ADAM, **options), "previous", "pretrained")


def test_fccl_without_memory_is_plain_local_training_after_the_collaborative_step(monkeypatch):
    """lambda_loc = 0: the same as training with the cross-entropy alone."""
    full = local(fccl_star(lambda_loc=0.0)).run(2)
    monkeypatch.setattr(LocalLoss, "__call__", lambda self, nets, batch: cross_entropy({"model": nets["model"]}, batch))
    plain = local(fccl_star()).run(2)
    monkeypatch.undo()
    for client in CLIENTS:
        a, b = (result.state(client)["models"]["model"] for result in (full, plain))
        assert all(torch.allclose(a[name], b[name], atol=1e-6) for name in a)
    assert local(fccl_star()).run(2).digest != plain.digest


# -- variants of FCCL ------------------------------------------------------------------------------------------
def test_what_a_variant_sends_is_sent_only_when_it_is_asked_for():
    assert set(local(fccl_star()).run(2).ledger.bytes()) == {"ask", "logits", "consensus"}
    assert set(local(alike_star()).run(2).ledger.bytes()) == {"ask", "logits", "consensus", "model", "mean"}
    rare = fccl_homogeneous(collaborate=ADAM, local=ADAM, local_every=2)
    sent = {(r["round"], r["kind"]) for r in local(alike_star(rare)).run(3).ledger.messages}
    assert {round for round, kind in sent if kind in ("model", "mean")} == {1}  # before local updates only
    assert {round for round, kind in sent if kind == "logits"} == {0, 1, 2}


def test_averaging_stands_between_the_two_phases():
    """Without local epochs all end on the plain mean of what the collaborative phase made of each."""
    still = Training(epochs=0)
    options = {"collaborate": ADAM, "local": still}
    apart = local(alike_star(FCCL(**options))).run(1)
    together = local(alike_star(fccl_homogeneous(**options))).run(1)
    parts = [apart.state(c)["models"]["model"] for c in CLIENTS]
    assert not torch.equal(parts[0]["0.weight"], parts[1]["0.weight"])
    expected = mean(parts)
    for node in (*CLIENTS, "server"):
        found = together.state(node)["models"]["model"]
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    # And then everyone trains on its own.
    on = local(alike_star()).run(1)
    assert not torch.equal(*(on.state(c)["models"]["model"]["0.weight"] for c in ("c0", "c1")))


def test_one_alone_averages_with_itself():
    """A single participant's mean is its own model: averaging changes nothing."""

    def single(method):
        whole = alike_star(method)
        models = {n: whole.models[n] for n in ("server", "c0")}
        data = {n: whole.data[n] for n in ("server", "c0")}
        return local(Federation(method, star(["c0"]), models, data)).run(2).state("c0")["models"]["model"]

    options = {"collaborate": ADAM, "local": ADAM}
    a, b = single(FCCL(**options)), single(fccl_homogeneous(**options))
    assert all(torch.equal(a[name], b[name]) for name in a)


def code_star(**options):
    usual = {"rows": PublicRows(), "local_every": 1, "pretrain": ADAM, "collaborate": ADAM, "local": ADAM}
    return fccl_star(FCCLCode(**{**usual, **options}))


def zbars(federation, rounds):
    """Run it, and return Z-bar of each client and round, in the order of the public rows."""
    found = {}

    class Watching(Eager):
        def _begin(self, job):
            if "zbar" in getattr(job.work, "extra", {}):
                rows, zbar = job.work.rows, job.work.extra["zbar"]
                own = found.setdefault((job.node.id, job.node.round), torch.zeros(len(PUBLIC), zbar.shape[1]))
                own[slice(None) if rows is None else rows] = zbar
            return super()._begin(job)

    engine = local(federation)
    engine.host.executor = Watching(federation.test_sets)
    engine.run(rounds)
    return found


def test_in_the_authors_code_zbar_is_the_mean_of_all_when_each_round_trains():
    """Right after a local update the previous model is the present one: all clients have the same Z-bar, to the bit."""
    for number in range(3):
        ours, *others = (zbars(code_star(), 3)[client, number] for client in CLIENTS)
        assert all(torch.equal(ours, other) for other in others)
    plain, first = zbars(fccl_star(), 1), zbars(code_star(), 1)
    assert all(torch.equal(plain[client, 0], first[client, 0]) for client in CLIENTS)
    rare = zbars(code_star(local_every=2), 2)
    assert not torch.equal(rare["c0", 1], rare["c1", 1])


@pytest.mark.parametrize("star", [fccl_star, code_star])
def test_logits_of_training_mode_are_those_of_evaluation_mode_where_networks_do_not_tell_them_apart(star):
    plain, training = zbars(star(), 2), zbars(star(training_mode=True), 2)
    assert plain.keys() == training.keys()
    assert all(torch.equal(plain[at], training[at]) for at in plain)


def test_logits_of_training_mode_are_standardised_by_their_batch_and_move_the_statistics():
    network = nn.Sequential(nn.Flatten(), nn.Linear(PUBLIC.x[0].numel(), 3), nn.BatchNorm1d(3)).eval()
    plain = outputs_of(network, PUBLIC)
    assert torch.equal(network[2].running_mean, torch.zeros(3))
    outputs = outputs_of(network, PUBLIC, training=True)
    linear = network[1](PUBLIC.x.flatten(1)).detach()
    by_hand = (linear - linear.mean(0)) / (linear.var(0, unbiased=False) + network[2].eps).sqrt()
    torch.testing.assert_close(outputs, by_hand, rtol=0, atol=1e-5)
    torch.testing.assert_close(network[2].running_mean, 0.1 * linear.mean(0))
    assert not torch.equal(outputs, plain)
    assert not network.training
    assert not network[2].training


def test_zbar_of_the_others_by_a_loop():
    """(others' present logits + one's own previous model's) / K, in the second exchange before a local update."""
    federation = code_star(local_every=3)
    before = local(federation).run(1)  # one exchange: models have moved, the previous ones have not
    targets = zbars(federation, 2)
    logits = {}
    for client in CLIENTS:
        node = federation.node(client)
        node.restore(before.state(client))
        logits[client] = {name: predict(node.models[name], PUBLIC) for name in ("model", "previous")}
    for client in CLIENTS:
        total = logits[client]["previous"].double()
        for other in CLIENTS:
            total = total + (logits[other]["model"].double() if other != client else 0)
        assert torch.allclose(targets[client, 1].double(), total / 3, atol=1e-6)


def test_a_new_optimiser_for_each_public_batch_by_a_plain_loop():
    """32 public rows in batches of 12, two epochs: four steps (the short third batch is left out), each Adam's first.

    A piece of work shuffles its rows once more, as any does.
    """
    still = Training(epochs=0)
    federation = code_star(pretrain=still, collaborate=replace(ADAM, batch=12, epochs=2), local=still)
    result = local(federation).run(1)
    nodes = {c: federation.node(c) for c in CLIENTS}
    agreed = average([predict(node.models["model"], PUBLIC) for node in nodes.values()])
    for client, node in nodes.items():
        model, draw = node.models["model"].train(), node.rng("public batches")
        for _ in range(2):
            order = torch.randperm(32, generator=draw)
            for rows in (order[:12], order[12:24]):
                view = PUBLIC.take(rows)
                shuffled = torch.randperm(12, generator=generator(0, client, "public", node.epochs.get("public", 0)))
                node.epochs["public"] = node.epochs.get("public", 0) + 1
                optimiser = torch.optim.Adam(model.parameters(), 0.01)
                matrix = cross_correlation(model(view.x[shuffled]), agreed[rows][shuffled])
                correlation_loss(matrix, 0.0051).backward()
                optimiser.step()
                model.zero_grad()
        found = result.state(client)["models"]["model"]
        assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


def test_the_authors_code_by_name():
    made = registry.lookup("fccl-code").build({})
    assert (type(made), made.rows.sample, made.local_every) == (FCCLCode, 512, 9)
    assert registry.lookup("fccl-code").build({"sample": 64}).rows.sample == 64
    with pytest.raises(registry.OptionError, match="averaging"):
        registry.lookup("fccl-homogeneous").build({"averaging": False})


def test_correlations_are_those_of_each_with_the_mean_of_the_others():
    federation = fccl_star()
    federation = replace(federation, homes=dict(zip(CLIENTS, ("here", "there", "there"), strict=True)))
    result = local(federation).run(2)
    found = correlations(federation, result.state, result.nodes)
    assert set(found) == set(CLIENTS)
    nodes = {c: federation.node(c) for c in CLIENTS}
    for client, node in nodes.items():
        node.restore(result.state(client))
    for name, data in (("public", PUBLIC), ("private", federation.data["c1"]["train"])):
        own, *others = (predict(nodes[c].models["model"], data).double() for c in ("c1", "c0", "c2"))
        rest = (others[0] + others[1]) / 2
        matrix = found["c1"][name]
        assert matrix.shape == (4, 4)
        for u in range(4):
            for v in range(4):
                a, b = own[:, u] - own[:, u].mean(), rest[:, v] - rest[:, v].mean()
                expected = float(sum(a * b)) / math.sqrt(float(sum(a * a)) * float(sum(b * b)))
                assert float(matrix[u, v]) == pytest.approx(expected, abs=1e-4)
    assert local(federation).run(2).digest == result.digest  # it changed nothing


def test_feddf_averages_within_an_architecture():
    """Without distillation steps, what comes back is the weighted mean of the clients of that architecture."""
    still = Training(epochs=0)
    federation = distilled_star()
    method = FedDF(local=B16, distil=still)
    federation = replace(federation, method=method)
    result = local(federation).run(1)
    pair = [result.state(c)["models"]["model"] for c in ("c0", "c1")]
    assert all(torch.equal(pair[0][name], pair[1][name]) for name in pair[0])
    assert result.ledger.bytes()["fused"] == sum(
        t.nbytes for c in CLIENTS for t in federation.node(c).weights().values()
    )


# -- what travels ------------------------------------------------------------------------------------------------
def test_adaptor_layers_never_leave_a_client():
    """A shared body with private heads of different sizes: clients with different tasks."""
    tasks = {"c0": 4, "c1": 7, "c2": 4}

    def bodied(classes):
        def build():
            from torch import nn

            return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, classes))

        return build

    data = private(CLIENTS)
    wide = data["c1"]["train"]
    data["c1"] = {"train": Data(x=wide.x, y=(wide.y + 3) % 7, classes=7)}
    models = {c: {"model": bodied(k), "meme": Model(bodied(k), share="0")}
              for c, k in tasks.items()}  # fmt: skip
    models["server"] = {"model": Model(bodied(4), share="0")}
    seen = []

    class Watching(Network):
        def arrivals(self, message, *rest):
            seen.append((message.kind, *message.body["weights"]))
            return super().arrivals(message, *rest)

    federation = Federation(FML(local=B16), star(CLIENTS), models, data)
    result = local(federation, network=Watching).run(2)
    assert result.rounds == 2
    assert set(seen) == {("global", "0.weight", "0.bias"), ("meme", "0.weight", "0.bias")}
    heads = [result.state(c)["models"]["meme"]["2.weight"] for c in ("c0", "c2")]
    assert not torch.equal(*heads)


@pytest.mark.parametrize("harm", ["nan", "rows", "classes"])
def test_bad_logits_from_one_client_are_refused_and_the_round_goes_on(harm):
    class Corrupt(Network):
        def arrivals(self, message, *rest):
            if message.kind == "logits" and message.sender == "c1":
                z = message.body["logits"]
                bad = {"nan": z * math.nan, "rows": z[1:].clone(), "classes": z[:, 1:].clone()}[harm]
                message = Message(message.kind, message.sender, message.receiver, message.round, message.id,
                                  Body({"logits": bad}))  # fmt: skip
                self.sent = message
            return super().arrivals(message, *rest)

    from heterophony.engines.event import Arrival, Queue

    federation = logits_star(FedMD(local=B16, distil=B16))
    engine = local(federation, network=Corrupt)
    push = Queue.push

    def swap(self, when, event):
        bad = getattr(engine.network, "sent", None)
        if (
            isinstance(event, Arrival)
            and bad is not None
            and event.message.id == bad.id
            and event.message.sender == "c1"
        ):
            event = Arrival(bad)
        push(self, when, event)

    engine.queue.push = swap.__get__(engine.queue)
    result = engine.run(3)
    refused = [i for i in result.ledger.incidents if i["incident"] == "refused"]
    assert len(refused) == 3
    assert all("from c1" in i["detail"] for i in refused)
    assert result.rounds == 3


def test_public_rows_are_the_same_for_everyone_and_other_rows_each_round():
    nodes = [logits_star(FedMD()).node(name) for name in ("server", "c0", "c2")]
    ten, once = PublicRows(sample=10), PublicRows(sample=10, fresh=False)
    rows = [ten.of(node) for node in nodes]
    assert all(torch.equal(rows[0], other) for other in rows[1:])
    nodes[0].round = 1
    assert not torch.equal(ten.of(nodes[0]), rows[0])
    assert torch.equal(once.of(nodes[0]), once.of(nodes[1]))
    assert all(PublicRows(sample=n).of(nodes[0]) is None for n in (None, 10**6, len(PUBLIC)))


@pytest.mark.parametrize(
    "build",
    [
        lambda: logits_star(fedmd_global(local=B16, distil=B16)),
        distilled_star,
        fccl_star,
        code_star,
    ],
)
def test_all_public_rows_need_not_be_named(monkeypatch, build):
    """The view as it is gives the same bits as all of its rows by number, which are a copy."""
    expected = local(build()).run(2).digest
    monkeypatch.setattr(PublicRows, "of", lambda *_: torch.arange(len(PUBLIC)))
    assert local(build()).run(2).digest == expected


def test_half_precision_logits_cost_half_the_bytes():
    full, half = (local(logits_star(FedMD(local=B16, distil=B16, half=h))).run(1).ledger.bytes() for h in (False, True))
    assert half["logits"] * 2 == full["logits"]


def test_loss_terms_are_recorded_apart():
    table = local(logits_star(fedmd_global(local=B16, distil=B16, lwof=1.0))).run(1).table
    found = {row["quantity"] for row in table.select(product="training", node="c0")}
    assert found == {"model.l1", "model.ce", "model.lwof"}
    table = local(mutual_star()).run(1).table
    assert {row["quantity"] for row in table.select(product="training", node="c0")} == {
        "model.ce", "model.kl", "meme.ce", "meme.kl",
    }  # fmt: skip


def test_ramps():
    ramp = Ramp(0.9, 0.1, 4)
    assert [round(at(ramp, r), 3) for r in range(6)] == [0.9, 0.7, 0.5, 0.3, 0.1, 0.1]
    assert at(0.5, 3) == 0.5
    with pytest.raises(ValueError, match="at least one round"):
        Ramp(0, 1, 0)
    federation = mutual_star()
    ramped, flat = (replace(federation, method=FML(local=B16, alpha=a)) for a in (Ramp(0.9, 0.1, 2), 0.9))
    assert local(ramped).run(1).digest == local(flat).run(1).digest
    assert local(ramped).run(2).digest != local(flat).run(2).digest


def test_a_newcomer_starts_from_the_present_global_model():
    federation = mutual_star(joins={"c2": 0.1}, profiles={"": Profile()})
    result = local(federation).run(4)
    first = next(r for r in result.ledger.messages if r["to"] == "c2")
    assert first["round"] >= 1
    assert result.table.select(product="personalised", node="c2").rows


def test_initial_epochs_of_fedmd_are_epochs_also_where_rounds_are_counted_in_steps():
    method = FedMD(initial_public=2, local=Training(batch=16, steps=1, initial=3))
    asked = []

    def watch(jobs):
        asked.extend(job for job in jobs if job.node.id == CLIENTS[0] and hasattr(job.work, "sizes"))
        return Eager()(jobs)

    local(logits_star(method), executor=watch).run(1)
    batches = [(job.work.data, len(job.work.sizes(job.node))) for job in asked]
    node = asked[0].node
    whole = {view: -(-len(node.data[view]) // 16) for view in ("public", "train")}
    assert batches[:2] == [("public", 2 * whole["public"]), ("train", 3 * whole["train"])]
    assert batches[-1] == ("train", 1)


@pytest.mark.parametrize("method", [FML, FedDF, FedAvg])
def test_all_can_start_from_models_that_were_trained_alone(method):
    asked = []

    def watch(jobs):
        asked.extend(job for job in jobs if job.node.id == CLIENTS[0] and isinstance(job.work, Fit))
        return Eager()(jobs)

    star = {FML: mutual_star(), FedDF: distilled_star(), FedAvg: weights_star(FedAvg())}[method]
    local(replace(star, method=method(local=Training(batch=16, steps=1, initial=3))), executor=watch).run(2)
    fits = [job.work for job in asked]
    whole = -(-len(asked[0].node.data["train"]) // 16)
    assert [len(fit.sizes(asked[0].node)) for fit in fits] == [3 * whole, 1, 1]
    assert [fit.once for fit in fits] == [True, False, False]


@pytest.mark.parametrize("method", [FedMD, FCCL])
def test_products_that_come_once_are_evaluated_whatever_the_round(method):
    table = local(logits_star(method(local=B16), "previous", "pretrained", evaluate=3)).run(4).table
    rounds = {product: sorted({row["round"] for row in table.select(product=product)}) for product in PRODUCTS[method]}
    assert rounds == PRODUCTS[method]


PRODUCTS = {FedMD: {"initial": [0], "personalised": [2, 3]}, FCCL: {"initial": [0], "local": [2, 3]}}


@pytest.mark.parametrize("method", [FedMD, FCCL], ids=lambda method: method.__name__.lower())
def test_followers_are_evaluated_when_their_server_is_due(method):
    """Their server is in its last round already while they do what it sent in the one before."""
    table = local(logits_star(method(local=B16), "previous", "pretrained", evaluate=2)).run(6).table
    product = method.headline
    assert sorted({row["round"] for row in table.select(product=product)}) == [1, 3, 5]


def test_a_pretrained_global_model_changes_itself_alone():
    runs = [local(logits_star(fedmd_global(initial_global=epochs, distil=B16, local=B16))).run(1) for epochs in (0, 2)]
    (plain, first), *clients = ([run.state(name)["models"]["model"] for run in runs] for name in ("server", *CLIENTS))
    assert any(not torch.equal(plain[name], first[name]) for name in plain)
    assert all(torch.equal(a[name], b[name]) for a, b in clients for name in a)
    with pytest.raises(ValueError, match="which only fedmd-global has"):
        FedMD(initial_global=1)
