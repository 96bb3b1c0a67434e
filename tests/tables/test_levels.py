"""The table of levels, from rows that can be added up by hand."""

import pytest

from heterophony.tables.levels import levels
from heterophony.tables.table import Table
from toys.by_hand import row

PARENTS = {"m": "root", "a": "m", "b": "m", "c": "root"}
HOMES = {"a": "A", "b": "B", "c": "C"}


def table(*more):
    right = {"a": (9, 3, 1), "b": (4, 8, 2), "c": (0, 2, 10), "m": (7, 7, 3), "root": (5, 6, 7)}
    return Table(
        [row(node, name, r) for node, three in right.items() for name, r in zip("ABC", three, strict=True)] + [*more]
    )


def test_levels_by_hand():
    """Leaves on their own: 9, 8, 10. m serves a and b, the root all three.

    Subtree: that of a and b is A and B together, that of c (a child of the root, as m is) C alone.
    """
    leaf, inner, root = levels(table(), PARENTS, HOMES)
    assert leaf == {
        "level": "leaf",
        "own": 0.9,
        "subtree": (0.6 + 0.6 + 1.0) / 3,
        "union": (13 + 14 + 12) / 90,
        "proxy": None,
    }
    assert inner == {"level": "level 1", "own": 0.7, "subtree": 0.7, "union": 17 / 30, "proxy": None}
    assert (root["own"], root["subtree"], root["union"]) == ((0.5 + 0.6 + 0.7) / 3, (0.55 + 0.55 + 0.7) / 3, 0.6)


def test_the_last_evaluation_counts_and_other_quantities_do_not():
    found = levels(table(row("m", "A", 1, round=3), row("m", "B", 1.0, quantity="loss", round=4)), PARENTS, HOMES)
    assert found[1]["own"] == (0.1 + 0.7) / 2


def test_private_tests_and_proxy_rows():
    more = [row(node, "a", 2, 4, "private-test") for node in ("a", "m", "root")]
    more += [row(node, "A", right, 5, "proxy") for node, right in (("a", 1), ("b", 2), ("c", 3), ("m", 4), ("root", 5))]
    leaf, inner, root = levels(table(*more), PARENTS, HOMES)
    assert leaf["own"] == pytest.approx(2.3 / 3)
    assert (leaf["proxy"], inner["proxy"], root["proxy"]) == (pytest.approx(0.4), 0.8, 1.0)


def test_what_was_not_evaluated_is_undefined():
    rows = [r for r in table() if r["node"] != "b"]
    leaf, inner, _ = levels(Table(rows), PARENTS, HOMES)
    assert leaf["own"] is None
    assert inner["own"] == 0.7
    assert levels(Table(), PARENTS, HOMES)[0]["union"] is None
