"""What federations of three sizes would need: tree depth, bandwidth, server memory, and the time of a round.

    python benchmarks/scaling.py [--measured FILE] [--json FILE]

Lines, speeds and models are assumptions: they stand in CASES. The rest follows: the depth from how many updates a
server can hold and take in, the time of a round from the virtual clock, run on a tree of that depth. Two tricks make
ten million devices small enough to run. Siblings that are alike take the same time, so each level has two where it
would have many, each with its share of its parent's line. And a round's time depends on bytes over bandwidth only, so
a tiny network on slow lines stands for a large one. `--measured` is a file that `benchmarks/engines.py --json` wrote:
from it, what an engine adds for every message and megabyte at one server.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heterophony import Data, Federation, Model, Profile
from heterophony.engines import local
from heterophony.kernel.profile import hop
from heterophony.kernel.topology import tree
from heterophony.methods import hierfavg
from heterophony.parts.training import Training

MBIT = 1e6 / 8
GB = 1e9


@dataclass(frozen=True)
class Case:
    """A federation: how many there are and take part in a round, what they train, and their lines and machines."""

    name: str
    nodes: int
    cohort: int
    model: float  # bytes of a message
    rows: int  # that a participant goes through in a round
    seconds_per_sample: float
    line: float  # bytes a second, of a participant
    latency: float
    server_line: float = 1e4 * MBIT
    server_memory: float = 64 * GB
    intake: float = 60.0  # seconds that a server may take to receive its children's updates


CASES = (
    Case("10 silos", 10, 10, 100e6, 50_000, 2e-3, 1e3 * MBIT, 0.02),
    Case("1,000 sites", 1_000, 1_000, 100e6, 10_000, 5e-3, 100 * MBIT, 0.03),
    Case("10 million devices", 10_000_000, 100_000, 5e6, 100, 50e-3, 10 * MBIT, 0.1),
)


@dataclass(frozen=True)
class Plan:
    """A tree for a case, and what it costs."""

    depth: int
    fan: int  # children that answer at each server
    servers: int
    memory: float  # bytes at a server: a window keeps its mail until it fires
    server_bytes: float  # in and out, at each server, per round
    participant_bytes: float
    total_bytes: float  # over all links
    round: float  # virtual seconds
    training: float  # of which a participant trains


def shape(case: Case) -> tuple[int, int]:
    """The flattest tree whose servers can hold and receive what they get."""
    most = min((case.server_memory / case.model) - 2, case.intake * case.server_line / case.model)
    for depth in range(1, 10):
        fan = math.ceil(case.cohort ** (1 / depth) - 1e-9)
        if fan <= most:
            return depth, fan
    raise ValueError(f"{case.name}: no tree of fewer than ten levels fits")


def representative(case: Case, depth: int, fan: int) -> Federation:
    """Two siblings for many, a tiny network for a large one."""

    def below(name: str, level: int) -> dict[str, Any]:
        return {f"{name}{i}": below(f"{name}{i}", level + 1) for i in range(2)} if level < depth else {}

    data = Data(x=torch.zeros(8, 100), y=torch.zeros(8, dtype=torch.int64), classes=10)
    small = sum(p.nbytes for p in nn.Linear(100, 10).parameters()) / case.model
    share = case.server_line / fan
    server = Profile(0.0, small * share, case.latency / 10)
    pace = case.rows * case.seconds_per_sample / len(data)
    leaf = Profile(pace, small * min(case.line, share), case.latency)
    topology = tree({"n": below("n", 0)})
    roles = set(topology.roles.values())
    models = {role: {"model": Model(lambda: nn.Linear(100, 10), common=True)} for role in roles}
    profiles = {role: leaf if role == "leaf" else server for role in roles}
    method = hierfavg(turns=1, local=Training(batch=8))
    return Federation(method, topology, models, {"leaf": {"train": data}}, profiles=profiles)


def plan(case: Case) -> Plan:
    depth, fan = shape(case)
    made = representative(case, depth, fan)
    one, two = (local(made).run(rounds) for rounds in (1, 2))
    clock, training = two.clock - one.clock, case.rows * case.seconds_per_sample
    # The clock must say what one gets by hand: down and up each level, and the training in between.
    leaf, server = made.profiles["leaf"], made.profiles["root"]
    sent = {row["kind"]: row["payload"] for row in two.ledger.messages}
    by_hand = training + sum(
        hop(leaf, server, size) + (depth - 1) * hop(server, server, size) for size in sent.values()
    )
    assert len(sent) == 2
    assert math.isclose(clock, by_hand, rel_tol=1e-9), (clock, by_hand)
    servers = sum(math.ceil(case.cohort / fan**level) for level in range(1, depth + 1))
    links = case.cohort + servers - 1
    return Plan(
        depth, fan, servers, (fan + 2) * case.model, 2 * (fan + (depth > 1)) * case.model, 2 * case.model,
        2 * links * case.model, clock, training,
    )  # fmt: skip


def slope(rows: list[dict[str, Any]], what: str, of: str, *parts: str) -> float:
    """CPU seconds a unit on Ray, between the smallest and the largest of a sweep."""
    found = [(r[of], sum(r[part] for part in parts)) for r in rows if r["what"] == what and r["engine"] != "local"]
    (low, least), (high, most) = min(found), max(found)
    return (most - least) / (high - low)


def size(value: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, help="what `benchmarks/engines.py --json` wrote")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    plans = {case.name: plan(case) for case in CASES}
    head = ("", "depth", "children", "servers", "server memory", "a server's bytes", "a participant's", "all links",
            "round", "of it training")  # fmt: skip
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name, made in plans.items():
        amounts = (made.memory, made.server_bytes, made.participant_bytes, made.total_bytes)
        cells = (name, made.depth, made.fan, made.servers, *map(size, amounts))
        print("| " + " | ".join(map(str, cells)) + f" | {made.round:.0f} s | {made.training:.0f} s |")
    if asked.measured:
        told = json.loads(asked.measured.read_text())
        child = slope(told["rows"], "nodes", "clients", "driver_cpu")
        byte = slope(told["rows"], "bytes", "bytes", "driver_cpu", "workers_cpu") / 4  # that sweep has four clients
        print(f"\nMeasured {told['date']}, {told['machine']}, Ray engine, CPU seconds:")
        print(
            f"{1e3 * child:.2f} ms in the driver for a child and round, {1e9 * byte:.1f} s in workers for a GB of model"
        )
        for case in CASES:
            fan, drives, packs = plans[case.name].fan, plans[case.name].fan * child, plans[case.name].fan * byte
            print(f"{case.name}, one server of {fan} children: {drives:.3f} s + {packs * case.model:.1f} s a round")
    if asked.json:
        found = [{**asdict(case), **asdict(plans[case.name])} for case in CASES]
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
