"""Whole rounds, with everything the engine normally does: pfl-research's CIFAR-10 round, FML on MNIST-like data.

    python benchmarks/rounds.py [--device cuda] [--only pfl] [--precision tf32] [--free] [--executors eager branches]

Random images of the data's shapes; prints milliseconds a round after two rounds of warming up and with all nodes built
(a node is built when it is first met).
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import torch
from torch import nn

from heterophony import Data, Federation
from heterophony.engines import local
from heterophony.methods import FML, FedAvg
from heterophony.models import create
from heterophony.parts.training import Training
from heterophony.seeds import generator
from heterophony.topology import star


class PflCnn(nn.Sequential):
    """The 1.63M-parameter CNN of pfl-research's CIFAR-10 benchmark."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
            nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
        )  # fmt: skip


def images(name: str, rows: int, channels: int, side: int) -> Data:
    draw = generator("benchmark", name)
    x = torch.randn(rows, channels, side, side, generator=draw)
    return Data(x=x, y=torch.randint(10, (rows,), generator=draw), classes=10)


def pfl(device: str, users: int = 1000) -> Federation:
    """1,000 users of 50 images, a cohort of 50, batch 10, one epoch, SGD 0.1."""
    clients = [f"c{i}" for i in range(users)]
    data = {c: {"train": images(c, 50, 3, 32)} for c in clients}
    method = FedAvg(fraction=50 / users, local=Training(epochs=1, batch=10, lr=0.1))
    models = {role: {"model": PflCnn} for role in ("server", "client")}
    return Federation(method, star(clients), models, data, device=device, evaluate=1000)


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
    return Federation(method, star(clients), models, data, device=device, evaluate=1000)


CASES = {
    "pfl's CIFAR-10 round": pfl,
    "FML, batch 10": lambda device: fml(device, 10),
    "FML, batch 64": lambda device: fml(device, 64),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--only", default="")
    options.add_argument("--precision", default="tf32", choices=["fp32", "tf32", "bf16"])
    options.add_argument("--free", action="store_true")
    options.add_argument("--executors", nargs="+", default=["eager", "branches"])
    options.add_argument("--rounds", type=int, default=5)
    args = options.parse_args()
    print("| round | " + " | ".join(args.executors) + " |\n|---|" + "---|" * len(args.executors))
    for name, build in CASES.items():
        if args.only not in name:
            continue
        base = build(args.device)
        cells = []
        for executor in args.executors:
            federation = replace(base, executor=executor, precision=args.precision, deterministic=not args.free)
            engine = local(federation)
            began = time.perf_counter()
            engine.run(2)
            for node in federation.topology.roles:
                engine.host.shape(node)
            first = time.perf_counter() - began
            times = []
            for n in range(args.rounds):
                began = time.perf_counter()
                engine.run(3 + n)
                times.append(time.perf_counter() - began)
            cells.append(f"{1e3 * statistics.median(times):.1f} ms (first two {first:.1f} s)")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
