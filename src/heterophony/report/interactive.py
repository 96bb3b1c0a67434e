"""Figures as plotly reads them: plain dictionaries whose colours are names, which the page's script looks up by theme.

"@0" is a colour, "@0/15" the same with 15 % opacity, "@^s40" black or white on it, "@@diverging" a scale.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from heterophony.report import palette, ticks
from heterophony.report.figure import Curve, Dots, Heat, Number, Panel, Place


def panel(made: Panel) -> dict[str, Any]:
    """Return one plot: data and layout."""
    traces: list[dict[str, Any]] = []
    for mark in made.traces:
        if isinstance(mark, Curve):
            traces += _line(mark, made)
        elif isinstance(mark, Dots):
            traces.append(_dots(mark))
        else:
            traces.append(_heat(mark))
    return {"data": traces, "layout": _layout(made)}


def _line(mark: Curve, made: Panel) -> list[dict[str, Any]]:
    common = {"legendgroup": mark.name, "showlegend": False, "name": mark.name}
    found = []
    if mark.low is not None and mark.high is not None:
        x, y = _outline(mark.x, mark.low, mark.high)
        fill = {"fill": "toself", "fillcolor": f"@{mark.color}/16", "line": {"width": 0}, "hoverinfo": "skip"}
        found.append({**common, "type": "scatter", "mode": "lines", "x": x, "y": y, **fill})
    line = {"color": f"@{mark.color}", "width": mark.width, "dash": "dash" if mark.dash else "solid"}
    few = {} if mark.dots else {"maxdisplayed": 8}
    if not mark.name:
        line |= {"shape": "spline"} if len(mark.x) == 3 else {}
    found.append(
        {
            **common,
            "type": "scatter",
            "mode": "lines+markers" if mark.name else "lines",
            "x": list(mark.x),
            "y": list(mark.y),
            "line": line,
            "marker": {"size": 7, "symbol": palette.shape(mark.color)[0], "color": f"@{mark.color}", **few},
            **({"hovertemplate": _hover(made)} if mark.name else {"hoverinfo": "skip"}),
        }
    )
    return found


def _hover(made: Panel) -> str:
    """Return what a pointer shows. Curves that share their places are listed together; other points say where."""
    if made.aligned:
        return "%{y:.3~g}"
    where = "%{x:.3~s}B" if made.bytes else "%{x:.4~g}"
    return f"%{{fullData.name}}<br>{made.x}: {where}<br>{made.y}: %{{y:.3~g}}<extra></extra>"


def _outline(
    places: Sequence[Place], low: Sequence[Number], high: Sequence[Number]
) -> tuple[list[Place | None], list[Number]]:
    """Return the way around a band, or around each part of it where it has gaps."""
    x: list[Place | None] = []
    y: list[Number] = []
    here = zip(places, low, high, strict=True)
    for known, group in groupby(here, lambda at: at[1] is not None and at[2] is not None):
        if known:
            part = list(group)
            x += [*([None] if x else []), *(at[0] for at in part), *(at[0] for at in reversed(part))]
            y += [*([None] if y else []), *(at[2] for at in part), *(at[1] for at in reversed(part))]
    return x, y


def _names(mark: Dots) -> list[dict[str, Any]]:
    """Return what stands below dots."""
    look = {"font": {"size": 10, "color": "@ink"}, "bgcolor": "@paper", "borderpad": 1}
    return [
        {"x": name.x, "y": name.y, "text": html.escape(name.text), "showarrow": False, "yanchor": "top",
         "yshift": -name.size / 2, "textangle": -90 if name.upright else 0, **look}
        for name in mark.names
    ]  # fmt: skip


def _dots(mark: Dots) -> dict[str, Any]:
    colors = f"@{mark.color}" if isinstance(mark.color, str) else [f"@{name}" for name in mark.color]
    sizes = mark.size if isinstance(mark.size, int | float) else list(mark.size)
    marker: dict[str, Any] = {"color": colors, "size": sizes, "opacity": 0.85, "line": {"width": 0}}
    if isinstance(mark.color, str):
        marker["symbol"] = palette.shape(mark.color)[0]
    if mark.hollow:
        marker |= {"symbol": f"{marker.get('symbol', 'circle')}-open", "line": {"width": 1.2}, "opacity": 0.75}
    found = {"type": "scatter", "mode": "markers", "x": list(mark.x), "y": list(mark.y), "name": mark.name,
             "legendgroup": mark.name, "showlegend": False, "marker": marker}  # fmt: skip
    if mark.hover is not None:
        found |= {"hovertext": list(mark.hover), "hoverinfo": "text"}
    if mark.text is not None:
        names = [mark.color] * len(mark.x) if isinstance(mark.color, str) else mark.color
        font = {"size": 10, "color": [f"@^{name}" for name in names]}
        found |= {"mode": "markers+text", "text": list(mark.text), "textposition": "middle center", "textfont": font}
        marker["opacity"] = 1
    return found


def _heat(mark: Heat) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "heatmap",
        "z": [list(row) for row in mark.z],
        "x": list(mark.columns),
        "y": list(mark.rows),
        "zmin": mark.low,
        "zmax": mark.high,
        "colorscale": f"@@{mark.scale}",
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "%{y} on %{x}: %{z:.2f}<extra></extra>",
    }
    return found


def _numbers(mark: Heat) -> list[dict[str, Any]]:
    """Return what stands in the cells: black or white, whichever can be read there; a dash for no number."""

    def note(row: str, column: str, value: Number) -> dict[str, Any]:
        at = {"x": column, "y": row, "showarrow": False}
        if value is None:
            return {**at, "text": "-", "font": {"size": 11, "color": "@ink"}}
        shade = f"@^s{round(100 * (value - mark.low) / (mark.high - mark.low))}"
        return {**at, "text": f"{value:.{mark.digits}f}", "font": {"size": 11, "color": shade}}

    return [
        note(row, column, value)
        for row, values in zip(mark.rows, mark.z, strict=True)
        for column, value in zip(mark.columns, values, strict=True)
        if value is None or mark.digits is not None
    ]


def _layout(made: Panel) -> dict[str, Any]:
    """Return the axes, the margins, and all that is written into a plot."""
    x, y = _axes(made)
    together = _lines(made) and made.aligned and not made.bare
    return {
        "xaxis": x,
        "yaxis": y,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8} if made.bare else {"l": 46, "r": 10, "t": 8, "b": 40},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "color": "@ink"},
        "hovermode": "x unified" if together else "closest",
        "hoverlabel": {"bgcolor": "@paper", "bordercolor": "@rule", "font": {"color": "@ink", "size": 12}},
        "showlegend": False,
        "dragmode": False,
        "annotations": _annotations(made),
    }


def _axes(made: Panel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both axes of a plot, as what is drawn in it needs them."""
    x, y = _axis(made.x), _axis(made.y)
    x |= {"showgrid": False} | _bytes(made) | _category(made)
    y |= {"nticks": 6}
    if made.log:
        x["type"] = "log"
    for side, whole in ((x, made.counted), (y, made.whole)):
        side |= {"dtick": 1, "tick0": 0} if whole else {}
    if made.span is not None:
        y["range"] = list(made.span)
    if heats := _heats(made):
        _as_matrix(x, y, heats)
    if made.square:
        y |= {"scaleanchor": "x", "constrain": "domain"}
        x |= {"constrain": "domain"}
    if made.bare:
        for side in (x, y):
            side |= {"visible": False, "showgrid": False, "zeroline": False}
    return x, y


