"""The messages of a masked sum, and what both ends know of them.

    KEYS -> NEAR | SHARES -> BUNDLE | MASKED -> SURVIVORS | VOTES -> TALLY | OPENING

Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017; neighbourhoods as in
Bell et al., Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020 (SecAgg+). Keys are asked for
when a member has something to send, which is after its training: who is lost before that costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from heterophony.kernel.fields import Octets, Packed, Scalar, Words
from heterophony.kernel.message import Kind
from heterophony.masking.crypto import PUBLIC, SEED, TAG, agreed, derived, sealed

KEY = 2 * PUBLIC  # one to seal with, one to mask with
SIGNATURE = 96  # bytes of the signature beside a key, where members sign
SHARE = 2 * SEED + TAG  # a share of both secrets, sealed

KEYS = Kind("keys", to="parent", keys=Packed, form=Packed)
NEAR = Kind("near", to="children", keys=Octets((KEY, KEY + SIGNATURE)), members=Scalar(low=1))
SHARES = Kind("shares", to="parent", shares=Octets((SHARE,)))
BUNDLE = Kind("bundle", to="children", shares=Octets((SHARE,)))
MASKED = Kind("masked", to="parent", words=Words)
SURVIVORS = Kind("survivors", to="children", alive=Packed)
VOTES = Kind("votes", to="parent", votes=Octets((TAG,)))
TALLY = Kind("tally", to="children", votes=Octets((TAG,)))
OPENING = Kind("opening", to="parent", shares=Octets((SEED,)))
PROTOCOL = (KEYS, NEAR, SHARES, BUNDLE, MASKED, SURVIVORS, VOTES, TALLY, OPENING)

KEPT, GATHERED = "kept for a sum", "gathered for a sum"  # what a member, and who gathers, remember
PURPOSE = "sums"  # of a node's secret


def octets(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def raw(tensor: Tensor) -> bytes:
    return bytes(tensor.numpy().tobytes())


class Secrets:
    """What follows from a member's secret of one message: to seal with, to mask in pairs, to mask alone."""

    def __init__(self, secret: bytes) -> None:
        self.sealing, self.pairs, self.alone = (derived(secret, what)[:SEED] for what in ("seal", "pairs", "alone"))


def mask_key(alone: bytes) -> bytes:
    """Return the key of a member's own mask."""
    return derived(alone, "mask")


def pair_key(pairs: bytes, other: bytes) -> bytes:
    """Return the key of the mask of a pair: of one's secret and the other's public keys."""
    return agreed(pairs, other[PUBLIC:KEY], "pair")


def seal_key(sealing: bytes, other: bytes, *about: object) -> bytes:
    """Return a key that seals one thing between two members, in one direction."""
    return agreed(sealing, other[:PUBLIC], *about)


def signed(round: int, parent: str, member: str, keys: bytes, form: bytes) -> bytes:
    """Return what a member signs: that these are its keys in that round, for messages of that form."""
    return b"\x1f".join([str(round).encode(), parent.encode(), member.encode(), keys, hashlib.sha256(form).digest()])


def circle(keys: Mapping[str, bytes]) -> list[str]:
    """Return members in an order that follows from the keys that they have just made."""
    return sorted(keys, key=lambda name: hashlib.sha256(keys[name]).digest())


def neighbourhoods(keys: Mapping[str, bytes], degree: int) -> dict[str, list[str]]:
    """Return, for each member, itself among its neighbours on the circle: as many before it as after it, or all."""
    order = circle(keys)
    if degree >= len(order) - 1:
        return dict.fromkeys(order, order)
    half, n = degree // 2, len(order)
    return {name: [order[(i + d) % n] for d in range(-half, half + 1)] for i, name in enumerate(order)}


def in_common(near: Sequence[str], own: str, other: str, members: int) -> list[str]:
    """Return those whom a member and one of its neighbours both have as neighbours, as far as either can tell."""
    if len(near) == members:
        return list(near)
    half, place = len(near) // 2, near.index(other)
    return [name for i, name in enumerate(near) if abs(i - place) <= half]


def vote(sealing: bytes, other: bytes, about: Sequence[object], names: Sequence[str], alive: Any) -> bytes:
    """Return a member's word, for one other member, on who of those whom both know is in the sum."""
    told = "\x1f".join([*sorted(name for name in names if name in alive), "", *sorted(names)])
    return sealed(seal_key(sealing, other, "vote", *about), b"", told.encode())
