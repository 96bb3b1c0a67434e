"""The same figures for papers: PNG, SVG and PDF by matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from heterophony.report import palette, ticks
from heterophony.report.figure import Curve, Dots, Figure, Heat, Panel

KINDS = ("png", "svg", "pdf")
WIDTH = {"wide": 7.0, "middle": 3.4, "small": 2.3}  # inches of a panel
POINTS = 0.72  # of a pixel
HEIGHT = {"wide": 2.8, "middle": 2.5, "small": 2.4}


def save(figure: Figure, folder: Path, prefix: str = "") -> list[Path]:
    """Write a figure into one file a kind. This needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing

    columns = min(len(figure.panels), {"wide": 1, "middle": 3, "small": 4}[figure.width])
    rows = math.ceil(len(figure.panels) / columns)
    made = Drawing(figsize=(WIDTH[figure.width] * columns, HEIGHT[figure.width] * rows + 0.35), layout="constrained")
    FigureCanvasAgg(made)
    axes = [made.add_subplot(rows, columns, place + 1) for place in range(len(figure.panels))]
    for axis, panel in zip(axes, figure.panels, strict=True):
        _draw(axis, panel)
    if figure.scaled is not None:
        bar = made.colorbar(axes[0].images[0], ax=axes, shrink=0.7, aspect=25, pad=0.01)
        bar.ax.tick_params(labelsize=7, length=2)
        bar.outline.set_visible(False)
    if handles := _handles(figure):
        across = min(len(handles), max(1, int(2.2 * columns if figure.width != "wide" else 8)))
        made.legend(
            handles=_by_row(handles, across), loc="outside lower center", ncols=across, frameon=False, fontsize=8
        )
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{prefix}{figure.name}.{kind}" for kind in KINDS]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None} if path.suffix == ".pdf" else {}
        made.savefig(path, dpi=200, metadata=metadata)
    return paths


def _handles(figure: Figure) -> list[Any]:
    """Return what the legend shows: the colour and shape of each name, and dots of some sizes."""
    from matplotlib.lines import Line2D

    faint: dict[str, Any] = {"color": "none", "marker": "o", "mew": 0, "mfc": palette.color("faint")}
    dots = [Line2D([], [], ms=POINTS * pixels, label=name, **faint) for name, pixels in figure.sizes]
    for name, hollow in figure.shapes:
        ring = {"mfc": "none", "mew": 0.8, "mec": palette.color("faint")} if hollow else {}
        dots.append(Line2D([], [], ms=4, label=name, **{**faint, **ring}))
    look: dict[str, Any] = {"lw": 1.5, "ms": 5}
    named = [
        Line2D([], [], color=palette.color(color), marker=palette.shape(color)[1], label=name, **look)
        for name, color in figure.legend
    ]
    return named + dots


def _by_row(handles: list[Any], across: int) -> list[Any]:
    """Return handles in such an order that a legend which fills its columns one by one reads row by row."""
    return [handle for column in range(across) for handle in handles[column::across]]


def _draw(axis: Any, panel: Panel) -> None:
    axis.set_title(panel.title, fontsize=9, loc="left")
    axis.set_xlabel(panel.x, fontsize=8)
    axis.set_ylabel(panel.y, fontsize=8)
    axis.tick_params(labelsize=7, length=2)
    axis.spines[["top", "right"]].set_visible(False)
    if panel.log:
        axis.set_xscale("log")
    for mark in panel.traces:
        _mark(axis, mark)
    if panel.bytes:
        _ticks_of_bytes(axis, panel)
    for side, whole in ((axis.xaxis, panel.counted), (axis.yaxis, panel.whole)):
        if whole:
            from matplotlib.ticker import MultipleLocator

            side.set_major_locator(MultipleLocator(1))
    if panel.span is not None:
        axis.set_ylim(*panel.span)
    if panel.square and not any(isinstance(mark, Heat) for mark in panel.traces):
        axis.set_aspect("equal", adjustable="datalim")
    if panel.bare:
        axis.set_axis_off()
        axis.margins(0.1)