def _annotations(made: Panel) -> list[dict[str, Any]]:
    """Return all that is written into a plot: numbers in the cells of heat maps, and names beside dots."""
    notes = [note for heat in _heats(made) for note in _numbers(heat)]
    for trace in made.traces:
        if isinstance(trace, Dots):
            notes += _names(trace)
    return notes


def _heats(made: Panel) -> list[Heat]:
    """Return the heat maps of a plot."""
    return [trace for trace in made.traces if isinstance(trace, Heat)]


def _axis(title: str) -> dict[str, Any]:
    return {
        "gridcolor": "@rule",
        "linecolor": "@rule",
        "zerolinecolor": "@rule",
        "tickfont": {"color": "@faint", "size": 11},
        "title": {"font": {"color": "@faint", "size": 12}, "standoff": 8, "text": title},
        "automargin": True,
        "fixedrange": False,
    }


def _bytes(made: Panel) -> dict[str, Any]:
    """Return what an axis of bytes has: a logarithmic range with round labels."""
    if not made.bytes:
        return {}
    low, high = ticks.ends(made.places)
    places = ticks.ticks(low, high)
    labels = [ticks.label(place) for place in places]
    span = [math.log10(low), math.log10(high)]
    return {"range": span, "tickformat": "~s", "tickvals": places, "ticktext": labels, "ticksuffix": "B"}  # of a hover


def _category(made: Panel) -> dict[str, Any]:
    """Return what an axis of names has."""
    places = [place for trace in made.traces if not isinstance(trace, Heat) for place in trace.x]
    return {"type": "category"} if any(isinstance(place, str) for place in places) else {}


def _as_matrix(x: dict[str, Any], y: dict[str, Any], heats: Sequence[Heat]) -> None:
    """Change the axes to those of a matrix: names at both sides, the first row at the top, no lines."""
    few = max(len(heat.columns) for heat in heats) <= 12
    x |= {"type": "category", "side": "bottom", "tickangle": 0 if few else -45}
    y |= {"type": "category", "autorange": "reversed", "showgrid": False}
    for side in (x, y):
        side |= {"ticks": "", "showline": False}
    y.pop("nticks")


def _lines(made: Panel) -> bool:
    return all(isinstance(mark, Curve) for mark in made.traces)
