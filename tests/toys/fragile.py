"""Federations that kill the process they are computed in, for real, and tell whether they have."""

import os
import signal
from dataclasses import replace
from pathlib import Path

from torch import nn

from heterophony.methods import FedAvg
from toys.federations import B16, weights_star


class Fragile(nn.Module):
    """A network that kills its process in its third training step, unless the file `flag` says that it has."""

    def __init__(self, flag: Path, always: bool = False, hidden: int = 12) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 4))
        self.flag, self.always, self.steps = flag, always, 0

    def forward(self, x):
        self.steps += self.training
        if self.steps == 3 and (self.always or not self.flag.exists()):
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.net(x)


def fragile_star(flag: Path, hidden: int = 12, always: bool = False, **options):
    """Client c1 is fragile, the others are not: they have the same network, and no flag to ask for."""
    sound = weights_star(FedAvg(local=B16), lambda: Fragile(Path("/"), hidden=hidden), **options)
    return replace(sound, models={**sound.models, "c1": {"model": lambda: Fragile(flag, always, hidden)}})
