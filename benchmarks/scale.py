"""How the CPU time of a round grows: with the number of clients, with the model, with the public set.

    python benchmarks/scale.py [--only clients|model|public] [--rounds 10] [--repeats 5]
    python benchmarks/scale.py --only memory [--sizes 10000 100000] [--cohort 1000] [--rounds 5] [--device cuda]

- clients: FedAvg with a cohort of 10, so that all sizes do the same work and idle clients should cost nothing. A node
  is built when it is first needed, so a large federation keeps meeting new ones for a while: `first visits` includes
  that, `steady` is measured with all nodes built.
- model: FedAvg of 10 clients that train one step on two rows, so that what is done with every parameter shows: the
  messages (copied, sized, checked, loaded), their mean, and one step's gradients.
- public: FedMD of 5 clients with a linear network and one step of each training, so that the exchange shows:
  predictions on all public rows, the messages, their mean.

- memory (only when it is asked for): LG-FedAvg with networks of five architectures, so that each participant has about
  4 KB that is its own and stays from round to round. Each size runs in a process of its own, into a run folder, with a
  snapshot after every wave of events. `--kill` ends one more process of each size with SIGKILL in the third round,
  resumes the run, and compares both digests. `--touch` begins with a state of everyone in the store, as if all had
  taken part before.

The sizes run in turn. A row's nanoseconds fall to a constant where the cost is linear. They rise again where tensors
exceed 32 MB: glibc takes fresh pages for each of those and gives them back, which a plain loop pays as well. With
`MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8000000000` in the environment it keeps them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heterophony import Compute, Data, Federation
from heterophony.base.seeds import generator
from heterophony.engines import Engine, local
from heterophony.kernel.networks import Model
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, FedMD, lg_fedavg
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from heterophony.runs.run import Run

CLIENTS, COHORT = (10, 100, 1_000, 10_000), 10
WIDTHS, TRAINED = (86, 300, 980, 3_140), 10  # 1e4 to 1e7 parameters
PUBLIC, SPEAKERS = (100, 1_000, 10_000, 100_000), 5
FEATURES, CLASSES = 20, 10
HIDDEN, WIDTH = ((26,), (27,), (17, 17), (14, 20), (14, 14, 14)), 16  # five architectures with about 1,000 numbers each


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


class Own(nn.Module):
    """A body of one's own, of about a thousand numbers, and a head that is averaged."""

    def __init__(self, *hidden: int) -> None:
        super().__init__()
        widths, layers = (FEATURES, *hidden, WIDTH), []
        for width, following in itertools.pairwise(widths):
            layers += [nn.Linear(width, following), nn.ReLU()]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x))
        return found


def remembering(clients: int, cohort: int, compute: Compute) -> Federation:
    """A federation in which every participant keeps a body of its own from round to round."""
    share = Cohort(fraction=cohort / clients)
    method = lg_fedavg(cohort=share, local=Training(steps=2, batch=16))
    topology = star(clients)
    kinds = [{"model": Model(partial(Own, *hidden), share=("head",))} for hidden in HIDDEN]
    models: dict[str, dict[str, Model]] = {"server": kinds[0]}
    for place, client in enumerate(topology.static["server"].children):
        models[client] = kinds[place % len(kinds)]
    # One table of rows for all, so that what is measured is what each participant keeps.
    data, tests = {"client": {"train": table(32)}}, {"all": table(20)}
    return Federation(method, topology, models, data, tests, compute=compute)


