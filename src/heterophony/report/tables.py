"""Tables of a chapter: the methods side by side, every participant, and who is worst off."""

from __future__ import annotations

import math

from heterophony import comparison
from heterophony.population import FILE
from heterophony.report.sheet import Sheet
from heterophony.report.story import Arm, Chapter

MOST = 40  # participants in a table; of more, those who are worst off


def methods(chapter: Chapter) -> Sheet:
    found = comparing(chapter)
    head, rows = comparison.header(found), comparison.cells(found)
    strong = set()
    for j, name in enumerate(comparison.columns(found), 1):
        means = [None if (f := line.figures[name]) is None else f.mean for line in found.lines]
        known = [mean for mean in means if mean is not None]
        strong |= {(i, j) for i, mean in enumerate(means) if known and mean == max(known) and len(known) > 1}
    colors = [chapter.colors[line.label] for line in found.lines]
    title = f"Methods on {chapter.setting}"
    return Sheet("methods", title, head, rows, comparison.note(found) + ".", frozenset(strong), colors)


def comparing(chapter: Chapter) -> comparison.Comparison:
    runs = [(arm.label, run.spec["seed"], run.summary) for arm in chapter.arms for run in arm.runs]
    return comparison.compare(chapter.setting, runs)


WHAT = (
    ("wdp", "own", "own domain"),
    ("private", "private", "own share of the test data"),
    ("acc", "all", "all domains"),
)


def participants(chapter: Chapter) -> list[Sheet]:
    """Of each figure that differs between participants, a table: a row each, a column a method."""
    people = (chapter.arms[0].first.extra(FILE) or {}).get("participants", {})
    sheets = []
    for figure, name, what in WHAT:
        values = {arm.label: _means(chapter, arm.label, figure) for arm in chapter.arms}
        values = {label: own for label, own in values.items() if own}
        everyone = list(dict.fromkeys(who for own in values.values() for who in own))
        if not everyone or not any(len(set(own.values())) > 1 for own in values.values()):
            continue
        shown = sorted(everyone, key=lambda who: min(own[who] for own in values.values() if who in own))[:MOST]
        shown = [who for who in everyone if who in shown]
        head = ["participant", "network", "rows", *values]
        rows, strong = [], set()
        for i, who in enumerate(shown):
            about = people.get(who, {})
            size = about.get("rows", sum(about.get("classes", [])))  # runs of before have no rows
            known = [str(about.get("network") or "-"), str(size) if about else "-"]
            rows.append([who, *known, *(f"{100 * own[who]:.1f}" if who in own else "-" for own in values.values())])
            strong |= {(i, j) for j, own in enumerate(values.values(), 3) if own.get(who) == min(own.values())}
        worst = [_worst(arm, figure) for arm in chapter.arms if arm.label in values]
        mean = [sum(own.values()) / len(own) for own in values.values()]
        for title, last in (("worst", worst), ("mean", mean)):
            rows.append([title, "", "", *(f"{100 * value:.1f}" for value in last)])
        more = f" The {len(shown)} of {len(everyone)} who are worst off." if len(shown) < len(everyone) else ""
        seeds = " The row of the worst is the mean of each seed's worst." if chapter.several else ""
        note = f"Accuracy (%) on {what}, last round, mean over seeds; in bold who is worst off.{seeds}{more}"
        sheets.append(Sheet(f"participants-{name}", f"Participants, {what}", head, rows, note, frozenset(strong)))
    return sheets


def _worst(arm: Arm, figure: str) -> float:
    """Of each seed the worst, and of these the mean, as in the table of methods; who it is may change by seed."""
    people = [run.summary["metrics"]["participants"].values() for run in arm.runs]
    lows = [min(own[figure] for own in everyone if own.get(figure) is not None) for everyone in people]
    return math.fsum(lows) / len(lows)


def _means(chapter: Chapter, label: str, figure: str) -> dict[str, float]:
    arm = next(arm for arm in chapter.arms if arm.label == label)
    found: dict[str, list[float]] = {}
    for run in arm.runs:
        for who, own in run.summary["metrics"]["participants"].items():
            if own.get(figure) is not None:
                found.setdefault(who, []).append(own[figure])
    return {who: sum(values) / len(values) for who, values in found.items() if len(values) == len(arm.runs)}
