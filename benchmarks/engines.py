"""What a round costs on each engine, against the number of nodes, the bytes of a message and the number of workers.

    python benchmarks/engines.py [--nodes 8 32 128] [--megabytes 0.1 1 10] [--workers 1 2] [--rounds 5] [--json FILE]
    python benchmarks/engines.py --address auto     (on a running cluster)

FedAvg with every client in every round. The first round, in which nodes are built, is left out; times are medians, in
milliseconds a round: on the wall, and of CPU in the driver and in Ray's workers on this machine (counted in hundredths
of a second), which a busy machine disturbs less. `nodes`: a tiny network, so that what is left is the engine's own
work. `bytes`: four clients, one step on eight rows. `workers`: eight clients with a CNN, evaluated never. All engines
must end on the same digest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heterophony import Data, Federation, engines
from heterophony.base.seeds import generator
from heterophony.engines import Engine
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg
from heterophony.models import create
from heterophony.parts.training import Training

Make = Callable[..., Engine]


def points(rows: int, *shape: int) -> Data:
    draw = generator("engines", rows, *shape)
    return Data(
        x=torch.randn(rows, *shape, generator=draw), y=torch.randint(0, 10, (rows,), generator=draw), classes=10
    )


def federation(clients: int, model: Callable[[], nn.Module], data: Data) -> Federation:
    models = {role: {"model": model} for role in ("server", "client")}
    views = {"client": {"train": data}}
    return Federation(FedAvg(local=Training(batch=32)), star(clients), models, views, evaluate=10**6)


def tiny(clients: int) -> Federation:
    return federation(clients, lambda: nn.Linear(20, 10), points(8, 20))


def wide(megabytes: float) -> Federation:
    width = max(1, int(megabytes * 1e6 / 4 / 30))
    return federation(4, lambda: nn.Sequential(nn.Linear(20, width), nn.Linear(width, 10)), points(8, 20))


def busy(rows: int) -> Federation:
    return federation(8, lambda: create("lenet5", in_channels=1, size=28, classes=10), points(rows, 1, 28, 28))


class Clock:
    """When the server finished each round: wall seconds, CPU seconds of this process, and of Ray's workers."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float, float]] = []

    def __call__(self, engine: Engine) -> None:
        if engine.boxes["server"].round > len(self.ends):
            pool = getattr(engine.host, "pool", None)
            workers = sum(cpu(member.process) for member in pool.members.values()) if pool else 0.0
            self.ends.append((time.perf_counter(), time.process_time(), workers))

    def medians(self) -> dict[str, float]:
        rounds = [[b - a for a, b in zip(*ends, strict=True)] for ends in zip(self.ends, self.ends[1:], strict=False)]
        wall, driver, workers = (statistics.median(column) for column in zip(*rounds, strict=True))
        return {"seconds": wall, "driver_cpu": driver, "workers_cpu": workers}


def cpu(process: int) -> float:
    """CPU seconds of a process on this machine, as Linux counts them."""
    path = Path(f"/proc/{process}/stat")
    if not path.exists():
        return 0.0
    user, system = path.read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(made: Federation, engine: Make, rounds: int) -> tuple[dict[str, float], str]:
    clock = Clock()
    result = engine(made, progress=clock).run(rounds + 1)
    return clock.medians(), result.digest


def compare(what: str, value: float, made: Federation, makes: dict[str, Make], rounds: int) -> list[dict[str, Any]]:
    """One line of the table: the same federation on every engine."""
    found = {name: measure(made, make, rounds) for name, make in makes.items()}
    assert len({digest for _, digest in found.values()}) == 1, "the engines do not end on the same bits"
    size = sum(t.nbytes for t in made.node("server").weights().values())
    nodes = len(made.topology.roles) - 1
    for name, (took, _) in found.items():
        times = "  ".join(f"{1e3 * took[key]:9.1f}" for key in ("seconds", "driver_cpu", "workers_cpu"))
        print(f"{what:8s} {nodes:6d} clients  {size / 1e6:9.3f} MB  {name:8s} {times}", flush=True)
    about = {"what": what, "value": value, "clients": nodes, "bytes": size}
    return [{**about, "engine": name, **took} for name, (took, _) in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[8, 32])
    parser.add_argument("--megabytes", type=float, nargs="*", default=[0.1, 1.0])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rows", type=int, default=256, help="of each client, in the test of workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--address", help="of a running cluster")
    parser.add_argument("--json", type=Path, help="write the rows here")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    most = max(asked.workers, default=1)

    def on_ray(workers: int) -> Make:
        return lambda made, **options: engines.ray(made, workers=workers, address=asked.address, **options)

    if not asked.address:
        import ray

        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
        ray.init("local", num_cpus=most, include_dashboard=False, log_to_driver=False)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"
    print(f"{date.today()}, {machine}, one thread a process, {asked.rounds} rounds")
    print(f"{'':45s}{'wall':>9s}  {'driver':>9s}  {'workers':>9s}  ms a round")
    both: dict[str, Make] = {"local": engines.local, f"ray, {most}": on_ray(most)}
    rows: list[dict[str, Any]] = []
    for nodes in asked.nodes:
        rows += compare("nodes", nodes, tiny(nodes), both, asked.rounds)
    for megabytes in asked.megabytes:
        rows += compare("bytes", megabytes, wide(megabytes), both, asked.rounds)
    several: dict[str, Make] = {"local": engines.local, **{f"ray, {n}": on_ray(n) for n in asked.workers}}
    rows += compare("workers", asked.rows, busy(asked.rows), several, asked.rounds)
    if asked.json:
        asked.json.write_text(
            json.dumps({"date": str(date.today()), "machine": machine, "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
