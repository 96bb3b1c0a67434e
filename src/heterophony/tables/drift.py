"""What models know of the present and of the past while their data drift, from the evaluation table alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from heterophony.tables.interval import mean

Shares = Callable[[int], Sequence[float]]
# (node, round) -> set -> concept -> (rate, None of a model that has diverged; time)
_Marks = dict[tuple[str, int], dict[str, dict[int, tuple[float | None, float]]]]


def over_time(
    table: Iterable[Mapping[str, Any]], homes: Mapping[str, str], product: str, shares: Shares
) -> list[dict[str, Any]]:
    """By round: accuracy on `present` data (the round's mixture of concepts), on `past` data (the mean over concepts
    that were there before and are gone), and `forgotten`, how far past concepts have fallen from their best. Mean over
    those participants whose model was evaluated in that round; undefined is None.
    """
    marks = _marks(table, product)
    shared = {node for node, _ in marks}
    server = next(iter(shared)) if len(shared) == 1 and shared.isdisjoint(homes) else None
    rounds = sorted({round for _, round in marks})
    best: dict[tuple[str, int], float] = {}
    found = []
    for round in rounds:
        now = shares(round)
        before = {c for r in range(round) for c, share in enumerate(shares(r)) if share > 0}
        gone = [c for c in sorted(before) if now[c] == 0]
        rows, times = [], []
        for participant, home in homes.items():
            marked = marks.get((server or participant, round), {}).get(home)
            if marked is None:
                continue
            rates = {concept: rate for concept, (rate, _) in marked.items()}
            times += [time for _, time in marked.values()]
            known = {concept: rate for concept, rate in rates.items() if rate is not None}
            for concept, rate in known.items():
                best[participant, concept] = max(rate, best.get((participant, concept), rate))
            defined = all(c in known for c, share in enumerate(now) if share)
            rows.append(
                {
                    "present": sum(share * known[c] for c, share in enumerate(now) if share) if defined else None,
                    "past": mean(rates[c] for c in gone),
                    "forgotten": mean(best[participant, c] - known[c] if c in known else None for c in gone),
                }
            )
        if rows:
            means = {key: mean(row[key] for row in rows) for key in ("present", "past", "forgotten")}
            found.append({"round": round, "time": max(times), **means})
    return found


def _marks(table: Iterable[Mapping[str, Any]], product: str) -> _Marks:
    marks: _Marks = {}
    for row in table:
        concept = row["split"].removeprefix("concept-")
        wanted = row["product"] == product and row["quantity"] == "accuracy" and concept != row["split"]
        if wanted and row["n"]:
            sets = marks.setdefault((row["node"], row["round"]), {}).setdefault(row["set"], {})
            sets[int(concept)] = None if row["sum"] is None else row["sum"] / row["n"], row["time"]
    return marks
