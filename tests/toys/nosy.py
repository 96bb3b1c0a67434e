"""Two methods that say that a sum is enough: one reads senders all the same, the other takes late answers."""

from heterophony import Each, Every, Fit, Kind, Method, Round, Same, Sum, Weights, on
from heterophony.kernel.optimisers import sgd
from heterophony.parts.aggregate import mean
from heterophony.parts.losses import cross_entropy

GLOBAL = Kind("global", to="children", weights=Weights("model"))
UPDATE = Kind("update", to="parent", weights=Weights("model"))
LATE = Kind("update", to="parent", weights=Weights("model"))


def trained(client, mail, kind):
    client.round = mail.round
    client.load(mail.weights)
    yield Fit("model", cross_entropy, batch=16, optimiser=sgd(0.1))
    return kind(weights=client.weights())


class Nosy(Method):
    roles = ("server", "client")
    kinds = (GLOBAL, UPDATE)
    models = {"server": {"model": Same()}, "client": {"model": Same()}}

    @on(Round, role="server")
    def begin(self, server):
        return GLOBAL(server.cohort(), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client, mail):
        return (yield from trained(client, mail, UPDATE))

    def sums(self):
        return Sum(UPDATE, ("weights",))

    @on(Every(UPDATE, of="cohort"), role="server")
    def merge(self, server, mail):
        heard = {m.sender: m.weights for m in mail}
        server.load(mean(list(heard.values())))
        server.round += 1


class Patiently(Method):
    roles = ("server", "client")
    kinds = (GLOBAL, LATE)

    @on(Round, role="server")
    def begin(self, server):
        return GLOBAL(server.cohort(), weights=server.weights())

    @on(Each(GLOBAL), role="client")
    def train(self, client, mail):
        return (yield from trained(client, mail, LATE))

    def sums(self):
        return Sum(LATE, ("weights",))

    @on(Every(LATE, of="cohort", deadline=1.0, late="accept"), role="server")
    def merge(self, server, mail):
        server.round += 1
