"""Tables of a chapter: the methods side by side, every participant, and who is worst off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from statistics import mean

from heterophony.report.chapters import Arm, Chapter
from heterophony.report.printed_table import Sheet
from heterophony.runs.population import FILE
from heterophony.studies import comparison
from heterophony.tables.interval import Interval, interval

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
    note = comparison.note(found) + "." + (" In bold the highest of each column." if strong else "")
    return Sheet("methods", title, head, rows, note, frozenset(strong), colors=colors)


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
    people = _known(chapter)
    alone = comparison.one_domain(comparing(chapter))
    sheets = []
    for figure, name, what in WHAT:
        if figure == "wdp" and alone:
            continue  # it would be the table of all domains
        values = {arm.label: own for arm in chapter.arms if (own := _figures(arm, figure))}
        means = [{who: own.mean for who, own in column.items()} for column in values.values()]
        everyone = list(dict.fromkeys(who for column in means for who in column))
        if not everyone or not any(len(set(column.values())) > 1 for column in means):
            continue
        shown = sorted(everyone, key=lambda who: min(column[who] for column in means if who in column))[:MOST]
        shown = [who for who in everyone if who in shown]
        head = ["participant", "network", "rows", *values]
        rows, weak = [], set()
        # Nobody is marked as the worst beside somebody whose model came to nothing.
        whole = [len(set(column.values())) > 1 and len(column) == len(everyone) for column in means]
        lowest = [min(column.values()) if known else math.nan for known, column in zip(whole, means, strict=True)]
        for i, who in enumerate(shown):
            rows.append(
                [who, *people.get(who, ("-", "-")), *(comparison.figure(column.get(who)) for column in values.values())]
            )
            weak |= {(i, j) for j, column in enumerate(means, 3) if column.get(who) == lowest[j - 3]}
        arms = [arm for arm in chapter.arms if arm.label in values]
        for title, last in (("worst", min), ("mean", mean)):
            rows.append([title, "", "", *(_by_seed(arm, figure, last) for arm in arms)])
        what = "test data" if alone and figure == "acc" else what
        note = f"Accuracy (%) on {what}, last round; † marks who is worst off.{_seeds(chapter)}"
        if len(shown) < len(everyone):
            note += f" The {len(shown)} of {len(everyone)} who are worst off."
        sheets.append(Sheet(f"participants-{name}", f"Participants, {what}", head, rows, note, weak=frozenset(weak)))
    return sheets


def _known(chapter: Chapter) -> dict[str, tuple[str, str]]:
    """Of each participant its network, where all runs agree on it, and its training rows, which may change by seed."""
    seen: dict[str, list[tuple[str, int]]] = {}
    for run in (run for arm in chapter.arms for run in arm.runs):
        for who, own in (run.extra(FILE) or {}).get("participants", {}).items():
            size = own.get("rows", sum(own["classes"]))  # runs of before have no rows
            seen.setdefault(who, []).append((own["network"] or "-", size))
    found = {}
    for who, each in seen.items():
        networks, sizes = {network for network, _ in each}, [size for _, size in each]
        span = str(min(sizes)) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        found[who] = (networks.pop() if len(networks) == 1 else "-", span)
    return found


def _seeds(chapter: Chapter) -> str:
    if not chapter.several:
        return ""
    return " Mean over seeds and half of its 95 % interval (t); the row of the worst is the mean of each seed's worst."


def _figures(arm: Arm, figure: str) -> dict[str, Interval]:
    """Of each participant that has this figure in all seeds."""
    found = {who: interval([one.get(who) for one in _people(arm, figure)]) for who in _people(arm, figure)[0]}
    return {who: own for who, own in found.items() if own is not None}


def _by_seed(arm: Arm, figure: str, last: Callable[[Iterable[float]], float]) -> str:
    """Of each seed the worst or the mean, as in the table of methods: undefined where anyone's figure is; who is worst
    may change by seed."""
    everyone = [list(run.summary["metrics"]["participants"].values()) for run in arm.runs]
    values = [[own.get(figure) for own in one] for one in everyone]
    return comparison.figure(interval([None if None in one or not one else last(one) for one in values]))


def _people(arm: Arm, figure: str) -> list[dict[str, float]]:
    """Of each seed, the figure of everyone who has it."""
    everyone = [run.summary["metrics"]["participants"] for run in arm.runs]
    return [{who: own[figure] for who, own in one.items() if own.get(figure) is not None} for one in everyone]
