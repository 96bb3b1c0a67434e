"""Buffered asynchronous star (FedBuff): the server steps once every few updates, however stale they are."""

from heterophony import Count, Each, Fit, Kind, Mark, Method, Note, Round, Weights, on
from heterophony.parts.aggregate import difference, mean, shifted
from heterophony.parts.losses import cross_entropy
from heterophony.parts.optimisers import sgd

GLOBAL = Kind("global", to="children", weights=Weights("model"))
DELTA = Kind("delta", to="parent", weights=Weights("model"))


class FedBuff(Method):
    roles = ("server", "client")
    kinds = (GLOBAL, DELTA)
    memory = ("idle",)
    buffer: int = 2

    @on(Round, role="server")
    def begin(self, server):
        return GLOBAL(server.vars.get("idle", server.children), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client, mail):
        client.round = mail.round
        client.load(mail.weights)
        yield Fit("model", cross_entropy, batch=16, optimiser=sgd(0.1))
        return DELTA(weights=difference(client.weights(), mail.weights))

    @on(Count(DELTA, n="buffer"), role="server")
    def absorb(self, server, mail):
        discounts = [(1 + m.staleness) ** -0.5 for m in mail]
        step = mean([{n: t * d for n, t in m.weights.items()} for m, d in zip(mail, discounts, strict=True)])
        server.load(shifted(server.weights(), step))
        yield Mark("global")
        for m in mail:
            yield Note("staleness", m.staleness)
        server.vars["idle"] = [m.sender for m in mail]
        server.round += 1

    def traffic(self, federation, rounds):
        """Every client once, and one more for each update absorbed; those of the last round are not sent out again."""
        server = federation.node("server")
        model = sum(t.nbytes for t in server.weights().values())
        sent = (len(server.children) + (rounds - 1) * self.buffer) * model
        return {"global": sent, "delta": sent}
