"""What models know of the present and of the past while their data drift, from the evaluation table alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from heterophony.tables.interval import mean

Shares = Callable[[int], Sequence[float]]
# By concept, the rate (None of a model that has diverged) and the time of a mark.
_Marked = dict[int, tuple[float | None, float]]
# By node and round, then by test set.
_Marks = dict[tuple[str, int], dict[str, _Marked]]


def over_time(
    table: Iterable[Mapping[str, Any]], homes: Mapping[str, str], product: str, shares: Shares
) -> list[dict[str, Any]]:
    """Return a row a round: mean figures of the participants whose model was evaluated then; undefined is None.

    `present` is accuracy on the round's mixture of concepts. `past` is the mean over concepts that were there before
    and are gone. `forgotten` is how far these have fallen from their best.
    """
    marks = _marks(table, product)
    server = _server(marks, homes)
    best: dict[str, dict[int, float]] = {participant: {} for participant in homes}  # by concept, until this round
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
            _remember(best[participant], rates)
            rows.append(_figures(rates, now, gone, best[participant]))
        if rows:
            means = {key: mean(row[key] for row in rows) for key in ("present", "past", "forgotten")}
            found.append({"round": round, "time": max(times), **means})
    return found


def _server(marks: _Marks, homes: Mapping[str, str]) -> str | None:
    """Return the one node that has a model for all participants, if there is such a node."""
    nodes = {node for node, _ in marks}
    return next(iter(nodes)) if len(nodes) == 1 and nodes.isdisjoint(homes) else None


def _remember(best: dict[int, float], rates: Mapping[int, float | None]) -> None:
    """Raise a participant's best rates to the present ones, where these are higher."""
    for concept, rate in rates.items():
        if rate is not None:
            best[concept] = max(rate, best.get(concept, rate))


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
) -> dict[str, float | None]:
    """Return one participant's figures in a round, from its accuracy on each concept."""
    known = {concept: rate for concept, rate in rates.items() if rate is not None}
    asked = [concept for concept, share in enumerate(now) if share]
    present = None
    if all(concept in known for concept in asked):
        present = sum(now[concept] * known[concept] for concept in asked)
    lost = [_fall(best.get(concept), known.get(concept)) for concept in gone]
    return {"present": present, "past": mean(rates[concept] for concept in gone), "forgotten": mean(lost)}


def _fall(highest: float | None, rate: float | None) -> float | None:
    return None if highest is None or rate is None else highest - rate


def _marks(table: Iterable[Mapping[str, Any]], product: str) -> _Marks:
    marks: _Marks = {}
    for row in table:
        concept = row["split"].removeprefix("concept-")
        wanted = row["product"] == product and row["quantity"] == "accuracy" and concept != row["split"]
        if wanted and row["n"]:
            sets = marks.setdefault((row["node"], row["round"]), {}).setdefault(row["set"], {})
            sets[int(concept)] = None if row["sum"] is None else row["sum"] / row["n"], row["time"]
    return marks
