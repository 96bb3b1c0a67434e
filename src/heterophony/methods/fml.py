"""Federated mutual learning: a private model and a copy of the global one teach each other.

Leaves a client: the weights of its copy of the global model (the meme), nothing of the private model. Where a part of
the global model is shared, its other layers (adaptors, of each client's own number of classes) stay with the client.
Equations: Algorithm 1, Eq. 5; KL summed over classes, mean over the batch, temperature 1; the other model's prediction
is a constant in each loss; both models step from the same forward pass; unweighted mean (Section 6).
Deviations: alpha and beta are 0.5, as in the authors' code, or change over rounds; where a part of the global model is
shared, the server's is not evaluated.
Reference: Shen et al., Federated Mutual Learning, 2020.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from heterophony import (
    Data,
    Each,
    Global,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Own,
    Round,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, Nets, Scheduled, Training, answers, ce, cross_entropy, kl, schedules

GLOBAL = Kind("global", to="children", weights=Weights("meme"))
MEME = Kind("meme", to="parent", weights=Weights("model"))


class FML(Method):
    """Different private networks; a common one travels, and learns from and with each of them."""

    roles = ("server", "client")
    kinds = (GLOBAL, MEME)
    models = {"server": {"model": Global()}, "client": {"model": Own(), "meme": Global()}}
    headline = "personalised"
    unused = ("cohort.weighted",)
    tasks = True  # where what is shared ends before the outputs

    alpha: Scheduled = 0.5  # Eq. 5; Section 6: larger early and smaller late, or the other way round
    beta: Scheduled = 0.5
    cohort: Cohort = Cohort()
    local: Training = Training(lr=0.01, momentum=0.9, weight_decay=5e-4)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, share in (("alpha", self.alpha), ("beta", self.beta)):
            if not all(0 <= value <= 1 for value in schedules.ends(share)):
                raise ValueError(f"{name} is a share in [0, 1], got {share}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights, "meme")
        yield from self.local.first(client, cross_entropy)
        # the private model's optimiser is kept, the meme's begins anew at each fork
        loss = partial(
            self.mutual, alpha=schedules.at(self.alpha, client.round), beta=schedules.at(self.beta, client.round)
        )
        yield self.local.fit(("model", "meme"), loss, keep={"model": "own"})
        yield Mark("personalised")
        return MEME(weights=client.weights("meme"))

    @on(answers(MEME), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(mail, by=None))
        if server.slots["model"].whole:  # the rest of a part is at the clients: here it has learnt nothing
            yield Mark("global")
        server.round += 1

    def mutual(self, nets: Nets, batch: Data, alpha: float, beta: float) -> dict[str, dict[str, Tensor]]:
        """Eq. 5."""
        own, meme = nets["model"](batch.x), nets["meme"](batch.x)
        return {
            "model": {"ce": alpha * ce(own, batch.y), "kl": (1 - alpha) * kl(meme, own)},
            "meme": {"ce": beta * ce(meme, batch.y), "kl": (1 - beta) * kl(own, meme)},
        }
