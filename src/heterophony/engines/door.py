"""The door of a node: what every place at which messages come in asks of them.

The engine delivers mail through it, a node on its own machine does, and the coordinator asks it about answers.
Each check raises `Refused` with the reason, or returns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial

from heterophony.federation import Federation
from heterophony.kernel.fields import Refused, Shape
from heterophony.kernel.message import HEADER_LIMIT, INVERSE, Kind, Message, whole
from heterophony.kernel.node import Node
from heterophony.kernel.topology import Links


class Door:
    """Checks messages against what the federation declares and who is linked to whom."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.kinds = federation.kinds

    def kind(self, name: str) -> Kind:
        """Return the declared kind of this name."""
        if name not in self.kinds:
            raise Refused(f"the kind {name!r:.40} is not declared")
        return self.kinds[name]

    def links(self, node: str, round: int, outside: Collection[str] = ()) -> Links:
        """Return a node's links in a round, without those who have not joined yet."""
        links = self.federation.topology.links(node, round, self.federation.seed)
        return links.without(set(outside)) if outside else links

    def shape(self, node: Node) -> Shape:
        """Return what mail to a node is checked against."""
        return replace(node.shape, setting=self.federation.method.setting)

    def leads(self, node: str) -> bool:
        """Say whether a node is of the role whose rounds are the run's."""
        return self.federation.topology.roles[node] == self.federation.method.roles[0]

    # -- a message that comes in -----------------------------------------------------------------------------
    def check_mail(self, message: Message, links: Links, shape: Shape | None) -> None:
        """Check a message on its arrival: its sender, and its body against the receiver's shape if that is known."""
        link = INVERSE[self.kinds[message.kind].to]
        if not links.has(link, message.sender):
            raise Refused(f"{message.sender} is none of its {link}")
        self.check_body(message, shape)

    def check_body(self, message: Message, shape: Shape | None) -> None:
        """Check that the body is what its kind declares, and fits the receiver if its shape is known."""
        if shape is not None and self.federation.slicing.slots:
            shape = replace(shape, sent=partial(self.federation.slicing.held, message.receiver, message.sender))
        self.kinds[message.kind].check(message.body, shape, self.federation.bound)

    def check_header(self, message: Message, node: str, taken: Collection[str], by: str) -> None:
        """Check the header of a message from outside: of a kind that the reaction takes, and on a link of the node."""
        kind = self.kind(message.kind)
        if message.kind not in taken:
            raise Refused(f"{by!r} takes no {message.kind!r}")
        links = self.links(node, message.round)
        if message.receiver != node or not links.has(INVERSE[kind.to], message.sender):
            raise Refused(
                f"{message.kind!r} from {message.sender!r:.40} to {message.receiver!r:.40} is on no link here"
            )
        if not all(map(whole, message.id)):
            raise Refused(f"malformed: {message.kind!r} has an id that is not two whole numbers")

    def check_age(self, message: Message, round: int, rounds: int) -> None:
        """Check that a message is as old as the rounds say, and that whoever leads is in a round of the run."""
        age = max(0, round - message.round)
        if type(message.staleness) is not int or message.staleness != age:
            raise Refused(
                f"{message.kind!r} of round {message.round} is {message.staleness!r:.40} rounds old, not {age}"
            )
        if self.leads(message.sender) and message.round > rounds:
            raise Refused(f"{message.kind!r} of round {message.round}, but the run has {rounds}")

    def through_bytes(self, message: Message) -> Message:
        """Return what the message's bytes say; their header must be that of the edge on which they came."""
        found = Message.decode(message.encode(), self.kinds[message.kind].limit + HEADER_LIMIT)
        if replace(found, body=message.body) != message:
            raise Refused("its header is not that of the edge it came on")
        return found

    # -- a message that goes out -----------------------------------------------------------------------------
    @staticmethod
    def check_receivers(kind: Kind, receivers: Iterable[object], links: Links) -> None:
        """Check that all receivers are on the kind's link, seen from the sender."""
        for receiver in receivers:
            if not isinstance(receiver, str) or not links.has(kind.to, receiver):
                raise Refused(f"{kind.name!r} goes to the node's {kind.to}; {receiver!r:.40} is none of them")
