"""A node's secrets at home: from the operating system's entropy, in a file beside its state.

Only the newest secret of each purpose is kept. Its number counts beside the state: where the state is an old one that
was put back, the secret is of a later number, and nothing that was masked with an older one can be masked again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heterophony.deploy import keys
from heterophony.kernel.fields import Refused
from heterophony.kernel.node import Node

BYTES = 32


class HomeVault:
    """The secrets of one node.

    Arguments:
        file: where they lie. Nobody else may read it, and no backup should have it.
        federation: what is signed, is signed for this federation.
        key: with which the owner signs; None: it does not.
        members: by node, the public key of who may be in a sum with this one; None: nobody signs, in a rehearsal.
        least: the fewest members of a sum that the owner takes part in.
    """

    def __init__(
        self,
        file: Path,
        federation: str,
        key: Any = None,
        members: Mapping[str, str] | None = None,
        least: int = 0,
    ) -> None:
        self.file, self.federation, self.key, self.members, self.least = file, federation, key, members, least

    def fresh(self, node: Node, purpose: str, used: int) -> int:
        found = self._read()
        number = max(used, found.get(purpose, (0, ""))[0]) + 1
        found[purpose] = (number, secrets.token_hex(BYTES))
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        keys.write_secret(self.file, json.dumps(found).encode())
        return number

    def secret(self, node: Node, purpose: str, number: int) -> bytes:
        newest, text = self._read().get(purpose, (0, ""))
        if newest != number or not text:
            raise Refused(f"its secret number {number} is gone, the newest is {newest}: was an old state put back?")
        return bytes.fromhex(text)

    def sign(self, data: bytes) -> bytes:
        return b"" if self.key is None else keys.signature(self.key, self._about(data))

    def doubt(self, member: str, data: bytes, signature: bytes) -> str:
        if self.members is None:
            return ""
        if member not in self.members:
            return "the plan has no such member beside this node"
        known = keys.public_of(self.members[member])
        return "" if keys.has_signed(known, self._about(data), signature) else "it has not signed these keys"

    def _about(self, data: bytes) -> bytes:
        return b"heterophony secure sum\x1f" + self.federation.encode() + b"\x1f" + data

    def _read(self) -> dict[str, tuple[int, str]]:
        try:
            value = json.loads(self.file.read_bytes())
            return {str(purpose): (int(number), str(text)) for purpose, (number, text) in value.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError):
            return {}  # damaged: what it held is gone, and this node is absent until its next message
