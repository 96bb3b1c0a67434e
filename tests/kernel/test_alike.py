"""Fits share what was captured, or a stack, only if they are the same program; otherwise they end as one at a time."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heterophony import Compute, Federation, Own
from heterophony.base.seeds import seeded
from heterophony.compute.batched import Batched
from heterophony.compute.choice import key_of
from heterophony.compute.eager import Eager, Job
from heterophony.compute.signature import of_module
from heterophony.engines import local
from heterophony.kernel.method import Method
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.optimisers import Optimiser, adam, sgd
from heterophony.kernel.reaction import Round, on
from heterophony.kernel.topology import complete, star
from heterophony.kernel.work import Fit, Mark
from heterophony.methods import FML, IFCA, FedAvg, FedDF, FedH2L, Solo, fedmd_global
from heterophony.parts.cohort import Cohort
from heterophony.parts.losses import cross_entropy
from heterophony.parts.retention import Remembering
from heterophony.parts.training import Training
from heterophony.runs.run import Run
from toys.world import PUBLIC, TESTS, net, normed, points

WAYS = pytest.mark.parametrize("executor", ["branches", "stacked"])
PLAIN = Fit("model", cross_entropy, batch=16, optimiser=sgd(0.1))


def jobs(works, factories=None, views=("train", "own")):
    """A participant for each, the same every time."""
    found = []
    for i, work in enumerate(works):
        with seeded("alike", i):
            slots = {"model": Slot((factories or {}).get(i, net())())}
        data = {view: points(f"{view}{i}", 48) for view in views}
        found.append(Job(Node(f"c{i}", "client", slots=slots, data=data), work, "0"))
    return found


def compare(executor, works, factories=None, times=1, between=lambda model: None):
    """Both ways, from the same states; returns what each left, and the executor."""
    batched, done = Batched(executor=executor), []
    for compute in (Eager(), batched):
        mine = jobs(works, factories)
        for time in range(times):
            for job in mine if time else ():
                between(job.node.models["model"])
            answers = list(compute(mine))
        done.append((mine, answers))
    (ones, _), (others, _) = done
    for one, other in zip(ones, others, strict=True):
        for name, tensor in one.node.slots["model"].tensors().items():
            torch.testing.assert_close(other.node.slots["model"].tensors()[name], tensor, rtol=1e-5, atol=1e-6)
        assert one.node.epochs == other.node.epochs
        assert one.node.optimisers.keys() == other.node.optimisers.keys()
    return done, batched


def pull(gradients, parameters, *, mu):
    return {n: g + mu * parameters[n].detach() for n, g in gradients.items()}


def weighted(nets, batch, a):
    return {"model": {"ce": a * F.cross_entropy(nets["model"](batch.x), batch.y)}}


@WAYS
def test_numbers_that_are_not_fed_in_tell_programs_apart(executor):
    """Those of a transform, and those that are not the loss's own but of something within it."""
    compare(executor, [Fit("model", cross_entropy, batch=16, transform=partial(pull, mu=mu)) for mu in (0.0, 1.0)])
    extra = {"kept": torch.zeros(48, 4)}
    nested = [Fit("model", Remembering(partial(weighted, a=a), 0.5, 2.0), batch=16, extra=extra) for a in (0.1, 2.0)]
    compare(executor, nested)


@WAYS
def test_a_whole_number_may_be_a_count(executor):
    def top(nets, batch, k):
        return nets["model"](batch.x).topk(k, -1).values.mean()

    compare(executor, [Fit("model", partial(top, k=k), batch=16) for k in (2, 2, 3)])


class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.a, self.b, self.act = nn.Linear(8, 12), nn.Linear(12, 4), act

    def forward(self, x):
        return self.b(self.act(self.a(x)))


def inner(act):
    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 12), nn.Linear(12, 4)

        def forward(self, x):
            return self.b(act(self.a(x)))

    return Local


@WAYS
def test_networks_that_differ_in_a_function_alone(executor):
    named = {0: lambda: Net(lambda x: torch.relu(x)), 1: lambda: Net(lambda x: torch.tanh(x))}
    compare(executor, [PLAIN] * 2, named)
    compare(executor, [PLAIN] * 2, {0: inner(torch.relu), 1: inner(torch.tanh)})
    assert len({key_of(of_module(make())) for make in named.values()}) == 2  # in another process, too


CHANGES = {
    "frozen": lambda model: model[0].requires_grad_(False),
    "a setting": lambda model: setattr(model[1], "negative_slope", 0.9),
    "a part": lambda model: setattr(model, "1", nn.Tanh()),
    "a hook": lambda model: model[1].register_forward_hook(lambda module, given, out: out * 0.5),
    "a hook on a gradient": lambda model: model[0].weight.register_hook(lambda g: g.clamp(-1e-3, 1e-3)),
}


