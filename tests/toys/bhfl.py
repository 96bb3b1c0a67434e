"""Three-level tree (B-HFL): models mixed on the way down and up with momentum, residual links, unequal T_q."""

from heterophony import Each, Every, Fit, Kind, Mark, Method, Round, Weights, on
from heterophony.parts.aggregate import difference, dot, mean, shifted
from heterophony.parts.losses import cross_entropy
from heterophony.parts.optimisers import sgd
from heterophony.work import Loss

DOWN = Kind("down", to="children", weights=Weights("model"))
UP = Kind("up", to="parent", weights=Weights("model"))
FAR_DOWN = Kind("far-down", to="descendants", weights=Weights("model"))
FAR_UP = Kind("far-up", to="ancestors", weights=Weights("model"))


class BHFL(Method):
    roles = ("root", "inner", "leaf")
    kinds = (DOWN, UP, FAR_DOWN, FAR_UP)
    memory = ("above", "turn", "momentum")
    turns: tuple[int, int, int] = (1, 2, 1)  # T_q of root, inner, leaf within one round of the parent
    eta_up: float = 1.0
    eta_down: float = 0.5
    momentum: float = 0.5
    lr: float = 0.05
    loss: Loss = cross_entropy
    early: bool = False  # children start from the model as it was before this node's own training

    @on(Round, role="root")
    def begin(self, node):
        return (yield from self.descend(node))

    @on(Each(DOWN, also=(FAR_DOWN,)), role=("inner", "leaf"))
    def receive(self, node, mail):
        node.vars["above"], node.vars["turn"] = mail.round, 0
        self.mix(node, "down", [mail], mail.also, self.eta_down)
        return (yield from self.descend(node))

    @on(Every(UP, of="cohort", also=(FAR_UP,)), role=("root", "inner"))
    def gather(self, node, mail):
        sends = []
        if mail and node.links.ancestors:
            step = {m.sender: difference(m.weights, node.weights()) for m in mail}
            largest = max(mail, key=lambda m: (float(dot(step[m.sender], step[m.sender])), m.sender))
            sends = [FAR_UP(weights=largest.weights)]
        self.mix(node, "up", mail, mail.also, self.eta_up)
        yield Mark(node.role)
        return sends + (yield from self.next_turn(node))

    def descend(self, node):
        """Train where there is data, then hand the model to the children; a leaf hands it back."""
        work = Fit("model", self.loss, batch=16, optimiser=sgd(self.lr))
        if not node.children:
            yield work
            return (yield from self.next_turn(node))
        sends = [FAR_DOWN(weights=node.weights())] if node.links.descendants else []
        sends += [DOWN(node.cohort(), weights=node.weights())]
        if "train" not in node.data:
            return sends
        if self.early:
            yield from sends
            yield work
            return []
        yield work
        return [send.kind(send.to, weights=node.weights()) for send in sends]

    def next_turn(self, node):
        node.round += 1
        if node.parent is None:
            return []
        node.vars["turn"] += 1
        if node.vars["turn"] < self.turns[self.roles.index(node.role)]:
            return (yield from self.descend(node))
        return [UP(round=node.vars["above"], weights=node.weights())]

    def mix(self, node, way, mail, residuals, eta):
        """Momentum with a state of its own for each direction and for the residuals of each."""
        for name, models in ((way, mail), (f"far-{way}", residuals)):
            if models:
                step = difference(mean([m.weights for m in models]), node.weights())
                states = node.vars.setdefault("momentum", {})
                if name in states:
                    step = shifted(step, states[name], self.momentum)
                states[name] = step
                node.load(shifted(node.weights(), step, eta))

    def traffic(self, federation, rounds):
        """A node receives once for every turn of its parent; it sends far links once for every turn of its own."""
        topology = federation.topology
        model = sum(t.nbytes for t in federation.node("root").weights().values())
        received, turned = {"root": 0}, {"root": 1}  # within one round of the root
        for node, role in topology.roles.items():  # parents stand before their children
            if node != "root":
                received[node] = turned[topology.static[node].parent[0]]
                turned[node] = received[node] * self.turns[self.roles.index(role)]

        def far(way, roles):
            return sum(
                turned[node] * (len(topology.route(node, other)) - 1)
                for node, role in topology.roles.items()
                if role in roles
                for other in getattr(topology.static[node], way)
            )

        counts = {"down": sum(received.values()), "up": sum(received.values())}
        counts |= {"far-down": far("descendants", ("root", "inner")), "far-up": far("ancestors", ("inner",))}
        return {kind: rounds * count * model for kind, count in counts.items()}