def _mark(axis: Any, mark: Curve | Dots | Heat) -> None:
    if isinstance(mark, Curve):
        _line(axis, mark)
    elif isinstance(mark, Dots):
        _dots(axis, mark)
    else:
        _heat(axis, mark)


def _ticks_of_bytes(axis: Any, panel: Panel) -> None:
    """Let an axis reach over all amounts of bytes, and name them by kB, MB and so on."""
    from matplotlib.ticker import NullFormatter

    low, high = ticks.ends(panel.places)
    places = ticks.ticks(low, high)
    axis.set_xlim(low, high)
    axis.set_xticks(places, [ticks.label(place) for place in places])
    axis.xaxis.set_minor_formatter(NullFormatter())  # it would write over them where there are few decades


def _numbers(values: Any) -> list[Any]:
    return [math.nan if value is None else value for value in values]


def _line(axis: Any, mark: Curve) -> None:
    color = palette.color(mark.color)
    if mark.low is not None and mark.high is not None:
        axis.fill_between(mark.x, _numbers(mark.low), _numbers(mark.high), color=color, alpha=0.15, lw=0)
    style = "--" if mark.dash else "-"
    shape = {
        "marker": palette.shape(mark.color)[1],
        "ms": 3.5,
        "markevery": 1 if mark.dots else max(1, len(mark.x) // 8),
    }
    look = {"color": color, "lw": 0.7 * mark.width, **(shape if mark.name else {})}
    axis.plot(mark.x, _numbers(mark.y), style, zorder=2 if mark.name else 1, **look)


def _dots(axis: Any, mark: Dots) -> None:
    names = [mark.color] * len(mark.x) if isinstance(mark.color, str) else list(mark.color)
    colors = [palette.color(name) for name in names]
    across = [mark.size] * len(mark.x) if isinstance(mark.size, int | float) else list(mark.size)
    points = POINTS if mark.text is None else 0.55  # a tree is narrower on paper
    area = [(points * float(pixels)) ** 2 for pixels in across]
    faces = "none" if mark.hollow else colors
    shape = palette.shape(mark.color)[1] if isinstance(mark.color, str) else "o"
    axis.scatter(
        mark.x,
        mark.y,
        s=area,
        marker=shape,
        c=None,
        facecolors=faces,
        edgecolors=colors,
        linewidths=0.6,
        alpha=0.9,
        zorder=3,
    )
    for x, y, text, shade in zip(mark.x, mark.y, mark.text or (), colors, strict=False):
        axis.text(x, y, text, ha="center", va="center", fontsize=6, color=palette.contrast(shade), zorder=4)
    for name in mark.names:
        axis.annotate(name.text, (name.x, name.y), (0, -points * name.size / 2 - 1), textcoords="offset points",
                      ha="center", va="top", fontsize=5.5, rotation=90 if name.upright else 0,
                      color=palette.color("ink"), zorder=2.5,
                      bbox={"fc": palette.color("paper"), "ec": "none", "pad": 0.6})  # fmt: skip


def _heat(axis: Any, mark: Heat) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    stops = palette.SCALES[mark.scale]["light"]
    colors = LinearSegmentedColormap.from_list(mark.scale, stops)
    axis.imshow([_numbers(row) for row in mark.z], cmap=colors, vmin=mark.low, vmax=mark.high, aspect="equal")
    few = max(len(mark.rows), len(mark.columns)) <= 12
    axis.set_xticks(range(len(mark.columns)), mark.columns, rotation=0 if few else 60)
    axis.set_yticks(range(len(mark.rows)), mark.rows)
    axis.spines[:].set_visible(False)
    for i, row in enumerate(mark.z):
        for j, value in enumerate(row):
            if value is None:
                axis.text(j, i, "-", ha="center", va="center", fontsize=7)
            elif mark.digits is not None:
                shade = palette.between(stops, (value - mark.low) / (mark.high - mark.low))
                axis.text(j, i, f"{value:.{mark.digits}f}", ha="center", va="center", fontsize=7,
                          color=palette.contrast(shade))  # fmt: skip
