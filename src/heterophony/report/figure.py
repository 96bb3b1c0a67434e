"""A figure as plain values, which a page draws with plotly and a paper with matplotlib.

Colours are names: "0", "1", ... are those of methods, "k0", ... those of classes, "ink" and "faint" the page's own,
"s40" is a place on the sequential scale. What they look like is the renderers' business (`palette.py`), so that light,
dark and print are the same figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Number = float | None
Place = float | str
PHONE, LETTER = 330, 6  # pixels across, of a panel and of a letter


@dataclass(frozen=True)
class Curve:
    """A curve, with the band of its seeds where there are several."""

    x: Sequence[Place]
    y: Sequence[Number]
    name: str
    color: str = "0"
    low: Sequence[Number] | None = None
    high: Sequence[Number] | None = None
    dash: bool = False
    dots: bool = False
    width: float = 2.0


@dataclass(frozen=True)
class Name:
    """What is written below a dot of that size."""

    text: str
    x: Place
    y: Place
    size: float
    upright: bool


@dataclass(frozen=True)
class Dots:
    """Points; one colour and size for all, or one each. `text` is written in them, `below` under them, `hover` on
    demand."""

    x: Sequence[Place]
    y: Sequence[Place]
    name: str = ""
    color: str | Sequence[str] = "0"
    size: float | Sequence[float] = 6.0  # across, in pixels
    text: Sequence[str] | None = None
    below: Sequence[str] | None = None
    hover: Sequence[str] | None = None
    hollow: bool = False

    @property
    def names(self) -> list[Name]:
        """What stands below; upright in the lowest row where names would run into each other on a phone."""
        if self.below is None:
            return []
        sizes = [float(self.size)] * len(self.x) if isinstance(self.size, int | float) else self.size
        lowest = min(self.y)
        crowd = sum(len(name) + 1 for name, y in zip(self.below, self.y, strict=True) if y == lowest)
        places = zip(self.below, self.x, self.y, sizes, strict=True)
        return [Name(*at, upright=at[2] == lowest and crowd * LETTER > PHONE) for at in places if at[0]]


@dataclass(frozen=True)
class Heat:
    """A matrix as colours, its first row at the top; with `digits`, the numbers stand in the cells."""

    z: Sequence[Sequence[Number]]
    rows: Sequence[str]
    columns: Sequence[str]
    scale: Literal["sequential", "diverging"] = "sequential"
    low: float = 0.0
    high: float = 100.0
    digits: int | None = None


Trace = Curve | Dots | Heat


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    traces: Sequence[Trace]
    title: str = ""
    x: str = ""
    y: str = ""
    log: bool = False  # the x axis
    bare: bool = False  # no axes at all
    square: bool = False
    span: tuple[float, float] | None = None  # of the y axis
    bytes: bool = False  # the x axis counts bytes, and is logarithmic
    whole: bool = False  # the y axis has whole numbers

    @property
    def places(self) -> list[float]:
        """All places on the x axis that are numbers."""
        return [x for mark in self.traces if not isinstance(mark, Heat) for x in mark.x if not isinstance(x, str)]

    @property
    def aligned(self) -> bool:
        """Whether all lines have the same places on the x axis, so that they can be read one below the other."""
        return len({tuple(mark.x) for mark in self.traces if isinstance(mark, Curve)}) == 1

    @property
    def counted(self) -> bool:
        """Whether the x axis counts a few rounds, between which there is nothing to mark."""
        xs = [x for mark in self.traces if isinstance(mark, Curve) for x in mark.x]
        whole = [x for x in xs if isinstance(x, int)]
        if self.log or self.bare or not xs or len(whole) < len(xs):
            return False
        return max(whole) - min(whole) < 10


@dataclass(frozen=True)
class Figure:
    """Panels that belong together, what they show in one sentence, and the same for who cannot see them."""

    name: str  # of its files, and where a link leads
    title: str
    caption: str
    alt: str
    panels: Sequence[Panel]
    legend: Sequence[tuple[str, str]] = field(default_factory=tuple)  # name and colour
    sizes: Sequence[tuple[str, float]] = field(default_factory=tuple)  # what dots so many pixels across stand for
    shapes: Sequence[tuple[str, bool]] = field(default_factory=tuple)  # what dots, and what rings (True), stand for
    width: Literal["wide", "middle", "small"] = "middle"  # of a panel

    @property
    def scaled(self) -> Heat | None:
        """A map of colours without numbers in it: a scale must say what they mean."""
        heats = [mark for panel in self.panels for mark in panel.traces if isinstance(mark, Heat)]
        return next((heat for heat in heats if heat.digits is None), None)
