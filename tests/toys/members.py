"""The protocol of a masked sum between nodes, without an engine: who is lost, and when, is said by the test."""

from heterophony import Kind, Message, Node, Scalar, Weights
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Send
from heterophony.kernel.sum import Sum
from heterophony.kernel.topology import Links
from heterophony.masking import gatherer, member
from heterophony.masking.protocol import GATHERED, KEPT

UPDATE = Kind("update", to="parent", weights=Weights, examples=Scalar(low=0))
PLAIN = Sum(UPDATE, ("weights",), "examples", weighted=False)
BY_EXAMPLES = Sum(UPDATE, ("weights",), "examples")
PHASES = ("keys", "shares", "masked", "votes", "opening")


def node(name, parent="server", seed=0):
    return Node(name, "client", memory=(KEPT, GATHERED), links=Links(parent=(parent,)), seed=seed)


def mail(send, sender, receiver="server", round=0):
    return Message(send.kind.name, sender, receiver, round, (1, 0), send.body)


def inbox(sends):
    return Inbox(mail(send, name) for name, send in sends.items() if not send.withheld)


def ended(steps):
    """What a generator returns, and what it yields on its way."""
    yielded = []
    while True:
        try:
            yielded.append(next(steps))
        except StopIteration as stop:
            return stop.value, yielded


class Round:
    """One sum of what these members have, by name; `lost` says after which message each is gone."""

    def __init__(self, how, bodies, rule=BY_EXAMPLES, lost=None, seed=0):
        self.how, self.rule, self.lost = how, rule, dict(lost or {})
        self.server = Node("server", "server", memory=(KEPT, GATHERED), links=Links(children=tuple(bodies)))
        self.members = {name: node(name, seed=seed) for name in bodies}
        self.seen = {}  # by kind and member, what left it
        self.notes = []
        self.bodies = {name: UPDATE(weights=weights, examples=count) for name, (weights, count) in bodies.items()}

    def alive(self, phase):
        """Who still answers in a phase: whoever was lost after an earlier message does not."""
        return [name for name in self.members if PHASES.index(self.lost.get(name, "opening")) >= PHASES.index(phase)]

    def keys(self):
        found = {}
        for name in self.alive("keys"):
            sent = self.bodies[name]
            found[name] = member.keep(self.rule, self.members[name], Send(sent.kind, ("server",), 0, sent.body))
        return self._seen(found)

    def answers(self, asked, phase):
        """What members say to what the server asks of each."""
        react = {"shares": member.share, "votes": member.agree, "opening": member.reveal}
        found, there = {}, self.alive(phase)
        for send in asked:
            (name,) = send.to
            if name not in there:
                continue
            question = mail(send, "server", name)
            if phase == "masked":
                found[name], notes = ended(member.add_masks(self.rule, self.how, self.members[name], question))
                self.notes += notes
            else:
                found[name] = react[phase](self.how, self.members[name], question)
        return self._seen(found)

    def _seen(self, found):
        self.seen |= {(send.kind.name, name): send for name, send in found.items()}
        return inbox(found)

    def run(self):
        """Return the sum as the method reads it."""
        asked = gatherer.introduce(self.how, self.server, self.keys())
        asked = gatherer.forward(self.how, self.server, self.answers(asked, "shares"))
        asked = gatherer.add_up(self.how, self.server, self.answers(asked, "masked"))
        asked = gatherer.pass_on(self.how, self.server, self.answers(asked, "votes"))
        return gatherer.opened(self.rule, self.how, self.server, self.answers(asked, "opening"))
