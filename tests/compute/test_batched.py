"""Work computed together, captured or stacked, against one at a time: on a CPU, where steps are not replayed."""

import logging
import os
import subprocess
import sys
from collections import OrderedDict
from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from heterophony import Data, Federation
from heterophony.base import codec
from heterophony.base.seeds import seeded
from heterophony.compute import signature
from heterophony.compute.batched import Batched, PendingFit
from heterophony.compute.captured_fit import CHUNKS, TrainingRows, plan
from heterophony.compute.choice import COMPILED, COMPILED_BRANCHES, STACKED, Choices, Way
from heterophony.compute.eager import Eager, Job, WorkError
from heterophony.compute.fit_program import capacity
from heterophony.compute.products import Product
from heterophony.compute.stack import Stack
from heterophony.data.augment import CropFlip
from heterophony.engines import local
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.optimisers import Optimiser, adam, adamw, sgd
from heterophony.kernel.topology import star
from heterophony.kernel.work import Fit, Predict
from heterophony.methods import FML, FedAvg, fedprox
from heterophony.parts.cohort import Cohort
from heterophony.parts.losses import cross_entropy
from heterophony.parts.schedules import Ramp, Stairs
from heterophony.parts.training import Training
from heterophony.parts.transforms import Proximal
from toys.federations import METHODS
from toys.undisturbed import undisturbed
from toys.world import TESTS, net, points


@pytest.mark.parametrize("row", METHODS, ids=lambda row: row.name)
def test_lanes_equal_one_at_a_time_to_the_bit(row):
    federation, alone = row.build(), undisturbed(row)
    batched = Batched(federation.test_sets)
    together = local(federation, executor=batched, **row.options).run(row.rounds)
    assert together.digest == alone.digest
    assert together.table.rows == alone.table.rows
    assert together.ledger.rows == alone.ledger.rows
    assert batched.captured_fits
    assert not batched.alone


def job(i, work, factory=None, rows=48, device="cpu"):
    with seeded("batched test", i):
        slots = {"model": Slot((factory or net())()), "teacher": Slot(net()())}
    return Job(Node(f"c{i}", "client", slots=slots, data={"train": points(f"c{i}", rows)}, device=device), work, "0")


def after(compute, jobs):
    answers = compute(jobs)
    return answers, [{n: t.clone() for n, t in j.node.slots["model"].tensors().items()} for j in jobs]


def soft(nets, batch):
    """A loss with a teacher and a number."""
    return {"model": {"soft": ((nets["model"](batch.x) - nets["teacher"](batch.x)) ** 2).mean()}}


def inner(nets, batch):
    """A loss that asks for parts: the first layer is pulled to a teacher's, the others go on from there."""
    features = nets["model.0"](batch.x)
    near = ((features - nets["teacher.0"](batch.x)) ** 2).mean()
    return {"model": {"near": near, "size": (nets["model.2"](features.relu()) ** 2).mean()}}


