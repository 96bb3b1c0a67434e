"""SCAFFOLD: FedAvg whose clients correct their steps by how their gradients differ from the average gradient.

Sent by a client: its weights after local training, and the change of its control variate. These are twice the bytes of
FedAvg.
Sent by the server: its weights, the mean control variate, and the round in which it last heard of the client.

Paper: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020. Algorithm 1 with
option II. A local step is y - eta_l (g(y) - c_i + c). Afterwards c_i becomes c_i - c + (x - y) / (K eta_l). The server
moves by eta_g (`server.rate`) times the mean of y - x, and c by |S|/N times the mean change of the c_i. Means are not
weighted.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
    Shifted,
    Training,
    answers,
    difference,
    move,
    shifted,
    task_loss,
)

GLOBAL = Kind("global", to="children", weights=Weights("model"), control=Weights("model"), heard=Scalar(low=-1))
UPDATE = Kind("update", to="parent", weights=Weights("model"), control=Weights("model"))

DEVIATIONS = (
    Deviation(
        "momentum",
        "Local SGD may have momentum m. K in option II is then how far a constant gradient goes, the sum over k = "
        "1..K of (1 - m^k) / (1 - m). With Nesterov's momentum it is k + 1 in place of k.",
        "The paper has plain SGD. Shipped settings have a momentum of 0.9, with which K alone would make c_i ten "
        "times a gradient.",
    ),
    Deviation(
        "what travels",
        "weights, not differences; BatchNorm's statistics are averaged, without control variates",
        "the same numbers at eta_g = 1, to the bit those of fedavg in the first round",
    ),
    Deviation(
        "server's control variate",
        "The server keeps the sum of the c_i. A change that did not reach it is part of the client's next one.",
        "So c stays their mean when clients join or an update is lost. The paper has neither.",
    ),
)


class Scaffold(Method):
    """FedAvg without client drift: control variates hold how a client's gradients differ from the mean of all."""

    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    memory = ("control", "counted", "sent", "heard", "states")
    models = {"server": {"model": Same()}, "client": {"model": Same()}}
    headline = "global"
    unused = ("cohort.weighted", "local.initial")

    cohort: Cohort = Cohort()
    local: Training = Training()
    loss: Loss = task_loss
    server: NodeOptimiser = NodeOptimiser()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local.optimiser != "sgd":
            raise ValueError(
                f"control variates are gradients of SGD: set local.optimiser=sgd, not {self.local.optimiser}"
            )
        if self.local.clip is not None:
            raise ValueError(f"control variates are whole gradients: leave out local.clip, got {self.local.clip}")

    @on(Round, role="server")
    def begin(self, server: Node) -> list[Send]:
        heard = server.vars.get("heard", {})
        groups: dict[int, list[str]] = {}  # clients by the round in which they were last heard of
        for client in self.cohort.draw(server):
            groups.setdefault(heard.get(client, -1), []).append(client)
        weights = server.weights()
        total = _kept(server, "control")
        control = {name: tensor / len(server.children) for name, tensor in total.items()}
        return [GLOBAL(some, weights=weights, control=control, heard=last) for last, some in groups.items()]

    @on(Each(GLOBAL), role="client")
    def train(self, client: Node, mail: Message) -> Steps:
        client.round = mail.round
        client.load(mail.weights)
        own = _kept(client, "control")
        # The part of c_i that the server has counted: all of it, unless the last update was lost.
        arrived = mail.heard == client.vars.get("sent", -1)
        counted = own if arrived else _kept(client, "counted")
        fitted = yield self.local.fit(
            "model", self.loss, transform=Shifted(), aux={"by": difference(mail.control, own)}, answer="displacement"
        )
        control = dict(own)
        rate = self.local.at(client).lr
        if fitted.steps and rate:  # at a rate of 0 nothing is learnt of the gradients
            scale = 1 / (rate * self.local.reach(fitted.steps))
            for name in own.keys() & fitted.displacement.keys():
                control[name] = own[name] - mail.control[name] + scale * fitted.displacement[name]
        client.vars.update(control=control, counted=counted, sent=mail.round)
        return UPDATE(weights=client.weights(), control=difference(control, counted))

    @on(answers(UPDATE), role="server")
    def merge(self, server: Node, mail: Inbox) -> Steps:
        if mail:
            move(server, self.cohort.mean(server, mail, by=None), self.server)
            change = self.cohort.mean(server, mail, "control", by=None)
            server.vars["control"] = shifted(_kept(server, "control"), change, len(mail))
            heard = {m.sender: m.round for m in mail}
            server.vars["heard"] = {**server.vars.get("heard", {}), **heard}
        yield Mark("global")
        server.round += 1


def _kept(node: Node, what: str) -> Named:
    """Return one of the node's control variates, for all that travels; zero at first, and always zero for buffers."""
    known: dict[str, Tensor] = node.vars.get(what) or {}
    return known or {name: torch.zeros_like(tensor) for name, tensor in node.weights().items()}
