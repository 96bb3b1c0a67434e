"""What a member of a sum does: keeps its message, shares secrets, masks, and helps to open a sum it agreed to.

It answers each question once. What it does not agree to, it refuses: it is absent then, and its ledger says why.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heterophony.kernel.fields import Refused
from heterophony.kernel.message import Kind, Message, Send
from heterophony.kernel.node import Node
from heterophony.kernel.sum import Sum
from heterophony.kernel.work import Note, Steps
from heterophony.masking.crypto import SEED, mask, public, sealed, shares, unsealed
from heterophony.masking.fixed_point import encoded, form_of
from heterophony.masking.options import Secure
from heterophony.masking.protocol import (
    KEPT,
    KEY,
    KEYS,
    MASKED,
    OPENING,
    PURPOSE,
    SHARES,
    VOTES,
    Secrets,
    in_common,
    mask_key,
    octets,
    pair_key,
    raw,
    seal_key,
    signed,
    vote,
)

log = logging.getLogger("heterophony.masking")
BEYOND = "secure.beyond"  # the quantity of a note: values that were outside the range


def keep(rule: Sum, node: Node, send: Send) -> Send:
    """Keep a message at home, and send keys in its place."""
    assert send.to is not None
    if send.withheld:
        node.vars[KEPT] = None
        return KEYS.absent(send.to, round=send.round)
    secrets, (parent,) = Secrets(node.fresh(PURPOSE)), send.to
    keys, form = public(secrets.sealing) + public(secrets.pairs), form_of(rule, send.body)
    signature = node.vault.sign(signed(send.round or 0, parent, node.id, keys, form))
    node.vars[KEPT] = {
        "asked": SHARES.name,
        "round": send.round,
        "parent": parent,
        "body": dict(send.body),
        "form": octets(form),
    }
    return KEYS(send.to, round=send.round, keys=octets(keys + signature), form=octets(form))


class _Refusal(Exception):
    """A question that a member does not answer."""


def _asked(node: Node, mail: Message, answer: Kind) -> dict[str, Any]:
    """Return what is kept, if this is what is asked next of it."""
    kept: dict[str, Any] | None = node.vars.get(KEPT)
    if kept is None or (kept["round"], kept["parent"]) != (mail.round, mail.sender):
        raise _Refusal("it has nothing to add to a sum of this round")
    if kept["asked"] != answer.name:
        raise _Refusal(f"it has answered that already, and {kept['asked'] or 'nothing'} comes next")
    return kept


def _answered(node: Node, mail: Message, answer: Kind, why: Exception) -> Send:
    node.refusals.append(f"{mail.kind!r} of round {mail.round} from {mail.sender}: {why}")
    return answer.absent(round=mail.round)


def _secrets(node: Node) -> Secrets:
    return Secrets(node.secret(PURPOSE))


# -- after NEAR ----------------------------------------------------------------------------------------------------
def share(how: Secure, node: Node, mail: Message) -> Send:
    """Share both secrets among the neighbours, each share sealed for one of them."""
    try:
        kept = _asked(node, mail, SHARES)
        secrets, near = _secrets(node), {name: raw(keys) for name, keys in mail.keys.items()}
        _check_near(how, node, kept, near, secrets, int(mail.members))
        names, needed = list(near), how.needed(len(near))
        pairs = zip(*(shares(s, len(names), needed) for s in (secrets.alone, secrets.pairs)), strict=True)
        both = {name: alone + pair for name, (alone, pair) in zip(names, pairs, strict=True)}
        out = {
            name: octets(_seal(secrets, near[name], node.id, name, mail.round, both[name]))
            for name in names
            if name != node.id
        }
    except (_Refusal, Refused, ValueError) as error:
        return _answered(node, mail, SHARES, error)
    node.vars[KEPT] = {
        **kept,
        "asked": MASKED.name,
        "near": {name: octets(keys[:KEY]) for name, keys in near.items()},
        "members": int(mail.members),
        "own": octets(both[node.id]),
    }
    return SHARES(round=mail.round, shares=out)


def _check_near(
    how: Secure, node: Node, kept: Mapping[str, Any], near: Mapping[str, bytes], secrets: Secrets, members: int
) -> None:
    """Refuse a cohort that is too small, or that has somebody in it who has not said so."""
    own = public(secrets.sealing) + public(secrets.pairs)
    if node.id not in near or near[node.id][:KEY] != own:
        raise _Refusal("its own keys are not among those of the cohort")
    least = max(how.least, node.vault.least)
    if len(near) < least or members < len(near):
        raise _Refusal(f"a sum of {len(near)}, and it takes part in sums of at least {least}")
    if len({keys[:KEY] for keys in near.values()}) < len(near):
        raise _Refusal("two members have the same keys")
    for name, keys in near.items():
        about = signed(kept["round"], kept["parent"], name, keys[:KEY], raw(kept["form"]))
        if name != node.id and (why := node.vault.doubt(name, about, keys[KEY:])):
            raise _Refusal(f"{name!r:.40} is no member of the cohort: {why}")


def _seal(secrets: Secrets, key: bytes, giver: str, taker: str, round: int, both: bytes) -> bytes:
    return sealed(seal_key(secrets.sealing, key, "share", giver, taker), both, f"{round}/{giver}/{taker}".encode())


# -- after BUNDLE --------------------------------------------------------------------------------------------------
def add_masks(rule: Sum, how: Secure, node: Node, mail: Message) -> Steps:
    """Send the message's numbers under masks, which cancel in the sum of all who have shared."""
    try:
        kept = _asked(node, mail, MASKED)
        near: dict[str, Tensor] = kept["near"]
        pairs = [name for name in near if name in mail.shares and name != node.id]
        _check_enough(how, node, len(pairs) + 1, len(near))
        secrets = _secrets(node)
        numbers, beyond = encoded(rule, how, kept["body"], kept["members"])
        words = numbers + mask(mask_key(secrets.alone), len(numbers), how.bits)
        for name in pairs:
            of_pair = mask(pair_key(secrets.pairs, raw(near[name])), len(numbers), how.bits)
            words = words + of_pair if node.id < name else words - of_pair
    except (_Refusal, Refused, ValueError) as error:
        return _answered(node, mail, MASKED, error)
    rest = {key: value for key, value in kept.items() if key != "body"}
    taken = {name: mail.shares[name] for name in pairs}
    node.vars[KEPT] = {**rest, "asked": VOTES.name, "shares": taken}
    if beyond:
        log.warning("%s: %d values beyond secure.range = %g were cut off", node.id, beyond, how.range)
        yield Note(BEYOND, beyond)
    return MASKED(round=mail.round, words=torch.from_numpy(words.view(f"<i{how.bits // 8}").copy()))


