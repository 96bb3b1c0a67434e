"""FedAsync: the server merges every model as it comes, the less the staler it is.

Leaves a client: its weights after local training.
Equations: Algorithm 1; alpha_t = alpha s(t - tau), Section 5.2 (polynomial, hinge or constant); clients are pulled
towards the model they started from with weight `rho`.
Deviations: none known; `concurrency` of the clients are at work, the next is drawn among the idle.
Reference: Xie et al., Asynchronous Federated Optimization, 2019.
"""

from __future__ import annotations

from heterophony import Each, Kind, Loss, Mark, Message, Method, Node, Note, Round, Same, Send, Steps, Weights, on
from heterophony.parts import Proximal, Staleness, Training, cross_entropy, difference, engage, release, shifted

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

    alpha: float = 0.6
    rho: float = 0.005
    concurrency: float = 1.0
    staleness: Staleness = Staleness()
    local: Training = Training()
    loss: Loss = cross_entropy

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
        share, here = self.alpha * self.staleness.discount(mail.staleness), server.weights()
        server.load(mail.weights if share == 1 else shifted(here, difference(mail.weights, here), share))
        yield Note("staleness", mail.staleness)
        yield Mark("global")
        server.round += 1
