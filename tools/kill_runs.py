"""Kill runs with -9 at random moments, over all methods and engines, and compare what they end with to a calm run.

python tools/kill_runs.py local --tally tally.jsonl --kills 1000 [--until 21:30] [--part 0/2]
python tools/kill_runs.py process --tally tally.jsonl --kills 50
python tools/kill_runs.py ray-worker --tally tally.jsonl --kills 20
python tools/kill_runs.py ray-driver --tally tally.jsonl --kills 10
python tools/kill_runs.py deployment --tally tally.jsonl --kills 8
python tools/kill_runs.py told --tally tally.jsonl

A line of the tally is a run that came to its end: how often it was killed, and whether its digest and both of its
tables are those of a run that nobody disturbed. A run of the tally is not made again, so the script may be stopped and
started at any time. `told` adds up. The federations are those of tests/toys. The moments are drawn from the name of the
run; what they hit depends on the machine.

- local: a forked process with a run folder that takes a snapshot after each event; all methods of the table.
- process: the driver of the process engine, in the same way.
- ray-driver: a driver of the Ray engine, which starts a cluster of its own.
- ray-worker: a worker of the Ray engine, under a driver that lives.
- deployment: over TLS with real SuperNodes; a node, a SuperNode, the SuperLink and the coordinator in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from heterophony import engines
from heterophony.engines import ray_host
from heterophony.runs.run import Run
from toys.federations import ROWS, Row

TABLES = ("metrics.jsonl", "ledger.jsonl")
MOST = 12  # kills of one run; then it may end
RUNS = {"local": engines.local, "process": engines.process, "ray-driver": engines.ray}
AT_ONCE = {"ray-driver": 1, "process": 3}  # kills of one run where a start takes long


class Tally:
    """Runs that came to their end, a line each. A line that was torn is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[dict[str, Any]]:
        found = []
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def add(self, engine: str, row: str, turn: int, kills: int, same: bool, **more: Any) -> None:
        about = {"engine": engine, "run": row, "turn": turn, "kills": kills, "same": same, **more}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write("\n" + json.dumps({**about, "at": f"{datetime.now():%Y-%m-%d %H:%M}"}) + "\n")
        print(about, flush=True)


# -- a run in a process of its own ---------------------------------------------------------------------------------
def on(engine: str, row: Row, folder: Path) -> str:
    """Begin a run or go on with it; a snapshot after each event. Return its digest."""
    made = row.build()
    begun = (folder / "spec.json").exists()
    start, more = (Run.open, []) if begun else (Run.create, [row.rounds])
    with start(folder, made.identity(), *more, cadence=0.0) as run:
        return str(RUNS[engine](made, record=run, **row.options).run(row.rounds).digest)


def forked(engine: str, row: Row, folder: Path) -> int:
    """Do so in a forked process; its digest comes into a file beside the folder."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        digest = on(engine, row, folder)
        (folder.parent / "digest").write_text(digest)
        status = 0
    except BaseException as error:
        (folder.parent / "error").write_text(repr(error))
    finally:
        os._exit(status)


def ended(child: int, within: float) -> int | None:
    """Return how a process ended within so many seconds; None: it has not."""
    end = time.monotonic() + within
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= end:
            return None
        time.sleep(0.002)


def killed(child: int) -> bool:
    """Kill a process, and all that it has started; tell whether it had been alive."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):  # before it had a session of its own
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def survived(engine: str, row: Row, turn: int, place: Path) -> tuple[int, bool, str]:
    """Kill a run time and again; return how often, whether it ended as a calm one, and what went wrong."""
    draw = random.Random(f"{engine}/{row.name}/{turn}")
    calm = place / "calm" / "run"
    calm.parent.mkdir()
    began = time.monotonic()
    if ended(forked(engine, row, calm), 600) != 0:
        return 0, False, "the calm run failed: " + _read(calm.parent / "error")
    lasts = time.monotonic() - began
    folder, kills = place / "hurt" / "run", 0
    folder.parent.mkdir()
    most = AT_ONCE.get(engine, MOST)
    while True:
        child = forked(engine, row, folder)
        status = ended(child, draw.random() * lasts if kills < most else 600)
        if status is None:
            kills += killed(child)
        elif status == 0:
            break
        else:
            return kills, False, f"it ended with {status}: " + _read(folder.parent / "error")
    same = _read(folder.parent / "digest") == _read(calm.parent / "digest")
    same = same and all((folder / name).read_bytes() == (calm / name).read_bytes() for name in TABLES)
    return kills, same, ""


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


