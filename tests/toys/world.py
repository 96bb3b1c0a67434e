"""A toy world: points in eight dimensions, labelled by one linear rule, shifted a little from node to node."""

from collections.abc import Callable

import torch
from torch import nn

from heterophony import Data
from heterophony.base.seeds import generator
from heterophony.models.blocks import Halves

RULE = torch.randn(8, 4, generator=generator("toy rule"))


def points(name: str, rows: int = 48, shift: float = 0.0) -> Data:
    x = torch.randn(rows, 8, generator=generator("toy points", name)) + shift
    return Data(x=x, y=(x @ RULE).argmax(-1), classes=4)


def net(hidden: int = 12) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 4))


def halves(hidden: int = 12, features: int = 6) -> Callable[[], nn.Module]:
    """A body and a head; the features are as many whatever is hidden."""
    return lambda: Halves(nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, features)), features, 4)


def wide(hidden: int) -> Callable[[], nn.Module]:
    """The same with features as many as are hidden."""
    return halves(hidden, hidden)


def unbiased(hidden: int) -> Callable[[], nn.Module]:
    """The same as `halves`, with a head that has no bias."""

    def build() -> nn.Module:
        made = halves(hidden)()
        made.head = nn.Linear(6, 4, bias=False)
        return made

    return build


def certain() -> nn.Module:
    """With BatchNorm and without dropout, whose draws depend on what else a node has done."""
    return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))


def normed() -> nn.Module:
    """With BatchNorm (float and integer buffers) and dropout (torch's own generator)."""
    return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 4))


PUBLIC = points("public", 32)
TESTS = {"here": points("test"), "there": points("far test", shift=0.5)}


def private(nodes: list[str]) -> dict[str, dict[str, Data]]:
    """Private training points of unequal number, and the public ones, dealt round, for each node."""
    views = {n: {"train": points(n, 40 + 8 * i, shift=0.2 * i), "public": PUBLIC} for i, n in enumerate(nodes)}
    mine = {n: Data(row=torch.arange(i, len(PUBLIC), len(nodes))) for i, n in enumerate(nodes)}
    return {n: {**own, "mine": mine[n], "all": lambda own=own: joined(*own.values())} for n, own in views.items()}


def joined(*parts: Data) -> Data:
    return Data(classes=4, x=torch.cat([p.x for p in parts]), y=torch.cat([p.y for p in parts]))
