"""Let a deployment of twenty nodes run for long while nodes come and go, and watch its memory and its descriptors.

python tools/soak.py --minutes 30 --out soak.jsonl

FedAvg between organisations: the coordinator's engine and its host, and for each node a real server of the node with
its store on disk. They are in one process. Bytes go from one to the other without a network, so there is no SuperNode.
What is done to them, at moments that follow from a seed:

- a node is not connected for some polls; its server is thrown away and begins again from its disk;
- an answer is lost, comes some polls late, or is longer than the limit of a message;
- the clock jumps: ahead by two minutes, back by five seconds.

A line of the file says how many rounds were done, the memory of the process (MiB) and its open descriptors. In the end
the models must be those of a run that nobody disturbed. Memory counts as flat if its median in the last third is at
most a tenth above that in the middle third, and descriptors if there are no more than two more. The ledger grows by
design; it is said by how much.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from deploy.direct import Direct, node_server
from heterophony import Federation
from heterophony.deploy import coordinator
from heterophony.deploy.holders import CoordinatorsOwn
from heterophony.deploy.organisation import Organisation
from heterophony.deploy.remote_host import RemoteHost
from heterophony.engines import Engine, local
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg
from heterophony.runs.run import Run
from toys import world
from toys.deployed import B16, NAMES, Case, data_call, network_call

EVERY = 5  # rounds between two looks
MOST_GROWTH, MOST_DESCRIPTORS = 1.10, 2


class Many(Case):
    """FedAvg between so many organisations as it has names; each has the rows of one of the four toys."""

    def organisation(self, name: str, **changes: Any) -> Organisation:
        plain: dict[str, Any] = {"name": name, "federation": f"toy-of-{self.name}", "modules": ["toys.deployed"]}
        plain |= {"data": data_call("rows", _toy(self.names.index(name))), "model": network_call(12)}
        return Organisation.model_validate({**plain, **changes})


def _toy(number: int) -> str:
    return NAMES[number % len(NAMES)]


def many(count: int) -> Many:
    names = tuple(f"n{number:02d}" for number in range(count))

    def here(**options: Any) -> Federation:
        own = world.private(list(NAMES))
        data = {name: {"train": own[_toy(place)]["train"]} for place, name in enumerate(names)}
        models = {name: {"model": world.net(12)} for name in (*names, "server")}
        return Federation(FedAvg(local=B16), star(names), models, data, **options)

    return Many("fedavg", {"local": {"batch": 16}}, here, common=12, names=names)


class Jumping:
    """A clock that jumps, and that nobody waits for."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.off, self.jumps = draw, 0.0, 0

    def __call__(self) -> float:
        return time.monotonic() + self.off

    def sleep(self, seconds: float) -> None:
        self.off += seconds
        if self.draw.random() < 0.02:
            self.off += self.draw.choice([120.0, -5.0])
            self.jumps += 1


