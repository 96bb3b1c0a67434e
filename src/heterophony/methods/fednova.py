"""FedNova: FedAvg for clients that take different numbers of steps: their updates are normalised before the mean.

Sent by a client: its weights after local training, from how many examples they are, and how far its steps reach.
Sent by the server: its weights.

Paper: Wang, Liu, Liang, Joshi and Poor, Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization, NeurIPS 2020. The update rule of FedNova. A client's update is divided by |a_i|, which is its number of
steps, or with momentum the sum of the weights that its gradients have in them. The mean of these, by examples, is
multiplied by the mean of all |a_i| (tau_eff). Where all take equally many steps it is FedAvg, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    Note,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    on,
)
from heterophony.parts import (
    Cohort,
    NodeOptimiser,
    Training,
    answers,
    difference,
    move,
    moving,
    shifted,
    task_loss,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0), reach=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "tau_eff",
        "the mean of |a_i| by examples, with momentum too",
        "as in the authors' code; so equal steps give FedAvg also with momentum, where the paper's tau_eff, the mean "
        "number of steps, would give shorter ones",
    ),
    Deviation(
        "what travels",
        "weights; the server normalises",
        "the same numbers, and in the case of equal steps the same bits as FedAvg's",
    ),
    Deviation(
        "buffers",
        "float buffers (BatchNorm's statistics) are averaged by examples",
        "they are no sums of gradients",
    ),
    Deviation(
        "local solvers",
        "SGD, also with momentum or Nesterov's; no proximal term",
        "the paper derives |a_i| for these, and for proximal steps too",
    ),
)


class FedNova(Method):
    """FedAvg for unequal numbers of local steps: what a client learns counts per step, and not by how many it took."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("states",)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("local.initial",)

    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss
    server: NodeOptimiser = NodeOptimiser()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local.optimiser != "sgd" or self.local.clip is not None:
            raise ValueError("updates are normalised as sums of gradients: set local.optimiser=sgd, without local.clip")

    @on(Round, role="server")
    def begin(self, server: Node) -> Send:
        return GLOBAL(self.cohort.draw(server), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        fitted = yield self.local.fit("model", self.loss)
        reach = self.local.reach(fitted.steps)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client), reach=reach)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        stepped = [m for m in mail if m.reach >= 1]  # a step reaches as far; who has no rows has learnt nothing
        if stepped:
            # Against the largest, equal reaches are ones, and nothing rounds.
            longest = max(m.reach for m in stepped)
            counts = self.cohort.shares(stepped) or [1.0] * len(stepped)
            per_step = [n * (longest / m.reach) for n, m in zip(counts, stepped, strict=True)]
            reaches = [n * (m.reach / longest) for n, m in zip(counts, stepped, strict=True)]
            total = sum(counts)
            yield Note("tau_eff", longest * sum(reaches) / total)
            target = self.normalised(server, stepped, per_step, sum(reaches) / total * (sum(per_step) / total))
            move(server, target, self.server)
        yield Mark("global")
        server.round += 1

    def normalised(self, server: Node, mail: Sequence[Message], per_step: Sequence[float], scale: float) -> Named:
        """Return the server's weights plus tau_eff times the mean normalised update; buffers as in FedAvg.

        That mean is the updates' mean by n_i / |a_i|, times the mean of 1 / |a_i|.
        """
        plain, before = self.cohort.mean(server, mail), server.weights()
        models = [m.weights for m in mail]
        if not self.cohort.rule(server).plain:  # all count alike, and are normalised to the middle reach
            middle = sorted(m.reach for m in mail)[(len(mail) - 1) // 2]
            models = [shifted(before, difference(m.weights, before), middle / m.reach) for m in mail]
            scale = 1
        target = self.cohort.together(server, mail, models, per_step, before)
        if scale != 1:  # w + (target - w) would cost the last bit
            target = shifted(before, difference(target, before), scale)
        parameters = moving(server)
        return {name: target[name] if name in parameters else plain[name] for name in target}
