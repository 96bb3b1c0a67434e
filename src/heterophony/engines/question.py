"""What a node is asked and what it answers: frozen values with one coding, wherever the node is.

The process engine, Ray, deployments and snapshots all write these plain values, which `codec` turns into bytes.
Reading them checks that they are what they claim to be: they may come from another organisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from heterophony.kernel.fields import Refused
from heterophony.kernel.mailbox import Inbox, Mail
from heterophony.kernel.message import Body, Kind, Message, Send, whole


@dataclass(frozen=True)
class Question:
    """One firing of a reaction on a node: all that the node has to be told.

    The node's links are not part of it. They follow from the topology, the round, and who is still `outside`.
    """

    node: str
    number: int  # the node's reactions are counted from one
    reaction: str
    mail: Mail
    round: int  # the node's, when the reaction fires
    rounds: int  # the run's, to know the last one
    start: float
    last: bool = False  # whoever leads is in the last round: what comes now is not followed by more
    outside: frozenset[str] = frozenset()  # who has not joined yet
    wave: int = 0  # of the events that made it fire: those of one wave are computed together, snapshot or not

    def plain(self) -> dict[str, Any]:
        """Return the question as a plain value."""
        names = ("node", "number", "reaction", "round", "rounds", "start", "last", "wave")
        own = {name: getattr(self, name) for name in names}
        return {**own, "outside": sorted(self.outside), "mail": _plain_mail(self.mail)}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Question:
        """Return the question whose plain value this is; raise `Refused` if it is no question."""
        match value:
            case {
                "node": str(node),
                "number": int(number),
                "reaction": str(reaction),
                "round": int(round),
                "rounds": int(rounds),
                "start": int() | float() as start,
                "mail": mail,
            } if all(map(whole, (number, round, rounds))) and number >= 1:
                pass
            case _:
                raise Refused("malformed: no activation")
        if isinstance(start, bool) or not 0 <= start < 2**53:  # as it is: it may be too large to become a float
            raise Refused(f"malformed: the run cannot be {start!r:.40} seconds old")
        last, wave, outside = value.get("last", False), value.get("wave", 0), value.get("outside", [])
        if not isinstance(last, bool):
            raise Refused(f"malformed: whether it is the last round is {last!r:.40}")
        if not whole(wave) or not isinstance(outside, list) or not all(isinstance(name, str) for name in outside):
            raise Refused("malformed: no activation")
        found = _mail_of(mail)
        return cls(node, number, reaction, found, round, rounds, float(start), last, frozenset(outside), wave)


@dataclass(frozen=True)
class Answer:
    """What a reaction has done, all of which becomes part of the run at once."""

    number: int  # the question's
    round: int  # the node's, after the reaction
    sends: tuple[Send, ...]  # recipients and rounds are set
    rows: list[dict[str, Any]]
    groups: dict[str, tuple[str, ...]]  # those that the reaction has set
    times: tuple[float, ...] | None = None  # when each send left, then when the reaction ended; None: not told
    refused: tuple[str, ...] = ()  # what the node's own door has said of mail that it dropped
    doubts: tuple[str, ...] = ()  # what its rule has said of mail that was far from the rest

    @property
    def end(self) -> float:
        """Return the moment at which the reaction ended."""
        assert self.times is not None
        return self.times[-1]

    @property
    def departures(self) -> tuple[float, ...]:
        """Return the moments at which the sends left."""
        assert self.times is not None
        return self.times[:-1]

    def all_at(self, moment: float) -> Answer:
        """Return the same answer, as if all of it had happened at one moment."""
        return replace(self, times=(moment,) * (len(self.sends) + 1))

    def plain(self) -> dict[str, Any]:
        """Return the answer as a plain value. A withheld message has no body; times that are not told are left out."""
        value = {
            "number": self.number,
            "sends": [_plain_send(send) for send in self.sends],
            "rows": self.rows,
            "round": self.round,
            "groups": self.groups,
            "refused": list(self.refused),
        }
        if self.doubts:
            value["doubts"] = list(self.doubts)
        return value if self.times is None else {**value, "times": self.times}

    @classmethod
    def of(cls, value: Any, kinds: Mapping[str, Kind]) -> Answer:
        """Return the answer whose plain value this is; raise `Refused` if it is none.

        Whoever asked knows the question: that it is answered, by messages and figures that may come, is checked there.
        """
        match value:
            case {
                "number": number,
                "sends": list(sends),
                "rows": list(rows),
                "round": int(round),
                "groups": dict(groups),
                "refused": list(refused),
            }:
                pass
            case _:
                raise Refused("malformed: no answer")
        if not whole(round):
            raise Refused("malformed: no round")
        times = value.get("times")
        found = tuple(_send_of(send, kinds) for send in sends)
        return cls(number, round, found, rows, groups, times, _texts(refused), _texts(value.get("doubts", [])))


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise Refused("malformed: no texts")
    return tuple(text for text in value if isinstance(text, str))


def _plain_send(send: Send) -> tuple[Any, ...]:
    return send.kind.name, send.to, send.round, None if send.withheld else dict(send.body)


def _send_of(value: Any, kinds: Mapping[str, Kind]) -> Send:
    match value:
        case (str(name), tuple(to), int(round), dict() | None as body) if whole(round):
            pass
        case _:
            raise Refused("malformed: no message")
    if name not in kinds:
        raise Refused(f"the kind {name!r:.40} is not declared")
    return Send(kinds[name], to, round, Body(body or {}), withheld=body is None)


def _plain_mail(mail: Mail) -> Any:
    if isinstance(mail, Inbox):
        return {"inbox": [_plain_message(m) for m in mail], "also": [_plain_message(m) for m in mail.also]}
    return None if mail is None else _plain_message(mail)


def _mail_of(value: Any) -> Mail:
    try:
        if value is None:
            return None
        if "inbox" not in value:
            return _message_of(value)
        inbox = Inbox(_messages_of(value["inbox"]))
        inbox.also = tuple(_messages_of(value["also"]))
        return inbox
    except Refused:
        raise
    except Exception:  # whatever a hostile value makes it raise
        raise Refused("malformed: no mail") from None


def _plain_message(message: Message) -> dict[str, Any]:
    also = [_plain_message(other) for other in message.also]
    return {**message.plain(), "staleness": message.staleness, "also": also}


def _message_of(value: Any) -> Message:
    message = Message.of(value)
    return replace(message, staleness=value["staleness"], also=tuple(_messages_of(value["also"])))


def _messages_of(values: Any) -> list[Message]:
    if not isinstance(values, list):
        raise Refused("malformed: no mail")
    return [_message_of(value) for value in values]
