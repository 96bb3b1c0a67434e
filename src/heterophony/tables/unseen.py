"""How good models are for those who took no part, and for those who came later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from heterophony.tables.interval import mean
from heterophony.tables.table import Rating, TableOrRows, model_of_all, tabled


def unseen(table: TableOrRows) -> dict[str, dict[str, dict[str, float | int | None]]]:
    """Return by product and by set that took no part: mean, best and worst figure of the product's models.

    Of every model its last evaluation counts; where one has diverged, mean and worst are None.
    """
    last: dict[tuple[str, str, str], float | None] = {}
    table = tabled(table)
    for rating in table.ratings():
        if rating.split == "unseen":
            last[rating.product, rating.set, rating.node] = rating.value
    rates: dict[str, dict[str, list[float | None]]] = {}
    for (product, name, _), rate in last.items():
        rates.setdefault(product, {}).setdefault(name, []).append(rate)
    higher = table.task.scores[0].higher
    return {product: {name: _summed(found, higher) for name, found in sets.items()} for product, sets in rates.items()}


def _summed(rates: list[float | None], higher: bool) -> dict[str, float | int | None]:
    """Return mean, best and worst figure of several models, and how many they are."""
    known = [rate for rate in rates if rate is not None]
    low, high = min(known, default=None), max(known, default=None)
    best, worst = (high, low) if higher else (low, high)
    return {
        "mean": mean(rates),
        "best": best,
        "worst": worst if len(known) == len(rates) else None,
        "models": len(rates),
    }


def newcomers(
    table: TableOrRows, joins: Mapping[str, float], homes: Mapping[str, str], product: str
) -> dict[str, dict[str, Any]]:
    """Return for everyone who joined later its figure on its own data: the last one `before`, and all `since`.

    The model is its own, or the one that all share. Its own data are its private test, or else its domain's test set.
    """
    rows = [rating for rating in tabled(table).ratings() if rating.product == product]
    shared = model_of_all({rating.node for rating in rows}, homes)
    found = {}
    for name, when in joins.items():
        mine = [rating for rating in rows if rating.node == (shared or name)]
        own = _on(mine, name, "private-test") or _on(mine, homes.get(name), "test")
        points: list[dict[str, Any]] = [{"round": at.round, "time": at.time, "own": at.value} for at in own]
        before = [at["own"] for at in points if at["time"] < when]
        since = [at for at in points if at["time"] >= when]
        found[name] = {"joined": when, "before": before[-1] if before else None, "since": since}
    return found


def _on(ratings: Iterable[Rating], name: str | None, split: str) -> list[Rating]:
    """Return the figures on one set."""
    return [rating for rating in ratings if rating.set == name and rating.split == split]
