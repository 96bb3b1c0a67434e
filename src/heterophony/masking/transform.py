"""A method whose server gets only sums: `secure(FedAvg())` is a method again.

The one window that waits for messages becomes five, and the reaction to it is given their sum. When a message is sent,
and what becomes of the mean, stays as it is.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from functools import lru_cache
from typing import Any

from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Kind, Message, Send
from heterophony.kernel.method import Method, derived
from heterophony.kernel.node import Node
from heterophony.kernel.reaction import Each, Every, Reaction, on
from heterophony.kernel.sum import NotSummable
from heterophony.kernel.work import Steps
from heterophony.masking import gatherer, member
from heterophony.masking.options import Secure, secure_of
from heterophony.masking.protocol import (
    BUNDLE,
    GATHERED,
    KEPT,
    KEYS,
    MASKED,
    NEAR,
    OPENING,
    PROTOCOL,
    SHARES,
    SURVIVORS,
    TALLY,
    VOTES,
)

log = logging.getLogger("heterophony.masking")


def secure(method: Method, how: Secure | Mapping[str, Any] | bool | None = True) -> Method:
    """Return the same method, whose servers see sums only.

    Raise `NotSummable` where the method, or one of its options, reads single messages.
    """
    chosen = secure_of(how)
    if chosen is None:
        return method
    name = type(method).__name__
    rule = method.sums()
    if rule is None:
        raise NotSummable(f"secure: {name} reads single messages, or does not say that a sum is enough for it")
    if rule.kind.to != "parent":
        raise NotSummable(f"secure: {rule.kind.name!r} goes to {rule.kind.to}, and sums are taken at a parent")
    chosen.check(rule.weighted)
    options = {part.name: getattr(method, part.name) for part in fields(method)}  # type: ignore[arg-type]
    cls: Any = type(method)  # its class has a hash, which type checkers do not see
    made: Method = _derived(cls, rule.kind, chosen.at)(**{**options, "secure": chosen})
    return made


def _again(cls: type[Method], options: Mapping[str, Any], how: Secure) -> Method:
    """Return a secure method from what was pickled of it."""
    return secure(cls(**options), how)


@lru_cache(maxsize=64)
def _derived(cls: type[Method], kind: Kind, at: tuple[str, ...]) -> type[Method]:
    """Return the class of secure methods of a class, which takes sums of a kind at some roles."""
    gather = _gathering(cls, kind)
    roles = _roles(cls, gather, at)
    rest = tuple(role for role in gather.roles if role not in roles)
    window = gather.trigger
    assert isinstance(window, Every)
    protocol = [known.name for known in PROTOCOL]
    if taken := sorted({known.name for known in cls.kinds} & set(protocol)):
        raise NotSummable(f"secure: {cls.__name__} has a kind {taken[0]!r} of its own")
    parts: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": f"{cls.__name__}, whose {kind.name!r} are only ever seen as sums.",
        "__annotations__": {"secure": Secure},
        "secure": field(default=Secure()),
        "kinds": tuple(known for known in cls.kinds if known is not kind or rest) + PROTOCOL,
        "masked": (kind,),
        "memory": (*cls.memory, KEPT, GATHERED),
        "told": property(lambda self: cls.kinds),
        "sends": lambda self: tuple(known for known in cls.sends(self) if known is not kind or rest) + PROTOCOL,
        "hide": lambda self, node, send: member.keep(self.sums(), node, send),
        "hides": lambda self, known, role: known is kind and role in roles,
        "__reduce__": _reduced,
        **_at_members(),
        **_at_gatherers(gather, window, roles),
    }
    if rest:  # there, messages come as they are
        parts[gather.name] = on(window, rest)(lambda self, node, mail: getattr(cls, gather.name)(self, node, mail))
    return derived(cls, f"Secure{cls.__name__}", parts, without=() if rest else (gather.name,))


def _gathering(cls: type[Method], kind: Kind) -> Reaction:
    """Return the reaction that gets sums: the one that a window of this kind wakes."""
    found = [reaction for reaction in cls.reactions if kind in reaction.kinds]
    if len(found) != 1 or not isinstance(found[0].trigger, Every) or found[0].trigger.kind is not kind:
        raise NotSummable(f"secure: {cls.__name__} merges {kind.name!r} as they come, and a sum needs a window for all")
    if found[0].trigger.late == "accept":
        raise NotSummable(f"secure: {cls.__name__} accepts late {kind.name!r}, which are in no sum")
    return found[0]


def _roles(cls: type[Method], gather: Reaction, at: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [role for role in at if role not in gather.roles]:
        raise NotSummable(f"secure.at: {unknown[0]!r} merges nothing; the roles that do are {', '.join(gather.roles)}")
    return at or gather.roles


def _reduced(self: Any) -> Any:
    cls = type(self).__bases__[0]
    options = {part.name: getattr(self, part.name) for part in fields(cls)}
    return _again, (cls, options, self.secure)


def _at_members() -> dict[str, Any]:
    """Return the reactions of whoever sends, of any role."""

    def secure_share(self: Any, node: Node, mail: Message) -> Send:
        return member.share(self.secure, node, mail)

    def secure_mask(self: Any, node: Node, mail: Message) -> Steps:
        return (yield from member.add_masks(self.sums(), self.secure, node, mail))

    def secure_agree(self: Any, node: Node, mail: Message) -> Send:
        return member.agree(self.secure, node, mail)

    def secure_reveal(self: Any, node: Node, mail: Message) -> Send:
        return member.reveal(self.secure, node, mail)

    return {
        "secure_share": on(Each(NEAR))(secure_share),
        "secure_mask": on(Each(BUNDLE))(secure_mask),
        "secure_agree": on(Each(SURVIVORS))(secure_agree),
        "secure_reveal": on(Each(TALLY))(secure_reveal),
    }


def _at_gatherers(gather: Reaction, window: Every, roles: tuple[str, ...]) -> dict[str, Any]:
    """Return the reactions of whoever gets sums: the last of them is the method's own, with the sum as its mail."""

    def merged(self: Any, node: Node, mail: Inbox) -> Steps:
        node.vars.pop(GATHERED, None)
        result = getattr(self, gather.name)(node, mail)
        return (yield from result) if inspect.isgenerator(result) else result

    def step(work: Callable[[Secure, Node, Inbox], list[Send]]) -> Callable[..., Steps]:
        def react(self: Any, node: Node, mail: Inbox) -> Steps:
            if not mail:  # a skipped round
                return (yield from merged(self, node, Inbox()))
            try:
                return work(self.secure, node, mail)
            except gatherer.Failed as error:
                _say(node, error)
                return (yield from merged(self, node, Inbox()))

        return react

    def secure_open(self: Any, node: Node, mail: Inbox) -> Steps:
        found = Inbox()
        found.also = mail.also
        try:
            if mail:  # else it is a skipped round
                found = gatherer.opened(self.sums(), self.secure, node, mail)
        except gatherer.Failed as error:
            _say(node, error)
        return (yield from merged(self, node, found))

    def waiting(kind: Kind, group: str, **more: Any) -> Every:
        return Every(kind, of=group, deadline="secure.wait", **more)

    first = replace(window, kind=KEYS, also=(), least="secure.least")
    return {
        "secure_introduce": on(first, roles)(step(gatherer.introduce)),
        "secure_forward": on(waiting(SHARES, gatherer.SHARING), roles)(step(gatherer.forward)),
        "secure_add": on(waiting(MASKED, gatherer.MASKING), roles)(step(gatherer.add_up)),
        "secure_pass_on": on(waiting(VOTES, gatherer.VOTING), roles)(step(gatherer.pass_on)),
        "secure_open": on(waiting(OPENING, gatherer.OPENING, also=window.also), roles)(secure_open),
    }


def _say(node: Node, error: Exception) -> None:
    node.refusals.append(f"the sum of round {node.round}: {error}")
    log.warning("%s: no sum in round %d: %s", node.id, node.round, error)