WORKS = {
    "short last batch": Fit("model", cross_entropy, epochs=2, batch=20, optimiser=sgd(0.1)),
    "momentum": Fit("model", cross_entropy, epochs=2, batch=16, optimiser=sgd(0.1, momentum=0.9, weight_decay=0.01)),
    "kept momentum": Fit("model", cross_entropy, batch=16, optimiser=sgd(0.1, momentum=0.9), keep="own"),
    "adam": Fit("model", cross_entropy, epochs=2, batch=16, optimiser=adam(0.01, amsgrad=True)),
    "adamw": Fit("model", cross_entropy, epochs=2, batch=16, optimiser=adamw(0.01, weight_decay=0.1)),
    "nesterov": Fit("model", cross_entropy, batch=16, optimiser=sgd(0.1, momentum=0.9, nesterov=True), keep="own"),
    "clipped": Fit("model", cross_entropy, epochs=2, batch=16, optimiser=replace(sgd(0.5), clip=0.3)),
    "teacher": Fit("model", soft, batch=16, optimiser=sgd(0.1), teachers=("teacher",)),
    "parts": Fit(
        "model", inner, batch=16, optimiser=sgd(0.1), teachers=("teacher",), parts=("model.0", "model.2", "teacher.0")
    ),
    "gradient": Fit("model", cross_entropy, steps=5, batch=16, optimiser=sgd(0.1), answer="gradient"),
    "displacement": Fit("model", cross_entropy, steps=5, batch=16, optimiser=sgd(0.1), answer="displacement"),
    "some rows": Fit("model", cross_entropy, rows=torch.arange(7, 40), batch=8, optimiser=sgd(0.1)),
    "all rows at once": Fit("model", cross_entropy, steps=3, optimiser=sgd(0.1)),
}


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("way", ["captured", "stack"])
def test_every_kind_of_work_twice_in_a_row(name, way):
    """Twice: the second time what was captured is used again, by other nodes' turns and with what was kept."""
    work = WORKS[name]
    ones, others = [job(i, work) for i in range(3)], [job(i, work) for i in range(3)]
    eager, batched = Eager(), Batched(executor="stacked" if way == "stack" else "branches")
    for _ in range(2):
        expected, states = after(eager, ones)
        found, weights = after(batched, others)
        for a, b, x, y in zip(expected, found, states, weights, strict=True):
            same = (lambda p, q: torch.allclose(p, q, atol=1e-6)) if way == "stack" else torch.equal
            assert all(same(x[n], y[n]) for n in x)
            assert a.steps == b.steps
            assert b.losses["model"] == pytest.approx(a.losses["model"], rel=0 if way == "captured" else 1e-5)
            for part in ("gradient", "displacement"):
                if getattr(a, part) is not None:
                    assert all(same(t, getattr(b, part)[n]) for n, t in getattr(a, part).items())
        ones, others = ones[::-1], others[::-1]
    for a, b in zip(ones, others, strict=True):
        assert a.node.epochs == b.node.epochs
        assert a.node.optimisers.keys() == b.node.optimisers.keys()
    stacks = [
        captured
        for captured_fits in batched.captured_fits.values()
        for captured in captured_fits
        if isinstance(captured, Stack)
    ]
    assert bool(stacks) == (way == "stack")


def test_a_transform_is_stacked_too():
    anchors = [{n: torch.zeros_like(p) for n, p in net()().named_parameters()} for _ in range(3)]
    works = [
        Fit("model", cross_entropy, batch=16, optimiser=sgd(0.1), transform=Proximal(0.5), aux={"anchor": a})
        for a in anchors
    ]
    _, one = after(Eager(), [job(i, w) for i, w in enumerate(works)])
    batched = Batched(executor="stacked")
    _, stacked = after(batched, [job(i, w) for i, w in enumerate(works)])
    assert [type(captured) for captured_fits in batched.captured_fits.values() for captured in captured_fits] == [Stack]
    assert all(torch.allclose(a[n], b[n], atol=1e-6) for a, b in zip(one, stacked, strict=True) for n in a)


@pytest.mark.parametrize("executor", ["branches", "stacked"])
def test_images_are_changed_as_one_at_a_time(executor):
    def pictures(i):
        with seeded("pictures", i):
            data = Data(x=torch.randn(20, 1, 8, 8), y=torch.randint(4, (20,)), classes=4).augmented(CropFlip(2))
            model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4))
        work = Fit("model", cross_entropy, epochs=2, batch=8, optimiser=sgd(0.1))
        return Job(Node(f"c{i}", "client", slots={"model": Slot(model)}, data={"train": data}), work, "0")

    _, one = after(Eager(), [pictures(i) for i in range(3)])
    batched = Batched(executor=executor)
    _, together = after(batched, [pictures(i) for i in range(3)])
    assert sum(map(len, batched.captured_fits.values())) == (1 if executor == "stacked" else 3)
    for a, b in zip(one, together, strict=True):
        assert all(torch.allclose(a[n], b[n], atol=1e-6 if executor == "stacked" else 0.0) for n in a)
    unchanged = [pictures(i) for i in range(3)]
    for job in unchanged:
        job.node.data["train"] = job.node.data["train"].augmented(None)
    _, plain = after(Eager(), unchanged)
    assert not torch.equal(plain[0]["0.weight"], one[0]["0.weight"])


