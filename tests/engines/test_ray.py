"""The Ray engine: the local engine's bits, whatever happens to its workers."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from heterophony import Compute, cli, engines
from heterophony.base import codec
from heterophony.engines import Network, local, pieces, ray_host, shipping
from heterophony.engines.local_host import ReactionError
from heterophony.engines.placement import Placement
from heterophony.engines.question import Question
from heterophony.engines.ray_worker import Assignment, Reply, Worker
from heterophony.engines.remote_body import RemoteBody
from heterophony.methods import FedAvg
from heterophony.runs.run import Run
from masking.test_secure_methods import CASES
from toys.federations import B16, ROWS, weights_star
from toys.fragile import fragile_star
from toys.world import net

ray = pytest.importorskip("ray", reason="pip install 'heterophony[ray]'")

QUICK = {
    "fedavg-normed", "fedmd-global", "fml", "fccl-code", "fedh2l-pairs", "fedh2l-async", "bhfl-learned", "fedbuff",
    "deadline", "refused", "repeated", "late-accepted", "peer-returns", "joins",
}  # fmt: skip
LARGE = net(4000)  # 200 kB: its messages live in the object store


@pytest.fixture(scope="session", autouse=True)
def session():
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    memory = 150 * 10**6
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=memory)
    yield
    ray.shutdown()


def large_star(**options):
    return weights_star(FedAvg(local=B16), LARGE, **options)


def same(a, b):
    assert a.ledger.rows == b.ledger.rows
    assert a.table.rows == b.table.rows
    assert a.clock == b.clock
    assert a.digest == b.digest


def equals_local(row):
    there = engines.ray(row.build(), **row.options).run(row.rounds)
    assert {incident["incident"] for incident in there.ledger.incidents} == row.incidents
    same(there, local(row.build(), **row.options).run(row.rounds))


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in QUICK], ids=lambda row: row.name)
def test_ray_engine_equals_local_engine(row):
    equals_local(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in QUICK], ids=lambda row: row.name)
def test_ray_engine_equals_local_engine_for_every_row(row):
    equals_local(row)


@pytest.mark.slow
def test_secure_sums_open_over_the_same_survivors():
    """Two of five are lost, each after another message; the digest is that of whole numbers added in one process."""
    case, lost = CASES[0], {"c1": "keys", "c3": "votes"}
    assert engines.ray(case.masked(lost)).run(2).digest == local(case.open(lost)).run(2).digest


def test_the_driver_has_references_where_bodies_are_large():
    bodies = []

    class Watching(Network):
        def arrivals(self, message, *about):
            bodies.append(message.body)
            return super().arrivals(message, *about)

    there = engines.ray(large_star(), network=Watching).run(2)
    assert len(bodies) == 12
    for body in bodies:
        assert isinstance(body, RemoteBody)
        assert isinstance(body.blob.data, ray.ObjectRef)
        assert all(tensor.is_meta for tensor in body["weights"].values())
    same(there, local(large_star()).run(2))


def test_a_shard_is_computed_as_a_cohort():
    federation = weights_star(FedAvg(local=B16), compute=Compute(executor="branches"))
    same(engines.ray(federation).run(2), local(federation).run(2))


def test_nodes_that_move_all_the_time_change_nothing(monkeypatch):
    """Every wave is dealt at random: states travel by reference, and old copies are never used again."""
    moves = random.Random(0)
    seen = set()

    def deal(self, tasks, busy):
        chosen = [moves.choice(sorted(busy)) for _ in tasks]
        seen.update((node, worker) for (node, _), worker in zip(tasks, chosen, strict=True))
        return chosen

    monkeypatch.setattr(Placement, "deal", deal)
    for build in (large_star, next(row for row in ROWS if row.name == "fccl").build):
        seen.clear()
        there = engines.ray(build()).run(4)
        assert len(seen) > len(there.nodes)  # some were in two places
        same(there, local(build()).run(4))


def test_a_worker_killed_in_the_middle_of_a_reaction(tmp_path, caplog):
    flag = tmp_path / "died"
    build = lambda: fragile_star(flag, hidden=4000)  # noqa: E731
    there = engines.ray(build()).run(3)
    assert flag.exists()
    assert sum("is gone" in record.message for record in caplog.records) == 1
    same(there, local(build()).run(3))


@pytest.mark.slow
def test_a_reaction_that_kills_every_worker_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_host, "TRIES", 2)
    with pytest.raises(ReactionError, match=r"node c1, reaction 'train'.*: its worker died 2 times"):
        engines.ray(fragile_star(tmp_path / "died", always=True)).run(2)


class Assassin(threading.Thread):
    """Kills a worker from outside, time and again, at moments that nobody has chosen."""

    def __init__(self, host, kills, pause):
        super().__init__(daemon=True)
        self.host, self.kills, self.pause, self.killed, self.over = host, kills, pause, [], False

    def run(self):
        draw = random.Random(1)
        while len(self.killed) < self.kills and not self.over:
            time.sleep(self.pause * (1 + draw.random()))
            members = self.host._pool.members.values() if self.host._pool else ()
            alive = [member.process for member in list(members) if member.process not in self.killed]
            if alive:
                self.killed.append(draw.choice(alive))
                os.kill(self.killed[-1], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fccl", "bhfl-async"])
def test_workers_killed_at_any_moment(name, caplog):
    row = next(row for row in ROWS if row.name == name)
    engine = engines.ray(row.build())
    assassin = Assassin(engine.host, ray_host.TRIES - 1, 0.3)  # all of them may hit the same reaction
    assassin.start()
    there = engine.run(60)
    assassin.over = True
    assassin.join()
    assert len(assassin.killed) >= 2
    assert sum("is gone" in record.message for record in caplog.records) >= 1
    same(there, local(row.build()).run(60))


@pytest.mark.slow
@pytest.mark.parametrize("wave", [4, 7])
def test_a_raylet_killed_with_mail_in_flight(wave):
    """Two raylets; the one without the driver dies. The bytes that lived there are on the driver's machine, too."""
    script = Path(__file__).parents[1] / "toys" / "raylet.py"
    done = subprocess.run([sys.executable, script, str(wave)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    assert told["places"] == [False, True]
    assert told["waves"] > wave
    assert told["disturbed"] == told["alone"]
    assert told["same"]
    assert "is gone" in done.stderr


# -- once ------------------------------------------------------------------------------------------------------
def test_an_assignment_is_applied_to_the_state_it_is_for_and_to_no_other():
    """The same one again: refused by a worker whose node has moved on, and from its own state, the same answer."""
    worker = Worker(shipping.pack(large_star()))
    before = pieces.split(worker.station.state("server"))
    question = Question("server", 1, "begin", None, 0, 3, 0.0).plain()
    first, *blobs = worker.work([Assignment(question, 0, None)], [])
    assert len(blobs) == 3  # its model, one body, and the end
    assert isinstance(first[0], Reply)
    again = list(worker.work([Assignment(question, 0, None)], []))
    assert again == ["node server: activation 1 is for its state after 0, this is that after 1"]
    parts = {path: number for number, path in enumerate(before)}
    state = [codec.pack(piece) for piece in before.values()]
    retried, *others = worker.work([Assignment(question, 0, parts)], [], *state)
    assert [blob.tobytes() for blob in others[:2]] == [blob.tobytes() for blob in blobs[:2]]
    assert retried[0].answer["times"] == first[0].answer["times"]


def test_only_what_a_reaction_has_changed_of_a_node_is_packed_again():
    """A server that begins a round sends its model, and does not change it; all that is small goes along each time."""
    worker = Worker(shipping.pack(large_star()))
    model = ("models", "model")
    replies = []
    for number in (1, 2, 3):
        question = Question("server", number, "begin", None, 0, 3, 0.0).plain()
        replies.append(next(worker.work([Assignment(question, number - 1, None)], []))[0])
        if number == 2:
            with torch.no_grad():  # in a way that leaves no trace in a tensor's version
                worker.station.host.node("server").models["model"][0].weight.data[0, 0] += 1e-3
    assert [reply.changed for reply in replies] == [[model, pieces.REST], [pieces.REST], [model, pieces.REST]]
    assert all(reply.pieces == [model, pieces.REST] for reply in replies)


def test_a_state_in_pieces_is_the_state():
    state = next(row for row in ROWS if row.name == "fccl").build().node("c0").state()
    state["vars"] = {"small": 1, "large": [torch.randn(40_000), {"more": (1, 2)}]}
    state["optimisers"] = {"kept": {"weight": {"moment": torch.randn(40_000)}}}
    parts = pieces.split(state)
    assert {("vars", "large"), ("optimisers", "kept"), pieces.REST} <= parts.keys()
    back = pieces.joined(parts)
    assert back.keys() == state.keys()
    for name, value in state.items():
        named = value.items() if isinstance(value, dict) else [("", value)]
        found = back[name] if isinstance(value, dict) else {"": back[name]}
        assert found.keys() == dict(named).keys()
        assert all(codec.fingerprint(found[key]) == codec.fingerprint(item) for key, item in named)


# -- snapshots -------------------------------------------------------------------------------------------------
def in_folder(folder, federation, engine, rounds, goal=4):
    """Some rounds of a run, in a snapshot after every wave."""
    known = (folder / "spec.json").exists()
    make = Run.open if known else Run.create
    with make(folder, federation.identity(), *([] if known else [goal]), cadence=0.0) as record:
        return engine(federation, record=record).run(rounds)


@pytest.mark.parametrize("name", ["fedbuff", "large"])
def test_a_run_goes_on_on_another_engine(name, tmp_path):
    build = large_star if name == "large" else next(row for row in ROWS if row.name == name).build
    whole = in_folder(tmp_path / "whole", build(), local, 4)
    for first, second in ((engines.ray, local), (local, engines.ray)):
        folder = tmp_path / first.__name__
        stopped = build()
        with Run.create(folder, stopped.identity(), 4, cadence=0.0) as record:
            engine = first(stopped, record=record, progress=StopAfter(5))
            with pytest.raises(KeyboardInterrupt):
                engine.run(4)
        same(in_folder(folder, build(), second, 4), whole)
        for table in ("metrics.jsonl", "ledger.jsonl"):
            assert (folder / table).read_bytes() == (tmp_path / "whole" / table).read_bytes()


class StopAfter:
    """Ctrl-C in the middle of a run, with mail in flight."""

    def __init__(self, waves):
        self.waves = waves

    def __call__(self, engine):
        self.waves -= 1
        engine.stop = self.waves <= 0


def test_more_rounds_continue_a_finished_run():
    engine = engines.ray(large_star())
    engine.run(1)
    same(engine.run(3), local(large_star()).run(3))


# -- errors ----------------------------------------------------------------------------------------------------
def broken():
    raise ZeroDivisionError("no such data")


def test_an_error_says_where_it_rose_as_it_does_locally():
    federation = weights_star(FedAvg(local=B16))
    federation = replace(federation, data={**federation.data, "c1": {"train": broken}})
    texts = []
    for engine in (local, engines.ray):
        with pytest.raises(Exception, match="no such data") as caught:
            engine(federation).run(2)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert "node c1, round 0" in texts[1]


def test_more_workers_than_cores_are_refused():
    with pytest.raises(ValueError, match="3 workers need a CPU each; the cluster has 2"):
        engines.ray(weights_star(FedAvg()), workers=3).run(1)


def test_a_client_address_is_refused():
    with pytest.raises(ValueError, match="must run on a machine of the cluster"):
        engines.ray(weights_star(FedAvg()), address="ray://somewhere:10001")


# -- the command line ------------------------------------------------------------------------------------------
SETTING = """
rounds = 3
[data]
test = 0.1
test_rows = 20
side = 16
public = { fraction = 0.02 }
domains.a = { source = "digits-embedded", rows = 32 }
domains.b = { source = "digits-embedded", rows = 32, degrees = 40 }
[models]
participants = ["mlp", "lenet5"]
[local]
epochs = 1
"""


@pytest.fixture
def setting(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SETTING)
    return path


def called(*words):
    answer = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert answer.exit_code == 0, (answer.stderr, answer.exception)
    found = json.loads(answer.stdout)
    return {key: value for key, value in found.items() if key not in ("seconds", "folder")}


def tables(folder):
    return [(folder / f"{name}.jsonl").read_bytes() for name in ("metrics", "ledger")]


def test_the_command_line_on_ray(setting, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    words = ("run", "fml", "--on", setting, "--device", "cpu", "--json")
    short = (*words, "--rounds", 2)
    assert called(*short, "--out", there, "--engine", "ray") == called(*short, "--out", here)
    assert tables(here) == tables(there)
    assert called("resume", there, "--engine", "ray", "--rounds", 3, "--json") == called(*words)


def test_ray_is_asked_for_but_not_there(setting, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["run", "solo", "--on", str(setting), "--engine", "ray", "--out", str(tmp_path / "out")]
    answer = CliRunner().invoke(cli.app, words)
    assert answer.exit_code == 2
    assert answer.stderr.strip() == "heterophony: the engine 'ray' needs Ray: pip install 'heterophony[ray]'"
    assert not (tmp_path / "out").exists()


def marked(mark):
    """The processes that have this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append((path.parent / "cmdline").read_text().replace("\0", " ")[:200])
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes as Linux lists them")
@pytest.mark.parametrize(("stop", "engine"), [(signal.SIGKILL, "ray"), (signal.SIGINT, "local")])
def test_a_driver_that_is_stopped_goes_on_and_leaves_nothing_behind(setting, tmp_path, stop, engine):
    """The driver is killed, or interrupted as by Ctrl-C, in the middle of a run."""
    out, rounds = tmp_path / "run", 20
    words = ["run", "fml", "--on", setting, "--device", "cpu", "--rounds", rounds, "--json"]
    child = subprocess.Popen(
        [sys.executable, "-m", "heterophony", *map(str, words), "--out", out, "--engine", "ray", "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MARK": str(tmp_path)},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not any("_Actor.work" in title for title in marked(str(tmp_path))):
        assert child.poll() is None, child.stderr.read()
    os.killpg(child.pid, stop) if stop == signal.SIGINT else child.kill()
    child.communicate(timeout=60)
    assert child.returncode == (130 if stop == signal.SIGINT else -signal.SIGKILL)
    deadline = time.monotonic() + 100  # Ray's own agents take their time
    while left := marked(str(tmp_path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    assert called("show", out, "--json")["rounds"] < rounds
    assert called("resume", out, "--engine", engine, "--json") == called(*words, "--out", tmp_path / "whole")
    assert tables(out) == tables(tmp_path / "whole")
