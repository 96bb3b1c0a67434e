"""Swarm learning: peers take turns at being the one who averages the weights of all.

Sent by a peer: its weights after local training and from how many examples they are, to the peer whose turn it is. That
one sends the mean to all.

Paper: Warnat-Herresthal et al., Swarm Learning for decentralized and confidential clinical machine learning, Nature
2021. In each round one of the peers is elected leader. It merges the parameters of all, weighted, and all go on from
these. All rounds give what FedAvg's would, to the bit.
"""

from __future__ import annotations

from heterophony import (
    Deviation,
    Inbox,
    Kind,
    Loss,
    Mark,
    Method,
    Node,
    Round,
    Same,
    Scalar,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Training, answers, mixed, task_loss

UPDATE = Kind("update", to="peers", weights=Weights("model"), examples=Scalar(low=0))
MERGED = Kind("merged", to="peers", weights=Weights("model"))

DEVIATIONS = (
    Deviation(
        "who leads",
        "all in turn, by their names, so that nobody has to be asked",
        "the paper elects a leader by a smart contract of a blockchain, which also admits members; a run here has none",
    ),
    Deviation(
        "a leader that is away",
        "Without its answer (`cohort.deadline`) everyone keeps what it has trained, until the next leader's turn.",
        "The paper's contract would elect another.",
    ),
    Deviation("links", "everyone must be linked with everyone", "a leader hears all, and all know whose turn it is"),
)


class Swarm(Method):
    """Peers take turns at averaging the weights of all: FedAvg whose server is another peer in each round."""

    roles = ("peer",)
    kinds = (UPDATE, MERGED)
    models = {"peer": {"model": Same(start="alike")}}
    headline = "global"
    complete = True
    unused = ("cohort.fraction", "cohort.combine", "local.initial")

    local: Training = Training()
    loss: Loss = task_loss
    cohort: Cohort = Cohort()

    @on(Round)
    def train(self, peer: Node) -> Steps:
        yield self.local.fit("model", self.loss)
        everyone = sorted([peer.id, *peer.peers])
        leader = everyone[peer.round % len(everyone)]
        if leader == peer.id:
            peer.group(peer.peers, "members")
            return None
        peer.group((leader,), "leader")
        return UPDATE(leader, weights=peer.weights(), examples=self.local.examples(peer))

    @on(answers(UPDATE, of="members"))
    def merge(self, peer: Node, mail: Inbox) -> Steps:
        models = {m.sender: m.weights for m in mail}
        examples = [float(self.local.examples(peer)), *(m.examples for m in mail)]
        peer.load(mixed(peer, peer.weights(), models, examples if self.cohort.weighted else None))
        yield Mark("global")
        yield MERGED(weights=peer.weights())
        peer.round += 1

    @on(answers(MERGED, of="leader"))
    def adopt(self, peer: Node, mail: Inbox) -> Steps:
        for m in mail:
            peer.load(m.weights)
        yield Mark("global")
        peer.round += 1