@pytest.mark.parametrize("executor", ["branches", "stacked"])
def test_the_parts_of_a_network_together_are_the_network(executor):
    """To the bit, with the running statistics of one of them."""

    def normed():
        return nn.Sequential(
            OrderedDict(body=nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12)), head=nn.Linear(12, 4))
        )

    def halves(nets, batch):
        return cross_entropy({"model": lambda x: nets["model.head"](nets["model.body"](x))}, batch)

    def fitted(loss, **parts):
        work = Fit("model", loss, epochs=2, batch=20, optimiser=sgd(0.1), **parts)
        return after(Batched(executor=executor), [job(i, work, normed) for i in range(3)])[1]

    for a, b in zip(fitted(cross_entropy), fitted(halves, parts=("model.body", "model.head")), strict=True):
        assert all(torch.equal(a[n], b[n]) for n in a)


def test_a_part_that_is_not_there_is_named():
    with pytest.raises(
        WorkError, match="node c0, round 0, Fit: ValueError: the network has no part 'body'; it has 0, 1"
    ):
        Eager()([job(0, Fit("model", cross_entropy, parts=("model.body",)))])
    with pytest.raises(WorkError, match="Predict: ValueError: the network has no part 'body'"):
        Eager()([job(0, Predict("model.body", "train"))])


@pytest.mark.parametrize("teachers", [(), ("teacher",)])
def test_running_statistics_are_stacked_too(teachers):
    """Batch norm in what is trained writes its statistics, batch norm in a teacher only reads its own."""

    def normed():
        return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))

    def normal(i):
        work = Fit(
            "model", soft if teachers else cross_entropy, epochs=2, batch=16, optimiser=sgd(0.1), teachers=teachers
        )
        made = job(i, work, normed)
        if teachers:
            with seeded("teacher", i):
                made.node.slots["teacher"] = Slot(normed())
                made.node.models["teacher"][1].running_mean.normal_()
        return made

    _, one = after(Eager(), [normal(i) for i in range(3)])
    batched = Batched(executor="stacked")
    jobs = [normal(i) for i in range(3)]
    before = [{n: t.clone() for n, t in j.node.slots["teacher"].tensors().items()} for j in jobs]
    _, stacked = after(batched, jobs)
    assert [type(captured) for captured_fits in batched.captured_fits.values() for captured in captured_fits] == [Stack]
    for a, b, j, teacher in zip(one, stacked, jobs, before, strict=True):
        assert any(n.endswith("running_var") for n in a)
        assert all(torch.allclose(a[n], b[n], atol=1e-5) for n in a)
        assert all(torch.equal(a[n], b[n]) for n in a if n.endswith("num_batches_tracked"))
        assert all(torch.equal(t, teacher[n]) for n, t in j.node.slots["teacher"].tensors().items())
    assert not torch.equal(stacked[0]["1.running_mean"], stacked[1]["1.running_mean"])


