"""What an exchange over Flower costs on one machine: seconds a round against the bytes of a message.

python benchmarks/exchange.py --networks mlp lenet5 vgg11 --rounds 5

Every round is one exchange with each of four participants (FedAvg on the embedded digits, one step of training), over
TLS with node keys. The seconds are those between the beginnings of two rounds, without the first; those of the local
engine, which does the same work, stand beside them. With --tree it is B-HFL with two levels of edge servers, each an
organisation of its own, above three participants: five exchanges, one after the other.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import statistics
import time
from datetime import date

from heterophony.deploy.rehearsal import Rehearsal as flower
from heterophony.engines import local
from heterophony.settings import assemble


def rounds(result) -> list[float]:
    """Seconds between the beginnings of rounds."""
    messages = [row for row in result.ledger.messages if row["from"] in ("server", "root")]
    begun = {row["round"]: row["time"] for row in reversed(messages)}
    return [b - a for a, b in itertools.pairwise(begun[r] for r in sorted(begun))][1:]


def star(network: str):
    return assemble("fedavg", "rotated-mnist", changes={"models.same": network, "local.steps": 1, "evaluate": 1000})


def tree(network: str):
    below = {"region": {"coast": ["M0", "M20"], "inland": ["M40"]}}
    changes = {"models.same": network, "local.steps": 1, "proxy.steps": 1, "evaluate": 1000}
    changes |= {"data.rotations": [0, 20, 40], "topology.tree": {"root": below}}
    return assemble("bhfl", "rotated-mnist", changes=changes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["mlp", "lenet5", "vgg11"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tree", action="store_true")
    given = parser.parse_args()
    what = "B-HFL, three participants, three edge servers" if given.tree else "FedAvg, four participants"
    print(f"{platform.machine()}, {date.today()}; {what}, {given.rounds} rounds, seconds a round\n")
    print("| network | bytes a message | flower: median | least | most | local | start and end |")
    print("|---" * 7 + "|")
    for network in given.networks:
        federation = (tree if given.tree else star)(network)
        began = time.perf_counter()
        result = flower(federation).run(given.rounds)
        whole = time.perf_counter() - began
        began = time.perf_counter()
        here = local(federation).run(given.rounds)
        alone = (time.perf_counter() - began) / given.rounds
        assert result.digest == here.digest, "the same federation must end with the same models"
        size = max(row["payload"] for row in result.ledger.messages)
        took = rounds(result)
        figures = f"{statistics.median(took):.1f} | {min(took):.1f} | {max(took):.1f} | {alone:.2f}"
        print(f"| {network} | {size:,} | {figures} | {whole - result.clock:.0f} |", flush=True)


if __name__ == "__main__":
    main()
