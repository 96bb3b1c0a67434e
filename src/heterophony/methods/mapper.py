"""MAPPER (model interpolation): each client adds the outputs of a model of its own to those of the global one.

Sent by a client: the weights of its copy of the global model after local training, and how many examples they come
from. Nothing of its own model, and not its share lambda.
Sent by the server: its weights.

Paper: Mansour, Mohri, Ro and Suresh, Three Approaches for Personalization with Applications to Federated Learning,
2020. The algorithm MAPPER. A client chooses lambda by its data. Then its own model learns so that lambda h_own +
(1 - lambda) h_global fits the data, with the global model as it is; then the global model does, with the own one as it
is. With `share = 0` it is FedAvg, with `share = 1` the own models are solo's.
"""

from __future__ import annotations

from typing import Annotated

from heterophony import (
    Built,
    Deviation,
    Each,
    Inbox,
    Kind,
    Mark,
    Message,
    Method,
    Node,
    Note,
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import Cohort, MixedOutputs, Training, answers, named_for_clients, named_for_server, task_loss

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
SHARES = [i / 10 for i in range(1, 10)]

DEVIATIONS = (
    Deviation(
        "lambda",
        "chosen of 0.1, ..., 0.9 by the loss on private rows of both models as they are, before local training",
        "the paper trains an own model for each lambda, and compares what comes of them",
    ),
    Deviation("what is interpolated", "outputs before the softmax", "the paper's are hypotheses; these serve any task"),
    Deviation(
        "clients",
        "a cohort in each round, whose global models are averaged by examples, as in fedavg",
        "the paper's algorithm has one client in a step",
    ),
    Deviation("start", "own models start as the global one", "as in ditto"),
)


class Mapper(Method):
    """Everyone predicts with its own model's outputs and the global one's, in a mixture that it chooses by its data."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("begun",)
    models = {
        "server": {"model": Same()},
        "client": {"model": Built(MixedOutputs, {"own": Same(), "common": Same()}, travels="common")},
    }
    headline = "personalised"
    unused = ("local.initial",)

    share: Annotated[float | None, "lambda, the share of the own model; none: each client chooses it in each round"] = (
        None
    )
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"share is in [0, 1], or none, got {self.share}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=named_for_clients(server.weights()))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        pair = client.models["model"]
        assert isinstance(pair, MixedOutputs)
        if not client.vars.get("begun"):
            client.vars["begun"] = True
            pair.own.load_state_dict(pair.common.state_dict())
        share = self.share
        if share is None:
            share = yield from self.best(client)
            yield Note("lambda", share)
        pair.share.fill_(share)
        yield self.local.fit("model", task_loss, only=("own",))
        yield self.local.fit("model", task_loss, only=("common",))
        yield Mark("personalised")
        return UPDATE(weights=named_for_server(client.weights()), examples=self.local.examples(client))

    def best(self, client: Node) -> Steps:
        """Return the lambda with the least loss on the client's rows."""
        data = client.data[self.local.data]
        if not len(data):
            return SHARES[0]
        own = yield Predict("model.own", self.local.data)
        common = yield Predict("model.common", self.local.data)
        losses = [float(data.task.loss(share * own + (1 - share) * common, data.y)) for share in SHARES]
        return SHARES[losses.index(min(losses))]

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load(self.cohort.mean(server, mail))
        yield Mark("global")
        server.round += 1