@pytest.mark.parametrize("executor", ["eager", "branches"])
def test_images_kept_as_bytes_are_read_to_the_bit(executor):
    """As on a GPU: bytes there, what they stand for in losses, predictions and evaluation."""
    pictures = torch.randint(0, 256, (40, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    x, y = (pictures.float() / 255 - 0.5) / 0.5, torch.arange(40) % 4
    whole = Data(x=x, y=y, classes=4)
    packed = whole.packed("cpu")
    assert packed.columns["x"].dtype == torch.uint8
    assert torch.equal(packed.x, x)
    assert torch.equal(packed.take(torch.tensor([3, 1])).x, x[[3, 1]])
    assert torch.equal(packed.with_columns(x=x + 1).x, x + 1)
    assert packed.to("cpu").x.dtype == torch.float32
    digests = []
    for data in (whole, packed):
        train, test = data.take(torch.arange(32)).augmented(CropFlip(1)), data.take(torch.arange(32, 40))
        models = {
            role: {"model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 4))} for role in ("server", "client")
        }
        method = FedAvg(local=Training(batch=8))
        tests = {"c": test}
        federation = Federation(method, star(["c0", "c1"]), models, {c: {"train": train} for c in ("c0", "c1")}, tests)
        result = local(federation.computed(executor=executor)).run(2)
        digests.append((result.digest, result.table.rows))
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    "spoil", [lambda x: x * 1.0001, lambda x: x.masked_fill(x > 0.9, torch.nan), lambda x: x + 1e-7, lambda x: x[:, 0]]
)
def test_what_no_bytes_stand_for_is_kept_as_it_is(spoil):
    x = spoil((torch.arange(256).float().view(4, 1, 8, 8) / 255 - 0.5) / 0.5)
    packed = Data(x=x).packed("cpu")
    assert packed.levels is None
    assert torch.equal(packed.columns["x"].nan_to_num(), x.nan_to_num())


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_stacked_weights_lie_as_their_gradients_do(channels, products):
    """Whatever layout a network has: a fused optimiser refuses anything else."""
    made = nn.Conv2d(channels, 4, 3).to(memory_format=torch.channels_last)
    node = Node("c", "client", slots={"model": Slot(nn.Sequential(made, nn.Flatten(), nn.Linear(144, 4)))})
    node.data["train"] = Data(x=torch.randn(8, channels, 8, 8), y=torch.randint(4, (8,)), classes=4)
    work = Fit("model", cross_entropy, batch=4)
    stack = Stack(Job(node, work, "0"), TrainingRows(node, work), "fp32", Way("", products=products), seats=3)
    stack.prepare(Job(node, work, "0"))
    assert all(p.is_contiguous() and p.stride() == p.grad.stride() for p in stack.parameters["model"].values())


def test_work_that_is_not_asked_for_again_says_so():
    """Nothing is compiled for it: FedMD's first epochs and FCCL's pretraining are not of every round."""
    left = []

    def spy(jobs):
        left.extend((job.work.once, job.left) for job in jobs if isinstance(job.work, Fit))
        return Eager()(jobs)

    for name in ("fedmd-global", "fccl"):
        local(next(row for row in METHODS if row.name == name).build(), executor=spy).run(3)
    assert {(once, rounds) for once, rounds in left if once} == {(True, 1)}
    assert {rounds for once, rounds in left if not once} == {3, 2, 1}


def test_as_many_fits_are_captured_as_are_asked_at_once_not_as_there_are_participants():
    clients = [f"c{i}" for i in range(40)]
    data = {c: {"train": points(c, 32)} for c in clients}
    models = {role: {"model": net()} for role in ("server", "client")}
    method = FedAvg(cohort=Cohort(fraction=0.1), local=Training(batch=16))
    federation = Federation(method, star(clients), models, data, TESTS)
    batched = Batched(federation.test_sets)
    result = local(federation, executor=batched).run(6)
    assert len(result.nodes) > 12  # many were drawn
    assert sum(map(len, batched.captured_fits.values())) == 4  # four at a time
    assert result.digest == federation.run(6).digest


def test_a_changing_number_of_a_loss_is_no_new_program():
    """FML with a schedule: the weights of the two terms change every round, what was captured stays."""
    row = next(row for row in METHODS if row.name == "fml")
    federation = replace(row.build(), method=FML(alpha=Ramp(0.9, 0.1, 3), beta=0.3, local=Training(batch=16)))
    batched = Batched(federation.test_sets)
    assert local(federation, executor=batched).run(4).digest == federation.run(4).digest
    assert sum(map(len, batched.captured_fits.values())) == 3


@pytest.mark.parametrize("executor", ["branches", "stacked"])
@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_a_changing_rate_is_no_new_program(executor, optimiser):
    """What was captured in the first round serves the others, also where one client has a rate of its own."""
    rates = {"c0": Stairs(0.1, 0.5, every=2), "*": Ramp(0.1, 0.02, 3)}
    method = FedAvg(local=Training(batch=16, lr=rates, optimiser=optimiser))
    models, data = {role: {"model": net()} for role in ("server", "client")}, {}
    for client in ("c0", "c1", "c2"):
        data[client] = {"train": points(client, 32)}
    federation = Federation(method, star(list(data)), models, data, TESTS)
    batched = Batched(federation.test_sets, executor=executor)
    found, alone = local(federation, executor=batched).run(4), federation.run(4)
    if executor == "branches":
        assert found.digest == alone.digest
        assert sum(map(len, batched.captured_fits.values())) == 3
        return
    for a, b in zip(*(each.state("server")["models"]["model"].values() for each in (found, alone)), strict=True):
        torch.testing.assert_close(a, b)
    captured = [type(each) for several in batched.captured_fits.values() for each in several]
    assert captured.count(Stack) == 2  # of all three at first, when their rates are equal; then of the two others


class Counting(nn.Module):
    """Keeps something that cannot be compared."""

    def __init__(self):
        super().__init__()
        self.layer, self.odd = nn.Linear(8, 4), object()

    def forward(self, x):
        return self.layer(x)


def test_what_cannot_be_compared_runs_one_at_a_time_and_says_so(caplog):
    work = Fit("model", cross_entropy, batch=16, optimiser=sgd(0.1))
    jobs = [job(0, work, Counting), job(1, work)]
    batched = Batched()
    with caplog.at_level(logging.WARNING):
        batched(jobs)
        batched(jobs)
    assert [r.message for r in caplog.records] == ["node c0 runs one at a time: cannot be told from others: a object"]
    assert sum(map(len, batched.captured_fits.values())) == 1
    ones = [job(0, work, Counting), job(1, work)]
    Eager()(ones)
    Eager()(ones)
    assert all(
        torch.equal(a, b)
        for x, y in zip(ones, jobs, strict=True)
        for a, b in zip(x.node.slots["model"].tensors().values(), y.node.slots["model"].tensors().values(), strict=True)
    )


def test_an_error_names_its_node():
    def broken(nets, batch):
        raise KeyError("no such thing")

    with pytest.raises(WorkError, match=r"node c1, round 0, Fit: KeyError: 'no such thing'"):
        Batched()([job(1, Fit("model", broken, batch=16))])


@pytest.mark.parametrize("sizes", [[], [16], [16] * 5, [16] * 37 + [3], [16, 16, 3, 16, 16, 3]])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("tensors", "longest"), [(10, 16), (40, 4), (120, 1)])
def test_a_plan_takes_every_batch_once_in_order(sizes, apart, tensors, longest):
    calls = plan(sizes, apart, tensors)
    assert [batch for batch, steps, _ in calls for _ in range(steps)] == sizes
    assert [keep for _, _, keep in calls] == ([apart] + [False] * len(calls))[: len(calls)]
    assert all(steps in CHUNKS for _, steps, _ in calls)
    assert max([steps for _, steps, _ in calls], default=0) <= longest


def test_room_is_enough_and_not_much_more():
    assert all(n <= capacity(n) <= max(16, 1.25 * n) for n in range(1, 3000))


def test_signatures_tell_programs_apart():
    of = signature.of_module
    assert of(net(8)()) == of(net(8)())
    assert of(net(8)()) != of(net(9)())
    assert of(nn.Sequential(nn.Conv2d(1, 1, 3))) != of(nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, stride=2)))
    assert of(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) != of(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))
    frozen = net(8)()
    frozen[0].weight.requires_grad_(False)
    assert of(frozen) != of(net(8)())
    hooked = net(8)()
    hooked[0].register_forward_hook(lambda *_: None)
    with pytest.raises(signature.Unknown, match="hooks"):
        of(hooked)

    def scaled(by):
        return lambda nets, batch: by * nets["model"](batch.x).sum()

    assert signature.of_function(scaled(1.0)) == signature.of_function(scaled(1.0))
    assert signature.of_function(scaled(1.0)) != signature.of_function(scaled(2.0))
    method = FML(alpha=0.5)
    a, b = partial(method.mutual, alpha=0.1, beta=0.2), partial(method.mutual, alpha=0.3, beta=0.4)
    assert signature.of_function(a, loose=True) == signature.of_function(b, loose=True)
    assert signature.of_function(a) != signature.of_function(b)
    assert signature.numbers(a) == {"alpha": 0.1, "beta": 0.2}
    assert signature.of_function(method.mutual) != signature.of_function(FML(alpha=0.6).mutual)
    assert signature.of_function(fedprox(mu=0.1).transform) != signature.of_function(fedprox(mu=0.2).transform)


