"""How the CPU time of a round grows: with the number of clients, with the model, with the public set.

    python benchmarks/scale.py [--only clients|model|public] [--rounds 10] [--repeats 5]

- clients: FedAvg with a cohort of 10, so that all sizes do the same work and idle clients should cost nothing. A node
  is built when it is first needed, so a large federation keeps meeting new ones for a while: `first visits` includes
  that, `steady` is measured with all nodes built.
- model: FedAvg of 10 clients that train one step on two rows, so that what is done with every parameter shows: the
  messages (copied, sized, checked, loaded), their mean, and one step's gradients.
- public: FedMD of 5 clients with a linear network and one step of each training, so that the exchange shows:
  predictions on all public rows, the messages, their mean.

The sizes run in turn. A row's nanoseconds fall to a constant where the cost is linear. They rise again where tensors
exceed 32 MB: glibc takes fresh pages for each of those and gives them back, which a plain loop pays as well. With
`MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8000000000` in the environment it keeps them.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date

import torch
from torch import nn

from heterophony import Data, Federation
from heterophony.base.seeds import generator
from heterophony.engines import Engine, local
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, FedMD
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training

CLIENTS, COHORT = (10, 100, 1_000, 10_000), 10
WIDTHS, TRAINED = (86, 300, 980, 3_140), 10  # 1e4 to 1e7 parameters
PUBLIC, SPEAKERS = (100, 1_000, 10_000, 100_000), 5
FEATURES, CLASSES = 20, 10


def table(rows: int) -> Data:
    draw = generator("scale", rows)
    x, y = torch.randn(rows, FEATURES, generator=draw), torch.randint(CLASSES, (rows,), generator=draw)
    return Data(x=x, y=y, classes=CLASSES)


def averaging(clients: int, network: Callable[[], nn.Module], rows: int, method: FedAvg) -> Federation:
    models = {role: {"model": network} for role in ("server", "client")}
    return Federation(method, star(clients), models, {"client": {"train": table(rows)}})


def linear() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


def many(clients: int) -> Federation:
    return averaging(clients, linear, 32, FedAvg(cohort=Cohort(fraction=COHORT / clients)))


def mlp(width: int) -> nn.Module:
    hidden = (nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(width, CLASSES))


def large(width: int) -> Federation:
    return averaging(TRAINED, lambda: mlp(width), 2, FedAvg(local=Training(steps=1)))


def speaking(rows: int) -> Federation:
    public, once = table(rows), Training(steps=1)
    data = {"server": {"public": public}, "client": {"public": public, "train": table(2)}}
    return Federation(FedMD(distil=once, local=once), star(SPEAKERS), {"client": {"model": linear}}, data)


def spent(engine: Engine, rounds: int) -> float:
    """CPU milliseconds a round of the next rounds."""
    began = time.process_time()
    engine.run(engine.rounds + rounds)
    return 1e3 * (time.process_time() - began) / rounds


def measured(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"


def head(*cells: str) -> None:
    print("\n| " + " | ".join(cells) + " |\n|" + "---|" * len(cells))


def clients(rounds: int, repeats: int) -> None:
    kinds = ("first visits", "steady")
    times: dict[tuple[str, int], list[float]] = {(kind, size): [] for kind in kinds for size in CLIENTS}
    for _ in range(repeats):
        for (kind, size), found in times.items():
            engine = local(many(size))
            engine.run(1)
            if kind == "steady":
                for node in engine.federation.topology.roles:
                    engine.host.shape(node)
            found.append(spent(engine, rounds))
    head("clients, 10 a round", "nodes", "CPU ms a round", "ratio")
    for (kind, size), found in times.items():
        ratio = statistics.median(found) / statistics.median(times[kind, CLIENTS[0]])
        print(f"| {size:,} | {kind} | {measured(found)} | {ratio:.2f} |")


def growth(
    build: Callable[[int], Federation], sizes: tuple[int, ...], rounds: int, repeats: int
) -> dict[int, tuple[list[float], int]]:
    """By size: CPU milliseconds a round, and payload bytes a round."""
    engines = {size: local(build(size)) for size in sizes}
    for engine in engines.values():
        engine.run(2)  # all nodes built, caches filled
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(repeats):
        for size, engine in engines.items():
            times[size].append(spent(engine, rounds))
    return {s: (times[s], sum(e.ledger.bytes().values()) // e.rounds) for s, e in engines.items()}


def model(rounds: int, repeats: int) -> None:
    found = growth(large, WIDTHS, rounds, repeats)
    head("parameters, 10 clients", "CPU ms a round", "bytes a round", "ns a parameter and client")
    for width, (times, sent) in found.items():
        size = sum(p.numel() for p in mlp(width).parameters())
        each = 1e6 * statistics.median(times) / (size * TRAINED)
        print(f"| {size:,} | {measured(times)} | {sent:,} | {each:.1f} |")


def public(rounds: int, repeats: int) -> None:
    found = growth(speaking, PUBLIC, rounds, repeats)
    head(f"public rows, {CLASSES} classes, 5 clients", "CPU ms a round", "bytes a round", "ns a logit and client")
    for rows, (times, sent) in found.items():
        each = 1e6 * statistics.median(times) / (rows * CLASSES * SPEAKERS)
        print(f"| {rows:,} | {measured(times)} | {sent:,} | {each:.1f} |")


PARTS = {"clients": clients, "model": model, "public": public}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=PARTS)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--repeats", type=int, default=5)
    args = options.parse_args()
    torch.set_num_threads(1)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, one thread; CPU time, median and range of")
    print(f"{args.repeats} repeats in turn of {args.rounds} rounds")
    for name, measure in PARTS.items():
        if args.only in (None, name):
            measure(args.rounds, args.repeats)


if __name__ == "__main__":
    main()