# -- what is killed under a driver that lives ----------------------------------------------------------------------
class Assassin(threading.Thread):
    """Kills workers of a Ray engine at moments that nobody has chosen."""

    def __init__(self, host: Any, kills: int, draw: random.Random) -> None:
        super().__init__(daemon=True)
        self.host, self.kills, self.draw, self.killed, self.over = host, kills, draw, 0, False

    def run(self) -> None:
        gone: set[int] = set()
        while self.killed < self.kills and not self.over:
            time.sleep(0.3 * self.draw.random())
            pool = self.host._pool
            alive = [m.process for m in list(pool.members.values()) if m.process not in gone] if pool else []
            if alive:
                chosen = self.draw.choice(sorted(alive))
                gone.add(chosen)
                with suppress(ProcessLookupError):
                    os.kill(chosen, signal.SIGKILL)
                    self.killed += 1


def by_workers(row: Row, turn: int) -> tuple[int, bool, str]:
    """Kill Ray's workers in the middle of a run."""
    calm = engines.local(row.build(), **row.options).run(row.rounds)
    engine = engines.ray(row.build(), **row.options)
    assassin = Assassin(engine.host, ray_host.TRIES - 1, random.Random(f"ray-worker/{row.name}/{turn}"))
    assassin.start()
    there = engine.run(row.rounds)
    assassin.over = True
    assassin.join()
    same = there.digest == calm.digest and there.table.rows == calm.table.rows
    return assassin.killed, same and there.ledger.rows == calm.ledger.rows, ""


def by_fault(fault: str, place: Path) -> tuple[int, bool, str]:
    """Kill one process of a deployment in the middle of a reaction, twice; return how often it died."""
    from deploy import test_faults as faults
    from deploy.loopback import Loopback

    with Loopback(faults.FML, place, faults.slow(), pace={"poll": 0.2, "again": 10.0}) as ring:
        ring.start("serve", *faults.NAMES)
        faults.wait_until_busy(ring, 0)
        faults.FAULTS[fault](ring)
        try:
            faults.check(ring, ring.finish())
        except AssertionError as error:
            return 1, False, str(error)[-2000:]
    return 1, True, ""


# -- over all of them ----------------------------------------------------------------------------------------------
def runs_of(engine: str, methods: list[str]) -> Iterator[tuple[str, Callable[[int, Path], tuple[int, bool, str]]]]:
    """Yield the runs of an engine by name, each with what kills it."""
    if engine == "deployment":
        for fault in ("kill_node", "kill_supernode", "kill_superlink", "kill_coordinator"):
            yield fault, lambda turn, place, fault=fault: by_fault(fault, place)
        return
    for row in ROWS:
        if methods and row.name not in methods:
            continue
        if engine == "ray-worker":
            yield row.name, lambda turn, place, row=row: by_workers(row, turn)
        else:
            yield row.name, lambda turn, place, row=row: survived(engine, row, turn, place)


def work(args: argparse.Namespace) -> bool:
    """Kill until there are enough, in this tally; return whether all runs ended as calm ones."""
    tally = Tally(args.tally)
    mine, parts = map(int, args.part.split("/"))
    fine = True
    for turn in range(1000):
        done = {(row["engine"], row["run"], row["turn"]) for row in tally.rows()}
        for number, (name, kill) in enumerate(runs_of(args.what, args.runs)):
            if number % parts != mine or (args.what, name, turn) in done:
                continue
            reached = sum(row["kills"] for row in tally.rows() if row["engine"] == args.what)
            if reached >= args.kills or (args.until is not None and f"{datetime.now():%H:%M}" >= args.until):
                return fine
            with tempfile.TemporaryDirectory() as place:
                kills, same, wrong = kill(turn, Path(place))
            tally.add(args.what, name, turn, kills, same, **({"wrong": wrong} if wrong else {}))
            fine = fine and same
    return fine


def told(tally: Tally) -> bool:
    """Print the sums; return whether all runs ended as calm ones."""
    kills: Counter[str] = Counter()
    runs: dict[str, set[str]] = {}
    for row in tally.rows():
        kills[row["engine"]] += row["kills"]
        runs.setdefault(row["engine"], set()).add(row["run"])
    other = [row for row in tally.rows() if not row["same"]]
    for engine, count in kills.items():
        print(f"{engine}: {count} kills over {len(runs[engine])} federations")
    print(f"{sum(kills.values())} kills; {len(other)} of {len(tally.rows())} runs ended otherwise than a calm one")
    for row in other:
        print(row)
    return not other


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("local", "process", "ray-worker", "ray-driver", "deployment", "told"))
    parser.add_argument("--tally", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=1000, help="so many in the tally, for this engine")
    parser.add_argument("--part", default="0/1", help="which of how many parts of the runs")
    parser.add_argument("--until", help="an hour, such as 21:30, after which no run begins")
    parser.add_argument("--runs", nargs="*", default=[], help="rows of the table of methods; all, if none is named")
    args = parser.parse_args()
    fine = told(Tally(args.tally)) if args.what == "told" else work(args)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
