"""A cohort's training step: one after the other, as branches, stacked, and what the engine chooses by itself.

    python benchmarks/cohort.py [--device cuda] [--only NAME] [--precision tf32] [--free] [--ways branches chosen]

Random images; prints milliseconds for one step of the whole cohort, all ways in turn in one run, their ratios, and
which fraction of the device's measured rate of matrix products the fastest achieves.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

from heterophony import Data
from heterophony.base.seeds import seeded
from heterophony.compute.batched import Batched
from heterophony.compute.choice import CHANNELS_LAST, COMPILED, COMPILED_CHANNELS_LAST, PRODUCTS, STACKED
from heterophony.compute.eager import Eager, Job
from heterophony.compute.numerics import numerics
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.work import Fit
from heterophony.models import create
from heterophony.parts.losses import cross_entropy
from rounds import PflCnn

WRNS = ["wrn-10-1"] * 6 + ["wrn-16-1"] * 4 + ["wrn-22-1"] * 4 + ["wrn-28-1"] * 4 + ["wrn-34-1"] * 2
COHORTS = {
    "50 x pfl's CNN, batch 10": (["pfl"] * 50, 10),
    "5 x cnn1, batch 128": (["cnn1"] * 5, 128),
    "20 x cnn1, batch 128": (["cnn1"] * 20, 128),
    "100 x cnn1, batch 32": (["cnn1"] * 100, 32),
    "5 x cnn2, batch 128": (["cnn2"] * 5, 128),
    "20 x cnn2, batch 128": (["cnn2"] * 20, 128),
    "100 x wrn-10, batch 20": (["wrn-10-1"] * 100, 20),
    "20 WRNs of five depths, batch 128": (WRNS, 128),
}


def jobs(networks: list[str], batch: int, steps: int, device: str) -> list[Job]:
    made = []
    for i, name in enumerate(networks):
        with seeded("benchmark", i):
            module = PflCnn() if name == "pfl" else create(name, in_channels=3, size=32, classes=10)
            module = module.to(device)
            data = Data(x=torch.randn(batch * 4, 3, 32, 32), y=torch.randint(10, (batch * 4,)), classes=10)
        node = Node(f"c{i}", "client", slots={"model": Slot(module)}, data={"train": data}, device=device)
        work = Fit("model", cross_entropy, steps=steps, batch=batch, optimiser=sgd(0.01))
        made.append(Job(node, work, "0", evaluate=False))
    return made


def seconds(compute, work: list[Job], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    compute(work)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def operations(work: list[Job]) -> float:
    """Multiplications and additions of a step of all, by torch's count."""
    total = 0.0
    for job in work:
        rows = job.node.data["train"].placed(job.node.device).take(torch.arange(job.work.batch, device=job.node.device))
        with FlopCounterMode(display=False) as counter:
            cross_entropy(job.node.models, rows)["model"]["ce"].backward()
        total += counter.get_total_flops()
        job.node.models["model"].zero_grad()
    return total


def rate(precision: str, device: str, size: int = 8192) -> float:
    """Operations a second of a large matrix product, as measured."""
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        a @ a
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 2 * size**3 / min(times)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--only", default="")
    options.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16"])
    options.add_argument("--free", action="store_true", help="kernels that need not repeat to the bit")
    options.add_argument("--steps", type=int, default=40)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    args = options.parse_args()
    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU, one thread"
    print(f"{where}, torch {torch.__version__}, {args.precision}, {'free' if args.free else 'deterministic'}")
    print(
        "| cohort | one at a time | "
        + " | ".join(args.ways)
        + " | best ratio | of the matrix rate | set-up |\n|---|---|"
        + "---|" * (len(args.ways) + 3)
    )
    with numerics(args.device, args.precision, not args.free):
        peak = rate(args.precision, args.device) if args.device == "cuda" else 0.0
        for name, (networks, batch) in COHORTS.items():
            if args.only not in name:
                continue
            work = jobs(networks, batch, args.steps, args.device)
            few = jobs(networks, batch, 4, args.device)
            eager = Eager(precision=args.precision)
            seconds(eager, few, args.device)
            ways, setups = {}, []
            for way in args.ways:
                ways[way] = WAYS[way](args.precision)
                setups.append(seconds(ways[way], work, args.device))
            times: dict[str, list[float]] = {way: [] for way in ways}
            alone = []
            for _ in range(args.repeats):
                alone.append(seconds(eager, few, args.device) / 4)
                for way, compute in ways.items():
                    times[way].append(seconds(compute, work, args.device) / args.steps)
            one = statistics.median(alone)
            found = {way: statistics.median(t) for way, t in times.items()}
            cells = " | ".join(f"{1e3 * t:.2f}" for t in found.values())
            setup = ", ".join(f"{s:.1f}" for s in setups)
            best = min(found.values())
            share = f"{operations(work) / best / peak:.1%}" if peak else ""
            print(f"| {name} | {1e3 * one:.2f} | {cells} | {one / best:.1f} | {share} | {setup} s |", flush=True)


WAYS = {
    "branches": lambda p: Batched(precision=p),
    "channels-last": lambda p: Batched(precision=p, only=CHANNELS_LAST),
    "channels-last, compiled": lambda p: Batched(precision=p, only=COMPILED_CHANNELS_LAST),
    "stacked": lambda p: Batched(precision=p, executor="stacked", only=STACKED),
    "compiled": lambda p: Batched(precision=p, executor="stacked", only=COMPILED),
    "products": lambda p: Batched(precision=p, executor="stacked", only=PRODUCTS),
    "chosen": lambda p: Batched(precision=p, executor="auto"),
}

if __name__ == "__main__":
    main()
