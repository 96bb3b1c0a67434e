"""How good the model of every level of a tree is for the leaves below it (B-HFL, Section 5)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from heterophony.tables.interval import mean
from heterophony.tables.table import Table
from heterophony.tasks.score import Score, Sums

LOSS = Score("loss", higher=False, percent=False)
COLUMNS = ("own", "subtree", "union", "proxy")
_Last = dict[tuple[str, str, str], Sums]


def levels(
    table: Table, parents: Mapping[str, str], homes: Mapping[str, str], score: Score | None = None
) -> list[dict[str, Any]]:
    """Return one row a level, leaves first: figures of the models there, mean over the leaves below.

    `score` is the one by which the task is judged, unless another is given.

    `own` is a leaf's private test, or else its domain's test set. `subtree` are the test sets of all leaves of its
    parent, `union` all test sets, and `proxy` the held-out public rows. Of every model its last evaluation counts. An
    undefined figure is None.
    """
    score = score or table.task.scores[0]
    last: _Last = {}
    for row in table:
        if row["quantity"] in score.quantities:
            last.setdefault((row["node"], row["set"], row["split"]), {})[row["quantity"]] = row["sum"], row["n"]
    tests, proxies = _sets(last, "test"), _sets(last, "proxy")
    found: dict[str, list[dict[str, float | None]]] = {}
    for leaf, home in homes.items():
        siblings = dict.fromkeys(homes[node] for node in homes if parents[node] == parents[leaf])
        for level, node in _path(leaf, parents):
            private = _pooled(score, last, node, [leaf], "private-test")
            figures = {
                "own": _pooled(score, last, node, [home], "test") if private is None else private,
                "subtree": _pooled(score, last, node, siblings, "test"),
                "union": _pooled(score, last, node, tests, "test"),
                "proxy": _pooled(score, last, node, proxies, "proxy"),
            }
            found.setdefault(level, []).append(figures)
    rows = []
    for level in _ordered(found):
        rows.append({"level": level, **{name: mean(each[name] for each in found[level]) for name in COLUMNS}})
    return rows


def _sets(last: _Last, split: str) -> list[str]:
    """Return the sets of a split, in the order in which they were first evaluated on."""
    return list(dict.fromkeys(name for _, name, known in last if known == split))


def _path(leaf: str, parents: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the level and the name of each node from a leaf to the root."""
    path = [leaf]
    while path[-1] in parents:
        path.append(parents[path[-1]])
    inner = [f"level {depth}" for depth in range(len(path) - 2, 0, -1)]
    return list(zip(("leaf", *inner, "root"), path, strict=False))


def level_of(node: str, parents: Mapping[str, str]) -> str:
    """Return the level of a root or an inner node, as `levels` names it."""
    depth = len(_path(node, parents)) - 1
    return f"level {depth}" if depth else "root"


def _ordered(found: Collection[str]) -> list[str]:
    """Return the levels that there are from the leaves to the root."""
    inner = sorted((level for level in found if level.startswith("level")), key=lambda level: -int(level[6:]))
    return [level for level in ("leaf", *inner, "root") if level in found]


def perplexities(table: Table, parents: Mapping[str, str], homes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the same of perplexity: the exponential of the mean loss, so that means over leaves are geometric."""
    rows = []
    for row in levels(table, parents, homes, LOSS):
        rows.append({"level": row["level"], **{name: perplexity(row[name]) for name in COLUMNS}})
    return rows


def perplexity(loss: float | None) -> float | None:
    """Return the exponential of a mean loss, kept below what a float can hold."""
    return None if loss is None else math.exp(min(loss, 700.0))


def _pooled(score: Score, last: _Last, node: str, sets: Iterable[str], split: str) -> float | None:
    """Return a model's figure on all of these sets together; None unless it is defined on each of them."""
    found = [last.get((node, name, split)) for name in sets]
    if not found or None in found:
        return None
    pairs = []
    for name in score.quantities:
        own = [sums.get(name, (0.0, 0)) for sums in found if sums is not None]
        totals = [total for total, _ in own if total is not None]
        if len(totals) < len(own):
            return None
        pairs.append((sum(totals), sum(n for _, n in own)))
    return score.figure(pairs)
