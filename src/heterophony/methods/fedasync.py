"""FedAsync: the server merges every model as it comes; the staler a model is, the less it counts.

Sent by a client: its weights after local training.
Sent by the server: its weights.

Paper: Xie et al., Asynchronous Federated Optimization, 2019. Algorithm 1; Section 5.2 (alpha_t = alpha s(t - tau), with
s polynomial, hinge or constant). Clients are pulled towards the model they started from, with weight `rho`.
"""

from __future__ import annotations

from typing import Annotated

from heterophony import Each, Kind, Loss, Mark, Message, Method, Node, Note, Round, Same, Send, Steps, Weights, on
from heterophony.parts import Proximal, Staleness, Training, difference, engage, release, shifted, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"))


class FedAsync(Method):
    """Nobody waits: each client's model is mixed into the global one when it arrives. A round is one merge."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("engaged",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial",)

    alpha: Annotated[float, "share of a fresh client's model in the merged one"] = 0.6
    rho: Annotated[float, "how strongly a client is pulled to the model that it started from"] = 0.005
    concurrency: Annotated[float, "share of the clients at work at a time; the next is drawn among the idle"] = 1.0
    staleness: Staleness = Staleness()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha <= 1 or not 0 < self.concurrency <= 1:
            raise ValueError(f"alpha and concurrency are shares in (0, 1], got {self.alpha} and {self.concurrency}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(engage(server, self.concurrency), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.loss, transform=Proximal(self.rho), aux={"anchor": mail.weights})
        return UPDATE(weights=client.weights())

    @on(Each(UPDATE), role="server")
    def merge(self, server: Node, mail: Message) -> Steps:
        release(server, [mail.sender])
        share = self.alpha * self.staleness.discount(mail.staleness)
        if share == 1:  # w + (new - w) would cost the last bit
            server.load(mail.weights)
        else:
            own = server.weights()
            server.load(shifted(own, difference(mail.weights, own), share))
        yield Note("staleness", mail.staleness)
        yield Mark("global")
        server.round += 1