def resident() -> float:
    """The most memory that this process had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def give_everyone_a_state(engine: Engine) -> None:
    """Write a row for every client that has none, as if it had taken part: the first state of its architecture."""
    clients = [name for name in engine.federation.topology.static["server"].children if name not in engine.boxes]
    kinds = {id(engine.federation.models[client]): client for client in reversed(clients)}
    rows: dict[int, bytes] = {}
    for kind, client in kinds.items():
        engine.box(client)
        rows[kind] = engine.encode_node(client)
        engine.host.release(client)  # type: ignore[attr-defined]
        del engine.boxes[client]
        engine.dirty.discard(client)
    for client in clients:
        engine.idle.put(client, rows[id(engine.federation.models[client])], awake=False)


def remember(args: argparse.Namespace, clients: int, cohort: int, folder: Path, say: bool) -> None:
    """Run in this process, and print what it took; with `say`, also a line when a round has begun."""
    times: list[tuple[float, float]] = []
    rounds, device = args.rounds, args.device

    def tick(engine: Engine) -> None:
        if not times and args.touch and len(engine.idle.store) < clients // 2:  # killed before they were in a snapshot
            give_everyone_a_state(engine)
        done = engine.boxes["server"].round
        if done >= len(times):
            times.append((time.perf_counter(), time.process_time()))
            print(f"round {done} after {times[-1][0] - began:.1f} s, {resident():,.0f} MB", file=sys.stderr, flush=True)
            if say:
                print("round", done, flush=True)

    began, spent = time.perf_counter(), time.process_time()
    federation = remembering(clients, cohort, Compute(device=device, executor=args.executor))
    spec = federation.identity()
    known = (folder / "spec.json").exists()
    every = {"cadence": args.cadence}
    with Run.open(folder, spec, **every) if known else Run.create(folder, spec, rounds, **every) as run:
        built = time.process_time() - spent
        engine = local(federation, record=run, progress=tick)
        result = engine.run(rounds)
    found = {
        "built": built,
        "seconds": [b[0] - a[0] for a, b in itertools.pairwise(times)],
        "cpu": [b[1] - a[1] for a, b in itertools.pairwise(times)],
        "memory": resident(),
        "touched": len(result.nodes),
        "wall": time.perf_counter() - began,
    }
    if device != "cpu":
        found["device"] = torch.cuda.max_memory_allocated() / 2**20
    found["folder"] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    found["digest"] = result.digest if args.kill else ""  # it reads the state of everyone
    print(json.dumps(found), flush=True)


def memory(args: argparse.Namespace) -> None:
    """One process for each size; with `--kill`, two more of which the first ends in its third round."""
    head("participants", "touched", "building, s", "s a round", "CPU s a round", "memory, MB", "folder, MB", "killed")
    for size in args.sizes:
        with tempfile.TemporaryDirectory(dir=args.folder) as place:
            run = remembered(args, size, Path(place) / "whole")
            same = "-"
            if args.kill:
                remembered(args, size, Path(place) / "killed", kill=True)
                again = remembered(args, size, Path(place) / "killed")
                same = "same digest" if again["digest"] == run["digest"] else "ANOTHER DIGEST"
                same += f", {again['memory']:,.0f} MB"
        seconds, cpu = statistics.median(run["seconds"]), statistics.median(run["cpu"])
        cells = f"{run['built']:.1f} | {seconds:.2f} | {cpu:.2f} | {run['memory']:,.0f} | {run['folder']:,.0f}"
        on = f" (device: {run['device']:,.0f} MB)" if "device" in run else ""
        print(f"| {size:,} | {run['touched']:,} | {cells} | {same} |{on}", flush=True)


def remembered(args: argparse.Namespace, size: int, folder: Path, kill: bool = False) -> dict[str, Any]:
    """Run one size in a process of its own; what it took."""
    command = [sys.executable, __file__, "--rounds", str(args.rounds), "--device", args.device]
    command += ["--executor", args.executor, "--cadence", str(args.cadence), *["--touch"] * args.touch]
    command += ["--kill"] * args.kill
    command += ["--one", str(size), str(min(args.cohort, size)), str(folder), str(int(kill))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        last = ""
        for last in child.stdout:
            if kill and last == "round 2\n":  # the third: rounds are counted from nought
                time.sleep(args.later)
                child.send_signal(signal.SIGKILL)
    if kill:
        return {}
    if child.returncode:
        raise SystemExit(f"{size} participants: exit {child.returncode}")
    found: dict[str, Any] = json.loads(last)
    return found


PARTS = {"clients": clients, "model": model, "public": public}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=[*PARTS, "memory"])
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--repeats", type=int, default=5)
    of_memory = options.add_argument_group("memory")
    of_memory.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    of_memory.add_argument("--cohort", type=int, default=1_000)
    of_memory.add_argument("--device", default="cpu")
    of_memory.add_argument("--folder", type=Path, help="where run folders lie while they are needed")
    of_memory.add_argument("--kill", action="store_true")
    of_memory.add_argument("--later", type=float, default=0.5, help="seconds of the third round before the kill")
    of_memory.add_argument("--executor", default="auto")
    of_memory.add_argument("--cadence", type=float, default=0.0, help="seconds between snapshots; 0: after every wave")
    of_memory.add_argument("--touch", action="store_true")
    options.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    args = options.parse_args()
    torch.set_num_threads(1)
    if args.one:
        size, cohort, folder, say = args.one
        remember(args, int(size), int(cohort), Path(folder), say == "1")
        return
    if args.only == "memory":
        print(
            f"{date.today()}, {platform.machine()}, torch {torch.__version__}, {os.cpu_count()} cores, {args.device};"
        )
        saved = f"every {args.cadence:g} s" if args.cadence else "after every wave of events"
        print(f"{args.cohort:,} participants a round, {args.rounds} rounds, a snapshot {saved}, seed 0")
        memory(args)
        return
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, one thread; CPU time, median and range of")
    print(f"{args.repeats} repeats in turn of {args.rounds} rounds")
    for name, measure in PARTS.items():
        if args.only in (None, name):
            measure(args.rounds, args.repeats)


if __name__ == "__main__":
    main()
