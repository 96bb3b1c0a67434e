"""How good models are for those who took no part, and for those who came later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from heterophony.tables.interval import mean


def unseen(table: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float | int | None]]]:
    """Return by product and by set that took no part: mean, best and worst accuracy over the product's models.

    Of every model its last evaluation counts; where one has diverged, mean and worst are None.
    """
    last: dict[tuple[str, str, str], float | None] = {}
    for row in table:
        if row["split"] == "unseen" and row["quantity"] == "accuracy" and row["n"]:
            last[row["product"], row["set"], row["node"]] = _rate(row)
    rates: dict[str, dict[str, list[float | None]]] = {}
    for (product, name, _), rate in last.items():
        rates.setdefault(product, {}).setdefault(name, []).append(rate)
    return {product: {name: _summed(found) for name, found in sets.items()} for product, sets in rates.items()}


def _summed(rates: list[float | None]) -> dict[str, float | int | None]:
    known = [rate for rate in rates if rate is not None]
    worst = min(known) if len(known) == len(rates) else None
    return {"mean": mean(rates), "best": max(known, default=None), "worst": worst, "models": len(rates)}


def _rate(row: Mapping[str, Any]) -> float | None:
    return None if row["sum"] is None else row["sum"] / row["n"]


def newcomers(
    table: Iterable[Mapping[str, Any]], joins: Mapping[str, float], homes: Mapping[str, str], product: str
) -> dict[str, dict[str, Any]]:
    """Return for everyone who joined later its accuracy on its own data: the last one `before`, and all `since`.

    The model is its own, or the one that all share. Its own data are its private test, or else its domain's test set.
    """
    rows = [row for row in table if row["product"] == product and row["quantity"] == "accuracy" and row["n"]]
    nodes = {row["node"] for row in rows}
    shared = next(iter(nodes)) if len(nodes) == 1 and nodes.isdisjoint(homes) else None
    found = {}
    for name, when in joins.items():
        mine = [row for row in rows if row["node"] == (shared or name)]
        own = _on(mine, name, "private-test") or _on(mine, homes.get(name), "test")
        points = [{"round": row["round"], "time": row["time"], "own": _rate(row)} for row in own]
        before = [at["own"] for at in points if at["time"] < when]
        since = [at for at in points if at["time"] >= when]
        found[name] = {"joined": when, "before": before[-1] if before else None, "since": since}
    return found


def _on(rows: Iterable[Mapping[str, Any]], name: str | None, split: str) -> list[Mapping[str, Any]]:
    """Return the rows of one set."""
    return [row for row in rows if row["set"] == name and row["split"] == split]
