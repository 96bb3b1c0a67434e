"""The ledger: what left each node, byte for byte, and what went wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from heterophony.tables.rows import RowLog


class Ledger:
    """One row a message and recipient (round, kind, from, to, status, payload, wire, hops, time), and incidents.

    `payload` counts the values, `wire` the encoded message, `hops` the links it used. The status is "sent", "withheld"
    (it never left), "dropped" (its sender or receiver missed the round) or "lost" (the receiver is gone).
    Incidents are refused, late and duplicate messages, those far from the rest ("doubted"), those that nobody can take
    ("unsound"), timeouts, skipped rounds, joins, liars (`attack`), and participants that were put out.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self.rows = RowLog(rows)

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        self.rows += rows

    def incident(self, time: float, node: str, what: str, detail: str) -> None:
        self.rows.append({"time": time, "node": node, "incident": what, "detail": detail})

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if "kind" in row]

    @property
    def incidents(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if "incident" in row]

    def newest_mail(self, node: str) -> dict[tuple[str, int], list[str]]:
        """Return the senders of the newest mail of each kind that a node was sent and has not refused."""
        incidents = (row for row in self.rows if "incident" in row)
        refused = {row["detail"].partition(": ")[0] for row in incidents if is_refusal_at(row, node)}
        newest: dict[str, tuple[int, list[str]]] = {}
        for row in (row for row in self.rows if "kind" in row):
            kind, round, sender = row["kind"], row["round"], row["from"]
            if row["to"] != node or row["status"] != "sent" or described(kind, round, sender) in refused:
                continue
            known, senders = newest.get(kind, (-1, []))
            if round >= known:
                newest[kind] = (round, [*(senders if round == known else []), sender])
        return {(kind, round): sorted(set(senders)) for kind, (round, senders) in newest.items()}

    def bytes(self, measure: str = "payload") -> dict[str, int]:
        """Return the bytes that left nodes, per kind, each counted on every link it used."""
        total: Counter[str] = Counter()
        for row in (row for row in self.rows if "kind" in row):
            if row["status"] != "withheld":
                total[row["kind"]] += row[measure] * row["hops"]
        return dict(total)


def described(kind: str, round: int, sender: str) -> str:
    """Return how incidents call a message."""
    return f"{kind!r} of round {round} from {sender}"


def sender_in(detail: str) -> str:
    """Return the sender that an incident's detail names: what stands behind "from", up to the colon."""
    return detail.partition(" from ")[2].partition(": ")[0]


def is_refusal_at(row: dict[str, Any], node: str) -> bool:
    return (row["incident"], row["node"]) == ("refused", node)
