"""FedBuff: buffered asynchronous aggregation; the server steps once it has K updates, however stale they are.

Leaves a client: the difference that local training made to its weights.
Equations: Algorithm 1; updates are divided by sqrt(1 + staleness) (Section 5: `staleness.a` = 1/2), then by K. Whoever
has answered is replaced at once by another client, drawn among the idle, with the model as it is then.
Deviations: float buffers (BatchNorm's statistics) travel as they are, not as differences, and are averaged plainly.
Reference: Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022.
"""

from __future__ import annotations

from heterophony import Each, Kind, Loss, Mark, Message, Method, Node, Note, Round, Same, Send, Steps, Weights, on
from heterophony.parts import NodeOptimiser, Staleness, Training, cross_entropy, engage, move, moving, release

GLOBAL = Kind("global", to="children", weights=Weights("model"))
DELTA = Kind("delta", to="parent", weights=Weights("model"))


class FedBuff(Method):
    """A round is one step of the server: K updates, whoever sent them."""

    roles = ("server", "client")
    kinds = (GLOBAL, DELTA)
    memory = ("engaged", "sum", "count", "states")
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial",)

    buffer: int = 10
    concurrency: float = 1.0
    staleness: Staleness = Staleness()
    server: NodeOptimiser = NodeOptimiser()
    local: Training = Training()
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffer < 1 or not 0 < self.concurrency <= 1:
            raise ValueError(f"a buffer holds at least 1, and concurrency is a share in (0, 1], got {self.buffer} and "
                             f"{self.concurrency}")  # fmt: skip

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(engage(server, self.concurrency), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", self.loss)
        steps = moving(client)
        after = client.weights()
        return DELTA(weights={n: t - mail.weights[n] if n in steps else t for n, t in after.items()})

    @on(Each(DELTA), role="server")
    def absorb(self, server: Node, mail: Message) -> Steps:
        yield Note("staleness", mail.staleness)
        release(server, [mail.sender])
        steps, share = moving(server), self.staleness.discount(mail.staleness)
        sums = server.vars.get("sum") or {}
        for name, tensor in mail.weights.items():
            term = tensor * ((share if name in steps else 1.0) / self.buffer)
            sums[name] = sums[name] + term if name in sums else term
        server.vars["sum"], server.vars["count"] = sums, server.vars.get("count", 0) + 1
        if server.vars["count"] < self.buffer:
            return self.begin(server)
        server.vars["sum"], server.vars["count"] = None, 0
        target = {name: w + sums[name] if name in steps else sums[name] for name, w in server.weights().items()}
        move(server, target, self.server)
        yield Mark("global")
        server.round += 1
