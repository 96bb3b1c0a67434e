"""Windows of motion sensors of thirty made-up people, a network and a loss of one's own, as a world for `--on`.

The rule of the data: activity k swings k + 1 times in a window of 64 steps. Each person has a speed and a strength.

    heterophony run ditto --on mine:world --out runs/ditto
    heterophony compare solo fedavg mine:careful --on mine:world --seeds 2
"""

import torch
from torch import nn

from heterophony import Data, Participants
from heterophony.methods import FedAvg

ACTIVITIES = ("lie", "walk", "climb", "run")


def windows(person, rows):
    """Return windows (rows, channels, steps) of one person, and what it did in each."""
    draw = torch.Generator().manual_seed(person)
    speed, strength = 0.8 + 0.4 * torch.rand(1, generator=draw), 0.5 + 1.5 * torch.rand(1, generator=draw)
    activity = torch.randint(len(ACTIVITIES), (rows,), generator=draw)
    phase = torch.arange(3)[:, None] + 0.5 * torch.rand(rows, 1, 1, generator=draw)
    swing = torch.sin((activity[:, None, None] + 1) * speed * torch.linspace(0, 2 * torch.pi, 64) + phase)
    noise = 0.5 * torch.randn(swing.shape, generator=draw)
    return Data(x=strength * swing + noise, y=activity, classes=len(ACTIVITIES))


def net(shape, classes):
    """Return a network for windows of this shape."""
    channels, _ = shape
    return nn.Sequential(
        nn.Conv1d(channels, 16, 7, padding=3),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def world():
    """Return who takes part. Each person has 40 windows to learn from, 10 to choose options on, 20 to be tested on."""
    data = {}
    for person in range(30):
        rows, order = windows(person, 70), torch.arange(70)
        views = {"train": order[:40], "validation": order[40:50], "test": order[50:]}
        data[f"p{person}"] = {name: rows.take(which) for name, which in views.items()}
    return Participants(data=data, models=net)


def focal(nets, batch):
    """Return the focal loss: a window counts less if the network is sure of it already."""
    loss = nn.functional.cross_entropy(nets["model"](batch.x), batch.y, reduction="none")
    return ((1 - torch.exp(-loss)) ** 2 * loss).mean()


def careful(**fedavg) -> FedAvg:
    """FedAvg with the focal loss."""
    return FedAvg(loss=focal, **fedavg)
