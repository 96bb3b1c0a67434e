"""Cost of a round against the number of nodes, with the same cohort of 50: idle nodes should cost nothing.

    python benchmarks/scale.py [--rounds 20]

The sizes run interleaved; times are CPU seconds a round. A node is built when it is first needed, so a large federation
keeps meeting new ones for a while: `first visits` includes that, `steady` is measured with all nodes built.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from datetime import date

import torch
from torch import nn

from heterophony import Data, Federation
from heterophony.engines import local
from heterophony.methods import FedAvg
from heterophony.seeds import generator
from heterophony.topology import star

SIZES, COHORT = (100, 1_000, 10_000), 50


def build(nodes: int) -> Federation:
    draw = generator("scale")
    data = Data(x=torch.randn(32, 20, generator=draw), y=torch.randint(0, 5, (32,), generator=draw), classes=5)
    models = {role: {"model": lambda: nn.Linear(20, 5)} for role in ("server", "client")}
    return Federation(FedAvg(fraction=COHORT / nodes), star(nodes), models, {"client": {"train": data}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(
        f"{date.today()}, {platform.machine()}, torch {torch.__version__}, one thread; cohort {COHORT}, {rounds} rounds"
    )
    kinds = ("first visits", "steady")
    times: dict[tuple[int, str], list[float]] = {(size, kind): [] for size in SIZES for kind in kinds}
    for _ in range(5):
        for (size, kind), found in times.items():
            engine = local(build(size))
            engine.run(1)
            if kind == "steady":
                for node in engine.federation.topology.roles:
                    engine.host.shape(node)
            began = time.process_time()
            engine.run(1 + rounds)
            found.append((time.process_time() - began) / rounds)
    for kind in kinds:
        base = statistics.median(times[SIZES[0], kind])
        for size in SIZES:
            each = statistics.median(times[size, kind])
            print(f"{kind:12s}  {size:6d} nodes  {1000 * each:7.2f} ms a round  ratio {each / base:.2f}")


if __name__ == "__main__":
    main()
