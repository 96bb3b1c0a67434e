"""Who gains and who loses: every participant's figure on its own data, against another model or another run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from heterophony.tables.table import Rating, TableOrRows, model_of_all, tabled
from heterophony.tasks.score import ACCURACY, Score

ByParticipant = dict[str, float | None]


def own(table: TableOrRows, homes: Mapping[str, str], product: str, score: Score | None = None) -> ByParticipant:
    """Return each participant's figure on its own data: its private test, or else its domain's test set.

    An undefined figure is None.

    Of every model its last evaluation counts; whoever has none is left out. Where no participant has the product, but
    one other node (a server) does, all use that one.
    """
    last: dict[tuple[str, str, str], Rating] = {}
    for rating in tabled(table).ratings(score):
        if rating.product == product:
            last[rating.node, rating.set, rating.split] = rating
    shared = model_of_all({node for node, _, _ in last}, homes)
    found: ByParticipant = {}
    for participant, home in homes.items():
        model = shared or participant
        test = last.get((model, participant, "private-test")) or last.get((model, home, "test"))
        if test is not None:
            found[participant] = test.value
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


def line(found: Mapping[str, Any], against: str, score: Score = ACCURACY) -> str:
    """Return what `gains` found in words."""
    rows, diverged = found["participants"], found.get("diverged", [])
    lost = f"; diverged: {', '.join(diverged)}" if diverged else ""
    if not rows:
        return f"against {against}: nothing to compare{lost}"
    hardest = min(rows, key=lambda name: rows[name]["gain"])
    everyone = len(rows) + len(diverged)
    text = f"against {against}: {len(found['gain'])} of {everyone} gain, {len(found['lose'])} lose"
    mean, least = (f"{score.scale * gain:+.{score.digits}f}" for gain in (found["mean"], rows[hardest]["gain"]))
    text += f", mean {mean}{' points' if score.percent else ''}, {hardest} {least}"
    worst = found["worst"]
    depth = "no figure" if worst["own"] is None else score.text(worst["own"])
    return text + f"; worst of all is {worst['participant']} with {depth}{lost}"