def test_choices_are_read_back_and_a_broken_record_is_no_empty_one(tmp_path):
    run, machine = tmp_path / "run.json", tmp_path / "cache" / "machine.json"
    first = Choices(run, machine)
    first.keep("k", STACKED, {"stacked": 0.001, "branches": 0.002}, "2 x Net")
    assert Choices(run).way("k") == Choices(None, machine).way("k") == STACKED
    assert Choices(run).way("other") is None
    assert Choices(tmp_path / "new.json", machine).way("k") == STACKED
    assert Choices(tmp_path / "new.json").way("k") == STACKED  # what the machine knew stands in the run from then on
    machine.write_text("{")
    assert Choices(None, machine).way("k") is None
    run.write_text("[1]")
    with pytest.raises(ValueError, match=r"run\.json is damaged .*: without this record of choices"):
        Choices(run)


def test_a_key_means_the_same_in_another_process():
    """The hash of a string, and so the order of a set, differs from one process to the next."""
    script = (
        "from heterophony.compute import signature; from heterophony.compute.choice import key_of; "
        "from heterophony.parts.losses import cross_entropy; from torch import nn; "
        "print(key_of(signature.of_module(nn.Linear(2, 3)), signature.of_function(cross_entropy), frozenset('abc')))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1


def test_data_on_a_device_are_copied_once_for_all_who_share_them():
    data = Data(x=torch.zeros(2, 3), y=torch.zeros(2, dtype=torch.int64))
    assert data.placed("cpu") is data
    assert data.placed("meta") is data.placed("meta")


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_way_that_computes_something_else_is_found_out(optimiser, monkeypatch):
    """As torch 2.11's compiler did with convolutions of one channel on a GPU. Dropout is no difference."""
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 4)]
    jobs = []
    for i in range(3):
        node = Node(f"c{i}", "client", slots={"model": Slot(nn.Sequential(*map(deepcopy, layers)))})
        node.data["train"] = Data(x=torch.randn(8, 3, 8, 8), y=torch.randint(4, (8,)), classes=4)
        jobs.append(Job(node, Training(batch=4, optimiser=optimiser).fit("model", cross_entropy), "0"))
    entries = [PendingFit(i, job, TrainingRows(job.node, job.work)) for i, job in enumerate(jobs)]
    before = [codec.pack(job.node.state()) for job in jobs]
    written_out, batched = Way("products", stacked=True, products=True), Batched()
    assert batched._agrees(written_out, entries)
    forward = Product.forward
    monkeypatch.setattr(Product, "forward", lambda self, x: forward(self, x).flip(-1))
    assert not batched._agrees(written_out, entries)
    assert [codec.pack(job.node.state()) for job in jobs] == before


