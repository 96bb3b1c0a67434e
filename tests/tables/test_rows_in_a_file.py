"""Rows of which the earlier ones lie in a file are the same rows."""

import pytest

from heterophony.engines import local
from heterophony.methods import FedAvg
from heterophony.tables import rows as module
from heterophony.tables.ledger import Ledger
from heterophony.tables.rows import RowLog, lines
from heterophony.tables.table import Table
from toys.federations import B16, weights_star

ROWS = [{"round": i, "value": i / 3, "none": None} for i in range(10)]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    monkeypatch.setattr(module, "_CHUNK", 7)


@pytest.mark.parametrize("way", ["spill", "leave"])
def test_rows_in_a_file_are_those_that_were_added(way, tmp_path):
    found = RowLog()
    for i in range(0, 10, 2):
        found += ROWS[i : i + 2]
        if way == "spill":
            found.spill()
        else:
            (tmp_path / "rows.jsonl").write_bytes(lines(found))
            found.leave(tmp_path / "rows.jsonl", len(lines(found)))
        assert len(found) == i + 2
    assert found.there
    assert len(found.here) <= 3
    assert found == ROWS
    assert repr(found) == repr(ROWS)
    copy = Table(found).rows
    found.append({"round": 10})
    assert (len(copy), len(found)) == (10, 11)
    assert [found[at] for at in (0, 7, 10, -1)] == [*ROWS[:1], ROWS[7], {"round": 10}, {"round": 10}]
    for part in (slice(2, 5), slice(7, None), slice(9, None), slice(-4, None), slice(None, None, -1), slice(20, None)):
        assert copy[part] == ROWS[part]
    # Two who read at the same time do not disturb each other.
    assert [(a, b) for a, b in zip(copy, copy, strict=True)] == [(row, row) for row in ROWS]


def test_a_run_with_tables_in_files_is_the_same_run(tmp_path, monkeypatch):
    whole, kept = (weights_star(FedAvg(local=B16)) for _ in range(2))
    found = local(whole).run(3)
    stored = kept.run(3, tmp_path / "run")
    assert found.table.rows.there
    assert stored.ledger.rows.there
    again = kept.resume(tmp_path / "run", 4)
    monkeypatch.setattr(module, "MOST", 10**9)
    wanted = local(weights_star(FedAvg(local=B16))).run(3)
    for result in (found, stored):
        assert result.table.rows == wanted.table.rows
        assert result.ledger.rows == wanted.ledger.rows
        assert result.ledger.bytes() == wanted.ledger.bytes()
        assert result.metrics() == wanted.metrics()
    assert Ledger(again.ledger.rows[: len(wanted.ledger.rows)]).rows == wanted.ledger.rows
