"""APFL: each client uses a mixture of the weights of a model of its own and of the global one, and learns it as such.

Sent by a client: the weights of its copy of the global model after local training, and how many examples they come
from. Nothing of its own model, and not its share alpha.
Sent by the server: its weights.

Paper: Deng, Kamani and Mahdavi, Adaptive Personalized Federated Learning, 2020. Algorithm 1 (APFL). w goes down the
client's loss at w. The own model v goes down the loss at alpha v + (1 - alpha) w, which a client predicts with.
With `adaptive`, alpha goes a step down that loss in each round. With `alpha = 1` the own models are solo's if there is
no momentum, and with `alpha = 0` the mixtures are FedAvg's local models, to the bit.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from heterophony import (
    Built,
    Data,
    Deviation,
    Each,
    Inbox,
    Kind,
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
from heterophony.parts import (
    Cohort,
    MixedWeights,
    Nets,
    Training,
    answers,
    named_for_clients,
    named_for_server,
    task_loss,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "mixture",
        "of weights, as in the paper's Algorithm 1; `mapper` mixes outputs",
        "the authors' code mixes outputs",
    ),
    Deviation("start", "own models start as the global one", "as in ditto"),
    Deviation(
        "alpha",
        "With `adaptive`, it takes one step at the rate of local training with one batch, before local training, and "
        "stays within 0 and 1.",
        "The authors' code does so once a round, too, and adds a small weight decay of alpha, which the paper has not.",
    ),
    Deviation("optimiser", "fresh in each round, for both models", "the paper's has no memory"),
    Deviation("mean", "by examples; `weighted = false` gives the paper's plain one", "as in fedavg"),
    Deviation("BatchNorm", "the mixture has statistics of its own", "statistics of two models do not mix"),
)


class APFL(Method):
    """Everyone predicts with a mixture of the weights of its own model and of the global one, which FedAvg trains."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("begun",)
    models = {
        "server": {"model": Same()},
        "client": {"model": Built(MixedWeights, {"own": Same(), "common": Same()}, travels="common")},
    }
    headline = "personalised"
    trusts = True
    unused = ("local.initial",)

    alpha: Annotated[float, "share of the own model in the mixture, at first; 1 is solo"] = 0.5
    adaptive: Annotated[bool, "whether each client learns its alpha"] = False
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is a share in [0, 1], got {self.alpha}")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=named_for_clients(server.weights()))

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        pair = client.models["model"]
        assert isinstance(pair, MixedWeights)
        if not client.vars.get("begun"):
            client.vars["begun"] = True
            pair.own.load_state_dict(pair.common.state_dict())
            pair.share.data.fill_(self.alpha)
        if self.adaptive:
            yield self.local.fit("model", self.mixed, parts=("model.common",), only=("share",), epochs=1, steps=1)
            pair.share.data.clamp_(0, 1)
            yield Note("alpha", float(pair.share.detach()))
        yield self.local.fit("model", self.mixed, parts=("model.common",), only=("own", "common"))
        yield Mark("personalised")
        return UPDATE(weights=named_for_server(client.weights()), examples=self.local.examples(client))

    def sums(self) -> Sum:
        return self.cohort.sum(UPDATE, "weights", by="examples")

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            server.load((yield from self.cohort.merged(server, mail, self.local.on_public(task_loss))))
        yield Mark("global")
        server.round += 1

    def mixed(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Return the losses of the mixture, which moves v, and of the copy of the global model, which moves w."""
        task = batch.task
        terms = {task.term: task.loss(nets["model"](batch.x), batch.y)}
        return {"model": {**terms, "global": task.loss(nets["model.common"](batch.x), batch.y)}}
