"""Two models in one client (FML): a private model and the travelling meme teach each other."""

import torch.nn.functional as F

from heterophony import Each, Every, Fit, Kind, Mark, Method, Round, Weights, on
from heterophony.parts.aggregate import mean
from heterophony.parts.losses import kl
from heterophony.parts.optimisers import sgd

GLOBAL = Kind("global", to="children", weights=Weights("meme"))
MEME = Kind("meme", to="parent", weights=Weights("model"))


class FML(Method):
    roles = ("server", "client")
    kinds = (GLOBAL, MEME)
    alpha: float = 0.5
    beta: float = 0.5
    lr: float = 0.05

    @on(Round, role="server")
    def begin(self, server):
        return GLOBAL(server.cohort(), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client, mail):
        client.round = mail.round
        client.load(mail.weights, "meme")
        # the private model's momentum is kept, the meme's begins anew at each fork
        yield Fit(("local", "meme"), self.mutual, batch=16, optimiser=sgd(self.lr, 0.9), keep={"local": "own"})
        yield Mark("personalised", "local")
        return MEME(weights=client.weights("meme"))

    @on(Every(MEME, of="cohort"), role="server")
    def merge(self, server, mail):
        if mail:
            server.load(mean([m.weights for m in mail]))
        yield Mark("global")
        server.round += 1

    def mutual(self, nets, batch):
        local, meme = nets["local"](batch.x), nets["meme"](batch.x)
        return {
            "local": {
                "ce": self.alpha * F.cross_entropy(local, batch.y),
                "kl": (1 - self.alpha) * kl(meme, local),
            },
            "meme": {
                "ce": self.beta * F.cross_entropy(meme, batch.y),
                "kl": (1 - self.beta) * kl(local, meme),
            },
        }

    def traffic(self, federation, rounds):
        server = federation.node("server")
        once = rounds * len(server.children) * sum(t.nbytes for t in server.weights().values())
        return {"global": once, "meme": once}