@WAYS
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_two_fits_is_seen(change, executor):
    def make():
        return nn.Sequential(nn.Linear(8, 12), nn.LeakyReLU(0.1), nn.Linear(12, 4))

    compare(executor, [PLAIN] * 2, {0: make, 1: make}, times=2, between=CHANGES[change])


@WAYS
def test_each_keeps_its_own_moments_and_orders(executor):
    momentum = sgd(0.1, momentum=0.9)
    kept = [Fit("model", cross_entropy, batch=16, optimiser=momentum, keep=name) for name in ("red", "blue", None)]
    done, _ = compare(executor, kept, times=2)
    assert [list(job.node.optimisers) for job in done[1][0]] == [["model/red"], ["model/blue"], []]
    compare(executor, [Fit("model", cross_entropy, view, batch=16) for view in ("train", "own")], times=2)


@WAYS
def test_the_part_that_is_trained_tells_programs_apart(executor):
    """Decayed, with moments that are kept: what is not trained stays as it is, and so do its moments."""
    decayed = sgd(0.1, momentum=0.9, weight_decay=0.05)
    parts = (None, ("0",), ("2",), ("2",))
    works = [Fit("model", cross_entropy, batch=16, optimiser=decayed, keep="own", only=part) for part in parts]
    done, batched = compare(executor, works, times=2)
    assert not batched.alone
    start = jobs(works)
    for mine, _ in done:
        for job, part, before in zip(mine, parts, start, strict=True):
            for name, tensor in job.node.slots["model"].tensors().items():
                stays = part is not None and not name.startswith(part)
                assert torch.equal(tensor, before.node.slots["model"].tensors()[name]) == stays


@WAYS
@pytest.mark.parametrize("optimiser", [sgd(0.1, 0.9, 0.05), adam(0.01, 0.05)], ids=["sgd", "adam"])
def test_parts_in_turns_keep_each_others_moments(executor, optimiser):
    ones, others = jobs([PLAIN] * 2), jobs([PLAIN] * 2)
    batched = Batched(executor=executor)
    for part in (None, ("0",), ("2",), None):
        for compute, mine in ((Eager(), ones), (batched, others)):
            for job in mine:
                job.work = Fit("model", cross_entropy, batch=16, optimiser=optimiser, keep="own", only=part)
            compute(mine)
    assert not batched.alone
    for one, other in zip(ones, others, strict=True):
        kept = [job.node.optimisers["model/own"] for job in (one, other)]
        assert list(kept[0]) == list(kept[1])
        for name, tensor in one.node.slots["model"].tensors().items():
            torch.testing.assert_close(other.node.slots["model"].tensors()[name], tensor, rtol=1e-5, atol=1e-6)
            for moment, value in kept[0][name].items():
                torch.testing.assert_close(kept[1][name][moment], value, rtol=1e-5, atol=1e-6)


