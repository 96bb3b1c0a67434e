"""How good the model of every level of a tree is for the leaves below it (B-HFL, Section 5)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from heterophony.tables.interval import mean
from heterophony.tables.table import Table

COLUMNS = ("own", "subtree", "union", "proxy")
_Last = dict[tuple[str, str, str], Mapping[str, Any]]


def levels(
    table: Table, parents: Mapping[str, str], homes: Mapping[str, str], quantity: str = "accuracy"
) -> list[dict[str, Any]]:
    """One row a level, leaves first: accuracies of the models there, mean over the leaves below; undefined is None.

    `own` is a leaf's private test, or else its domain's test set; `subtree` the test sets of all leaves of its parent;
    `union` all test sets; `proxy` the held-out public rows. Of every model its last evaluation counts.
    """
    last: _Last = {}
    for row in table:
        if row["quantity"] == quantity:
            last[row["node"], row["set"], row["split"]] = row
    tests = list(dict.fromkeys(name for _, name, split in last if split == "test"))
    proxies = list(dict.fromkeys(name for _, name, split in last if split == "proxy"))
    found: dict[str, list[dict[str, float | None]]] = {}
    for leaf, home in homes.items():
        siblings = [homes[node] for node in homes if parents[node] == parents[leaf]]
        path = [leaf]
        while path[-1] in parents:
            path.append(parents[path[-1]])
        for place, node in enumerate(path):
            level = "leaf" if place == 0 else "root" if node == path[-1] else f"level {len(path) - 1 - place}"
            own = _pooled(last, node, [leaf], "private-test")
            found.setdefault(level, []).append(
                {
                    "own": _pooled(last, node, [home], "test") if own is None else own,
                    "subtree": _pooled(last, node, dict.fromkeys(siblings), "test"),
                    "union": _pooled(last, node, tests, "test"),
                    "proxy": _pooled(last, node, proxies, "proxy"),
                }
            )
    inner = sorted((level for level in found if level.startswith("level")), key=lambda level: -int(level[6:]))
    return [
        {"level": level, **{name: mean([each[name] for each in found[level]]) for name in COLUMNS}}
        for level in ("leaf", *inner, "root")
        if level in found
    ]


def perplexities(table: Table, parents: Mapping[str, str], homes: Mapping[str, str]) -> list[dict[str, Any]]:
    """The same of perplexity: the exponential of the mean loss, so that means over leaves are geometric."""
    found = levels(table, parents, homes, "loss")
    return [{"level": row["level"], **{c: perplexity(row[c]) for c in COLUMNS}} for row in found]


def perplexity(loss: float | None) -> float | None:
    """Return the exponential of a mean loss, kept below what a float can hold."""
    return None if loss is None else math.exp(min(loss, 700.0))


def _pooled(last: _Last, node: str, sets: Iterable[str], split: str) -> float | None:
    rows = [last.get((node, name, split)) for name in sets]
    if not rows or any(row is None or row["sum"] is None for row in rows):
        return None
    return float(sum(row["sum"] for row in rows if row) / sum(row["n"] for row in rows if row))
