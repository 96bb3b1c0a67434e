"""Work on several processes: the same bits as in one, and errors that say whose they are."""

import multiprocessing
import multiprocessing.connection
import os
import signal

import pytest
import torch

from heterophony.base.seeds import seeded
from heterophony.compute import workers
from heterophony.compute.eager import Eager, Job, WorkError
from heterophony.compute.workers import Workers
from heterophony.data.table import Data
from heterophony.engines import local
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.work import Fit
from heterophony.models import create
from heterophony.parts.losses import cross_entropy
from toys.federations import METHODS
from toys.undisturbed import undisturbed
from toys.world import net, points


@pytest.fixture(autouse=True)
def always_worthwhile(monkeypatch):
    monkeypatch.setattr(workers, "WORTHWHILE", 0.0)


@pytest.mark.parametrize("row", [row for row in METHODS if row.name in (
    "fedavg", "fedavg-normed", "solo", "fedmd-lwof", "fml", "feddf", "fccl-refreshed", "fedh2l", "bhfl", "fedbuff",
)], ids=lambda row: row.name)  # fmt: skip
@pytest.mark.parametrize("number", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_any_number_of_workers_gives_the_same_bits(row, number):
    federation, one = row.build(), undisturbed(row)
    compute = Workers(Eager(federation.test_sets), number)
    several = local(federation, executor=compute, **row.options).run(row.rounds)
    assert compute.forks  # there were children
    assert several.digest == one.digest
    assert several.table.rows == one.table.rows
    assert several.ledger.rows == one.ledger.rows


def test_a_resumed_run_may_have_another_number(tmp_path):

    federation = next(row for row in METHODS if row.name == "fml").build()
    federation.computed(workers=2).run(2, tmp_path / "run")
    assert federation.computed(workers=3).resume(tmp_path / "run", 4).digest == federation.run(4).digest


def job(i, loss=cross_entropy):
    with seeded("worker test", i):
        slots = {"model": Slot(net()())}
    work = Fit("model", loss, batch=16, optimiser=sgd(0.1, momentum=0.9), keep="own")
    return Job(Node(f"c{i}", "client", slots=slots, data={"train": points(f"c{i}", 40)}), work, "0")


def spread(*jobs):
    """Computed by two, as if each job had been seen before."""
    compute = Workers(Eager(), 2)
    compute.paces = {workers.pace_of_node(job): 1.0 for job in jobs}
    return list(compute(jobs))


def looking(i, work):
    """A job of a network whose weights lie channels-last, on a view of images."""
    with seeded("worker test", i):
        network = create("cnn1", in_channels=3, size=16, classes=4)
        data = Data(x=torch.randn(24, 3, 16, 16), y=torch.randint(0, 4, (24,)), classes=4)
    return Job(Node(f"c{i}", "client", slots={"model": Slot(network)}, data={"train": data}), work, "0")


@pytest.mark.parametrize("answer", ["gradient", "displacement"])
def test_answers_lie_in_memory_alike_whoever_computed_them(answer):
    """Else sums over them round otherwise: who computes what depends on how long it took before."""
    work = Fit("model", cross_entropy, batch=8, optimiser=sgd(0.1), answer=answer)
    here = [getattr(Eager().one(looking(i, work)), answer) for i in range(2)]
    there = [getattr(fitted, answer) for fitted in spread(*(looking(i, work) for i in range(2)))]
    for one, other in zip(here, there, strict=True):
        assert any(tensor.dim() == 4 for tensor in one.values())
        for name, tensor in one.items():
            assert torch.equal(tensor, other[name])
            assert tensor.stride() == other[name].stride()
            assert tensor.data_ptr() % 64 == other[name].data_ptr() % 64 == 0


def broken(nets, batch):
    raise KeyError("no such thing")


def deadly(nets, batch):
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_in_a_child_names_its_node():
    with pytest.raises(WorkError, match=r"node c1, round 0, Fit: KeyError: 'no such thing'"):
        spread(job(0), job(1, broken))


def test_a_child_that_dies_is_told():
    with pytest.raises(WorkError, match=r"the process that worked for c1 died \(exit -9\)"):
        spread(job(0), job(1, deadly))


def test_of_many_only_those_are_named_whose_work_is_lost():
    with pytest.raises(WorkError, match=r"the process that worked for c7 died \(exit -9\)"):
        spread(*(job(i) for i in range(7)), job(7, deadly))


def test_a_child_that_nobody_could_listen_to_is_ended(monkeypatch):
    monkeypatch.setattr(workers.Child, "listen", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        spread(job(0), job(1))
    assert not multiprocessing.active_children()


def test_an_answer_that_cannot_be_read_is_an_error(monkeypatch):
    def full(self):
        raise MemoryError

    monkeypatch.setattr(multiprocessing.connection.Connection, "recv_bytes", full)
    with pytest.raises(WorkError, match="the process that worked for c1 died"):
        spread(job(0), job(1))


def test_kept_moments_and_orders_come_back():
    ones, others = [job(i) for i in range(3)], [job(i) for i in range(3)]
    compute = Workers(Eager(), 2)
    for _ in range(3):
        Eager()(ones)
        list(compute(others))
    assert compute.forks
    assert all(job.node.shared for job in others)
    for a, b in zip(ones, others, strict=True):
        assert a.node.epochs == b.node.epochs == {"train": 3}
        for n, state in a.node.optimisers["model/own"].items():
            assert torch.equal(state["momentum_buffer"], b.node.optimisers["model/own"][n]["momentum_buffer"])


def test_jobs_are_dealt_by_cost():
    assert workers._bins([5.0, 1.0, 3.0, 2.0, 1.0], 2) == [[0, 1], [2, 3, 4]]
    assert workers._bins([1.0], 3) == [[0]]
    assert workers._bins([1.0, 1.0, 1.0, 1.0], 2, more=1.5) == [[2], [0, 1, 3]]  # the first has other things to do
    assert workers._bins([1.0, 1.0], 2, more=9.0) == [[], [0, 1]]


def test_an_answer_is_given_while_others_still_work():
    """Large ones too, which a pipe could not hold."""
    jobs = [job(i) for i in range(4)]
    compute = Workers(Eager(), 2)
    compute.paces, compute.after = {workers.pace_of_node(job): 1.0 for job in jobs}, 1e9
    answers = compute(jobs)
    assert next(answers).steps == 3
    assert multiprocessing.active_children()
    assert [answer.steps for answer in answers] == [3, 3, 3]
    assert compute.after < 1e9  # what came between two answers
    assert not multiprocessing.active_children()
    answers = compute(jobs)
    next(answers)
    answers.close()
    assert not multiprocessing.active_children()


def test_short_work_stays_here(monkeypatch):
    monkeypatch.setattr(workers, "WORTHWHILE", 1e9)
    compute = Workers(Eager(), 2)
    list(compute([job(0), job(1)]))
    list(compute([job(0), job(1)]))
    assert not compute.forks


def test_evaluation_is_spread_too():
    """A mark takes no virtual time, but it takes real time: that of all test rows."""
    federation = next(row for row in METHODS if row.name == "solo").build()
    compute = Workers(Eager(federation.test_sets), 2)
    seen = []
    compute._spread, spreads = (
        (lambda jobs, bins: seen.append(type(jobs[0].work)) or spreads(jobs, bins)),
        compute._spread,
    )
    local(federation, executor=compute).run(3)
    assert {kind.__name__ for kind in seen} == {"Fit", "Mark"}


def test_newcomers_are_dealt_like_those_who_have_such_networks():
    compute = Workers(Eager(), 2)
    compute([job(i) for i in range(3)])  # timed here, one after the other
    assert compute.forks == 0
    compute([job(i) for i in range(3, 6)])
    assert compute.forks == 1
