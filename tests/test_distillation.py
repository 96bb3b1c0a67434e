"""FedMD, FedMD+Global with LwoF, FML, FCCL, FedDF: their limits, and their losses recomputed by loops in float64."""

import math
from dataclasses import replace

import pytest
import torch

from heterophony import Data, Federation, Model, Profile
from heterophony.engines import Network, local
from heterophony.message import Body, Message
from heterophony.methods import FCCL, FML, FedDF, FedMD, fedmd_global
from heterophony.methods.fccl import correlation_loss, cross_correlation
from heterophony.parts.aggregate import combine
from heterophony.parts.losses import distance, soft_cross_entropy
from heterophony.parts.public import public_rows
from heterophony.parts.schedules import Ramp, at
from heterophony.parts.training import Training
from heterophony.seeds import generator
from heterophony.topology import star
from toys.federations import ADAM, B16, CLIENTS, distilled_star, logits_star, mutual_star
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
    for kind in ("l1", "l2", "ce"):
        distance(target, z, kind).backward()
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


def test_robust_averages():
    """One participant that sends enormous logits moves the mean, not the median or the trimmed mean."""
    honest = [torch.full((2, 2), float(v)) for v in (1, 2, 3, 4)]
    liar = torch.full((2, 2), 1e9)
    assert combine([*honest, liar], "mean").max() > 1e8
    assert combine([*honest, liar], "median").tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert combine([*honest, liar], "trimmed").tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert combine(honest, "median")[0, 0] == 2.5
    for how in ("mean", "median", "trimmed"):
        assert torch.equal(combine(honest[:1], how), honest[0])
    with pytest.raises(ValueError, match="nothing to combine"):
        combine([])


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
        federation = logits_star(FedMD(local=B16, distil=distil, average=how, initial_local=30), seed=2)
        table = local(federation, network=Corrupt).run(3).table
        accuracy[how] = table.select(product="distilled", quantity="accuracy", set="here").last().mean()
    assert accuracy["median"] > accuracy["mean"] + 0.05


# -- limits ----------------------------------------------------------------------------------------------------
def test_lwof_with_beta_zero_is_fedmd_global():
    options = {"local": B16, "distil": B16, "initial_local": 1}
    plain = local(logits_star(fedmd_global(**options))).run(3)
    assert local(logits_star(fedmd_global(lwof=0.0, rho=5.0, **options))).run(3).digest == plain.digest
    assert local(logits_star(fedmd_global(lwof=1.0, **options))).run(3).digest != plain.digest


def test_the_global_model_changes_nothing_for_the_clients():
    options = {"local": B16, "distil": B16}
    without, with_ = (local(logits_star(made)).run(3) for made in (FedMD(**options), fedmd_global(**options)))
    for client in CLIENTS:
        a, b = (result.state(client)["models"]["model"] for result in (without, with_))
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert with_.table.select(product="global").rows
    assert not without.table.select(product="global").rows


def test_fccl_without_memory_is_plain_local_training_after_the_collaborative_step():
    """lambda_loc = 0: the same as training with the cross-entropy alone."""
    from heterophony.parts.losses import cross_entropy

    class Plain(FCCL.__bases__[0]):
        roles, kinds, memory = FCCL.roles, FCCL.kinds, FCCL.memory
        ask, speak, agree = FCCL.ask, FCCL.speak, FCCL.agree
        sample, fresh, average, half, fraction, quorum, deadline = None, True, "mean", False, 1.0, 1, None
        pretrain, collaborate, local, lambda_col, local_every = ADAM, ADAM, ADAM, 0.0051, 1
        correlate, _whole = FCCL.correlate, FCCL._whole
        __annotations__ = {"quorum": int, "deadline": float, "sample": int}

        from heterophony.methods.fccl import CONSENSUS
        from heterophony.reaction import Each, on

        @on(Each(CONSENSUS), role="client")
        def learn(self, client, mail):
            from heterophony import Mark, Note, Predict

            rows = public_rows(client, None)
            yield self.collaborate.fit(
                "model", self.correlate, data="public", rows=rows, extra={"agreed": mail.logits}, drop_last=True
            )
            yield Predict("model", "public", rows)
            yield Note("x", 0.0)
            yield Note("y", 0.0)
            yield self.local.fit("model", cross_entropy)
            client.copy("model", "previous")
            yield Mark("local")

    made = FCCL(pretrain=ADAM, collaborate=ADAM, local=ADAM, lambda_loc=0.0)
    full, plain = (local(logits_star(m, "previous", "pretrained")).run(2) for m in (made, Plain()))
    for client in CLIENTS:
        a, b = (result.state(client)["models"]["model"] for result in (full, plain))
        assert all(torch.allclose(a[name], b[name], atol=1e-6) for name in a)


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
    rows = [public_rows(node, 10) for node in nodes]
    assert all(torch.equal(rows[0], other) for other in rows[1:])
    nodes[0].round = 1
    assert not torch.equal(public_rows(nodes[0], 10), rows[0])
    assert torch.equal(public_rows(nodes[0], 10, fresh=False), public_rows(nodes[1], 10, fresh=False))
    assert len(public_rows(nodes[0], None)) == len(public_rows(nodes[0], 10**6)) == len(PUBLIC)


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
