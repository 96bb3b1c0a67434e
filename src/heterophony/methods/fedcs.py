"""FedCS: before each round the server asks clients how long they would take, and chooses as many as a deadline allows.

Sent by a client: how many seconds its training and its upload would take; if it is chosen, its weights after local
training, and how many examples they come from.
Sent by the server: a question to those that it draws, and its weights to those that it chooses.

Paper: Nishio and Yonetani, Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge, ICC
2019. Protocol 2 (Federated Learning with Client Selection) and its greedy selection. Clients train side by side and
upload one after the other. The one that would add the least time comes next, as long as all that are chosen would be
done within `budget` seconds. Without a budget it is FedAvg, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

from heterophony import (
    ByLevel,
    Deviation,
    Each,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Sum,
    Weights,
    on,
)
from heterophony.parts import Cohort, Training, answers, own_value, task_loss

ASK = Kind("ask", to="children")
RESOURCES = Kind("resources", to="parent", update=Scalar(low=0), upload=Scalar(low=0))
GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "times",
        "a client says what its options `seconds` and `upload` say, whatever its profile",
        "a node cannot see the clock, nor its own profile",
    ),
    Deviation(
        "what a round takes",
        "training and uploads; not the question, the download and the mean",
        "the paper has times for these too; they are the same for all, or short",
    ),
    Deviation(
        "nobody fits",
        "the round is skipped",
        "the paper does not say; a larger budget is what is needed",
    ),
)


class FedCS(Method):
    """FedAvg with those clients only that would be done within a deadline, as many of them as possible."""

    roles = ("server", "client")
    kinds = (ASK, RESOURCES, GLOBAL, UPDATE)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    trusts = True
    unused = ("local.initial",)

    budget: Annotated[float | None, "seconds that training and uploads of a round may take; none: any"] = None
    seconds: Annotated[ByLevel[float], "that a client says it needs for a row of training"] = 1e-3
    upload: Annotated[ByLevel[float], "seconds that a client says its upload takes"] = 1.0
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is not None and not self.budget > 0:
            raise ValueError(f"budget is a number of seconds > 0, or none, got {self.budget}")

    @on(Round, role="server")
    def ask(self, server: Node) -> Send:
        return ASK(self.cohort.draw(server))

    @on(Each(ASK), role="client")
    def tell(self, client: Node, mail: Message) -> Send:
        client.round = mail.round
        rows = self.local.fit("model", self.loss).at(client).samples(client)
        seconds, upload = own_value(self.seconds, client), own_value(self.upload, client)
        return RESOURCES(update=rows * (seconds or 0.0), upload=upload or 0.0)

    @on(answers(RESOURCES), role="server")
    def choose(self, server: Node, mail: Inbox) -> Steps:
        chosen = self.selected({m.sender: (m.update, m.upload) for m in mail})
        server.groups["chosen"] = chosen
        yield Note("chosen", len(chosen))
        return GLOBAL(chosen, weights=server.weights())

    def selected(self, told: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
        """Return those who fit into the budget, chosen greedily, in the order in which they told."""
        budget = math.inf if self.budget is None else self.budget
        left, chosen, done = dict(told), set(), 0.0
        while left:
            # Uploading begins when the one before has ended, and when the client has trained.
            ends = {client: max(done, update) + upload for client, (update, upload) in left.items()}
            next_one = min(ends, key=lambda client: ends[client])
            del left[next_one]
            if ends[next_one] <= budget:
                chosen.add(next_one)
                done = ends[next_one]
        return tuple(client for client in told if client in chosen)

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.load(mail.weights)
        yield self.local.fit("model", self.loss)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE, of="chosen"), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load((yield from self.cohort.merged(server, mail, self.local.on_public(self.loss))))
        yield Mark("global")
        server.round += 1
