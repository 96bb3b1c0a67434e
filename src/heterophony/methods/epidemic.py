"""Epidemic learning: in each round a peer sends its model to some others at random, and averages what it has got.

Sent by a peer: its weights to those drawn, and to all neighbours that it has sent what it sends in this round.

Paper: de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires and Sharma, Epidemic Learning: Boosting Decentralized Learning
with Randomized Communication, NeurIPS 2023. Algorithm 1, EL-Local: who gets a model is drawn by its sender, so that
some get more than others. A peer takes the plain mean of its own model and of all that came. EL-Oracle, where everyone
gets equally many, is `d-psgd` with `topology.kind = "regular-anew"`.
"""

from __future__ import annotations

from typing import Annotated

import torch

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
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Training, answers, mixed, note_distance, task_loss

MODEL = Kind("model", to="peers", weights=Weights("model"))
DONE = Kind("done", to="peers")

DEVIATIONS = (
    Deviation(
        "who waits for whom",
        "An empty message to all neighbours says that a peer has sent its models of the round.",
        "Only the sender knows whom it has drawn. The paper's rounds are synchronous, and it does not say how.",
    ),
    Deviation("graph", "those drawn are neighbours, on any topology", "the paper's peers can reach all others"),
    Deviation("steps", "a round may have any number of them (`local`)", "the paper has one"),
)


class Epidemic(Method):
    """Peers train, send their weights to a few others drawn at random, and average what has come; no server."""

    roles = ("peer",)
    kinds = (MODEL, DONE)
    memory = ("early",)
    models = {"peer": {"model": Same(start="alike")}}
    headline = "local"
    unused = ("cohort.fraction", "cohort.weighted", "cohort.combine", "local.initial")

    fanout: Annotated[int, "s: to how many others a peer sends its model in a round"] = 2
    local: Training = Training()
    loss: Loss = task_loss
    cohort: Cohort = Cohort()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fanout < 1:
            raise ValueError(f"fanout is a number >= 1, got {self.fanout}")

    @on(Round)
    def train(self, peer: Node) -> Steps:
        yield self.local.fit("model", self.loss)
        order = torch.randperm(len(peer.peers), generator=peer.rng("epidemic")).tolist()
        chosen = [peer.peers[i] for i in order[: self.fanout]]
        return [MODEL(chosen, weights=peer.weights()), DONE()]

    @on(answers(DONE, of="peers", also=(MODEL,)))
    def mix(self, peer: Node, mail: Inbox) -> Steps:
        heard = [*peer.vars.get("early", ()), *({"from": m.sender, "round": m.round, **m.body} for m in mail.also)]
        peer.vars["early"] = [one for one in heard if one["round"] == peer.round + 1]  # of those ahead
        models = {one["from"]: one["weights"] for one in heard if one["round"] == peer.round}
        own = peer.weights()
        together = mixed(peer, own, models)
        yield from note_distance(peer, own, together)
        peer.load(together)
        yield Mark("local")
        peer.round += 1
