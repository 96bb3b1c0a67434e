"""Tables of a chapter: the methods side by side, every participant, and who is worst off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean
from typing import TypeVar

from heterophony.base.wording import sentence
from heterophony.report.chapters import ArmRuns, Chapter
from heterophony.report.printed_table import PrintedTable
from heterophony.runs.population import FILE
from heterophony.studies import comparison
from heterophony.tables.interval import Interval, interval

MOST = 40  # participants in a table; of more, those who are worst off
ACROSS = (
    "On all domains, mean over participants and seeds, last round. In bold the best of each column. A dash: no run. "
    "Columns have other data, so that only the order of methods can be compared between them."
)
Key = TypeVar("Key")


def methods(chapter: Chapter) -> PrintedTable:
    """Return the table of the methods side by side, with the best of each column in bold."""
    found = comparing(chapter)
    strong = _best(found)
    return PrintedTable(
        "methods",
        f"Methods on {chapter.setting}",
        comparison.header(found),
        comparison.cells(found),
        comparison.note(found) + "." + (" In bold the best of each column." if strong else ""),
        strong,
        colors=[chapter.colors[line.label] for line in found.methods],
    )


def _best(found: comparison.Comparison) -> frozenset[tuple[int, int]]:
    """Return the cells of the best method in each column; none in a column that one method alone has."""
    strong = set()
    for place, name in enumerate(comparison.columns(found), 1):
        known = {row: own.mean for row, line in enumerate(found.methods) if (own := line.figures[name]) is not None}
        strong |= {(row, place) for row in _best_of(known, comparison.score_of(found, name).higher)}
    return frozenset(strong)


def _best_of(known: Mapping[Key, float], higher: bool) -> list[Key]:
    """Return who has the best figure; nobody where one alone has any."""
    if len(known) < 2:
        return []
    best = (max if higher else min)(known.values())
    return [who for who, value in known.items() if value == best]


def across(chapters: Sequence[Chapter]) -> PrintedTable:
    """Return the table of several federations: a row for each method, a column for each federation."""
    found = [comparing(chapter) for chapter in chapters]
    columns = [_deciding(each) for each in found]
    labels = list(dict.fromkeys(line.label for each in found for line in each.methods))
    colors = {label: color for chapter in chapters for label, color in chapter.colors.items()}
    strong = set()
    for place, (each, column) in enumerate(zip(found, columns, strict=True), 1):
        means = {labels.index(label): own.mean for label, own in column.items()}
        strong |= {(row, place) for row in _best_of(means, each.score.higher)}
    return PrintedTable(
        "federations",
        "Methods across federations",
        ["method", *(f"{each.setting}, {each.score.axis}" for each in found)],
        [[label, *_across(label, found, columns)] for label in labels],
        ACROSS,
        frozenset(strong),
        colors=[colors[label] for label in labels],
    )


def _deciding(found: comparison.Comparison) -> dict[str, Interval]:
    """Return, by method, the figure that decides which is best."""
    return {line.label: own for line in found.methods if (own := line.figures[found.metric]) is not None}


def _across(label: str, found: Sequence[comparison.Comparison], columns: Sequence[Mapping[str, Interval]]) -> list[str]:
    """Return a method's figure in each federation; a dash where it has none."""
    scores = [each.score for each in found]
    return [
        column[label].text(score.scale, score.digits) if label in column else "-"
        for score, column in zip(scores, columns, strict=True)
    ]


def comparing(chapter: Chapter) -> comparison.Comparison:
    """Return the runs of a chapter as `heterophony compare` compares them."""
    runs = [(arm.label, run.spec["seed"], run.summary) for arm in chapter.arms for run in arm.runs]
    return comparison.compare(chapter.setting, runs)


WHAT = (
    ("wdp", "own", "own domain"),
    ("private", "private", "own share of the test data"),
    ("acc", "all", "all domains"),
)


def participants(chapter: Chapter) -> list[PrintedTable]:
    """Return a table for each figure that differs between participants: a row each, a column a method."""
    alone = comparison.one_domain(comparing(chapter))
    made = []
    for figure, name, what in WHAT:
        if figure == "wdp" and alone:
            continue  # it would be the table of all domains
        if figure == "acc" and alone:
            what = "test data"
        table = _participants(chapter, figure, name, what)
        if table is not None:
            made.append(table)
    return made


