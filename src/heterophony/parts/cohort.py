"""Who takes part in a round, how long their answers are waited for, and how the answers are put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from heterophony.kernel.by_level import ByLevel, values
from heterophony.kernel.message import Kind, Message
from heterophony.kernel.node import Node
from heterophony.kernel.reaction import Every
from heterophony.kernel.work import Named
from heterophony.parts.aggregate import mean
from heterophony.parts.own_value import own_value

WAITING = "answers that are enough when the deadline has come: a count, or a share"


@dataclass(frozen=True)
class Cohort:
    """The children that a node asks in a round.

    A method that has one calls it `cohort`, draws it with `draw`, waits with `on(answers(KIND))`, and puts the answers
    together with `mean`. All but `weighted` may differ from node to node (`ByLevel`).
    """

    fraction: Annotated[ByLevel[float], "share of the clients, or of a node's children, that a round asks"] = 1.0
    quorum: Annotated[ByLevel[int | float], WAITING] = 1
    deadline: Annotated[
        ByLevel[float] | None, "virtual seconds that a window stays open; none: until all have answered"
    ] = None
    weighted: Annotated[bool, "the mean counts a client by its examples"] = True

    def __post_init__(self) -> None:
        for fraction in values(self.fraction):
            if not 0 < fraction <= 1:
                raise ValueError(f"fraction is a share in (0, 1], got {fraction}")
        for quorum in values(self.quorum):
            if quorum < 0 or (isinstance(quorum, float) and not 0 < quorum <= 1):
                raise ValueError(f"quorum is a count >= 0 or a share in (0, 1], got {quorum}")
        for deadline in values(self.deadline) if self.deadline is not None else ():
            if not deadline > 0:
                raise ValueError(f"deadline is a number of virtual seconds > 0, got {deadline}")

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
        return [getattr(m, by) for m in mail] if isinstance(by, str) else list(by)

    def mean(
        self, mail: Sequence[Message], field: str = "weights", by: str | Iterable[float] | None = "examples"
    ) -> dict[str, Tensor]:
        """Return the mean of the answers' weights, each counted as `shares` says."""
        return self.together([getattr(m, field) for m in mail], self.shares(mail, by))

    def together(self, items: Sequence[Named], shares: Sequence[float] | None = None) -> dict[str, Tensor]:
        """Combine the weights that a cohort sent. They are combined nowhere else."""
        return mean(items, shares)


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
