"""What models know of the present and of the past while their data drift, from the evaluation table alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from heterophony.tables.interval import mean
from heterophony.tables.table import Table, tabled

Rows = Table | Iterable[Mapping[str, Any]]
Shares = Callable[[int], Sequence[float]]
# (node, round) -> set -> concept -> (rate, None of a model that has diverged; time)
_Marks = dict[tuple[str, int], dict[str, dict[int, tuple[float | None, float]]]]


def over_time(table: Rows, homes: Mapping[str, str], product: str, shares: Shares) -> list[dict[str, Any]]:
    """Return a row a round: mean figures of the participants whose model was evaluated then; undefined is None.

    `present` is accuracy on the round's mixture of concepts. `past` is the mean over concepts that were there before
    and are gone. `forgotten` is how far these have fallen from their best.
    """
    marks = _marks(table, product)
    nodes = {node for node, _ in marks}
    server = next(iter(nodes)) if len(nodes) == 1 and nodes.isdisjoint(homes) else None
    best: dict[tuple[str, int], float] = {}
    found = []
    for round in sorted({round for _, round in marks}):
        now, gone = shares(round), _gone(shares, round)
        rows, times = [], []
        for participant, home in homes.items():
            marked = marks.get((server or participant, round), {}).get(home)
            if marked is None:
                continue
            times += [time for _, time in marked.values()]
            rates = {concept: rate for concept, (rate, _) in marked.items()}
            for concept, rate in rates.items():
                if rate is not None:
                    best[participant, concept] = max(rate, best.get((participant, concept), rate))
            highest = {concept: best.get((participant, concept)) for concept in gone}
            rows.append(_figures(rates, now, gone, highest))
        if rows:
            means = {key: mean(row[key] for row in rows) for key in ("present", "past", "forgotten")}
            found.append({"round": round, "time": max(times), **means})
    return found


def _gone(shares: Shares, round: int) -> list[int]:
    """Return the concepts that were there before this round and are not any more."""
    before = {concept for earlier in range(round) for concept, share in enumerate(shares(earlier)) if share > 0}
    now = shares(round)
    return [concept for concept in sorted(before) if now[concept] == 0]


def _figures(
    rates: Mapping[int, float | None],
    now: Sequence[float],
    gone: Sequence[int],
    highest: Mapping[int, float | None],
) -> dict[str, float | None]:
    """Return one participant's figures in a round, from its accuracy on each concept."""
    known = {concept: rate for concept, rate in rates.items() if rate is not None}
    asked = [concept for concept, share in enumerate(now) if share]
    present = None
    if all(concept in known for concept in asked):
        present = sum(now[concept] * known[concept] for concept in asked)
    lost = [_fall(highest[concept], known.get(concept)) for concept in gone]
    return {"present": present, "past": mean(rates[concept] for concept in gone), "forgotten": mean(lost)}


def _fall(highest: float | None, rate: float | None) -> float | None:
    return None if highest is None or rate is None else highest - rate


def _marks(table: Rows, product: str) -> _Marks:
    marks: _Marks = {}
    for at in tabled(table).ratings():
        concept = at.split.removeprefix("concept-")
        if at.product == product and concept != at.split:
            sets = marks.setdefault((at.node, at.round), {}).setdefault(at.set, {})
            sets[int(concept)] = at.value, at.time
    return marks