class Spare(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.spare = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        return self.a(x)


@WAYS
def test_what_the_loss_does_not_reach_is_not_decayed(executor):
    decayed = sgd(0.1, momentum=0.9, weight_decay=0.05)
    work = Fit("model", cross_entropy, batch=16, epochs=10, optimiser=decayed, answer="gradient")
    done, _ = compare(executor, [work] * 2, {0: Spare, 1: Spare})
    assert [answers[0].gradient.keys() for _, answers in done] == [{"a.weight", "a.bias"}] * 2


@WAYS
def test_a_fresh_state_that_is_not_zero(executor):
    dampened = Optimiser("SGD", 0.1, {"momentum": 0.9, "dampening": 0.5})
    compare(executor, [Fit("model", cross_entropy, batch=16, optimiser=dampened)] * 2)


class Centred(nn.Module):
    """Assigns its buffer anew, instead of writing to it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("centre", torch.zeros(8))

    def forward(self, x):
        if self.training:
            self.centre = 0.9 * self.centre + 0.1 * x.mean(0).detach()
        return self.linear(x - self.centre)


@pytest.mark.parametrize("executor", ["eager", "branches", "stacked"])
def test_a_buffer_that_is_assigned_anew_is_the_models_own(executor, tmp_path):
    peers = ["p0", "p1"]
    data = {p: {"train": points(p, 48, 1.0)} for p in peers}
    made = Federation(
        Solo(local=Training(batch=16)),
        complete(peers),
        {"peer": {"model": Centred}},
        data,
        TESTS,
        compute=Compute(executor=executor),
    )
    whole = made.run(3)
    made.run(1, tmp_path / "run")
    assert made.resume(tmp_path / "run", 3).digest == whole.digest
    assert whole.state("p0")["models"]["model"]["centre"].norm() > 0.1
    if executor != "eager":
        _, batched = compare(executor, [PLAIN] * 2, {0: Centred, 1: Centred}, times=2)
        assert batched.alone == {"c0", "c1"}


@pytest.mark.parametrize("optimiser", [sgd(0.1), adam(0.01)])
@pytest.mark.parametrize("executor", ["eager", "branches", "stacked"])
def test_one_of_two_models_may_be_frozen(executor, optimiser):
    def frozen():
        return net(16)().requires_grad_(False)

    clients = ["c0", "c1"]
    models = {"server": {"model": net()}, "client": {"model": frozen, "meme": net()}}
    data = {c: {"train": points(c)} for c in clients}
    training = Training(batch=16, lr=0.01, optimiser="adam" if optimiser.name == "Adam" else "sgd")
    made = Federation(FML(local=training), star(clients), models, data, TESTS, compute=Compute(executor=executor))
    result = made.run(2)
    for client in clients:
        before, after = made.node(client).slots, result.state(client)["models"]
        same = {slot: all(torch.equal(t, after[slot][n]) for n, t in before[slot].tensors().items()) for slot in before}
        assert same == {"model": True, "meme": False}


class Twice(Method):
    """A fit that can be stacked, then one that cannot be told from others."""

    roles = ("peer",)
    kinds = ()
    models = {"peer": {"model": Own()}}
    headline = "local"
    local: Training = Training(batch=16)

    @on(Round)
    def train(self, peer):
        yield self.local.fit("model", cross_entropy)
        table = torch.ones(4)
        yield self.local.fit("model", lambda nets, batch: F.cross_entropy(nets["model"](batch.x), batch.y, table))
        yield Mark("local")
        peer.round += 1


@pytest.mark.parametrize("executor", ["branches", "stacked"])
def test_what_runs_one_at_a_time_does_so_after_a_resume_too(executor, tmp_path):
    """And nothing else of the node's does."""
    peers = ["p0", "p1", "p2"]
    data = {p: {"train": points(p, 48)} for p in peers}
    made = Federation(
        Twice(), complete(peers), {"peer": {"model": normed}}, data, TESTS, compute=Compute(executor=executor)
    )
    whole = made.run(3)
    made.run(1, tmp_path / "run")
    assert made.resume(tmp_path / "run", 3).digest == whole.digest


def test_who_shares_a_stack_does_not_depend_on_snapshots(tmp_path):
    """The server's distillation and the clients' begin at one moment, but not for one reason."""
    clients = ["c0", "c1", "c2"]
    models = {**{c: {"model": normed} for c in clients}, "server": {"model": normed}}
    data = {c: {"train": points(c, 48), "public": PUBLIC} for c in clients} | {"server": {"public": PUBLIC}}
    training = Training(batch=16, lr=0.05)
    made = Federation(
        fedmd_global(distil=training, local=training),
        star(clients),
        models,
        data,
        TESTS,
        compute=Compute(executor="stacked"),
    )
    without = local(made).run(3).digest
    with Run.create(tmp_path / "run", made.identity(), 3, cadence=0.0) as run:
        assert local(made, record=run).run(3).digest == without


def nothing():
    return points("nothing", 1).take(torch.arange(0))


def test_nobody_who_was_heard_has_rows():
    clients = ["c0", "c1"]
    models = {"server": {"model": net()}, "client": {"model": net()}}
    result = Federation(FedAvg(), star(clients), models, {c: {"train": nothing()} for c in clients}, TESTS).run(2)
    assert result.rounds == 2
    data = {"c0": {"train": nothing()}, "c1": {"train": points("c1")}}
    two = {"server": {"model": net(), "model-1": net()}, "client": {"model": net()}}
    assert Federation(IFCA(), star(clients), two, data, TESTS).run(3).rounds == 3
    peers = ["p0", "p1", "p2"]
    views = {p: {"train": points(p), "own": nothing() if p == "p0" else points(p), "public": PUBLIC} for p in peers}
    assert Federation(FedH2L(), complete(peers), {"peer": {"model": net()}}, views, TESTS).run(2).rounds == 2


def test_feddf_gives_whoever_was_away_the_present_model(monkeypatch):
    clients = ["c0", "c1", "c2", "c3"]
    training = Training(batch=16)
    method = FedDF(cohort=Cohort(fraction=0.25), local=training, distil=Training(batch=16, lr=1e-3, optimiser="adam"))
    data = {c: {"train": points(c), "public": PUBLIC} for c in clients} | {"server": {"public": PUBLIC}}
    models = {"server": {"a": net()}, "client": {"model": net()}}
    engine = local(Federation(method, star(clients), models, data, TESTS))
    one, met, fresh = Eager.one, set(), []

    def watched(self, job):
        if isinstance(job.work, Fit) and job.node.role == "client":
            present = engine.host.nodes["server"].weights("a")
            if job.node.id in met:
                fresh.append(all(torch.equal(t, present[name]) for name, t in job.node.weights().items()))
            met.add(job.node.id)
        return one(self, job)

    monkeypatch.setattr(Eager, "one", watched)
    engine.run(12)
    assert len(fresh) > 6
    assert all(fresh)
    assert engine.ledger.bytes()["model"] > 0
