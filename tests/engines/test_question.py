"""What a node is asked and what it answers, as plain values and back."""

import dataclasses

import pytest
import torch

from heterophony import Scalar, Weights
from heterophony.base import codec
from heterophony.engines.question import Answer, Question
from heterophony.kernel.fields import Refused
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Body, Kind, Message, Send

KIND = Kind("update", to="parent", weights=Weights, examples=Scalar)


def message(sender, **changes):
    body = Body({"weights": {"a": torch.randn(3, 2)}, "examples": 4.0})
    return dataclasses.replace(Message("update", sender, "server", 2, (5, 1), body), **changes)


def inbox(*messages, also=()):
    made = Inbox(messages)
    made.also = tuple(also)
    return made


MAIL = {
    "none": None,
    "one": message("c0", staleness=3),
    "one with more": message("c0", also=(message("c1"), message("c2", staleness=1))),
    "an empty inbox": inbox(),
    "an inbox": inbox(message("c0"), message("c1", staleness=1), also=[message("c2")]),
}


def same(a, b):
    """Messages are equal by what they hold."""
    assert codec.fingerprint(a.plain()) == codec.fingerprint(b.plain())


@pytest.mark.parametrize("name", MAIL)
def test_a_question_is_the_same_after_its_bytes(name):
    asked = Question("server", 7, "merge", MAIL[name], 4, 9, 1.5, True, frozenset({"late", "later"}), 12)
    found = Question.of(codec.unpack(codec.pack(asked.plain())))
    same(found, asked)
    assert dataclasses.replace(found, mail=None) == dataclasses.replace(asked, mail=None)
    assert type(found.mail) is type(asked.mail)
    if isinstance(asked.mail, Inbox):
        assert [m.staleness for m in found.mail] == [m.staleness for m in asked.mail]
        assert len(found.mail.also) == len(asked.mail.also)


@pytest.mark.parametrize("times", [None, (0.5, 1.5, 2.0)])
def test_an_answer_is_the_same_after_its_bytes(times):
    body = message("c0").body
    sends = (Send(KIND, ("server",), 2, body), Send(KIND, (), 3, Body({}), withheld=True))
    rows = [{"round": 2, "sum": 1.0}]
    given = Answer(7, 2, sends, rows, {"cohort": ("c0", "c1")}, times, ("one was refused",))
    plain = codec.unpack(codec.pack(given.plain()))
    found = Answer.of(plain, {"update": KIND})
    same(found, given)
    assert [send.withheld for send in found.sends] == [False, True]
    assert found.times == times
    assert dataclasses.replace(found, sends=()) == dataclasses.replace(given, sends=())
    assert ("times" in plain) == (times is not None)
    if times is not None:
        assert (found.departures, found.end) == ((0.5, 1.5), 2.0)


def test_a_withheld_message_has_no_body_in_the_bytes():
    """Whatever the send still holds."""
    sends = (Send(KIND, ("server",), 2, message("c0").body, withheld=True),)
    plain = Answer(7, 2, sends, [], {}).plain()
    assert plain["sends"] == [("update", ("server",), 2, None)]


@pytest.mark.parametrize(
    "change",
    [{"outside": "server"}, {"outside": [3]}, {"wave": -1}, {"wave": True}, {"node": 3}, {"last": 0}, {"start": "0"}],
)
def test_what_is_no_question_is_refused(change):
    plain = Question("server", 7, "merge", None, 4, 9, 1.5).plain()
    Question.of(plain)
    with pytest.raises(Refused):
        Question.of({**plain, **change})


def test_questions_and_answers_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Question("server", 7, "merge", None, 4, 9, 1.5).round = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        Answer(7, 2, (), [], {}).round = 5


def test_the_answer_absent_travels_without_a_body():
    """Whoever waits for the message hears that there is none, also from another machine."""
    answer = Answer(1, 0, (KIND.absent(["server"], round=3),), [], {})
    (send,) = Answer.of(codec.unpack(codec.pack(answer.plain())), {"update": KIND}).sends
    assert (send.kind, send.to, send.round, send.withheld) == (KIND, ("server",), 3, True)
    assert not send.body
