"""Three organisations with texts of their own, and a small language model over bytes: what their files name."""

from __future__ import annotations

import torch
from torch import nn

from heterophony import Data, Federation, Sequence
from heterophony.base.seeds import generator
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg
from heterophony.models.byte_lm import ByteLM
from heterophony.parts import NodeOptimiser, Training

NAMES = ("north", "south", "east")
LENGTH, ROUNDS = 16, 3
LOCAL = {"steps": 40, "batch": 8, "lr": 3e-3, "optimiser": "adamw", "weight_decay": 0.1, "keep": True}
OUTER = {"kind": "nesterov", "rate": 0.7, "beta1": 0.9}


def network() -> nn.Module:
    """A byte language model of two layers."""
    return ByteLM(in_channels=1, size=LENGTH, classes=256, width=16, depth=2)


def text(name: str, rows: int = 48) -> Data:
    """Rows of a language in which each letter follows from the one before, by a rule of its own."""
    step = 1 + NAMES.index(name)
    start = torch.randint(0, 26, (rows, 1), generator=generator("letters", name))
    letters = 97 + (start + step * torch.arange(LENGTH + 1)) % 26
    return Data(x=letters[:, :-1], y=letters[:, 1:], task=Sequence(256))


def rows(name: str) -> dict[str, Data]:
    return {"train": text(name)}


def tests() -> dict[str, Data]:
    return {name: text(name, 12) for name in NAMES}


def federation() -> Federation:
    """The same in one process."""
    method = FedAvg(local=Training(**LOCAL), server=NodeOptimiser(**OUTER))
    models = {role: {"model": network} for role in ("server", "client")}
    data = {name: rows(name) for name in NAMES}
    return Federation(method, star(NAMES), models, data, tests(), homes={n: n for n in NAMES}, seed=3)
