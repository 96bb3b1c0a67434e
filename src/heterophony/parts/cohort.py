"""Who takes part in a round, how long their answers are waited for, and how the answers are put together."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from heterophony.kernel.by_level import ByLevel, values
from heterophony.kernel.mailbox import summands
from heterophony.kernel.message import Kind, Message
from heterophony.kernel.needs import Need, PublicLabels
from heterophony.kernel.node import Node
from heterophony.kernel.reaction import Every
from heterophony.kernel.sum import NotSummable, Sum
from heterophony.kernel.work import Fit, Named
from heterophony.parts.classwise import ClassMeans, merged
from heterophony.parts.combine import RULES, TABLE, TRUST, Combine, flat, rules_of
from heterophony.parts.own_value import own_value
from heterophony.tables.ledger import described

MEAN = Combine()
COMBINING = f"how answers become one: {', '.join(RULES)}, or {TABLE}; none: by the mean, in cronus the filter"
WAITING = "answers that are enough when the deadline has come: a count, or a share"


@dataclass(frozen=True)
class Cohort:
    """The children that a node asks in a round.

    A method that has one calls it `cohort`, draws it with `draw`, waits with `on(answers(KIND))`, and puts the answers
    together with `mean`, `tensor` or `table`. All but `weighted` may differ from node to node (`ByLevel`).
    """

    fraction: Annotated[ByLevel[float], "share of the clients, or of a node's children, that a round asks"] = 1.0
    quorum: Annotated[ByLevel[int | float], WAITING] = 1
    deadline: Annotated[
        ByLevel[float] | None, "virtual seconds that a window stays open; none: until all have answered"
    ] = None
    weighted: Annotated[bool, "the mean counts a client by its examples"] = True
    combine: Annotated[ByLevel[Combine] | None, COMBINING] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "combine", rules_of(self.combine))
        for fraction in values(self.fraction):
            if not 0 < fraction <= 1:
                raise ValueError(f"fraction is a share in (0, 1], got {fraction}")
        for quorum in values(self.quorum):
            if quorum < 0 or (isinstance(quorum, float) and not 0 < quorum <= 1):
                raise ValueError(f"quorum is a count >= 0 or a share in (0, 1], got {quorum}")
        for deadline in values(self.deadline) if self.deadline is not None else ():
            if not deadline > 0:
                raise ValueError(f"deadline is a number of virtual seconds > 0, got {deadline}")

    @property
    def everyone(self) -> bool:
        """Return whether each node asks all its children in every round."""
        return all(fraction == 1 for fraction in values(self.fraction))

    def needs(self, name: str) -> list[Need]:
        """Return what it needs of the data."""
        return [PublicLabels(instead=f"another {name}.combine")] if self.trusts else []

    @property
    def trusts(self) -> bool:
        """Return whether a rule goes by what the node itself learns from public rows."""
        return self.combine is not None and any(rule.rule == TRUST for rule in values(self.combine))

    def share(self, node: Node) -> float:
        """Return the share of its children that a node asks."""
        own = own_value(self.fraction, node)
        if own is None:
            raise ValueError(f"fraction has no value for {node.id}: give one, or one for '*'")
        return own

    def draw(self, node: Node, name: str = "cohort") -> tuple[str, ...]:
        """Draw the children that a node asks in this round. `name` is the group that `answers` waits for."""
        return node.cohort(self.share(node), name=name)

    def shares(self, mail: Sequence[Message], by: str | Iterable[float] | None = "examples") -> list[float] | None:
        """Return how much each answer counts, or None: all alike.

        `by` names the field that says it, or gives a number for each answer. Unless the cohort is `weighted`, it does
        not matter.
        """
        if by is None or not self.weighted:
            return None
        return [getattr(m, by) for m in summands(mail)] if isinstance(by, str) else list(by)

    def sum(self, kind: Kind, *means: str, by: str | None = None, usual: Combine = MEAN) -> Sum:
        """Say that of a window's messages no more is read than means, by `by` where the cohort is weighted.

        Raise `NotSummable` where a rule combines that looks at single messages.
        """
        for rule in values(self.combine) if self.combine is not None else (usual,):
            if not rule.plain:
                raise NotSummable(f"cohort.combine = {rule} looks at single messages, so that a sum is not enough")
        return Sum(kind, means, by, self.weighted and by is not None)

    def rule(self, node: Node, usual: Combine = MEAN) -> Combine:
        """Return the rule by which a node combines what came: the usual one where nothing else is said."""
        return (None if self.combine is None else own_value(self.combine, node)) or usual

    def mean(
        self,
        node: Node,
        mail: Sequence[Message],
        field: str = "weights",
        by: str | Iterable[float] | None = "examples",
        start: Named | None = None,
        trusted: Named | None = None,
    ) -> dict[str, Tensor]:
        """Return what the answers' weights are together. By the mean, each counts as `shares` says.

        Clippings begin at `start`: without it, at the node's own model.
        """
        items = [getattr(m, field) for m in summands(mail)]
        if start is None and field == "weights" and items and not self.rule(node).plain:
            start = next((slot.shared() for slot in node.slots.values() if _alike(items[0], slot.shared())), None)
        return self.together(node, mail, items, self.shares(mail, by), start, trusted)

    def merged(
        self, node: Node, mail: Sequence[Message], fit: Fit, by: str | None = "examples"
    ) -> Generator[Any, Any, dict[str, Tensor]]:
        """Return the same of a node with a model of its own, which it trains on public rows if the rule goes by that.

        `fit` is how it does. Its model stays as it was.
        """
        if self.rule(node).rule != TRUST:
            return self.mean(node, mail, by=by)
        before = node.weights()
        yield fit
        trusted = node.weights()
        node.load(before)
        return self.mean(node, mail, by=by, start=before, trusted=trusted)

    def together(
        self,
        node: Node,
        mail: Sequence[Message],
        items: Sequence[Named],
        shares: Sequence[float] | None = None,
        start: Named | None = None,
        trusted: Named | None = None,
    ) -> dict[str, Tensor]:
        """Combine named tensors that a node made of its mail, one item a message."""
        rule = self.rule(node)
        made, counted = rule.named(items, shares, node.rng("filter"), start, trusted)
        if not rule.plain:
            _note(node, rule, _names(mail), [flat(item) for item in items], flat(made), counted)
        return made

    def tensor(self, node: Node, mail: Sequence[Message], field: str, usual: Combine = MEAN) -> Tensor:
        """Return what a field of the answers is together: logits, or probabilities."""
        return self.of(node, mail, [getattr(m, field) for m in summands(mail)], usual)

    def of(self, node: Node, mail: Sequence[Message], items: Sequence[Tensor], usual: Combine = MEAN) -> Tensor:
        """Combine tensors that a node made of its mail, one a message."""
        rule = self.rule(node, usual)
        found = rule.of(items, node.rng("filter"))
        if not rule.plain:
            _note(node, rule, _names(mail), items, found.value, found.counted)
        return found.value

    def labels(self, node: Node, mail: Sequence[Message], field: str = "probabilities") -> Tensor:
        """Return soft labels. Medians of probabilities, and the like, are made to sum to one."""
        found = self.tensor(node, mail, field)
        return found if self.rule(node).plain else as_probabilities(found)

    def table(self, node: Node, tables: Mapping[str, ClassMeans]) -> ClassMeans:
        """Return what tables by class are together. Each class is combined among those who have it."""
        rule = self.rule(node)
        together = merged(list(tables.values()))
        if rule.plain:
            return together
        draw, means = node.rng("filter"), together.means.clone()
        for label in range(len(means)):
            rows = {name: table.means[label] for name, table in tables.items() if table.counts[label] > 0}
            if rows:
                items = list(rows.values())
                found = rule.of(items, draw)
                means[label] = found.value
                _note(node, rule, [f"class means from {name}" for name in rows], items, found.value, found.counted)
        return ClassMeans(means, together.counts)


def as_probabilities(rows: Tensor) -> Tensor:
    """Return rows made to sum to one."""
    total = rows.sum(-1, keepdim=True)
    return torch.where(total > 0, rows / total, 1 / rows.shape[-1])


def _names(mail: Sequence[Message]) -> list[str]:
    return [described(m.kind, m.round, m.sender) for m in mail]


def _note(
    node: Node, rule: Combine, who: Sequence[str], items: Sequence[Tensor], made: Tensor, counted: list[float] | None
) -> None:
    """Tell whose items are far from the result. Only the item itself decides: nobody is named for another's."""
    for i, ratio in enumerate(rule.doubted(items, made)):
        if ratio is not None and not any(doubt.startswith(f"{who[i]}: ") for doubt in node.doubts):
            share = "" if counted is None else f"; it counted by {counted[i]:.0%}"
            node.doubts.append(f"{who[i]}: {ratio:.3g} times as far from the {rule.rule} as the middle one{share}")


def _alike(item: Named, weights: Named) -> bool:
    """Return whether an item is weights of this model."""
    return item.keys() <= weights.keys() and all(t.shape == weights[name].shape for name, t in item.items())


def answers(
    kind: Kind, of: str = "cohort", *, also: tuple[Kind, ...] = (), late: Literal["drop", "accept"] = "drop"
) -> Every:
    """Wait for the answers of those asked, as the method's `cohort` says: with its quorum, until its deadline.

    `of` is the name that the cohort was drawn under, or a link such as "peers".
    """
    return Every(
        kind,
        of,
        quorum="cohort.quorum",
        deadline="cohort.deadline",
        share="cohort.fraction",
        late=late,
        also=also,
    )
