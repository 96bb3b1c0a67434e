"""FedDyn: FedAvg whose clients' losses change with the rounds, so that their own optima come to be the common one.

Sent by a client: its weights after local training.
Sent by the server: its weights.

Paper: Acar, Zhao, Navarro, Mattina, Whatmough and Saligrama, Federated Learning Based on Dynamic Regularization, ICLR
2021. Algorithm 1. A client minimises L(w) - <g, w> + alpha/2 |w - w_t|^2, w_t being the server's weights. Then its g
becomes g - alpha (w - w_t), which at an optimum is its gradient there. The server's h becomes h - alpha/m times the sum
over those heard of (w - w_t), of m clients in all. Its weights become the plain mean of those heard less h / alpha.
"""

from __future__ import annotations

from typing import Annotated

import torch

from heterophony import (
    Deviation,
    Each,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Named,
    Node,
    Round,
    Same,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import (
    Chain,
    Cohort,
    Proximal,
    Shifted,
    Training,
    answers,
    mean,
    shifted,
    task_loss,
    update_of,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"))

DEVIATIONS = (
    Deviation(
        "inner solver",
        "local training, as the setting has it",
        "the paper asks for an optimum, and its experiments take epochs of SGD",
    ),
    Deviation(
        "updates that are lost",
        "a client's g counts them, the server's h does not",
        "the paper loses none; the server cannot know what it has not heard",
    ),
    Deviation(
        "pull to the server's weights",
        "by the squared distance, alpha/2 |w - w_t|^2, as in the paper",
        "PFLlib takes the distance itself (`clientdyn.py`), whose pull is as strong near the server's weights as far "
        "away. So the same alpha is another one there.",
    ),
    Deviation(
        "buffers",
        "float buffers (BatchNorm's statistics) are averaged, without g and h",
        "nothing is minimised over them",
    ),
)


class FedDyn(Method):
    """FedAvg whose clients' losses are bent in each round so that their own optima come to be the common one."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("slope", "drift")
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("cohort.weighted", "local.initial")

    alpha: Annotated[float, "how strongly clients are pulled to the server's weights, and their losses bent"] = 0.1
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha > 0:
            raise ValueError(f"alpha is a weight > 0, got {self.alpha}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        slope = client.vars.get("slope") or _zeros(client)
        less = {name: -tensor for name, tensor in slope.items()}
        aux = {"first": {"anchor": mail.weights}, "then": {"by": less}}
        yield self.local.fit("model", self.loss, transform=Chain(Proximal(self.alpha), Shifted()), aux=aux)
        moved = update_of(client, client.weights(), mail.weights)
        client.vars["slope"] = shifted(slope, moved, -self.alpha)
        return UPDATE(weights=client.weights())

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            before = server.weights()
            moved = mean([update_of(server, m.weights, before) for m in mail])
            heard = len(mail) / len(server.children)
            drift = shifted(server.vars.get("drift") or _zeros(server), moved, -self.alpha * heard)
            server.vars["drift"] = drift
            server.load(shifted(self.cohort.mean(server, mail, by=None), drift, -1 / self.alpha))
        yield Mark("global")
        server.round += 1


def _zeros(node: Node) -> Named:
    """Return zeros for all parameters that travel."""
    weights = node.weights()
    return {name: torch.zeros_like(tensor) for name, tensor in update_of(node, weights, weights).items()}
