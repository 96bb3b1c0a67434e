"""A star that does not wait for the slow, but takes their late answers with the next round."""

from heterophony import Each, Every, Fit, Kind, Method, Note, Round, Weights, on
from heterophony.kernel.optimisers import sgd
from heterophony.parts.aggregate import mean
from heterophony.parts.losses import cross_entropy

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"))


class Patient(Method):
    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    deadline: float = 0.06

    @on(Round, role="server")
    def begin(self, server):
        return GLOBAL(server.cohort(), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client, mail):
        client.round = mail.round
        client.load(mail.weights)
        yield Fit("model", cross_entropy, batch=16, optimiser=sgd(0.1))
        return UPDATE(weights=client.weights())

    @on(Every(UPDATE, of="cohort", deadline="deadline", late="accept"), role="server")
    def merge(self, server, mail):
        server.load(mean([m.weights for m in mail], [1 / (1 + m.staleness) for m in mail]))
        for m in mail:
            yield Note("staleness", m.staleness)
        server.round += 1
