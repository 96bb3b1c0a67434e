"""FedKD: a private model (mentor) and a small common one (mentee) teach each other; what travels of it is compressed.

Leaves a client: how its mentee has changed in local training, each matrix as the product of two smaller ones; nothing
of the mentor. Leaves the server: the mean of these changes, compressed again, to those who sent one in the last round;
the whole mentee to all others (who begin, missed a round, or were not asked).
Equations: Each model's loss is the sum of its cross-entropy, KL from the other's prediction and the mean squared
distance of both models' features, the last two divided by the sum of both cross-entropies on the batch (adaptive mutual
distillation and adaptive hidden loss). KL is the mean over the batch and over classes. What travels keeps the fewest
singular values whose squares have a share T of their sum; T goes linearly from T_start = 0.95 to T_end = 0.98.
Deviations: the paper's clients synchronise at each step; ours, as in the authors' code, after local training, by a
plain mean. In each model's loss the other one and the adaptive divisor, at least 0.01, are constants: derived through
it, a loss would gain by a worse prediction. Features are what a head reads; where one network has more, they are
averaged in groups of neighbours, as many as the other has, in the place of a learned matrix; our networks have no
attention maps to compare. T is a ramp over `energy.over` rounds, as more rounds may be asked for later. Kernels are
matrices with a row for each output, singular values are multiplied into the left factor, and what would not get smaller
goes as it is. Compression takes no virtual time.
Reference: Wu, Wu, Lyu, Huang and Xie, Communication-efficient federated learning via knowledge distillation, Nature
Communications 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heterophony import (
    Data,
    Each,
    Global,
    Inbox,
    Kind,
    LowRank,
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
from heterophony.parts import (
    Cohort,
    Nets,
    Ramp,
    Scheduled,
    Training,
    answers,
    ce,
    compressed,
    cross_entropy,
    difference,
    distance,
    features_of,
    kl,
    pooled,
    restored,
    schedules,
    shifted,
)

GLOBAL = Kind("global", to="children", weights=Weights("mentee"))
STEP = Kind("step", to="children", update=LowRank("mentee"))
UPDATE = Kind("update", to="parent", update=LowRank("model"))
PAIR = ("model", "mentee")
LEAST = 0.01  # of the adaptive divisor: where both models are sure, features would count without bound


class FedKD(Method):
    """Different private networks learn with a small common one, whose compressed changes travel."""

    roles = ("server", "client")
    kinds = (GLOBAL, STEP, UPDATE)
    memory = ("step", "heard")
    models = {"server": {"model": Global()}, "client": {"model": Own(), "mentee": Global()}}
    headline = "personalised"
    unused = ("cohort.weighted",)

    distil: float = 1.0  # the weight of the adaptive KL
    hidden: float = 1.0  # the weight of the adaptive hidden loss; 0: networks need no body and head
    energy: Scheduled = Ramp(0.95, 0.98, over=100)
    cohort: Cohort = Cohort()
    local: Training = Training()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.distil >= 0 and self.hidden >= 0):
            raise ValueError(f"distil and hidden are weights >= 0, got {self.distil} and {self.hidden}")
        if not all(0 < share <= 1 for share in schedules.ends(self.energy)):
            raise ValueError(f"energy is a share in (0, 1], got {self.energy}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        cohort, heard = self.cohort.draw(server), set(server.vars.get("heard", ()))
        along, anew = ([c for c in cohort if (c in heard) is known] for known in (True, False))
        sent = [STEP(along, update=server.vars["step"])] if along else []
        return [*sent, GLOBAL(anew, weights=server.weights())] if anew else sent

    @on(Each(GLOBAL), role="client")
    def start(self, client: Node, mail: Message) -> Steps:
        client.load(mail.weights, "mentee")
        return (yield from self.learn(client, mail.round))

    @on(Each(STEP), role="client")
    def follow(self, client: Node, mail: Message) -> Steps:
        mentee = client.weights("mentee")
        client.load(shifted(mentee, restored(mail.update, mentee)), "mentee")
        return (yield from self.learn(client, mail.round))

    def learn(self, client: Node, round: int) -> Steps:
        client.round = round
        if self.hidden:
            for name in PAIR:
                features_of(client.models[name], "FedKD")
        before = client.weights("mentee")
        yield from self.local.first(client, cross_entropy)
        # the mentor's optimiser is kept, the mentee's begins anew, as its weights do
        parts = tuple(f"{name}.{part}" for name in PAIR for part in ("body", "head")) if self.hidden else ()
        yield self.local.fit(PAIR, self.mutual, parts=parts, keep={"model": "own"})
        yield Mark("personalised")
        update = difference(client.weights("mentee"), before)
        client.load(before, "mentee")  # until the server says where all go
        return UPDATE(update=compressed(update, schedules.at(self.energy, round)))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        server.vars.update(step=None, heard=[])
        if mail:
            model = server.weights()
            update = self.cohort.together([restored(m.update, model) for m in mail])
            step = compressed(update, schedules.at(self.energy, server.round))
            moved = shifted(model, restored(step, model))
            if all(bool(torch.isfinite(tensor).all()) for tensor in moved.values()):  # or a liar has gone too far
                server.load(moved)
                server.vars.update(step=step, heard=[m.sender for m in mail])
        if server.slots["model"].whole:  # the rest of a part is at the clients: here it has learnt nothing
            yield Mark("global")
        server.round += 1

    def mutual(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        """Both models' losses, by terms."""
        features = {name: nets[f"{name}.body"](batch.x) for name in PAIR if self.hidden}
        logits = {n: nets[f"{n}.head"](features[n]) if self.hidden else nets[n](batch.x) for n in PAIR}
        task = {name: ce(logits[name], batch.y) for name in PAIR}
        trust = 1 / sum(task.values()).detach().clamp_min(LEAST)  # type: ignore[union-attr]
        terms = {}
        for own, other in (PAIR, PAIR[::-1]):
            apart = kl(logits[other], logits[own]) / logits[own].shape[-1]
            terms[own] = {"ce": task[own], "kl": self.distil * trust * apart}
            if self.hidden:
                width = min(hidden.shape[-1] for hidden in features.values())
                apart = distance(pooled(features[other], width), pooled(features[own], width), "l2")
                terms[own]["hidden"] = self.hidden * trust * apart
        return terms