def test_a_way_that_errs_for_the_last_batch_alone_is_found_out(monkeypatch):
    node = Node("c", "client", slots={"model": Slot(nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()))})
    node.data["train"] = Data(x=torch.randn(9, 3, 8, 8), y=torch.randint(4, (9,)), classes=4)
    work = Fit("model", cross_entropy, batch=4)
    entries = [PendingFit(0, Job(node, work, "0"), TrainingRows(node, work))]
    written_out, forward = Way("products", stacked=True, products=True), Product.forward
    assert Batched()._agrees(written_out, entries)
    monkeypatch.setattr(
        Product, "forward", lambda self, x: forward(self, x).flip(1) if len(x) == 1 else forward(self, x)
    )
    assert not Batched()._agrees(written_out, entries)


def conv_net(width=4):
    layers = [nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Dropout(0.0), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(36 * width, 4))


def fits(factory, sizes, batch=4):
    """One fit for each number of rows."""
    jobs = []
    for i, rows in enumerate(sizes):
        with seeded("fits", i):
            node = Node(f"c{i}", "client", slots={"model": Slot(factory())})
            node.data["train"] = Data(x=torch.randn(rows, 3, 8, 8), y=torch.randint(4, (rows,)), classes=4)
        jobs.append(Job(node, Training(batch=batch).fit("model", cross_entropy), "0"))
    return jobs


def test_branches_are_compiled_once_for_equal_networks_and_whole_batches(monkeypatch):
    """Their last batches are of five sizes; networks of two widths."""
    compiling, compiled = torch.compile, []

    def backend(module, inputs):
        compiled.append(len(inputs))
        return module.forward

    monkeypatch.setattr(torch, "compile", lambda step, **how: compiling(step, backend=backend, **how))
    jobs = [*fits(conv_net, (8, 9, 10, 11)), *fits(partial(conv_net, 5), (4, 6))]
    twins = deepcopy(jobs)
    batched = Batched(executor="auto", only=COMPILED_BRANCHES)
    batched(jobs)
    assert not batched.alone
    Eager()(twins)
    for job, twin in zip(jobs, twins, strict=True):
        torch.testing.assert_close(job.node.weights(), twin.node.weights())
    assert len(compiled) == 2


