"""Idle nodes' models elsewhere: the same bits, and memory that follows the cohort."""

import gc

import pytest
import torch
from torch import nn

from conformance.test_invariants import crash
from heterophony import Compute, Data, Federation
from heterophony.engines import local, offload
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from heterophony.runs.run import Run
from toys.federations import METHODS

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def built(name: str) -> Federation:
    return next(row for row in METHODS if row.name == name).build()


def memory(kind: str) -> int:
    """Bytes of this process's memory of a kind (RssAnon, RssFile, ...), as Linux counts them."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(kind + ":"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("name", ["fedavg", "fml", "fedh2l", "bhfl"])
def test_models_in_files_give_the_same_bits(name):
    federation = built(name)
    in_memory, in_files = (local(federation.computed(resident=share)) for share in (0.5, 0.0))
    wanted, found = in_memory.run(3), in_files.run(3)
    assert found.digest == wanted.digest
    assert found.table.rows == wanted.table.rows
    assert all(node.shared for node in in_files.host.nodes.values())
    assert not any(node.shared for node in in_memory.host.nodes.values())


def test_a_node_that_moved_to_another_worker_is_not_counted_any_more():
    """So that a worker from which nodes move away has room for those that come."""
    host = local(built("fedavg")).host
    names = [name for name in host.federation.topology.roles if name != "server"]
    sizes = []
    for name in names:
        host.node(name)
        host.release(name)
        sizes.append((host.offload.held, len(host.offload.sizes), sum(host.offload.users.values())))
    assert sizes == [(0, 0, 0)] * len(names)
    kept = host.node(names[0])
    assert host.offload.held == sum(t.nbytes for slot in kept.slots.values() for t in slot.tensors().values()) > 0


@pytest.mark.slow
def test_many_models_in_files_are_no_memory_of_the_process(tmp_path, monkeypatch):
    """400 nodes of 4 MB: in files, the memory that is the process's own grows by a fraction of their 1.6 GB."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    clients = [f"c{i}" for i in range(400)]
    data = Data(x=torch.randn(8, 1000), y=torch.randint(1000, (8,)), classes=1000)
    models = {role: {"model": lambda: nn.Linear(1000, 1000)} for role in ("server", "client")}
    method = FedAvg(cohort=Cohort(fraction=0.05), local=Training(batch=8))
    federation = Federation(method, star(clients), models, {"client": {"train": data}}, compute=Compute(resident=0.0))
    engine = local(federation)
    engine.run(1)
    gc.collect()
    before = memory("RssAnon")
    for client in clients:
        engine.host.node(client)
    grown = memory("RssAnon") - before
    assert grown < 0.2 * 400 * 4e6
    assert not list(tmp_path.iterdir())  # nothing to clean up


@pytest.mark.parametrize("name", ["fedavg", "lg-fedavg", "scaffold", "fedbuff", "bhfl"])
def test_idle_nodes_that_are_rows_only_give_the_same_bits(name, tmp_path):
    """And so does a run that goes on from rows; those that lead, or have mail, are none."""
    objects, rows = local(built(name)), local(built(name))
    rows.host.offload.most = 0
    wanted, found = objects.run(3), rows.run(3)
    assert found.digest == wanted.digest
    assert found.table.rows == wanted.table.rows
    assert found.ledger.rows == wanted.ledger.rows
    assert set(found.nodes) == set(wanted.nodes)
    assert list(rows.idle)
    assert set(rows.leads) <= set(rows.boxes)
    objects = local(built(name))
    objects.run(2)
    wanted, federation = objects.run(3), built(name)
    for rounds in (2, 3):
        start = Run.open if rounds == 3 else Run.create
        with start(tmp_path / "run", federation.identity(), *[2] * (rounds == 2), cadence=0.0) as run:
            engine = local(built(name), record=run)
            engine.host.offload.most = 0
            again = engine.run(rounds)
    assert again.digest == wanted.digest
    assert again.table.rows == wanted.table.rows
    assert again.state(min(rows.idle)).keys() == wanted.state(min(rows.idle)).keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lg-fedavg", "scaffold"])
def test_a_run_of_rows_that_is_killed_at_any_write_ends_on_the_same_bits(name, tmp_path, monkeypatch):
    monkeypatch.setattr(offload, "OBJECTS", 0)
    crash(next(row for row in METHODS if row.name == name), tmp_path, resume_each=True)


@CUDA
@pytest.mark.parametrize("name", ["fedavg", "fml", "fedh2l", "bhfl", "fedadam"])
def test_on_a_gpu_nodes_that_were_moved_out_give_the_same_bits(name):
    federation = built(name).computed(device="cuda")
    stay, moving = (local(federation.computed(resident=share)) for share in (1.0, 0.0))
    wanted, found = stay.run(3), moving.run(3)
    assert found.digest == wanted.digest
    assert len(moving.host.offload.moved_out) == len(moving.host.nodes)
    moving.run(5)
    assert moving.run(5).digest == stay.run(5).digest  # and they can go on


@CUDA
def test_on_a_gpu_memory_follows_the_cohort():
    clients = [f"c{i}" for i in range(300)]
    data = Data(x=torch.randn(8, 1000), y=torch.randint(1000, (8,)), classes=1000)
    models = {role: {"model": lambda: nn.Linear(1000, 1000)} for role in ("server", "client")}
    method = FedAvg(cohort=Cohort(fraction=0.05), local=Training(batch=8))
    federation = Federation(
        method, star(clients), models, {"client": {"train": data}}, compute=Compute(device="cuda", resident=0.0)
    )
    engine = local(federation)
    engine.run(2)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    engine.run(40)
    assert len(engine.host.nodes) > 200
    assert torch.cuda.max_memory_allocated() - before < 300 * 4e6 / 4
