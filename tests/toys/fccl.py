"""Logits star with two teachers (FCCL): public logits are correlated, local training remembers two older selves."""

import torch
import torch.nn.functional as F

from heterophony import Each, Every, Fit, Kind, Logits, Mark, Method, Predict, Round, on
from heterophony.parts.losses import cross_entropy, kl
from heterophony.parts.optimisers import adam

ASK = Kind("ask", to="children")
LOGITS = Kind("logits", to="parent", logits=Logits("public"))
CONSENSUS = Kind("consensus", to="children", logits=Logits("public"))


def standard(z):
    return (z - z.mean(0)) / (z.std(0) + 1e-6)


def correlate(nets, batch):
    c = standard(nets["model"](batch.x)).T @ standard(batch.target) / len(batch)
    on = torch.eye(len(c), dtype=torch.bool)
    return torch.where(on, (1 - c) ** 2, 0.0051 * (1 + c) ** 2).sum()


def remember(nets, batch):
    z = nets["model"](batch.x)
    inter, intra = kl(nets["previous"](batch.x), z), kl(nets["pretrained"](batch.x), z)
    return {"model": {"ce": F.cross_entropy(z, batch.y), "inter": inter, "intra": intra}}


class FCCL(Method):
    roles = ("server", "client")
    kinds = (ASK, LOGITS, CONSENSUS)
    memory = ("ready",)

    @on(Round, role="server")
    def ask(self, server):
        return ASK(server.cohort())

    @on(Each(ASK), role="client")
    def speak(self, client, mail):
        client.round = mail.round
        if "ready" not in client.vars:
            client.vars["ready"] = True
            yield Fit("model", cross_entropy, epochs=2, batch=16, optimiser=adam(0.01))
            client.load(client.weights(), "pretrained")
        logits = yield Predict("model", "public")
        return LOGITS(logits=logits)

    @on(Every(LOGITS, of="cohort"), role="server")
    def average(self, server, mail):
        if mail:
            yield CONSENSUS([m.sender for m in mail], logits=sum(m.logits for m in mail) / len(mail))
        server.round += 1

    @on(Each(CONSENSUS), role="client")
    def learn(self, client, mail):
        client.load(client.weights(), "previous")
        yield Fit("model", correlate, data="public", batch=16, optimiser=adam(0.01), extra={"target": mail.logits})
        yield Fit("model", remember, batch=16, optimiser=adam(0.01), teachers=("previous", "pretrained"))
        yield Mark("local")

    def traffic(self, federation, rounds):
        once = rounds * (len(federation.topology.roles) - 1) * 32 * 4 * 4
        return {"ask": 0, "logits": once, "consensus": once}
