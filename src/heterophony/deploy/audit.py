"""An audit: whether the receipts of a federation are whole, and what was changed, dropped, replayed or invented.

It needs the plan, the organisations' public keys, and the receipts of as many ends as there are. It sees no data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heterophony.deploy.named_function import DeployError
from heterophony.deploy.node_store import NodeStore
from heterophony.deploy.organisation import FILE as ORGANISATION
from heterophony.deploy.organisation import Organisation
from heterophony.deploy.plan import Plan
from heterophony.deploy.receipts import Receipt, Signed

FOLDER = "receipts"  # at the coordinator
Claim = tuple[str, str, int, str, int]  # a message: sender, kind, round, receiver, bytes


@dataclass
class End:
    """One end's copy: the coordinator's, or that of a participant."""

    name: str
    nodes: tuple[str, ...]  # whose receipts it should have
    files: tuple[Path, ...]
    found: dict[str, dict[int, Receipt]] = field(default_factory=dict)


def ends(plan: Plan, places: Sequence[Path]) -> list[End]:
    """Return the copies in these folders or files."""
    return [_end(plan, place) for place in places]


def _end(plan: Plan, place: Path) -> End:
    if place.is_file():
        return End(str(place), (), (place,))
    if (place / ORGANISATION).exists():
        own = Organisation.load(place / ORGANISATION)
        nodes = plan.held_by(own.name)
        stores = [NodeStore(own.place(node), plan.id) for node in nodes]
        return End(str(place), nodes, tuple(store.table("receipts") for store in stores))
    if (place / FOLDER).is_dir():
        return End(str(place), plan.remote, tuple(sorted((place / FOLDER).glob("*.jsonl"))))
    raise DeployError(f"{place} has no receipts: neither {ORGANISATION} nor a folder {FOLDER}")


def faults(plan: Plan, known: Mapping[str, Any], copies: Sequence[End], runs: Sequence[Path] = ()) -> Iterator[str]:
    """Say all that is wrong. `known`: public keys by organisation. `runs`: ledgers, which claim what was received."""
    holders = {node: known[name] for name in plan.everyone for node in plan.held_by(name)}
    for end in copies:
        for path in end.files:
            yield from _file(plan, holders, end, path)
    for end in copies:
        for node, found in end.found.items():
            yield from _chain(end, node, found)
    yield from _between(copies)
    for path in runs:
        yield from _ledger(plan, copies, path)


def _file(plan: Plan, holders: Mapping[str, Any], end: End, path: Path) -> Iterator[str]:
    """Read a file line by line. Only what its sender has signed counts from here on."""
    seen: dict[tuple[str, int], int] = {}
    for count, line in enumerate(path.read_text(errors="replace").splitlines() if path.exists() else (), 1):
        where = f"{path} line {count}"
        try:
            signed = Signed.of(line)
        except ValueError as error:
            yield f"{where}: {error}"
            continue
        receipt = signed.receipt
        if receipt.node not in holders:
            yield f"{where}: no organisation holds a node {receipt.node!r:.40}"
        elif not signed.by(holders[receipt.node]):
            yield f"{where}: changed or invented: who holds {receipt.node} has not signed it"
        elif (receipt.federation, receipt.plan) != (plan.id, plan.digest):
            yield f"{where}: {receipt.node} signed it for another federation or plan ({receipt.federation:.64})"
        elif before := seen.get((receipt.node, receipt.number)):
            same = end.found[receipt.node][receipt.number] == receipt
            yield f"{where}: " + (
                f"replayed: it is line {before} once more"
                if same
                else f"{receipt.node} has signed two receipts of number {receipt.number}, see line {before}"
            )
        else:
            seen[receipt.node, receipt.number] = count
            end.found.setdefault(receipt.node, {})[receipt.number] = receipt


def _chain(end: End, node: str, found: Mapping[int, Receipt]) -> Iterator[str]:
    """Say which receipts of a node are missing in the middle, and which do not follow the one before."""
    last, hashed = 0, ""
    for number in sorted(found):
        if number > last + 1:
            which = f"receipt {number - 1}" if number == last + 2 else f"receipts {last + 1} to {number - 1}"
            yield f"{end.name}: {which} of {node} missing: dropped, or changed"
        elif found[number].before != hashed:
            yield f"{end.name}: receipt {number} of {node} does not follow the one before it: two histories"
        last, hashed = number, found[number].hash


def _between(copies: Sequence[End]) -> Iterator[str]:
    """Compare the ends with one another."""
    for position, one in enumerate(copies):
        for other in copies[position + 1 :]:
            for node in sorted({*one.found, *other.found} & {*one.nodes, *one.found} & {*other.nodes, *other.found}):
                mine, theirs = one.found.get(node, {}), other.found.get(node, {})
                for short, long, a, b in ((mine, theirs, one, other), (theirs, mine, other, one)):
                    if max(long, default=0) > (last := max(short, default=0)):
                        rest = f"{b.name} has them up to {max(long)}: dropped, or still on their way"
                        yield f"{a.name}: receipts of {node} end at {last}, {rest}"
                for number in sorted(mine.keys() & theirs.keys()):
                    if mine[number] != theirs[number]:
                        yield f"{one.name} and {other.name} have different receipts {number} of {node}"


def _ledger(plan: Plan, copies: Sequence[End], path: Path) -> Iterator[str]:
    """Say which messages a ledger claims that no receipt covers."""
    nodes = {node for end in copies for node in (*end.nodes, *end.found)}
    missing = _claimed(plan, path) - _covered(copies)
    for (node, kind, round, to, size), times in sorted(missing.items()):
        if node in nodes:
            more = f", {times} times" if times > 1 else ""
            yield f"{path}: no receipt covers {kind!r} of round {round} from {node} to {to}, {size} bytes{more}"


def _covered(copies: Sequence[End]) -> Counter[Claim]:
    """Count the messages that receipts cover. A receipt that several ends have counts once."""
    covered: Counter[Claim] = Counter()
    for receipt in {r for end in copies for found in end.found.values() for r in found.values()}:
        covered.update((receipt.node, receipt.kind, receipt.round, to, receipt.size) for to in receipt.to)
    return covered


def _claimed(plan: Plan, path: Path) -> Counter[Claim]:
    """Count the messages of participants that a ledger claims to have received."""
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return Counter(
            (row["from"], row["kind"], row["round"], row["to"], row["payload"])
            for row in rows
            if "kind" in row and row["status"] != "withheld" and row["from"] in plan.remote
        )
    except (ValueError, KeyError, TypeError):
        raise DeployError(f"{path} is damaged") from None
