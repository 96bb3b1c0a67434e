"""How good models are for those who took no part, and for those who came later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def unseen(table: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float | int]]]:
    """product -> set that took no part -> mean, best and worst accuracy over the models that are that product.

    Of every model its last evaluation counts.
    """
    last: dict[tuple[str, str, str], float] = {}
    for row in table:
        if row["split"] == "unseen" and row["quantity"] == "accuracy" and row["n"] and row["sum"] is not None:
            last[row["product"], row["set"], row["node"]] = row["sum"] / row["n"]
    rates: dict[str, dict[str, list[float]]] = {}
    for (product, name, _), rate in last.items():
        rates.setdefault(product, {}).setdefault(name, []).append(rate)
    return {
        product: {
            name: {"mean": sum(found) / len(found), "best": max(found), "worst": min(found), "models": len(found)}
            for name, found in sets.items()
        }
        for product, sets in rates.items()
    }


def newcomers(
    table: Iterable[Mapping[str, Any]], joins: Mapping[str, float], homes: Mapping[str, str], product: str
) -> dict[str, dict[str, Any]]:
    """Of everyone who joined later: accuracy on its own data (its private test, or else its domain's test set) of the
    product that is for it, its own model or the one that all share: the last one before it joined, and all since.
    """
    rows = [row for row in table if row["product"] == product and row["quantity"] == "accuracy" and row["n"]]
    nodes = {row["node"] for row in rows}
    shared = next(iter(nodes)) if len(nodes) == 1 and nodes.isdisjoint(homes) else None
    found = {}
    for name, when in joins.items():
        mine = [row for row in rows if row["node"] == (shared or name) and row["sum"] is not None]
        private = [row for row in mine if (row["set"], row["split"]) == (name, "private-test")]
        own = private or [row for row in mine if (row["set"], row["split"]) == (homes.get(name), "test")]
        points = [{"round": row["round"], "time": row["time"], "own": row["sum"] / row["n"]} for row in own]
        before = [at["own"] for at in points if at["time"] < when]
        since = [at for at in points if at["time"] >= when]
        found[name] = {"joined": when, "before": before[-1] if before else None, "since": since}
    return found