class Churn(Direct):
    """A courier to nodes that come and go, and whose answers are lost, late, doubled or giant."""

    def __init__(self, case: Many, folder: Path, draw: random.Random, limit: int) -> None:
        self.case, self.folder, self.draw, self.limit = case, folder, draw, limit
        super().__init__({name: node_server(case, name, folder) for name in case.names})
        self.gone: dict[str, int] = {}  # nodes that are not connected, and for how many polls
        self.late: dict[str, int] = {}  # tickets whose answers are on their way, and for how many polls
        self.done: Counter[str] = Counter()
        self.calm = False  # in the end, when the nodes are asked for the hashes of their models

    def present(self) -> Collection[str]:
        self.gone = {name: left - 1 for name, left in self.gone.items() if left > 1}
        return self.node_servers.keys() - self.gone.keys()

    def send(self, questions: dict[str, bytes]) -> dict[str, str]:
        for name in questions:
            if not self.calm and self.draw.random() < 0.05:
                self.node_servers[name] = node_server(self.case, name, self.folder)
                self.done["begun again"] += 1
        tickets = super().send(questions)
        self.questions.clear()
        for name, ticket in tickets.items():
            if not self.calm:
                self._disturb(name, ticket)
        return tickets

    def _disturb(self, name: str, ticket: str) -> None:
        what = self.draw.choices(["", "lost", "late", "giant", "gone"], [80, 5, 8, 2, 5])[0]
        self.done[what or "as it should be"] += 1
        if what == "lost":
            self.answers[ticket] = None
        elif what == "late":
            self.late[ticket] = self.draw.randrange(1, 20)
        elif what == "giant":
            self.answers[ticket] = bytes(self.limit + 1)
        elif what == "gone":
            self.gone[name] = self.draw.randrange(1, 10)

    def collect(self, tickets: Collection[str]) -> dict[str, bytes | None]:
        self.late = {ticket: left - 1 for ticket, left in self.late.items() if left > 1}
        return super().collect([ticket for ticket in tickets if ticket not in self.late])


def measured() -> tuple[float, int]:
    """Return the memory of this process in MiB, and how many descriptors are open."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(list(Path("/proc/self/fd").iterdir()))


def soak(minutes: float, nodes: int, seed: int, out: Path) -> bool:
    """Run until the time is over; return whether all is as it should be."""
    draw = random.Random(seed)
    case = many(nodes)
    plan = case.plan(pace={"poll": 0.05, "again": 2.0, "patience": 3600.0}, rounds=10**6, tests=None, homes={})
    case_plan = case.plan
    object.__setattr__(case, "plan", lambda **changes: plan if not changes else case_plan(**changes))
    clock = Jumping(draw)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        courier = Churn(case, folder, draw, plan.limit)
        federation = coordinator.federation_of(plan, CoordinatorsOwn())
        host = RemoteHost(plan, federation, courier, clock=clock, sleep=clock.sleep)
        began, looks, rounds = time.monotonic(), [], 0
        with Run.create(folder / "run", federation.identity(), plan.rounds, cadence=5.0) as record:
            engine = Engine(federation, host, record=record)
            while time.monotonic() - began < 60 * minutes:
                rounds += EVERY
                engine.run(rounds)
                memory, open_ = measured()
                looks.append({"minute": round((time.monotonic() - began) / 60, 2), "round": rounds,
                              "memory": round(memory, 1), "descriptors": open_})  # fmt: skip
                with out.open("a") as file:
                    file.write(json.dumps(looks[-1]) + "\n")
            courier.calm = True
            rounds += EVERY
            digest = engine.run(rounds).digest  # which the nodes are asked for
            ledger = (folder / "run" / "ledger.jsonl").stat().st_size
    calm = local(replace(case.federation(), tests={})).run(rounds)
    about = {**verdict(looks), "same": digest == calm.digest, "rounds": rounds, "nodes": nodes, "seed": seed,
             "jumps": clock.jumps, "done": dict(courier.done), "ledger": ledger}  # fmt: skip
    print(json.dumps(about, indent=1))
    with out.open("a") as file:
        file.write(json.dumps(about) + "\n")
    return bool(about["same"] and about["flat"])


def verdict(looks: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the last third with the one before it. The first third is left out: caches fill."""
    third = max(1, len(looks) // 3)
    middle, last = looks[third : 2 * third] or looks, looks[2 * third :] or looks
    memory = [statistics.median(look["memory"] for look in part) for part in (middle, last)]
    open_ = [max(look["descriptors"] for look in part) for part in (middle, last)]
    flat = memory[1] <= MOST_GROWTH * memory[0] and open_[1] <= open_[0] + MOST_DESCRIPTORS
    return {"flat": flat, "memory": memory, "descriptors": open_}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    return 0 if soak(args.minutes, args.nodes, args.seed, args.out) else 1


if __name__ == "__main__":
    sys.exit(main())