@pytest.mark.slow
def test_compiled_branches_compute_what_eager_does():
    """With the real compiler, and running statistics."""
    jobs = fits(conv_net, (8, 9))
    twins = deepcopy(jobs)
    batched = Batched(executor="auto", only=COMPILED_BRANCHES)
    entries = [PendingFit(i, job, TrainingRows(job.node, job.work)) for i, job in enumerate(jobs)]
    assert batched._agrees(COMPILED_BRANCHES, entries)
    batched(jobs)
    assert not batched.alone
    Eager()(twins)
    for job, twin in zip(jobs, twins, strict=True):
        torch.testing.assert_close(job.node.weights(), twin.node.weights(), rtol=1e-4, atol=1e-5)


def test_a_compiled_branch_that_errs_is_found_out(monkeypatch, caplog):
    caplog.set_level(logging.INFO)

    def backend(module, inputs):
        return lambda *args: [2 * out if out.dim() else out for out in module(*args)]

    entries = [PendingFit(i, job, TrainingRows(job.node, job.work)) for i, job in enumerate(fits(conv_net, (8, 9)))]
    compiling = torch.compile
    with monkeypatch.context() as context:
        context.setattr(torch, "compile", lambda step, **how: compiling(step, backend="eager", **how))
        assert Batched()._agrees(COMPILED_BRANCHES, entries)
        torch._dynamo.reset()
        context.setattr(torch, "compile", lambda step, **how: compiling(step, backend=backend, **how))
        assert not Batched()._agrees(COMPILED_BRANCHES, entries)
    assert "cannot be checked" not in caplog.text
    torch._dynamo.reset()


def test_any_number_of_stacks_is_compiled(monkeypatch):
    """Torch compiles eight forms of a function and then, without a word, no more; to it all stacks have one."""
    compiling, compiled = torch.compile, []

    def backend(module, inputs):
        compiled.append(len(inputs))
        return module.forward

    monkeypatch.setattr(torch, "compile", lambda step, **how: compiling(step, backend=backend, **how))
    with torch._dynamo.config.patch(recompile_limit=1):
        for width in (2, 3, 4):
            factory = partial(nn.Linear, width, 2)
            x = torch.randn(9, width, generator=torch.Generator().manual_seed(width))
            data = Data(x=x, y=torch.arange(9) % 2, classes=2)
            jobs = []
            for i in range(2):
                node = Node(f"c{i}", "client", slots={"model": Slot(factory())}, data={"train": data})
                jobs.append(Job(node, Training(batch=4).fit("model", cross_entropy), "0", wave=(0.0, 1)))
            twins = deepcopy(jobs)
            Batched(executor="auto", only=COMPILED)(jobs)
            Eager()(twins)
            for job, twin in zip(jobs, twins, strict=True):
                torch.testing.assert_close(job.node.weights(), twin.node.weights())
    assert len(compiled) == 6  # three stacks, whole and last batches


def test_a_way_that_cannot_be_checked_is_not_used(monkeypatch):
    def full(self, jobs, rows):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(Stack, "gradients", full)
    node = Node("c", "client", slots={"model": Slot(nn.Linear(2, 2))}, data={"train": points("c", 8)})
    work = Fit("model", cross_entropy, batch=4)
    assert not Batched()._agrees(STACKED, [PendingFit(0, Job(node, work, "0"), TrainingRows(node, work))])


def test_an_optimiser_may_have_options_that_cannot_be_hashed():
    node = Node("c", "client", slots={"model": Slot(net()())}, data={"train": points("c", 8)})
    work = Fit("model", cross_entropy, batch=4, optimiser=Optimiser("Adam", 1e-3, {"betas": [0.9, 0.99]}))
    assert Batched()([Job(node, work, "0")])[0].steps == 2


def test_where_there_is_no_memory_for_a_lane_work_is_done_one_at_a_time(monkeypatch, caplog):
    made = next(row for row in METHODS if row.name == "fedavg").build()
    batched = Batched(made.test_sets)

    def full(*given):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(batched, "_branch", full)
    assert local(made, executor=batched).run(3).digest == made.run(3).digest
    assert "no memory left" in caplog.text
    assert batched.alone
