"""Secrets that a node keeps to itself, and signatures in its owner's name.

At home they come from the operating system's entropy. In a simulation they follow from the seed, so that a run can be
repeated. A secret is bound to a counter that the node owns. It never follows from the round, which others can say.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from heterophony.kernel.node import Node


class Vault(Protocol):
    """Where a node's secrets lie."""

    least: int  # the fewest members of a sum that the owner takes part in

    def fresh(self, node: Node, purpose: str, used: int) -> int:
        """Make a new secret of a purpose, and return its number: above all that were ever `used`."""

    def secret(self, node: Node, purpose: str, number: int) -> bytes:
        """Return the 32 bytes of the newest secret. Raise `Refused` where its number is another one."""

    def sign(self, data: bytes) -> bytes:
        """Return the owner's signature; nothing, where nobody signs."""

    def doubt(self, member: str, data: bytes, signature: bytes) -> str:
        """Return why this is no signature of a member whom the owner knows; nothing, if it is one."""


class SeededVault:
    """Secrets of a simulation: they follow from (seed, node, purpose, number), and nobody signs."""

    least = 0

    def fresh(self, node: Node, purpose: str, used: int) -> int:
        return used + 1

    def secret(self, node: Node, purpose: str, number: int) -> bytes:
        text = "\x1f".join(map(str, ("secret", node.seed, node.id, purpose, number)))
        return hashlib.sha256(text.encode()).digest()

    def sign(self, data: bytes) -> bytes:
        return b""

    def doubt(self, member: str, data: bytes, signature: bytes) -> str:
        return ""