def _check_enough(how: Secure, node: Node, there: int, neighbourhood: int) -> None:
    """Refuse where too few are left: a sum of them would tell too much, or could not be opened."""
    fewest = max(how.least, node.vault.least, how.needed(neighbourhood))
    if there < fewest:
        raise _Refusal(f"{there} of its neighbourhood of {neighbourhood} are left, and it takes {fewest}")


# -- after SURVIVORS -----------------------------------------------------------------------------------------------
def agree(how: Secure, node: Node, mail: Message) -> Send:
    """Tell each neighbour who is in the sum, as this member has heard it, under a key of the two."""
    try:
        kept = _asked(node, mail, VOTES)
        near = list(kept["near"])
        if len(mail.alive) != len(near) or bool((mail.alive > 1).any()):
            raise _Refusal(f"{len(mail.alive)} signs of life, of a neighbourhood of {len(near)}")
        alive = [name for name, flag in zip(near, mail.alive.tolist(), strict=True) if flag]
        known = {node.id, *kept["shares"]}
        if node.id not in alive or not known.issuperset(alive):
            raise _Refusal("it lists itself as lost, or one that has shared nothing as alive")
        _check_enough(how, node, len(alive), len(near))
        secrets, out = _secrets(node), {}
        for name in alive:
            if name != node.id:
                both, about = in_common(near, node.id, name, kept["members"]), (node.id, name, mail.round)
                out[name] = octets(vote(secrets.sealing, raw(kept["near"][name]), about, both, alive))
    except (_Refusal, Refused, ValueError) as error:
        return _answered(node, mail, VOTES, error)
    node.vars[KEPT] = {**kept, "asked": OPENING.name, "alive": alive}
    return VOTES(round=mail.round, votes=out)


# -- after TALLY ---------------------------------------------------------------------------------------------------
def reveal(how: Secure, node: Node, mail: Message) -> Send:
    """Give shares of the masks of all who are in the sum, and of the pairs of all who are lost; never both of one."""
    try:
        kept = _asked(node, mail, OPENING)
        near, alive, secrets = kept["near"], kept["alive"], _secrets(node)
        _check_votes(how, node, kept, mail, secrets)
        out = {}
        for name in (node.id, *kept["shares"]):
            both = raw(kept["own"]) if name == node.id else _opened(kept, secrets, node.id, name, raw(near[name]))
            if both is not None:
                out[name] = octets(both[:SEED] if name in alive else both[SEED:])
    except (_Refusal, Refused, ValueError) as error:
        return _answered(node, mail, OPENING, error)
    node.vars[KEPT] = {"asked": "", "round": kept["round"], "parent": kept["parent"]}
    return OPENING(round=mail.round, shares=out)


def _check_votes(how: Secure, node: Node, kept: Mapping[str, Any], mail: Message, secrets: Secrets) -> None:
    """Refuse where somebody was told of other survivors, or where too few have said of whom they were told."""
    near, alive = kept["near"], kept["alive"]
    for name, tag in mail.votes.items():
        if name not in alive or name == node.id:
            raise _Refusal(f"{name!r:.40} is not among those who are in the sum")
        both = in_common(list(near), node.id, name, kept["members"])
        if raw(tag) != vote(secrets.sealing, raw(near[name]), (name, node.id, mail.round), both, alive):
            raise _Refusal(f"{name} was told of other survivors")
    _check_enough(how, node, len(mail.votes) + 1, len(near))


def _opened(kept: Mapping[str, Any], secrets: Secrets, own: str, giver: str, key: bytes) -> bytes | None:
    about = f"{kept['round']}/{giver}/{own}".encode()
    return unsealed(seal_key(secrets.sealing, key, "share", giver, own), raw(kept["shares"][giver]), about)
