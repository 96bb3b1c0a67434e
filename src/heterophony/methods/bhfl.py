"""Bidirectional hierarchical federated learning: a tree of persistent models, mixed on the way down and on the way up.

Sent by a node: its weights, to its children, to its parent and, along residual links, to its descendants. The weights
of some of its children, along residual links, to its ancestors. To its parent: how many examples its subtree holds. To
its children: on which level it is, and whether it waits for all that it has asked. No rows.

Paper: Jacob, Bidirectional Hierarchical Federated Optimisation, 2023. Algorithm 1 as two reactions, the same at every
level: `receive` (line 9) and `gather` (lines 17-19), with `descend` (lines 11-16) between them. NODEOPT is Eq. 3, or
where a node has data l2 to the parent (as in Ditto), EWC, FedFomo's rule or mutual learning (as in FML). The root's T
is the number of rounds of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from heterophony import (
    ByLevel,
    Clock,
    Count,
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
    NotSummable,
    Round,
    Same,
    Scalar,
    Send,
    Steps,
    Sum,
    Weights,
    by_sender,
    check_complete,
    on,
    summands,
)
from heterophony.parts import (
    Cohort,
    Merge,
    NodeOptimiser,
    Retention,
    Staleness,
    Training,
    add_learned,
    answers,
    difference,
    engage,
    follow,
    longest,
    mean,
    move,
    observe,
    own_value,
    put_aside,
    release,
    shifted,
    task_loss,
    train_beside,
    update_of,
)

DOWN = Kind("down", to="children", weights=Weights("model"), level=Scalar(low=0), waits=Scalar(0, 1))
UP = Kind("up", to="parent", weights=Weights("model"), examples=Scalar(low=0))
PUSH = Kind("push", to="parent", weights=Weights("model"), examples=Scalar(low=0))  # to a parent that does not wait
FAR_DOWN = Kind("far-down", to="descendants", weights=Weights("model"))
FAR_UP = Kind("far-up", to="ancestors", weights=Weights("model"))

BESIDE = "with overlap, what was learned is added after the merge; or the merge starts from it, as printed"
PULL = "l2: mu; ewc: its strength; fomo: the part of the way; mutual: the share of the KL term (FML's 1 - alpha)"
LIVE = "virtual seconds after which a leaf trains again, asked or not; none: it trains when it is asked"

FAR_MERGE = "models of residual links: a step of their own, or merged with the parent's while the node trains"

DEVIATIONS = (
    Deviation(
        "Algorithm 1",
        "Line 9 reads W_q. The merged model is returned. Leaves do no upward NODEOPT, unless `leaf_steps` is set. "
        "Residual lists are emptied "
        "after use.",
        "As printed, W_0 is not defined for q, the last merge is dropped, and momentum would move a leaf without mail. "
        "Section 4.1 gives leaves both optimisers. Then a leaf's step is towards what it has learned itself.",
    ),
    Deviation(
        "means",
        "weighted by the subtree's examples (Eq. 2); `weighted = false` gives Eq. 3a",
        "Eq. 2 and Eq. 3a differ",
    ),
    Deviation(
        "momentum",
        "m = beta1 m + D (FedAvgM), not Eq. 3b's (1 - beta1) D; Adam, Yogi and Adagrad follow Eq. 3 with v_{t-1}, from "
        "tau^2",
        "FedAvgM's own paper; v_t in Eq. 3c is a slip",
    ),
    Deviation(
        "rates",
        "those of residual links are options of their own (`far_up`, `far_down`)",
        "at the rate of `up` (one) a single client's update would replace the root's model",
    ),
    Deviation(
        "training beside the children",
        "What was learned is an update of stale parameters. It is added after the merge, discounted as one merge old. "
        '`beside = "start"` is as printed.',
        "as the starting point of Eq. 3 it is lost at a rate of one",
    ),
    Deviation(
        "asynchronous merges",
        "A merge after every `buffer` answers (FedBuff; FedAsync with one). It takes the difference to the present "
        "model, discounted by staleness.",
        "a child's persistent model did not start from its parent's, so there is no difference to that",
    ),
    Deviation(
        "mutual learning",
        "the parent's model is a constant teacher on the node's data",
        "the parent hears back through the child's model on the way up; no second network at every leaf",
    ),
    Deviation(
        "EWC and FedFomo as merges",
        "EWC's Fisher information is of the parent's model on the node's own rows. FedFomo's rule has one other model, "
        "and goes the part `pull` of the way.",
        "The paper names l2 and mutual learning. A node has no rows of its parent's.",
    ),
    Deviation(
        "residual links merged by training",
        '`far_merge = "train"`: the mean of their models, and that of the parent, count half each',
        "Section 4 does not say how. For l2 it is the same as half a pull to each.",
    ),
    Deviation(
        "several residual links",
        "One after the other, by senders' names. Of n links with rate r, the first weighs (1 - r)^(n - 1) of the "
        "last. `per_link = false` takes one step towards their mean.",
        "The paper does not say. Steps of all links from one point would add up to more than one.",
    ),
    Deviation(
        "residual links",
        "also between parent and child",
        "on the way up they take single updates past the average",
    ),
    Deviation(
        "level",
        "a node learns its level from its parent's messages",
        "so that options can be given by level without anyone knowing the whole tree",
    ),
)


class BHFL(Method):
    """A tree in which every node keeps a model: near the leaves personal, near the root general."""

    roles = ("root", "inner", "leaf")
    kinds = (DOWN, UP, PUSH, FAR_DOWN, FAR_UP)
    memory = (
        *("level", "above", "waits", "turn", "engaged", "examples", "states", "learned", "retained"),
        *("parent", "far"),  # models that are merged while the node trains
    )
    models = {role: {"model": Same(start="alike")} for role in ("root", "inner", "leaf")}
    headline = "leaf"
    unused = ("local.initial", "proxy.initial")

    live: Annotated[ByLevel[float] | None, LIVE] = None
    turns: Annotated[ByLevel[int], "T_q: merges (of a leaf, trainings) before the parent hears of it"] = 1
    cohort: Cohort = Cohort()  # of an asynchronous node, its fraction says how many are at work
    buffer: Annotated[ByLevel[int], "0 waits for the cohort; K merges every K answers, whoever sent them"] = 0
    up: NodeOptimiser = NodeOptimiser()
    down: NodeOptimiser = NodeOptimiser(rate=0.5)
    leaf_steps: Annotated[bool, "leaves have an optimiser `up` too, for what they learn themselves"] = False
    far_up: NodeOptimiser = NodeOptimiser(rate=0.1)
    far_down: NodeOptimiser = NodeOptimiser(rate=0.5)
    far: Annotated[bool, "whether residual links are used"] = True
    far_merge: Annotated[Literal["mix", "train"], FAR_MERGE] = "mix"
    per_link: Annotated[bool, "an optimiser state for each residual link, or one for all of a direction"] = True
    largest: Annotated[int, "K: how many children's updates go up a residual link"] = 1
    averaged: Annotated[bool, "they go up as one mean model"] = False
    merge: Annotated[ByLevel[Merge], 'with the parent\'s model; without data always "mix"'] = "mix"
    pull: Annotated[ByLevel[float], PULL] = 0.1
    overlap: Annotated[ByLevel[bool], "an internal node trains while its children run, on stale parameters"] = False
    beside: Annotated[Literal["added", "start"], BESIDE] = "added"
    staleness: Staleness = Staleness()
    local: Training = Training()  # of leaves
    proxy: Training = Training()  # of internal nodes that have data
    loss: Loss = task_loss
    retain: Retention = Retention()  # against forgetting, where data come as a stream

    def __post_init__(self) -> None:
        super().__post_init__()
        check_complete(self, self.roles, optional=("live", "cohort.deadline", "local.", "proxy."))
        check_complete(self.local, ("leaf",), optional=("steps",), before="local.")
        check_complete(self.proxy, ("root", "inner"), optional=("steps",), before="proxy.")

    @on(Round, role="root")
    def begin(self, root: Node) -> Steps:
        return (yield from self.descend(root))

    @on(Each(DOWN, also=(FAR_DOWN,)), role=("inner", "leaf"))
    def receive(self, node: Node, mail: Message) -> Steps:
        """Mix with the parent's model, then train (a leaf) or set the children to work."""
        node.vars.update(level=int(mail.level) + 1, above=mail.round, waits=mail.waits == 1)
        if self.merges_while_training(node):
            node.vars["parent"] = mail.weights
            node.vars.pop("far", None)  # what had come before that
        else:
            move(node, mail.weights, self.down, "down")
        self.meet(node, mail.also, self.far_down, "far-down")
        if node.role == "leaf":
            return (yield from self.practise(node))
        if node.vars.get("turn") is not None:
            return []  # its children are still at work: they hear of this with the next turn
        node.vars["turn"] = 0
        return (yield from self.descend(node))

    def practise(self, leaf: Node) -> Steps:
        """Train a leaf for its turns, and answer.

        Its rounds count its own trainings, so that those who are asked less often can be compared, and a stream goes on
        between two messages.
        """
        for turn in range(self.of(self.turns, leaf)):
            leaf.round += int(turn > 0)
            yield from self.learn(leaf)
        yield Mark("leaf")
        examples = self.local.examples(leaf)  # of this round, where data are a stream
        leaf.round += 1
        return self.answer(leaf, examples)

    @on(Clock("live"), role="leaf")
    def live_on(self, leaf: Node) -> Steps:
        """Train between two messages on what is there now (contribution 2a). The parent hears of it when it asks."""
        yield from self.learn(leaf)
        yield Mark("leaf")
        leaf.round += 1

    def learn(self, leaf: Node) -> Steps:
        """Train a leaf. With `leaf_steps`, NODEOPT moves it towards what it has come to, as servers towards theirs."""
        before = leaf.weights()
        yield from self.train(leaf, self.local)
        if self.leaf_steps:
            learned = leaf.weights()
            leaf.load(before)
            move(leaf, learned, self.up, "up")

    def descend(self, node: Node) -> Steps:
        """Train where there are data, then set the children to work; with `overlap`, they begin before that."""
        children = self.asked(node)
        if not self.learns(node):
            return self.calls(node, children, node.weights())
        if not self.of(self.overlap, node):
            yield from self.train(node, self.proxy)
            return self.calls(node, children, node.weights())
        before = node.weights()
        yield from self.calls(node, children, before)
        yield from self.train(node, self.proxy)
        if self.beside == "added":
            put_aside(node, before)

    def sums(self) -> Sum:
        """Say that means are enough, unless an option looks at single children."""
        if self.far:
            raise NotSummable("residual links take single children's updates past the mean (far): a sum is not enough")
        if any(self.buffer.values() if isinstance(self.buffer, dict) else [self.buffer]):
            raise NotSummable("a node with a buffer merges answers as they come: a sum needs a window for all")
        if self.cohort.weighted and not self.cohort.everyone:
            raise NotSummable(
                "a node remembers each child's examples, for rounds that do not ask it (cohort.fraction): ask all, or "
                "set cohort.weighted = false"
            )
        return self.cohort.sum(UP, "weights", by="examples")

    @on(answers(UP, also=(FAR_UP,)), role=("root", "inner"))
    def gather(self, node: Node, mail: Inbox) -> Steps:
        """Merge the children's models, then begin the next turn or answer the parent."""
        sends: list[Send] = []
        if mail:
            here = node.weights()
            heard = summands(mail)
            updates = [update_of(node, m.weights, here) for m in heard]
            shares = self.cohort.shares(heard)
            yield from observe(updates, shares, heard)
            if self.far and node.links.ancestors:
                sends = [FAR_UP(weights=model) for model in longest(mail, updates, self.largest, self.averaged)]
            models = [self.timely(m, here) for m in heard]
            move(node, self.cohort.together(node, heard, models, shares, here), self.up, "up")
            node.vars.setdefault("examples", {}).update(by_sender(mail, lambda m: m.examples))
        self.meet(node, mail.also, self.far_up, "far-up")
        add_learned(node, self.staleness.discount(1))
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
        """Do what `gather` does, without waiting for anyone in particular."""
        release(node, [m.sender for m in mail])
        return (yield from self.gather(node, mail))

    # -- what is asked and answered --------------------------------------------------------------------------------
    def asked(self, node: Node) -> Sequence[str]:
        """Return the children that are set to work: the cohort, or as many as an asynchronous node has idle."""
        buffer = self.of(self.buffer, node)
        if buffer == 0:
            return self.cohort.draw(node)
        if buffer > max(1, len(node.children)):
            raise ValueError(f"buffer is {buffer} answers, but {node.id} has {len(node.children)} children")
        return engage(node, self.cohort.share(node))

    def calls(self, node: Node, children: Sequence[str], weights: Named) -> list[Send]:
        """Return the messages that set children to work, and those down the residual links."""
        waits = self.of(self.buffer, node) == 0
        sends = [FAR_DOWN(weights=weights)] if self.far and node.links.descendants else []
        return [*sends, DOWN(children, weights=weights, level=node.vars.get("level", 0), waits=waits)]

    def answer(self, node: Node, examples: float) -> Send:
        """Return the message to the parent."""
        kind = UP if node.vars["waits"] else PUSH
        return kind(round=node.vars["above"], weights=node.weights(), examples=examples)

    # -- how a node learns -----------------------------------------------------------------------------------------
    def merges_while_training(self, node: Node) -> bool:
        """Return whether a node merges others' models by training beside them."""
        return self.of(self.merge, node) != "mix" and self.learns(node)

    def meet(self, node: Node, mail: Sequence[Message], optimiser: NodeOptimiser, state: str) -> None:
        """Merge what came along residual links: now, or when the node trains next."""
        if mail and self.far_merge == "train" and self.merges_while_training(node):
            node.vars["far"] = mean([m.weights for m in mail])
        else:
            follow(node, mail, optimiser, state, self.per_link)

    def learns(self, node: Node) -> bool:
        """Return whether a node has data to train on."""
        if node.role == "leaf":
            return self.local.data in node.data
        return self.of(self.proxy.epochs, node) > 0 and self.proxy.data in node.data

    def train(self, node: Node, how: Training) -> Steps:
        """Train a node, with l2 or mutual learning beside the others' models, once it has heard of these."""
        merge = self.of(self.merge, node)
        others = [node.vars[name] for name in ("parent", "far") if name in node.vars]
        if merge == "mix" or not others:
            yield from self.retain.train(node, how, "model", self.loss)
        else:
            pull = self.of(self.pull, node)
            yield from train_beside(mean(others), merge, pull, node, how, self.loss, self.retain)

    def timely(self, mail: Message, here: Named) -> Named:
        """Return a model as it came; where it is stale, one that is nearer to what is here."""
        share = self.staleness.discount(mail.staleness)
        return mail.weights if share == 1 else shifted(here, difference(mail.weights, here), share)

    def of(self, value: Any, node: Node) -> Any:
        """Return a node's own value of an option."""
        return own_value(value, node)
