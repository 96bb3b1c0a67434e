"""What a server, or a parent in a tree, does to get a sum: it passes on what members seal for each other, and adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from heterophony.kernel.fields import Refused
from heterophony.kernel.mailbox import Inbox, Summed, Total
from heterophony.kernel.message import Body, Message, Send
from heterophony.kernel.node import Node
from heterophony.kernel.sum import Sum
from heterophony.masking.crypto import PUBLIC, mask, public, recovered
from heterophony.masking.fixed_point import Numbers, decoded, size_of
from heterophony.masking.options import Secure
from heterophony.masking.protocol import (
    BUNDLE,
    GATHERED,
    KEY,
    NEAR,
    SIGNATURE,
    SURVIVORS,
    TALLY,
    mask_key,
    neighbourhoods,
    octets,
    pair_key,
    raw,
)

SHARING, MASKING, VOTING, OPENING = (f"secure-{what}" for what in ("sharing", "masking", "voting", "opening"))


class Failed(Exception):
    """There is no sum in this round; the text says why."""


def introduce(how: Secure, node: Node, mail: Inbox) -> list[Send]:
    """Tell each member its neighbours' keys. Messages of another form than most cannot be added."""
    sound = [m for m in mail if len(m.keys) in (KEY, KEY + SIGNATURE)]
    usual = Counter(raw(m.form) for m in sound).most_common(1)
    keys = {m.sender: raw(m.keys) for m in sound if raw(m.form) == usual[0][0]}
    if len(keys) < how.least:
        raise Failed(f"{len(keys)} have something of one form to add, and a sum takes {how.least}")
    near = neighbourhoods(keys, how.degree(len(keys)))
    node.vars[GATHERED] = {
        "keys": {name: octets(key[:KEY]) for name, key in keys.items()},
        "near": near,
        "form": octets(usual[0][0]),
    }
    node.group(list(keys), SHARING)
    return [NEAR(u, keys={v: octets(keys[v]) for v in near[u]}, members=len(keys)) for u in keys]


def forward(how: Secure, node: Node, mail: Inbox) -> list[Send]:
    """Give each member what the others have sealed for it."""
    found = _found(node)
    given: dict[str, dict[str, Any]] = {m.sender: m.shares for m in mail if m.sender in found["keys"]}
    if len(given) < how.least:
        raise Failed(f"{len(given)} of {len(found['keys'])} have shared, and a sum takes {how.least}")
    node.vars[GATHERED] = {**found, "members": list(given)}
    node.group(list(given), MASKING)
    bundles = {u: {v: given[v][u] for v in found["near"][u] if v != u and v in given and u in given[v]} for u in given}
    return [BUNDLE(u, shares=bundle) for u, bundle in bundles.items()]


def add_up(how: Secure, node: Node, mail: Inbox) -> list[Send]:
    """Add all masked numbers, and tell who is in the sum."""
    found = _found(node)
    size, dtype = size_of(raw(found["form"])), {32: torch.int32, 64: torch.int64}[how.bits]
    members = set(found["members"])
    there = [m for m in mail if m.sender in members and m.words.dtype == dtype and len(m.words) == size]
    if len(there) < how.least:
        raise Failed(f"{len(there)} of {len(found['keys'])} have sent numbers of the form, and a sum takes {how.least}")
    total = np.zeros(size, f"<u{how.bits // 8}")
    for message in there:
        total = total + message.words.numpy().view(total.dtype)
    alive = {m.sender: True for m in there}
    signed = torch.from_numpy(total.view(f"<i{how.bits // 8}"))
    node.vars[GATHERED] = {**found, "alive": list(alive), "total": signed}
    node.group(list(alive), VOTING)
    flags = {u: torch.tensor([v in alive for v in found["near"][u]], dtype=torch.uint8) for u in alive}
    return [SURVIVORS(u, alive=flags[u]) for u in alive]


def pass_on(how: Secure, node: Node, mail: Inbox) -> list[Send]:
    """Give each member the others' words on who is in the sum."""
    found = _found(node)
    alive, near = set(found["alive"]), found["near"]
    votes: dict[str, dict[str, Any]] = {m.sender: m.votes for m in mail if m.sender in alive}
    if len(votes) < how.least:
        raise Failed(f"{len(votes)} have voted, and a sum takes {how.least}")
    node.group(list(votes), OPENING)
    return [TALLY(u, votes={v: votes[v][u] for v in near[u] if v != u and u in votes.get(v, ())}) for u in votes]


def opened(rule: Sum, how: Secure, node: Node, mail: Inbox) -> Summed:
    """Take the masks away, and return the sum as a method reads it."""
    found = _found(node)
    total = _unmasked(how, found, mail)
    body = decoded(rule, how, total, raw(found["form"]), len(found["keys"]), len(found["alive"]))
    placed = {
        name: {key: tensor.to(node.device) for key, tensor in value.items()} if isinstance(value, dict) else value
        for name, value in body.items()
    }
    summed = Summed(Total(rule.kind.name, node.round, Body(placed)), found["alive"])
    summed.also = mail.also
    return summed


def _found(node: Node) -> dict[str, Any]:
    found: dict[str, Any] | None = node.vars.get(GATHERED)
    if found is None:
        raise Failed("nothing was gathered")
    return found


def _unmasked(how: Secure, found: Mapping[str, Any], mail: Sequence[Message]) -> Numbers:
    """Return the sum without the masks of those in it, and without those that others had added for who is lost."""
    keys = {name: raw(key) for name, key in found["keys"].items()}
    near, alive = found["near"], set(found["alive"])
    given: dict[str, dict[str, Any]] = {m.sender: m.shares for m in mail if m.sender in alive}
    total: Numbers = found["total"].numpy().view(f"<u{how.bits // 8}").copy()
    for name in found["members"]:
        secret = _recovered(how, name, near[name], given)
        if name in alive:
            total = total - mask(mask_key(secret), len(total), how.bits)
            continue
        if public(secret) != keys[name][PUBLIC:]:
            raise Failed(f"the shares of {name}, who is lost, are not those of its key")
        for other in near[name]:
            if other in alive:
                of_pair = mask(pair_key(secret, keys[other]), len(total), how.bits)
                total = total - of_pair if other < name else total + of_pair
    return total


def _recovered(how: Secure, name: str, near: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> bytes:
    needed = how.needed(len(near))
    places = [i for i, other in enumerate(near) if name in given.get(other, {})][:needed]
    if len(places) < needed:
        raise Failed(f"{len(places)} have given their share of a secret of {name}, and it takes {needed}")
    try:
        return recovered({i: raw(given[near[i]][name]) for i in places})
    except ValueError as error:
        raise Refused(str(error)) from None
