"""Triggers: properties over random orders of arrival, and each rule of a window by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heterophony import Count, Each, Every, Kind, Method, Round, on
from heterophony.kernel.mailbox import Mailbox
from heterophony.kernel.message import Body, Message
from heterophony.kernel.topology import Links

MAIL = Kind("mail", to="parent")
SIDE = Kind("side", to="parent")
MEMBERS = ("a", "b", "c", "d")


def box(trigger, **settings):
    """A mailbox whose only reaction to mail has this trigger, past the beginning of round 0."""

    def begin(self, node): ...
    def react(self, node, mail): ...

    members = {
        "roles": ("node",),
        "kinds": (MAIL, SIDE),
        "begin": on(Round)(begin),
        "react": on(trigger)(react),
        "__annotations__": dict.fromkeys(settings, float),
        **settings,
    }
    if SIDE not in trigger.also:
        members["also"] = on(Each(SIDE))(lambda self, node, mail: ...)
    made = Mailbox("me", "node", type("Toy", (Method,), members)())
    assert made.ready().reaction.name == "begin"
    made.fire(made.ready())
    made.busy = False
    return made


def mail(sender, round=0, number=1, kind="mail"):
    return Message(kind, sender, "me", round, (number, 0), Body({}))


def opened(trigger, now=0.0, members=MEMBERS, **settings):
    made = box(trigger, **settings)
    made.open(Links(children=members), {}, now)
    return made


def senders(ready):
    return [message.sender for message in ready.mail]


@given(st.permutations(MEMBERS), st.sets(st.sampled_from(MEMBERS)))
def test_every_fires_once_when_all_have_answered_in_the_groups_order(order, absent):
    made = opened(Every(MAIL, of="children"))
    for place, sender in enumerate(order):
        assert made.ready() is None
        if sender in absent:
            made.absent("mail", sender, 0)
        else:
            made.take(mail(sender, number=place + 1))
    ready = made.ready()
    assert senders(ready) == [m for m in MEMBERS if m not in absent]
    assert [what for what, _ in ready.incidents] == (["skipped"] if absent == set(MEMBERS) else [])
    made.fire(ready)
    made.busy = False
    assert made.ready() is None
    assert made.inbox == []


@given(st.permutations(MEMBERS), st.integers(0, 4), st.integers(0, 5))
def test_a_deadline_fires_with_the_quorum_or_rearms_once_and_skips(order, arrived, quorum):
    made = opened(Every(MAIL, of="children", quorum=quorum, deadline="patience"), patience=10.0)
    for sender in order[:arrived]:
        made.take(mail(sender))
    if arrived < 4:
        assert made.ready() is None
        again = made.expire("react", 10.0)
        assert again == (20.0 if arrived < quorum else None)
        if again is not None:
            assert made.ready() is None
            assert made.expire("react", again) is None
    ready = made.ready()
    assert len(senders(ready)) == (arrived if arrived >= quorum else 0)
    what = [name for name, _ in ready.incidents]
    assert what.count("timeout") == 4 - arrived
    assert what.count("skipped") == (1 if arrived < quorum else 0)


def test_a_rearmed_window_still_fires_as_soon_as_all_are_there():
    made = opened(Every(MAIL, of="children", quorum=4, deadline=10.0))
    for sender in "abc":
        made.take(mail(sender))
    assert made.expire("react", 10.0) == 20.0
    made.take(mail("d"))
    assert senders(made.ready()) == list(MEMBERS)


def test_a_quorum_below_one_is_a_share():
    made = opened(Every(MAIL, of="children", quorum=0.5, deadline=1.0))
    made.take(mail("a"))
    assert made.expire("react", 1.0) == 2.0
    made.take(mail("b"))
    assert made.expire("react", 2.0) is None
    assert senders(made.ready()) == ["a", "b"]


def test_an_empty_group_has_answered_already():
    ready = opened(Every(MAIL, of="children"), members=()).ready()
    assert senders(ready) == []
    assert [what for what, _ in ready.incidents] == ["skipped"]


def test_mail_of_a_later_round_waits_for_its_window():
    made = opened(Every(MAIL, of="children"), members=("a", "b"))
    made.take(mail("a", round=1))
    made.take(mail("b", round=0))
    made.take(mail("a", round=0, number=2))
    first = made.ready()
    assert [m.round for m in first.mail] == [0, 0]
    made.fire(first)
    made.busy, made.round = False, 1
    made.begun = 1
    made.open(Links(children=("a", "b")), {}, 5.0)
    assert made.ready() is None
    made.take(mail("b", round=1, number=2))
    assert [m.round for m in made.ready().mail] == [1, 1]


@pytest.mark.parametrize("late", ["drop", "accept"])
def test_late_mail_is_dropped_or_comes_with_its_staleness(late):
    made = opened(Every(MAIL, of="children", late=late), members=("a",))
    made.take(mail("a", number=1))
    made.fire(made.ready())
    made.busy, made.round, made.begun = False, 2, 2
    made.open(Links(children=("a",)), {}, 1.0)
    made.take(mail("a", round=0, number=2))
    dropped = made.late()
    assert [m.id for m in dropped] == ([(2, 0)] if late == "drop" else [])
    made.take(mail("a", round=2, number=3))
    assert [m.staleness for m in made.ready().mail] == ([0] if late == "drop" else [0, 2])


def test_a_second_answer_in_the_same_round_is_not_counted():
    made = opened(Every(MAIL, of="children"), members=("a", "b"))
    made.take(mail("a", number=1))
    made.take(mail("a", number=2))
    assert made.ready() is None
    made.take(mail("b"))
    ready = made.ready()
    assert [m.id for m in ready.mail] == [(1, 0), (1, 0)]
    made.fire(ready)
    assert [m.id for m in made.late()] == [(2, 0)]


@given(st.lists(st.tuples(st.sampled_from(MEMBERS), st.integers(0, 3)), max_size=20), st.integers(1, 5))
def test_count_takes_n_in_order_of_arrival_and_loses_none(arrivals, n):
    made = box(Count(MAIL, n="size"), size=float(n))
    taken = []
    for number, (sender, round) in enumerate(arrivals):
        made.take(mail(sender, round, number))
        ready = made.ready()
        assert (ready is not None) == (len(made.inbox) == n)
        if ready is not None:
            taken += [m.id for m in ready.mail]
            made.fire(ready)
    assert taken + [m.id for m in made.inbox] == [(number, 0) for number in range(len(arrivals))]


@given(st.lists(st.sampled_from(MEMBERS), max_size=12))
def test_each_takes_one_at_a_time_in_order_of_arrival(arrivals):
    made = box(Each(MAIL))
    for number, sender in enumerate(arrivals):
        made.take(mail(sender, number=number))
    seen = []
    while (ready := made.ready()) is not None:
        seen.append(ready.mail.id[0])
        made.fire(ready)
    assert seen == list(range(len(arrivals)))


def test_other_kinds_are_swept_along():
    made = opened(Every(MAIL, of="children", also=(SIDE,)), members=("a",))
    made.take(mail("z", round=7, kind="side"))
    assert made.ready() is None
    made.take(mail("a"))
    ready = made.ready()
    assert [m.sender for m in ready.mail.also] == ["z"]
    made.fire(ready)
    assert made.inbox == []


def test_known_ids_are_discarded():
    made = box(Each(MAIL))
    first, second = mail("a", number=1), mail("a", number=2)
    assert not made.knows(first)
    made.take(first)
    assert made.knows(first)
    assert not made.knows(second)
    made.take(second)
    assert made.knows(first)


@given(st.permutations(MEMBERS), st.integers(0, 4), st.booleans())
def test_the_state_comes_back(order, arrived, expired):
    made = opened(Every(MAIL, of="children", quorum=1, deadline=3.0))
    for sender in order[:arrived]:
        made.take(mail(sender))
    made.absent("mail", "z", 3)
    if expired:
        made.expire("react", 3.0)
    from heterophony.base import codec

    twin = Mailbox("me", "node", made.method)
    twin.restore(codec.unpack(codec.pack(made.state())))
    assert twin.state() == made.state()
    assert list(twin.waits()) == list(made.waits())
    assert (twin.ready() is None) == (made.ready() is None)


def test_an_old_timer_means_nothing_to_a_window_that_was_opened_again():
    """A group set twice in one round: the deadline counts from the second time."""
    made = box(Every(MAIL, of="cohort", deadline=1.0))
    made.open(Links(), {"cohort": ("a", "b")}, 0.3)
    made.open(Links(), {"cohort": ("a",)}, 0.8)
    assert not made.awaits("react", 1.3)
    assert made.awaits("react", 1.8)
    assert list(made.waits()) == [("mail", 0, ["a"])]


def test_the_answers_of_a_skipped_window_are_used_up():
    made = opened(Every(MAIL, of="children", quorum=3, late="accept"), members=("a", "b", "c"))
    made.take(mail("a"))
    made.take(mail("b"))
    made.absent("mail", "c", 0)
    ready = made.ready()
    assert senders(ready) == []
    made.fire(ready)
    assert made.inbox == []
    assert made.late() == []


def test_a_round_sweeps_along_the_mail_that_has_come_since():
    """So that a node that waits for nobody, and whose next round is always ready, still hears of the others."""

    class Restless(Method):
        roles = ("node",)
        kinds = (MAIL,)

        @on(Round(also=(MAIL,)))
        def step(self, node, mail): ...

    made = Mailbox("me", "node", Restless())
    heard = []
    for round, arriving in enumerate([(), (mail("a"), mail("b", round=7)), (mail("a", number=2),), ()]):
        made.round = round
        for message in arriving:
            made.take(message)
        ready = made.ready()
        assert list(ready.mail) == []
        heard.append([(m.sender, m.staleness) for m in ready.mail.also])
        made.fire(ready)
        made.busy = False
        assert made.ready() is None
        assert made.inbox == []
    assert heard == [[], [("a", 1), ("b", 0)], [("a", 2)], []]


@pytest.mark.parametrize(
    ("table", "takes"),
    [
        ({"me": 2, "1": 4, "node": 3}, 2),
        ({"1": 2, "node": 3}, 2),
        ({"0": 2, "node": 3, "*": 1}, 3),
        ({"other": 3, "*": 1}, 1),
    ],
)
def test_a_triggers_number_may_differ_by_node_level_and_role(table, takes):
    made = box(Count(MAIL, n="size"), size=9)
    made.level = 1
    made.method = replace(made.method, size=table)
    for number in range(1, takes + 1):
        assert made.ready() is None
        made.take(mail("a", number=number))
    assert len(made.ready().mail) == takes


def test_a_table_of_deadlines_may_leave_a_node_without_one():
    for table, deadline in (({"node": 2.5}, 3.5), ({"other": 2.5}, None)):
        made = box(Every(MAIL, of="children", deadline="wait"), wait=1.0)
        made.method = replace(made.method, wait=table)
        ((_, window),) = made.open(Links(children=MEMBERS), {}, 1.0)
        assert window.deadline == deadline
