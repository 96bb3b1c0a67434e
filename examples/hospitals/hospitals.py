"""What three hospitals bring: a network that all agree on, and for each its own patients, made up by a stated rule."""

import torch
from torch import nn

from heterophony import Data

HOSPITALS = ("north", "south", "east")


def patients(name, rows=200):
    """Return eight measurements of each patient, and whether the patient is ill; hospitals differ in the mean."""
    place = HOSPITALS.index(name)
    draw = torch.Generator().manual_seed(place)
    x = torch.randn(rows, 8, generator=draw) + 0.5 * place
    ill = (x[:, :3].sum(1) - 1.5 * place + 0.3 * torch.randn(rows, generator=draw) > 0).long()
    cut = int(0.8 * rows)
    return {"train": Data(x=x[:cut], y=ill[:cut], classes=2), "test": Data(x=x[cut:], y=ill[cut:], classes=2)}


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
