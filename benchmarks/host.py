"""What the host does in a small round: pfl-research's round (50 of 1,000 clients) with training replaced by nothing.

    python benchmarks/host.py [--how alone stacked] [--rounds 200] [--profile]

Prints microseconds of CPU time a client and round on one thread: of all rounds the best and the median.
On a machine that others use, two versions are compared by the best: it is hardly disturbed.
The network has the layers of pfl's, only narrow, so that copies of its weights cost little beside Python.

`alone`: each fit is answered at once. What is left is the engine: mail, checks, copies, the mean.
`stacked`: fits are also grouped, copied into one stack and out again, as on a GPU. Only the steps are left out.

The digest is that of the server's network in the end: two versions of the code can be compared by it.
`--profile` prints what the time goes to, instead.
"""

from __future__ import annotations

import argparse
import cProfile
import platform
import pstats
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from heterophony import Compute, Data, Federation
from heterophony.base.seeds import generator
from heterophony.compute.batched import Batched, Seated
from heterophony.compute.eager import Eager, Job
from heterophony.engines import Engine
from heterophony.engines.local_host import LocalHost
from heterophony.kernel.topology import star
from heterophony.kernel.work import Fit, Fitted
from heterophony.methods import FedAvg
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training

USERS, COHORT, ROWS, WARM = 1000, 50, 50, 90  # in 90 rounds nearly all clients are met


class NarrowCnn(nn.Sequential):
    """The layers of pfl-research's CIFAR-10 network, with few channels."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
            nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 10),
        )  # fmt: skip


class Alone(Eager):
    """Answers each fit at once, without a step."""

    def one(self, job: Job) -> Any:
        if not isinstance(job.work, Fit):
            return super().one(job)
        with torch.no_grad():  # one small tensor moves, so that digests tell whose updates were merged, and when
            job.node.models["model"][0].bias.add_((int(job.node.id[1:]) + job.node.round) % 7)
        return Fitted({}, 5)


class Stacked(Batched):
    """Puts fits into a stack and takes them out again, without a step."""

    def _replay(self, running: Sequence[Seated]) -> None:
        for each in running:
            for own in each.captured.parameters.values():
                for parameter in own.values():
                    seats = parameter.detach().view(len(each.jobs), -1)
                    seats.add_(each.captured.order[:, :1] / ROWS)


def federation(users: int = USERS) -> Federation:
    draw = generator("benchmark", "host")
    clients = [f"c{i}" for i in range(users)]
    x, y = torch.randn(ROWS, 3, 8, 8, generator=draw), torch.randint(10, (ROWS,), generator=draw)
    data = {client: {"train": Data(x=x, y=y, classes=10)} for client in clients}
    method = FedAvg(cohort=Cohort(fraction=COHORT / users), local=Training(epochs=1, batch=10, lr=0.1))
    models = {role: {"model": NarrowCnn} for role in ("server", "client")}
    return Federation(method, star(clients), models, data, compute=Compute(), evaluate=10_000)


class Meter:
    """Takes the CPU time of rounds after some for warming up, then stops the run."""

    def __init__(self, rounds: int, profile: cProfile.Profile | None) -> None:
        self.marks, self.profile = list(range(WARM, WARM + rounds + 1)), profile
        self.times: list[float] = []

    def __call__(self, engine: Engine) -> None:
        if engine.boxes["server"].round < self.marks[len(self.times)]:
            return
        self.times.append(time.process_time())
        if len(self.times) == len(self.marks):
            engine.stop = True
        if self.profile is not None:
            self.profile.disable() if engine.stop else self.profile.enable()


def measure(how: str, rounds: int, profile: cProfile.Profile | None = None) -> tuple[list[float], str]:
    """Return microseconds a client and round in each round, and the digest in the end."""
    made = federation()
    executor = Alone() if how == "alone" else Stacked(executor="stacked")
    meter = Meter(rounds, profile)
    host = LocalHost(made, executor)
    engine = Engine(made, host, progress=meter)
    for node in made.topology.roles:  # built, as after some rounds
        host.node(node)
    with suppress(KeyboardInterrupt):
        engine.run(10_000)
    if engine.ledger.incidents:  # a round in which mail is refused is no round
        raise SystemExit(f"{engine.ledger.incidents[0]}")
    blocks = [1e6 * (b - a) / COHORT for a, b in pairwise(meter.times)]
    return blocks, host.digest("server").hex()[:12]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--how", nargs="+", default=["alone", "stacked"], choices=["alone", "stacked"])
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--profile", action="store_true")
    args = options.parse_args()
    torch.set_num_threads(1)
    for how in args.how:
        if args.profile:
            profile = cProfile.Profile()
            measure(how, args.rounds, profile)
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
            continue
        times, digest = measure(how, args.rounds)
        print(f"{how}: {min(times):.0f} at best, {statistics.median(times):.0f} microseconds a client, {digest}")
    print(f"{platform.machine()}, one thread, seed 0, torch {torch.__version__}, {date.today()}")


if __name__ == "__main__":
    main()
