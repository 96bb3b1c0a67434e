"""Engine overhead against a plain PyTorch FedAvg loop: same data, same batches, same arithmetic, one thread each.

    python benchmarks/overhead.py [--repeats 7]

The two run interleaved, each in a process of its own, since ours asks for memory in its own way; the ratio is that of
CPU time, since the wall clock of a shared machine drifts. Both must end on the same weights, to the bit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from datetime import date

import torch
import torch.nn.functional as F
from torch import nn

from heterophony import Data, Federation
from heterophony.base.seeds import generator
from heterophony.engines import local
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg
from heterophony.models import create
from heterophony.parts.training import Training

CLIENTS, ROWS, BATCH, ROUNDS, LR = 10, 320, 32, 3, 0.05


def images(name: str) -> Data:
    draw = generator("benchmark", name)
    return Data(
        x=torch.randn(ROWS, 1, 28, 28, generator=draw), y=torch.randint(0, 10, (ROWS,), generator=draw), classes=10
    )


def lenet() -> nn.Module:
    return create("lenet5", in_channels=1, size=28, classes=10)


def mlp() -> nn.Module:
    return create("mlp", in_channels=1, size=28, classes=10)


def as_torch_is() -> None:
    torch.set_num_threads(1)
    os.environ["THP_MEM_ALLOC_ENABLE"] = "0"


def plain(
    start: dict[str, torch.Tensor], data: dict[str, Data], make: Callable[[], nn.Module]
) -> tuple[float, dict[str, torch.Tensor]]:
    """What one writes without a framework: a list of clients, state dicts, a mean."""
    began = time.process_time()
    clients = {name: make() for name in data}
    weights = {key: value.clone() for key, value in start.items()}
    for round in range(ROUNDS):
        states = []
        for name, model in clients.items():
            model.load_state_dict(weights)
            optimiser = torch.optim.SGD(model.parameters(), LR)
            order = torch.randperm(ROWS, generator=generator(0, name, "train", round))
            for rows in order.split(BATCH):
                x, y = data[name].x[rows], data[name].y[rows]
                optimiser.zero_grad(set_to_none=True)
                F.cross_entropy(model(x), y).backward()
                optimiser.step()
            states.append({key: value.clone() for key, value in model.state_dict().items()})
        weights = {key: value * (1 / len(states)) for key, value in states[0].items()}
        for state in states[1:]:
            for key, value in weights.items():
                value.add_(state[key], alpha=1 / len(states))
    return time.process_time() - began, weights


def compare(name: str, make: Callable[[], nn.Module], repeats: int, elsewhere: Executor) -> None:
    names = [f"c{i}" for i in range(CLIENTS)]
    data = {n: images(n) for n in names}
    models = {role: {"model": make} for role in ("server", "client")}
    method = FedAvg(local=Training(batch=BATCH, lr=LR))
    federation = Federation(method, star(names), models, {n: {"train": d} for n, d in data.items()})  # type: ignore[arg-type]
    start = {k: v.clone() for k, v in federation.node("server").models["model"].state_dict().items()}
    ratios, ours, theirs = [], [], []
    for repeat in range(repeats + 1):
        seconds, weights = elsewhere.submit(plain, start, data, make).result()
        began = time.process_time()
        result = local(federation).run(ROUNDS)
        ended = time.process_time()
        final = result.state("server")["models"]["model"]
        assert all(torch.equal(weights[k], final[k]) for k in weights), "the two do not compute the same"
        if repeat:  # the first pass warms up
            theirs.append(seconds)
            ours.append(ended - began)
            ratios.append(ours[-1] / theirs[-1])
    print(
        f"{name:8s} plain {statistics.median(theirs):6.3f} s   heterophony {statistics.median(ours):6.3f} s   "
        f"ratio {statistics.median(ratios):.3f}  (from {min(ratios):.3f} to {max(ratios):.3f}, {repeats} repeats)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, one thread")
    print(f"{CLIENTS} clients x {ROWS} images, batch {BATCH}, {ROUNDS} rounds; CPU seconds, median")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), as_torch_is) as elsewhere:
        for name, make in (("lenet5", lenet), ("mlp", mlp)):
            compare(name, make, repeats, elsewhere)


if __name__ == "__main__":
    main()
