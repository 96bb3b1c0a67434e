"""Who gains and who loses: every participant's figure on its own data, against another model or another run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

ByParticipant = dict[str, float | None]


def own(
    table: Iterable[Mapping[str, Any]], homes: Mapping[str, str], product: str, quantity: str = "accuracy"
) -> ByParticipant:
    """Return each participant's figure on its own data: its private test, or else its domain's test set.

    An undefined figure is None.

    Of every model its last evaluation counts; whoever has none is left out. Where no participant has the product, but
    one other node (a server) does, all use that one.
    """
    last: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for row in table:
        if row["product"] == product and row["quantity"] == quantity:
            last[row["node"], row["set"], row["split"]] = row
    nodes = {node for node, _, _ in last}
    shared = next(iter(nodes)) if len(nodes) == 1 and nodes.isdisjoint(homes) else None
    found: ByParticipant = {}
    for participant, home in homes.items():
        model = shared or participant
        test = last.get((model, participant, "private-test")) or last.get((model, home, "test"))
        if test is not None:
            found[participant] = test["sum"] / test["n"] if test["n"] and test["sum"] is not None else None
    return found


def gains(mine: ByParticipant, theirs: ByParticipant, higher: bool = True) -> dict[str, Any]:
    """Return both figures and the gain of every participant that has both, who gains, who loses, and the worst.

    `higher` is whether more is better, as of an accuracy; a gain is always an improvement. Who has a figure there but
    none here, as its model has diverged, loses, by nobody knows how much.
    """
    sign = 1 if higher else -1
    diverged = [name for name, a in mine.items() if a is None and theirs.get(name) is not None]
    rows = {
        name: {"own": a, "against": b, "gain": sign * (a - b)}
        for name, a in mine.items()
        if a is not None and (b := theirs.get(name)) is not None
    }
    # Nobody is worse off than with a model that gives no numbers.
    depth = {name: -math.inf if value is None else sign * value for name, value in mine.items()}
    worst = min(depth, key=depth.__getitem__, default=None)
    return {
        "participants": rows,
        "gain": [name for name, row in rows.items() if row["gain"] > 0],
        "lose": [*(name for name, row in rows.items() if row["gain"] < 0), *diverged],
        "diverged": diverged,
        "mean": math.fsum(row["gain"] for row in rows.values()) / len(rows) if rows else None,
        "worst": None if worst is None else {"participant": worst, "own": mine[worst]},
    }


def line(found: Mapping[str, Any], against: str) -> str:
    """Return what `gains` found in words."""
    rows, diverged = found["participants"], found.get("diverged", [])
    lost = f"; diverged: {', '.join(diverged)}" if diverged else ""
    if not rows:
        return f"against {against}: nothing to compare{lost}"
    hardest = min(rows, key=lambda name: rows[name]["gain"])
    everyone = len(rows) + len(diverged)
    text = f"against {against}: {len(found['gain'])} of {everyone} gain, {len(found['lose'])} lose"
    text += f", mean {100 * found['mean']:+.1f} points, {hardest} {100 * rows[hardest]['gain']:+.1f}"
    worst = found["worst"]
    depth = "no figure" if worst["own"] is None else f"{100 * worst['own']:.1f} %"
    return text + f"; worst of all is {worst['participant']} with {depth}{lost}"
