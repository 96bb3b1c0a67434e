"""Receipts: what a node sent, signed with its organisation's key. One line a message; both ends keep a copy.

A receipt names the federation, the plan, the round, the kind, the receivers, the bytes and a hash of the content. It
has a number, and a hash of the receipt before it, so that none can be left out unseen. `audit.py` reads them.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from heterophony.base import codec
from heterophony.base.disk import Disk
from heterophony.deploy import keys
from heterophony.deploy.named_function import DeployError
from heterophony.deploy.plan import Plan
from heterophony.kernel.fields import Refused
from heterophony.kernel.message import Send, whole

PURPOSE = b"heterophony receipt 1\n"  # the same key signs for Flower too: no signature of one use serves the other
LONGEST = 1_000_000  # characters of a line: thousands of receivers have room
log = logging.getLogger("heterophony.coordinator")


@dataclass(frozen=True)
class Receipt:
    """What one message was. The content itself is not in it."""

    federation: str
    plan: str  # its digest
    node: str
    number: int  # a node's receipts are counted from one
    before: str  # the hash of the receipt before; empty for the first
    reaction: int
    place: int  # of the message among those of the reaction
    round: int
    kind: str
    to: tuple[str, ...]
    size: int  # bytes of its values, as in the ledger
    sha256: str  # of the content, by `codec.fingerprint`

    @property
    def content(self) -> bytes:
        """Return what is signed."""
        return PURPOSE + json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def says(self, send: Send) -> bool:
        """Return whether the receipt is of this message."""
        return (self.kind, self.round, self.to, self.size, self.sha256) == _about(send)


NUMBERS = {field.name for field in fields(Receipt) if field.type == "int"}


@dataclass(frozen=True)
class Signed:
    """A receipt with its signature: a line of a file."""

    receipt: Receipt
    signature: bytes

    @property
    def line(self) -> str:
        return json.dumps({**asdict(self.receipt), "signature": self.signature.hex()})

    def by(self, key: Any) -> bool:
        """Return whether the owner of this public key has signed it."""
        return keys.verified(key, self.receipt.content, self.signature)

    @classmethod
    def of(cls, line: Any) -> Signed:
        """Return the receipt in a line; raise `ValueError` if there is none. It may come from anybody."""
        if not isinstance(line, str) or len(line) > LONGEST:
            raise ValueError("no receipt")
        try:
            value = json.loads(line)
        except RecursionError:
            raise ValueError("no receipt: too deep") from None
        if not isinstance(value, dict) or value.keys() != {*Receipt.__dataclass_fields__, "signature"}:
            raise ValueError("no receipt: its fields are others")
        signature, to = value.pop("signature"), value.pop("to")
        if not isinstance(to, list) or not all(isinstance(text, str) for text in [signature, *to]):
            raise ValueError("no receipt: a field is no text")
        for name, given in value.items():
            if not (whole(given) if name in NUMBERS else isinstance(given, str)):
                raise ValueError(f"no receipt: {name} is {given!r:.40}")
        return cls(Receipt(**value, to=tuple(to)), bytes.fromhex(signature))


def _about(send: Send) -> tuple[Any, ...]:
    content = codec.fingerprint(dict(send.body)).hex()
    return send.kind.name, send.round or 0, tuple(send.to or ()), send.kind.payload(send.body), content


class Signer:
    """Signs for the nodes of one organisation."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def sign(
        self, plan: Plan, node: str, reaction: int, sends: Sequence[Send], last: Mapping[str, Any] | None
    ) -> list[str]:
        """Return a line for each message that leaves. `last` is the node's last receipt, as it stands in its file."""
        before = None if last is None else Signed.of(json.dumps(last)).receipt
        lines = []
        for place, send in enumerate(sends):
            if send.withheld:
                continue
            number, hashed = (1, "") if before is None else (before.number + 1, before.hash)
            kind, round, to, size, content = _about(send)
            before = Receipt(
                plan.id, plan.digest, node, number, hashed, reaction, place, round, kind, to, size, content
            )
            lines.append(Signed(before, keys.sign(self.key, before.content)).line)
        return lines


class Receipts:
    """The coordinator's copy: a file for each node in `receipts/`.

    Arguments:
        folder: where the files are.
        plan: what was agreed.
        known: public keys by organisation.
    """

    def __init__(self, folder: Path, plan: Plan, known: Mapping[str, Any], disk: Disk | None = None) -> None:
        self.folder, self.plan, self.disk = folder, plan, disk or Disk()
        self.keys = {node: known[name] for name in plan.everyone for node in plan.held_by(name)}
        self.kept: dict[str, dict[int, str]] = {}  # by node and number: the hash of a receipt

    def checked(self, node: str, reaction: int, sends: Sequence[Send], lines: Any) -> list[Signed]:
        """Return the receipts of an answer; raise `Refused` unless each message has one, signed by who holds it."""
        if not isinstance(lines, list) or len(lines) > len(sends):
            raise Refused("an answer without receipts: install the same version everywhere")
        try:
            found = [Signed.of(line) for line in lines]
        except ValueError:
            raise Refused("malformed: no receipt") from None
        mine = (self.plan.id, self.plan.digest, node, reaction)
        for signed in found:
            receipt = signed.receipt
            if (receipt.federation, receipt.plan, receipt.node, receipt.reaction) != mine or not signed.by(
                self.keys[node]
            ):
                raise Refused(f"receipt {receipt.number} is not one of {node} for this answer")
            if self._kept(node).get(receipt.number, receipt.hash) != receipt.hash:
                raise Refused(f"another receipt {receipt.number} came before: was an old state put back?")
        by_place = {signed.receipt.place: signed.receipt for signed in found}
        for place, send in enumerate(sends):  # what a stricter policy withholds the second time has one nevertheless
            if not send.withheld and (place not in by_place or not by_place[place].says(send)):
                raise Refused(f"no receipt says what its message {send.kind.name!r} is")
        return found

    def keep(self, node: str, found: Sequence[Signed]) -> None:
        """Write down the receipts that are new; after a crash the same answer comes once more."""
        kept = self._kept(node)
        new = [signed for signed in found if signed.receipt.number not in kept]
        if not new:
            return
        if new[0].receipt.number != len(kept) + 1:
            log.warning("%s: receipts before %d are missing here", node, new[0].receipt.number)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.disk.append(self._file(node), "".join(signed.line + "\n" for signed in new).encode())
        kept |= {signed.receipt.number: signed.receipt.hash for signed in new}

    def _file(self, node: str) -> Path:
        return self.folder / f"{node}.jsonl"

    def _kept(self, node: str) -> dict[int, str]:
        if node not in self.kept:
            self.kept[node] = self._read(self._file(node))
        return self.kept[node]

    def _read(self, path: Path) -> dict[int, str]:
        """Return what stands in a file. A last line that a crash has cut off is taken away: it will come again."""
        data = path.read_bytes() if path.exists() else b""
        if (whole_lines := data.rpartition(b"\n")[0]) and len(whole_lines) + 1 < len(data):
            self.disk.truncate(path, len(whole_lines) + 1)
        elif data and not whole_lines:
            self.disk.truncate(path, 0)
        try:
            found = [Signed.of(line).receipt for line in whole_lines.decode().splitlines()]
        except ValueError as error:
            raise DeployError(f"{path} is damaged ({error}): put a backup of it back") from None
        return {receipt.number: receipt.hash for receipt in found}
