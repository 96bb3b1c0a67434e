"""Whole rounds, with everything the engine normally does: pfl-research's CIFAR-10 round, FML on MNIST-like data, and
FedMD+Global with 21 WRNs on CIFAR-like data.

    python benchmarks/rounds.py [--device cuda] [--only pfl] [--precision tf32] [--free] [--executors eager auto]

Random images of the data's shapes; prints milliseconds a round after some rounds of warming up (`--warm`) and with all
nodes built (a node is built when it is first met), with `--busy` also the share of the time in which a kernel runs, as
the driver samples it, for which the measured rounds should take some seconds (`--rounds`). The run is said to be long
(`--goal`), so that what pays in a long run, such as compiling, is done.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from heterophony import Compute, Data, Federation
from heterophony.base.seeds import generator
from heterophony.engines import Engine, local
from heterophony.kernel.topology import star
from heterophony.methods import FML, FedAvg, fedmd_global
from heterophony.models import create
from heterophony.parts.cohort import Cohort
from heterophony.parts.public import PublicRows
from heterophony.parts.training import Training


class PflCnn(nn.Sequential):
    """The 1.63M-parameter CNN of pfl-research's CIFAR-10 benchmark."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
            nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
        )  # fmt: skip


def images(name: str, rows: int, channels: int, side: int, classes: int = 10) -> Data:
    draw = generator("benchmark", name)
    x = torch.randn(rows, channels, side, side, generator=draw)
    return Data(x=x, y=torch.randint(classes, (rows,), generator=draw), classes=classes)


def pfl(device: str, users: int = 1000) -> Federation:
    """1,000 users of 50 images, a cohort of 50, batch 10, one epoch, SGD 0.1."""
    clients = [f"c{i}" for i in range(users)]
    data = {c: {"train": images(c, 50, 3, 32)} for c in clients}
    method = FedAvg(cohort=Cohort(fraction=50 / users), local=Training(epochs=1, batch=10, lr=0.1))
    models = {role: {"model": PflCnn} for role in ("server", "client")}
    return Federation(method, star(clients), models, data, compute=Compute(device=device), evaluate=1000)


def fml(device: str, batch: int) -> Federation:
    """20 clients of unequal size with CNN1 and a LeNet5 meme, one epoch."""
    clients = [f"c{i}" for i in range(20)]
    shares = torch.linspace(0.2, 1.8, 20)
    data = {c: {"train": images(c, int(2625 * share), 1, 28)} for c, share in zip(clients, shares, strict=True)}

    def own() -> nn.Module:
        return create("cnn1", in_channels=1, size=28, classes=10)

    def common() -> nn.Module:
        return create("lenet5", in_channels=1, size=28, classes=10)

    method = FML(local=Training(epochs=1, batch=batch, lr=0.01, momentum=0.9))
    models = {"server": {"model": common}, "client": {"model": own, "meme": common}}
    return Federation(method, star(clients), models, data, compute=Compute(device=device), evaluate=1000)


def wrns(device: str) -> Federation:
    """FedMD+Global's round: 20 WRNs of five depths and a global WRN-40, 5 epochs on 5,000 public rows, 5 local ones."""
    depths = [10] * 6 + [16] * 4 + [22] * 4 + [28] * 4 + [34] * 2
    clients = [f"c{i}" for i in range(20)]
    shares = torch.linspace(0.2, 1.8, 20)[torch.randperm(20, generator=generator("benchmark", "shares"))]
    public = images("public", 10_000, 3, 32, classes=30)
    data = {
        c: {"train": images(c, int(2500 * share), 3, 32), "public": public}
        for c, share in zip(clients, shares, strict=True)
    }

    def wrn(depth: int) -> nn.Module:
        return create(f"wrn-{depth}-1", in_channels=3, size=32, classes=30)

    models: dict[str, Any] = {c: {"model": partial(wrn, d)} for c, d in zip(clients, depths, strict=True)}
    models["server"] = {"model": partial(wrn, 40)}
    method = fedmd_global(
        rows=PublicRows(sample=5000),
        distil=Training(epochs=5, batch=64, lr=0.1),
        local=Training(epochs=5, batch=128, lr=0.1),
    )
    views = {**data, "server": {"public": public}}
    return Federation(method, star(clients), models, views, compute=Compute(device=device), evaluate=1000)


CASES = {
    "pfl's CIFAR-10 round": pfl,
    "FML, batch 10": lambda device: fml(device, 10),
    "FML, batch 64": lambda device: fml(device, 64),
    "FedMD+Global, 21 WRNs": wrns,
}


class Meter:
    """Watches a long run from outside: the time of so many rounds after those for warming up, then stops it."""

    def __init__(self, warm: int, rounds: int, watched: bool) -> None:
        self.marks, self.watched = (warm, warm + rounds), watched
        self.times: list[float] = []
        self.watcher: subprocess.Popen[str] | None = None
        self.busy: float | None = None  # the share of time in which a kernel ran, where it was asked for

    def __call__(self, engine: Engine) -> None:
        if len(self.times) == 2 or engine.boxes["server"].round < self.marks[len(self.times)]:
            return
        if engine.federation.compute.device != "cpu":
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())
        if len(self.times) == 2:
            engine.stop = True
            if self.watcher is not None:
                self.watcher.terminate()
                shares = [float(line) for line in self.watcher.communicate()[0].split()][
                    3:
                ]  # the first look further back
                self.busy = statistics.mean(shares) / 100 if shares else None
        elif self.watched:
            ask = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
            self.watcher = subprocess.Popen(ask, stdout=subprocess.PIPE, text=True)


def measure(
    federation: Federation, warm: int, rounds: int, goal: int, watched: bool
) -> tuple[float, float, float | None]:
    """Seconds before the first measured round, seconds a round, and the share of it in which the device is busy."""
    meter = Meter(warm, rounds, watched)
    engine = local(federation, progress=meter)
    began = time.perf_counter()
    for node in federation.topology.roles:  # built, and its data in place, as after some rounds
        built = engine.host.node(node)
        for view in built.data:
            built.data.placed(view)
    with suppress(KeyboardInterrupt):
        engine.run(goal)
    if engine.ledger.incidents:  # a round in which mail is refused is no round
        raise SystemExit(f"{engine.ledger.incidents[0]}")
    return meter.times[0] - began, (meter.times[1] - meter.times[0]) / rounds, meter.busy


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--only", default="")
    options.add_argument("--precision", default="tf32", choices=["fp32", "tf32", "bf16"])
    options.add_argument("--free", action="store_true")
    options.add_argument("--executors", nargs="+", default=["eager", "branches", "auto"])
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--warm", type=int, default=2, help="rounds before the measured ones")
    options.add_argument("--busy", action="store_true", help="the device's own figure, over the measured rounds")
    options.add_argument("--goal", type=int, default=100_000, help="rounds that the run is said to have")
    args = options.parse_args()
    print("| round | " + " | ".join(args.executors) + " |\n|---|" + "---|" * len(args.executors))
    for name, build in CASES.items():
        if args.only not in name:
            continue
        cells = []
        for executor in args.executors:
            how = {"executor": executor, "precision": args.precision, "deterministic": not args.free}
            rounds = max(2, args.rounds // 10) if executor == "eager" else args.rounds
            first, seconds, busy = measure(build(args.device).computed(**how), args.warm, rounds, args.goal, args.busy)
            share = "" if busy is None else f", device busy {busy:.0%}"
            cells.append(f"{1e3 * seconds:.1f} ms{share} (set-up {first:.1f} s)")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
