"""What models know of the present and of the past while their data drift, from the evaluation table alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heterophony.tables.interval import mean
from heterophony.tables.table import Table, TableOrRows, model_of_all, tabled
from heterophony.tasks.score import Score

FIGURES = ("present", "past", "forgotten")
Shares = Callable[[int], Sequence[float]]
# By concept, the rate (None of a model that has diverged) and the time of a mark.
_Marked = dict[int, tuple[float | None, float]]
# By node and round, then by test set.
_Marks = dict[tuple[str, int], dict[str, _Marked]]


def over_time(
    table: TableOrRows, homes: Mapping[str, str], product: str, shares: Shares, seconds: float | None = None
) -> list[dict[str, Any]]:
    """Return a row a round: mean figures of the participants whose model was evaluated then; undefined is None.

    With `seconds`, rounds are those of streams that go by virtual time. Then of each participant the last evaluation
    until the end of the round counts, and the first row is of the first round until which all have been evaluated.

    `present` is the figure on the round's mixture of concepts. `past` is the mean over concepts that were there before
    and are gone. `forgotten` is how far these have fallen from their best.
    """
    table = tabled(table)
    marks, score = _marks(table, product, seconds), table.task.scores[0]
    if seconds is not None:
        marks = _carried(marks)
    server = model_of_all({node for node, _ in marks}, homes)
    best: dict[str, dict[int, float]] = {participant: {} for participant in homes}  # by concept, until this round
    found = []
    for round in sorted({round for _, round in marks}):
        now, gone = shares(round), _gone(shares, round)
        evaluated = _evaluated(marks, homes, server, round)
        rows = []
        for participant, marked in evaluated.items():
            rates = {concept: rate for concept, (rate, _) in marked.items()}
            _remember(best[participant], rates, score)
            rows.append(_figures(rates, now, gone, best[participant], score))
        if rows:
            means = {key: mean(row[key] for row in rows) for key in FIGURES}
            latest = max(time for marked in evaluated.values() for _, time in marked.values())
            found.append({"round": round, "time": latest, **means})
    return found


def _evaluated(marks: _Marks, homes: Mapping[str, str], server: str | None, round: int) -> dict[str, _Marked]:
    """Return the marks of each participant whose model, or that of all at the server, was evaluated in a round."""
    found = {who: marks.get((server or who, round), {}).get(home) for who, home in homes.items()}
    return {who: marked for who, marked in found.items() if marked is not None}


def _remember(best: dict[int, float], rates: Mapping[int, float | None], score: Score) -> None:
    """Replace a participant's best rates by the present ones, where these are better."""
    for concept, rate in rates.items():
        if rate is not None and (concept not in best or score.better(rate, best[concept])):
            best[concept] = rate


def _gone(shares: Shares, round: int) -> list[int]:
    """Return the concepts that were there before this round and are not any more."""
    before = {concept for earlier in range(round) for concept, share in enumerate(shares(earlier)) if share > 0}
    now = shares(round)
    return [concept for concept in sorted(before) if now[concept] == 0]


def _figures(
    rates: Mapping[int, float | None],
    now: Sequence[float],
    gone: Sequence[int],
    best: Mapping[int, float],
    score: Score,
) -> dict[str, float | None]:
    """Return one participant's figures in a round, from its figure on each concept."""
    known = {concept: rate for concept, rate in rates.items() if rate is not None}
    asked = [concept for concept, share in enumerate(now) if share]
    present = None
    if all(concept in known for concept in asked):
        present = sum(now[concept] * known[concept] for concept in asked)
    lost = [_fall(best.get(concept), known.get(concept), score) for concept in gone]
    return {"present": present, "past": mean(rates[concept] for concept in gone), "forgotten": mean(lost)}


def _fall(best: float | None, rate: float | None, score: Score) -> float | None:
    """Return how much worse a rate is than the best one."""
    if best is None or rate is None:
        return None
    return best - rate if score.higher else rate - best


def _carried(marks: _Marks) -> _Marks:
    """Return the marks with those of the round before, where a node has none in a round."""
    nodes, rounds = {node for node, _ in marks}, {round for _, round in marks}
    if not nodes:
        return {}
    first = max(min(round for node, round in marks if node == own) for own in nodes)
    found: _Marks = {}
    last: dict[str, dict[str, _Marked]] = {}
    for round in range(max(rounds) + 1):
        for node in nodes:
            last[node] = marks.get((node, round), last.get(node, {}))
            if round >= first:
                found[node, round] = last[node]
    return found


def _marks(table: Table, product: str, seconds: float | None) -> _Marks:
    from heterophony.data.stream import round_at  # late: it brings torch

    marks: _Marks = {}
    for at in table.ratings():
        concept = at.split.removeprefix("concept-")
        if at.product == product and concept != at.split:
            round = at.round if seconds is None else round_at(at.time, seconds)
            sets = marks.setdefault((at.node, round), {}).setdefault(at.set, {})
            sets[int(concept)] = at.value, at.time
    return marks
