"""Activations, mail and outcomes as plain values, for hosts whose nodes are in other processes or on other machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from heterophony.engines.host import Activation, Outcome
from heterophony.kernel.fields import Refused
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Body, Kind, Message, Send
from heterophony.kernel.topology import Links


def outcome_value(outcome: Outcome) -> dict[str, Any]:
    sends = [(at, send.kind.name, send.to, send.round, dict(send.body)) for at, send in outcome.sends]
    return {**vars(outcome), "sends": sends}


def sends_of(values: Iterable[Any], kinds: Mapping[str, Kind]) -> list[tuple[float, Send]]:
    return [(at, Send(kinds[kind], to, round, Body(body))) for at, kind, to, round, body in values]


def mail_value(mail: Message | Inbox | None) -> Any:
    if isinstance(mail, Inbox):
        return {"inbox": [_message_value(m) for m in mail], "also": [_message_value(m) for m in mail.also]}
    return None if mail is None else _message_value(mail)


def mail_of(value: Any) -> Message | Inbox | None:
    if value is None or "inbox" not in value:
        return None if value is None else _message_of(value)
    inbox = Inbox(_messages_of(value["inbox"]))
    inbox.also = tuple(_messages_of(value["also"]))
    return inbox


def activation_value(activation: Activation) -> dict[str, Any]:
    """An activation that has been asked of another machine, for a snapshot."""
    names = ("node", "number", "reaction", "round", "rounds", "start", "last")
    own = {name: getattr(activation, name) for name in names}
    links = {name: activation.links.group(name) for name in Links.__dataclass_fields__}
    more = {"links": links, "outside": sorted(activation.outside)}
    return {**own, **more, "mail": mail_value(activation.mail)}


def activation_of(value: Mapping[str, Any]) -> Activation:
    more = {"links": Links(**value["links"]), "outside": frozenset(value["outside"]), "mail": mail_of(value["mail"])}
    return Activation(**{**value, **more}, due=value["start"], away=True, recorded=True)


def _message_value(message: Message) -> dict[str, Any]:
    return {
        **message.plain(),
        "staleness": message.staleness,
        "also": [_message_value(m) for m in message.also],
    }


def _message_of(value: dict[str, Any]) -> Message:
    return replace(Message.of(value), staleness=value["staleness"], also=tuple(_messages_of(value["also"])))


def _messages_of(values: Any) -> list[Message]:
    if not isinstance(values, list):
        raise Refused("malformed: no mail")
    return [_message_of(value) for value in values]
