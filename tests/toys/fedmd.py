"""Logits star (FedMD with a global model): the server averages public logits and everyone learns from the mean."""

import torch

from heterophony import Each, Every, Fit, Kind, Logits, Mark, Method, Predict, Round, on
from heterophony.parts.losses import cross_entropy
from heterophony.parts.optimisers import sgd

ASK = Kind("ask", to="children")
LOGITS = Kind("logits", to="parent", logits=Logits("public"))
CONSENSUS = Kind("consensus", to="children", logits=Logits("public"))


def match(nets, batch):
    return {name: {"l1": (net(batch.x) - batch.target).abs().mean()} for name, net in nets.items()}


class FedMD(Method):
    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS)
    lr: float = 0.1

    @on(Round, role="server")
    def ask(self, server):
        return ASK(server.cohort())

    @on(Each(ASK), role="client")
    def speak(self, client, mail):
        client.round = mail.round
        logits = yield Predict("model", "public")
        return LOGITS(logits=logits)

    @on(Every(LOGITS, of="cohort"), role="server")
    def average(self, server, mail):
        if mail:
            target = torch.stack([m.logits for m in mail]).mean(0)
            yield self.digest("public", target)
            yield CONSENSUS([m.sender for m in mail], logits=target)
        yield Mark("global")
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client, mail):
        yield self.digest("public", mail.logits)
        yield Mark("distilled")
        yield Fit("model", cross_entropy, batch=16, optimiser=sgd(self.lr))
        yield Mark("personalised")

    def digest(self, view, target):
        return Fit("model", match, data=view, batch=16, optimiser=sgd(self.lr), extra={"target": target})

    def traffic(self, federation, rounds):
        clients = len(federation.topology.roles) - 1
        logits = 32 * 4 * 4
        return {"ask": 0, "logits": rounds * clients * logits, "consensus": rounds * clients * logits}
