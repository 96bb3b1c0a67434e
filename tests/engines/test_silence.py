"""Whose silence lets a window fire, by hand: mailboxes of two phases, in which some have said nothing."""

from heterophony import Each, Every, Kind, Method, Round, on
from heterophony.engines.event import Absence
from heterophony.engines.silence import REFUSES, SILENT, silent
from heterophony.kernel.mailbox import Mailbox
from heterophony.kernel.message import Body, Message
from heterophony.kernel.topology import Links

FIRST = Kind("first", to="parent")
SECOND = Kind("second", to="parent")
ASK = Kind("ask", to="children")
ALL = ("a", "b", "c")


class Phases(Method):
    """Its server hears of everyone twice in a round, and asks for the second only when it has all of the first."""

    roles = ("server", "client")
    kinds = (SECOND, FIRST, ASK)
    quorum: int = 1

    @on(Round, role="server")
    def begin(self, server): ...

    @on(Each(ASK), role="client")
    def answer(self, client, mail): ...

    @on(Every(FIRST, of="children", quorum="quorum"), role="server")
    def hear(self, server, mail): ...

    @on(Every(SECOND, of="children"), role="server")
    def end(self, server, mail): ...


class Swapped(Method):
    """The same, written down in another order."""

    roles = ("server", "client")
    kinds = (SECOND, FIRST, ASK)

    @on(Every(SECOND, of="children"), role="server")
    def end(self, server, mail): ...

    @on(Every(FIRST, of="children"), role="server")
    def hear(self, server, mail): ...

    @on(Round, role="server")
    def begin(self, server): ...

    @on(Each(ASK), role="client")
    def answer(self, client, mail): ...


def server(method, **heard):
    """In round 0, with what it has heard: by kind, from whom."""
    box = Mailbox("server", "server", method)
    box.open(Links(children=ALL), {}, 0.0)
    for kind, senders in heard.items():
        for sender in senders:
            box.take(Message(kind, sender, "server", 0, (1, 0), Body({})))
    return box


def first(*nodes, why=SILENT):
    return [(Absence("first", node, "server", 0), why) for node in nodes]


def test_who_has_not_got_the_second_question_is_silent_in_the_first_window_only():
    assert silent([server(Phases(), first="ab")], ALL, {}) == first("c")
    assert silent([server(Swapped(), first="ab")], ALL, {}) == first("c")


def test_who_has_a_question_open_may_still_answer():
    assert silent([server(Phases(), first="ab")], ALL, {"c": False}) == []
    assert silent([server(Phases(), first="a")], ALL, {"c": False}) == []


def test_whoever_has_only_refused_is_done_without_where_a_quorum_is_there():
    assert silent([server(Phases(), first="ab")], ALL, {"c": True}) == first("c", why=REFUSES)
    assert silent([server(Phases(quorum=3), first="ab")], ALL, {"c": True}) == []
    assert silent([server(Phases(quorum=3), first="ab")], ALL, {}) == first("c")  # waiting would not help


def test_a_window_that_waits_only_for_those_who_refuse_is_skipped_unless_all_refuse():
    alone = {"a": True, "b": True, "c": True}
    assert silent([server(Phases())], (*ALL, "d"), alone) == first(*ALL, why=REFUSES)
    assert silent([server(Phases())], (*ALL, "d"), alone | {"d": True}) == []
    assert silent([server(Phases())], (*ALL, "d"), alone | {"c": False}) == []


def test_nodes_of_this_organisation_are_never_silent():
    assert silent([server(Phases(), first="ab")], (), {}) == []
    assert silent([server(Phases(), first="a")], ("c",), {}) == []


def test_where_nobody_says_anything_nobody_is_absent():
    assert silent([server(Phases())], ALL, {}) == []
    assert silent([server(Phases())], (*ALL, "d"), {}) == first(*ALL)


PEER = Kind("peer", to="peers")


class Peers(Method):
    roles = ("peer",)
    kinds = (PEER,)

    @on(Round)
    def begin(self, peer): ...

    @on(Every(PEER, of="peers"))
    def hear(self, peer, mail): ...


def peer(name, others, heard, round=0):
    box = Mailbox(name, "peer", Peers())
    box.round = round
    box.open(Links(peers=tuple(others)), {}, 0.0)
    for sender in heard:
        box.take(Message("peer", sender, name, round, (1, 0), Body({})))
    return box


def absences(boxes):
    return [(a.receiver, a.sender) for a, _ in silent(boxes, "abcd", {})]


def test_a_peer_that_waits_itself_is_not_silent():
    """On a line a - b - c: b waits for a, and would answer c then."""
    assert absences([peer("a", "", ""), peer("b", "ac", "c"), peer("c", "b", "")]) == [("b", "a")]


def test_a_peer_that_waits_in_a_later_round_will_not_answer_in_this_one():
    assert absences([peer("a", "b", "", round=1), peer("b", "ac", "c"), peer("c", "b", "b")]) == [("b", "a")]


def test_peers_that_only_wait_for_each_other_hold_nobody_up():
    """Both have kept their message from everybody, and wait for the other's."""
    boxes = [peer("a", "bcd", "cd"), peer("b", "acd", "cd"), peer("c", "abd", "d"), peer("d", "abc", "c")]
    assert ("c", "a") in absences(boxes)
    assert ("d", "b") in absences(boxes)


UP = Kind("up", to="parent")


class Tree(Method):
    """An inner node may do several rounds of its own in one of the root's."""

    roles = ("root", "inner", "leaf")
    kinds = (UP,)

    @on(Round, role="root")
    def begin(self, root): ...

    @on(Every(UP, of="children"), role=("root", "inner"))
    def gather(self, node, mail): ...


def test_an_inner_node_that_waits_in_a_round_of_its_own_is_not_blamed_for_its_child():
    root, edge = Mailbox("root", "root", Tree()), Mailbox("e0", "inner", Tree(), level=1)
    edge.round = 1
    root.open(Links(children=("e0", "e1")), {}, 0.0)
    edge.open(Links(children=("l0", "l1")), {}, 0.0)
    root.take(Message("up", "e1", "root", 0, (1, 0), Body({})))
    edge.take(Message("up", "l0", "e0", 1, (1, 0), Body({})))
    found = silent([root, edge], ("e0", "e1", "l0", "l1"), {"l1": True})
    assert found == [(Absence("up", "l1", "e0", 1), REFUSES)]
