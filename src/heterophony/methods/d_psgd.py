"""D-PSGD: peers train on their own data, and mix their weights with their neighbours'; there is no server.

Sent by a peer: its weights, and how many neighbours it has.

Papers: Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for Decentralized
Parallel Stochastic Gradient Descent, NeurIPS 2017, Algorithm 1. Xiao and Boyd, Fast linear iterations for distributed
averaging, 2004 (Metropolis weights): W_ij = 1 / (1 + max(d_i, d_j)) for neighbours of d_i and d_j neighbours, W_ii is
what is left of one. With `first = "mix"` it is Algorithm 1: x_i becomes the sum of W_ij x_j, less the step that x_i
takes by its own gradient. With `first = "train"` x_i becomes the sum of W_ij (x_j less its step). On a complete graph
that is FedAvg with plain means, to the bit.
"""

from __future__ import annotations

from typing import Annotated, Literal

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
from heterophony.parts import (
    Cohort,
    Training,
    answers,
    difference,
    metropolis,
    mixed,
    note_distance,
    shifted,
    task_loss,
)

MODEL = Kind("model", to="peers", weights=Weights("model"), degree=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "order",
        'Peers train, then mix. `first = "mix"` has the step beside the mixing, as Algorithm 1 does.',
        "So a round has room for epochs, and a complete graph gives FedAvg.",
    ),
    Deviation("steps", "a round may have any number of them (`local`)", "`local.steps = 1` is the paper's one"),
    Deviation("mixing matrix", "Metropolis weights", "the paper takes any doubly stochastic one; these need no server"),
    Deviation(
        "who is not heard",
        "its share goes to one's own weights",
        "the paper has no absent peers",
    ),
    Deviation(
        "consensus distance",
        "The table has each peer's distance from what it mixes with. On a complete graph, its root mean square over "
        "peers is the distance that papers print.",
        "Without a server nobody knows all models.",
    ),
)


class DPSGD(Method):
    """Peers train on their own data, and mix their weights with their neighbours' by Metropolis weights; no server."""

    roles = ("peer",)
    kinds = (MODEL,)
    memory = ("before",)
    models = {"peer": {"model": Same(start="alike")}}
    headline = "local"
    unused = ("cohort.fraction", "cohort.weighted", "cohort.combine", "local.initial")

    first: Annotated[Literal["train", "mix"], "what is sent: the weights after training, or those before it"] = "train"
    local: Training = Training()
    loss: Loss = task_loss
    cohort: Cohort = Cohort()

    @on(Round)
    def train(self, peer: Node) -> Steps:
        before = peer.weights()
        yield self.local.fit("model", self.loss)
        if self.first == "mix":
            peer.vars["before"] = before
            return MODEL(weights=before, degree=len(peer.peers))
        return MODEL(weights=peer.weights(), degree=len(peer.peers))

    @on(answers(MODEL, of="peers"))
    def mix(self, peer: Node, mail: Inbox) -> Steps:
        trained = peer.weights()
        sent = peer.vars.pop("before", trained)
        shares = metropolis(len(peer.peers), [m.degree for m in mail])
        together = mixed(peer, sent, {m.sender: m.weights for m in mail}, shares)
        yield from note_distance(peer, sent, together)
        peer.load(together if self.first == "train" else shifted(together, difference(trained, sent)))
        yield Mark("local")
        peer.round += 1
