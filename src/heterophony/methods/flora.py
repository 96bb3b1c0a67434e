"""FLoRA: clients' adapters are stacked, so that their product is the mean of all products, and merged into the network.

Sent by a client: the factors of its adapters after local training, from how many examples they are, and how many stacks
it has merged.
Sent by the server: stacks of all clients' factors, each once to each client; and a call to train.

Paper: Wang, Shen, He, Sun, Wang, Lyu and Li, FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous
Low-Rank Adaptations, NeurIPS 2024. Stacked factors of ranks r_1, ..., r_K are factors of the rank r_1 + ... + r_K, and
the mean by examples is exact. Everyone adds their product to its frozen weights, and begins new adapters.
"""

from __future__ import annotations

import torch

from heterophony import (
    Adapters,
    Deviation,
    Each,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    NetworksByRole,
    Node,
    Round,
    Scalar,
    Send,
    Slice,
    Steps,
    on,
)
from heterophony.parts import (
    SIDES,
    Adapt,
    Cohort,
    Training,
    answers,
    layers_of,
    merge_into_base,
    stacked,
    task_loss,
)

FACTORS = tuple(f"*.{side}" for side in SIDES)
STACK = Kind("stack", to="children", weights=Adapters("model", stacked=True), number=Scalar(low=0))
TRAIN = Kind("train", to="children")
UPDATE = Kind("update", to="parent", weights=Adapters("model"), examples=Scalar(low=0), merged=Scalar(low=0))

DEVIATIONS = (
    Deviation(
        "clients that are not asked",
        "get the stacks that they lack, one message each, when they are asked again",
        "the paper's clients all take part in every round; whoever lacks a stack would train another network",
    ),
    Deviation("whole parts", "`cut.also` is refused", "what is no adapter cannot be stacked"),
    Deviation("virtual time", "merging takes none", "virtual time is that of work on networks"),
)


class FLoRA(Method):
    """Adapters of different ranks are stacked, and added to everyone's frozen network; new ones begin in each round."""

    roles = ("server", "client")
    kinds = (STACK, TRAIN, UPDATE)
    memory = ("stacks", "heard", "merged")
    models = {
        "server": {"model": Slice(Adapt(), start="alike", share=FACTORS)},
        "client": {"model": Slice(Adapt(), start="alike", share=FACTORS)},
    }
    headline = "global"
    unused = ("cohort.combine",)

    cut: Adapt = Adapt()
    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cut.also or len(self.cut.train) < 2:
            raise ValueError("whole adapters are stacked, and nothing else: leave cut.also and cut.train out")

    def networks(self) -> NetworksByRole:
        own = Slice(self.cut, start="alike", share=FACTORS)
        return {"server": {"model": own}, "client": {"model": own}}

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        cohort, heard = self.cohort.draw(server), server.vars.get("heard", {})
        sends = []
        for number, stack in server.vars.get("stacks", {}).items():
            lacking = [client for client in cohort if heard.get(client, 0) <= int(number)]
            if lacking:
                sends.append(STACK(lacking, weights=stack, number=int(number)))
        return [*sends, TRAIN(cohort)]

    @on(Each(STACK), role="client")
    def take(self, client: Node, mail: Message) -> None:
        if mail.number == client.vars.get("merged", 0):  # else it has it already
            merge_into_base(client.models["model"], mail.weights)
            client.vars["merged"] = int(mail.number) + 1

    @on(Each(TRAIN), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        self.renew(client)
        yield from self.local.before_first_round(client, self.loss)
        yield self.local.fit("model", self.loss)
        merged = client.vars.get("merged", 0)
        return UPDATE(weights=client.weights(), examples=self.local.examples(client), merged=merged)

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        known, heard = dict(server.vars.get("stacks", {})), dict(server.vars.get("heard", {}))
        made = server.vars.get("merged", 0)
        for m in mail:
            heard[m.sender] = min(int(m.merged), made)
        if mail:
            shares = self.cohort.shares(mail) or []
            stack = stacked([m.weights for m in mail], shares if any(shares) else [1.0] * len(mail))
            merge_into_base(server.models["model"], stack)
            known[str(made)] = stack
            made += 1
        least = min(heard.get(client, 0) for client in server.children)  # nobody lacks what is older
        kept = {number: stack for number, stack in known.items() if int(number) >= least}
        server.vars.update(stacks=kept, heard=heard, merged=made)
        yield Mark("global")
        server.round += 1

    def renew(self, client: Node) -> None:
        """Begin new adapters: `up` is zero, and `down` is drawn evenly within one over the root of the inputs."""
        own, draw = client.weights(), client.rng("adapters")
        for layer in layers_of(own):
            down = own[f"{layer}down"]
            drawn = torch.rand(down.shape, generator=draw, dtype=torch.float64) * 2 - 1
            own[f"{layer}down"] = (drawn / down.shape[1] ** 0.5).to(down)
            own[f"{layer}up"] = torch.zeros_like(own[f"{layer}up"])
        client.load(own)