def _participants(chapter: Chapter, figure: str, name: str, what: str) -> PrintedTable | None:
    """Return the table of one figure; None where it is the same for all."""
    arms = [arm for arm in chapter.arms if _figures(arm, figure)]
    columns = [_figures(arm, figure) for arm in arms]
    means = [{who: own.mean for who, own in column.items()} for column in columns]
    if not any(len(set(column.values())) > 1 for column in means):
        return None
    everyone = list(dict.fromkeys(who for column in columns for who in column))
    higher = chapter.score.higher
    shown = _worst_off(everyone, means, higher)
    note = f"{sentence(chapter.score.axis)} on {what}, last round; † marks who is worst off.{_seeds(chapter)}"
    if len(shown) < len(everyone):
        note += f" The {len(shown)} of {len(everyone)} who are worst off."
    return PrintedTable(
        f"participants-{name}",
        f"Participants, {what}",
        ["participant", "network", "rows", *(arm.label for arm in arms)],
        [*_each(chapter, shown, columns), *_all_together(arms, figure, higher)],
        note,
        weak=_weak(shown, everyone, means, higher, first=3),
    )


def _each(chapter: Chapter, shown: Sequence[str], columns: Sequence[Mapping[str, Interval]]) -> list[list[str]]:
    """Return a row for each participant: who it is, its network, its training rows, and its figures."""
    known = _known(chapter)
    rows = []
    for who in shown:
        cells = [comparison.figure(column.get(who), chapter.score) for column in columns]
        rows.append([who, *known.get(who, ("-", "-")), *cells])
    return rows


def _all_together(arms: Sequence[ArmRuns], figure: str, higher: bool) -> list[list[str]]:
    """Return the rows at the end: the worst of all participants, and the mean."""
    worst: Callable[[Iterable[float]], float] = min if higher else max
    return [
        ["worst", "", "", *(_by_seed(arm, figure, worst) for arm in arms)],
        ["mean", "", "", *(_by_seed(arm, figure, mean) for arm in arms)],
    ]


def _worst_off(everyone: Sequence[str], means: Sequence[Mapping[str, float]], higher: bool) -> list[str]:
    """Return all participants, or of very many those whose worst figure is the worst, in their usual order."""

    def depth(who: str) -> float:
        return min(column[who] if higher else -column[who] for column in means if who in column)

    chosen = set(sorted(everyone, key=depth)[:MOST])
    return [who for who in everyone if who in chosen]


def _weak(
    shown: Sequence[str], everyone: Sequence[str], means: Sequence[Mapping[str, float]], higher: bool, first: int
) -> frozenset[tuple[int, int]]:
    """Return the cells of who is worst off in each column. `first` is the place of the first of these columns.

    Nobody is marked in a column where all are alike, nor beside somebody whose model came to nothing.
    """
    weak = set()
    for place, column in enumerate(means, first):
        if len(column) < len(everyone) or len(set(column.values())) < 2:
            continue
        worst = (min if higher else max)(column.values())
        weak |= {(row, place) for row, who in enumerate(shown) if column[who] == worst}
    return frozenset(weak)


def _known(chapter: Chapter) -> dict[str, tuple[str, str]]:
    """Return the network of each participant, where all runs agree, and its training rows, which may change by seed."""
    seen: dict[str, list[tuple[str, int]]] = {}
    runs = [run for arm in chapter.arms for run in arm.runs]
    for run in runs:
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


def _figures(arm: ArmRuns, figure: str) -> dict[str, Interval]:
    """Return the figure of each participant that has it in all seeds."""
    seeds = _people(arm, figure)
    found = {who: interval([one.get(who) for one in seeds]) for who in seeds[0]}
    return {who: own for who, own in found.items() if own is not None}


def _by_seed(arm: ArmRuns, figure: str, last: Callable[[Iterable[float]], float]) -> str:
    """Return the worst or the mean of each seed, as in the table of methods. Who is worst may change by seed.

    It is undefined where somebody's figure is.
    """
    found: list[float | None] = []
    for run in arm.runs:
        values = [own.get(figure) for own in run.summary.metrics.participants.values()]
        known = [value for value in values if value is not None]
        found.append(last(known) if known and len(known) == len(values) else None)
    return comparison.figure(interval(found), arm.first.summary.score)


def _people(arm: ArmRuns, figure: str) -> list[dict[str, float]]:
    """Return for each seed the figure of everyone who has it."""
    found = []
    for run in arm.runs:
        values = {who: own.get(figure) for who, own in run.summary.metrics.participants.items()}
        found.append({who: value for who, value in values.items() if value is not None})
    return found
