"""Bidirectional hierarchical federated learning: a tree of persistent models, mixed on the way down and on the way up.

Leaves a node: its weights, to its children, its parent and (residual links) its descendants; its children's weights to
its ancestors; how many examples its subtree holds; on which level it is, and whether it waits for all it has asked.
Equations: Algorithm 1 as two reactions, the same at every level: `receive` (line 9) and `gather` (lines 17-19), with
`descend` (lines 11-16) between them. NODEOPT is Eq. 3, or where a node has data l2 to the parent (as in Ditto) or
mutual learning (as in FML). The root's T is the number of rounds of the run.
Deviations: line 9 reads W_q; the merged model is returned (as printed, the last merge would be dropped). A leaf has
nothing to gather, so it does no upward NODEOPT. Means are weighted by examples (Eq. 2) unless `weighted` is false
(Eq. 3a). Residual lists are emptied after use; with a state for each link, links are followed one after the other, by
their senders' names, so that of n links with rate r the first weighs (1 - r)^(n - 1) of the last. What a node learns
while its children run is an update of stale parameters: it is added, discounted, after the merge (as a starting point
of Eq. 3 it would be lost at a rate of one). An asynchronous node merges every `buffer` answers (FedBuff; FedAsync with
one), each moved back towards the present model by its staleness. In mutual learning the parent's model is a constant
teacher; it hears back on the way up.
Reference: Jacob, Bidirectional Hierarchical Federated Optimisation, 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from heterophony import (
    ByLevel,
    Count,
    Each,
    Inbox,
    Kind,
    Loss,
    Mark,
    Message,
    Method,
    Named,
    Node,
    Predict,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Weights,
    check_complete,
    on,
    pick,
)
from heterophony.parts import (
    Cohort,
    Mutual,
    NodeOptimiser,
    Proximal,
    Retention,
    Staleness,
    Training,
    answers,
    cross_entropy,
    difference,
    engage,
    mean,
    move,
    moved,
    node_optimiser,
    norm,
    observe,
    release,
    shifted,
)

DOWN = Kind("down", to="children", weights=Weights("model"), level=Scalar(low=0), waits=Scalar(0, 1))
UP = Kind("up", to="parent", weights=Weights("model"), examples=Scalar(low=0))
PUSH = Kind("push", to="parent", weights=Weights("model"), examples=Scalar(low=0))  # to a parent that does not wait
FAR_DOWN = Kind("far-down", to="descendants", weights=Weights("model"))
FAR_UP = Kind("far-up", to="ancestors", weights=Weights("model"))


class BHFL(Method):
    """A tree in which every node keeps a model: near the leaves personal, near the root general."""

    roles = ("root", "inner", "leaf")
    kinds = (DOWN, UP, PUSH, FAR_DOWN, FAR_UP)
    memory = ("level", "above", "waits", "turn", "engaged", "examples", "states", "parent", "learned", "retained")
    models = {role: {"model": Same(start="alike")} for role in ("root", "inner", "leaf")}
    headline = "leaf"
    unused = ("local.initial", "proxy.initial")

    turns: ByLevel[int] = 1  # T_q: merges (of a leaf, trainings) before the parent hears of it
    cohort: Cohort = Cohort()  # of an asynchronous node, its fraction says how many are at work
    buffer: ByLevel[int] = 0  # 0 waits for the cohort; K merges every K answers, whoever sent them
    up: NodeOptimiser = NodeOptimiser()
    down: NodeOptimiser = NodeOptimiser(rate=0.5)
    far_up: NodeOptimiser = NodeOptimiser(rate=0.1)
    far_down: NodeOptimiser = NodeOptimiser(rate=0.5)
    far: bool = True  # whether residual links are used
    per_link: bool = True  # an optimiser state for each residual link, or one for all of a direction
    largest: int = 1  # K: how many children's updates go up a residual link
    averaged: bool = False  # as one mean model
    merge: ByLevel[Literal["mix", "l2", "mutual"]] = "mix"  # with the parent's model; without data always "mix"
    pull: ByLevel[float] = 0.1  # l2: mu; mutual: the share of the KL term (FML's 1 - alpha)
    overlap: ByLevel[bool] = False  # an internal node trains while its children run, on stale parameters
    staleness: Staleness = Staleness()
    local: Training = Training()  # of leaves
    proxy: Training = Training()  # of internal nodes that have data
    loss: Loss = cross_entropy
    retain: Retention = Retention()  # against forgetting, where data come as a stream

    def __post_init__(self) -> None:
        super().__post_init__()
        check_complete(self, self.roles, optional=("cohort.deadline",))
        if isinstance(self.buffer, dict) and any(key.isdigit() for key in self.buffer):  # triggers know no level
            raise ValueError("buffer can be given by node and by role, not by level")

    @on(Round, role="root")
    def begin(self, root: Node) -> Steps:
        return (yield from self.descend(root))

    @on(Each(DOWN, also=(FAR_DOWN,)), role=("inner", "leaf"))
    def receive(self, node: Node, mail: Message) -> Steps:
        node.vars["level"], node.vars["above"], node.vars["waits"] = int(mail.level) + 1, mail.round, mail.waits == 1
        if self.of(self.merge, node) == "mix" or not self.learns(node):
            move(node, mail.weights, self.down, "down")
        else:
            node.vars["parent"] = mail.weights
        self.residuals(node, mail.also, self.far_down, "far-down")
        if node.role == "leaf":
            # Its rounds count its own trainings, so that those who are asked less often can be compared, and a stream
            # goes on between two messages.
            for turn in range(self.of(self.turns, node)):
                node.round += int(turn > 0)
                yield from self.train(node, self.local)
            yield Mark("leaf")
            examples = len(node.data[self.local.data])  # of this round, where data are a stream
            node.round += 1
            return self.answer(node, examples)
        if node.vars.get("turn") is not None:
            return []  # its children are still at work: they hear of this with the next turn
        node.vars["turn"] = 0
        return (yield from self.descend(node))

    def descend(self, node: Node) -> Steps:
        """Train where there are data, then set the children to work: on what was learned, or already before that."""
        waits = self.of(self.buffer, node) == 0
        to = self.cohort.draw(node) if waits else engage(node, self.cohort.share(node))
        if self.of(self.buffer, node) > max(1, len(node.children)):
            raise ValueError(f"a buffer for {self.of(self.buffer, node)} answers, from {len(node.children)} children")
        learns, overlap = self.learns(node), self.of(self.overlap, node)
        if learns and not overlap:
            yield from self.train(node, self.proxy)
        before = node.weights()
        sends = [FAR_DOWN(weights=before)] if self.far and node.links.descendants else []
        sends += [DOWN(to, weights=before, level=node.vars.get("level", 0), waits=waits)]
        if not (learns and overlap):
            return sends
        yield from sends
        yield from self.train(node, self.proxy)
        node.vars["learned"] = moved(node, node.weights(), before)
        node.load(before)

    @on(answers(UP, also=(FAR_UP,)), role=("root", "inner"))
    def gather(self, node: Node, mail: Inbox) -> Steps:
        sends: list[Send] = []
        if mail:
            here = node.weights()
            updates = [moved(node, m.weights, here) for m in mail]
            shares = self.cohort.shares(mail)
            yield from observe(updates, shares, mail)
            sends = self.select(node, mail, updates)
            move(node, self.cohort.together([self.timely(m, here) for m in mail], shares), self.up, "up")
            node.vars.setdefault("examples", {}).update({m.sender: m.examples for m in mail})
        self.residuals(node, mail.also, self.far_up, "far-up")
        if learned := node.vars.pop("learned", None):
            node.load(shifted(node.weights(), learned, self.staleness.discount(1)))
        yield Mark(node.role)
        node.round += 1
        if node.parent is None or node.vars.get("turn") is None:
            return sends  # the root begins anew; an asynchronous node that nobody has asked keeps what it merged
        node.vars["turn"] += 1
        if node.vars["turn"] < self.of(self.turns, node):
            return sends + ((yield from self.descend(node)) or [])
        node.vars["turn"] = None
        return [*sends, self.answer(node, sum(node.vars.get("examples", {}).values()))]

    @on(Count(PUSH, n="buffer", also=(FAR_UP,)), role=("root", "inner"))
    def absorb(self, node: Node, mail: Inbox) -> Steps:
        """As `gather`, without waiting for anyone in particular."""
        release(node, [m.sender for m in mail])
        return (yield from self.gather(node, mail))

    # -- parts of these ----------------------------------------------------------------------------------------
    def train(self, node: Node, how: Training) -> Steps:
        merge, pull = self.of(self.merge, node), self.of(self.pull, node)
        if merge == "mix" or "parent" not in node.vars:
            yield from self.retain.train(node, how, "model", self.loss)
        elif merge == "l2":
            near: dict[str, Any] = {"transform": Proximal(pull), "aux": {"anchor": node.vars["parent"]}}
            yield from self.retain.train(node, how, "model", self.loss, **near)
        else:
            own = node.weights()
            node.load(node.vars["parent"])
            opinion = yield Predict("model", how.data)
            node.load(own)
            mutual = Mutual(pull)
            yield from self.retain.train(node, how, "model", mutual, matters=self.loss, extra={"parent": opinion})

    def residuals(self, node: Node, mail: Sequence[Message], optimiser: NodeOptimiser, state: str) -> None:
        """NODEOPT for what came along residual links."""
        links = sorted({m.sender for m in mail}) if self.per_link else [""] if mail else []
        for link in links:
            models = [m.weights for m in mail if link in ("", m.sender)]
            move(node, mean(models), optimiser, f"{state}/{link}" if link else state)

    def select(self, node: Node, mail: Inbox, updates: Sequence[Named]) -> list[Send]:
        """SELECTRESIDUALS: the children whose updates are the longest."""
        if not (self.far and node.links.ancestors):
            return []
        order = sorted(range(len(mail)), key=lambda i: (-norm(updates[i]), mail[i].sender))
        models = [mail[i].weights for i in order[: self.largest]]
        return [FAR_UP(weights=model) for model in ([mean(models)] if self.averaged else models)]

    def answer(self, node: Node, examples: float) -> Send:
        kind = UP if node.vars["waits"] else PUSH
        return kind(round=node.vars["above"], weights=node.weights(), examples=examples)

    def timely(self, mail: Message, here: Named) -> Named:
        """A model as it came; where it is stale, nearer to what is here."""
        share = self.staleness.discount(mail.staleness)
        return mail.weights if share == 1 else shifted(here, difference(mail.weights, here), share)

    def learns(self, node: Node) -> bool:
        if node.role == "leaf":
            return self.local.data in node.data
        return self.proxy.epochs > 0 and self.proxy.data in node.data

    def of(self, value: Any, node: Node) -> Any:
        return pick(value, *node_optimiser.names(node))
