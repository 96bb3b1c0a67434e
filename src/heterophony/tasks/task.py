"""What a task says of itself, and its form in files and on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from heterophony.base.wording import meant
from heterophony.tasks.score import Score, Sums

if TYPE_CHECKING:
    from torch import Tensor


class Task(Protocol):
    """What a network's outputs mean: a value that names its loss, its scores and the form of its outputs."""

    @property
    def kind(self) -> str:
        """Its name in settings."""

    @property
    def term(self) -> str:
        """The loss's name in the table."""

    @property
    def classes(self) -> int | None:
        """How many classes an output tells apart; None where there are none."""

    @property
    def outputs(self) -> int | None:
        """How many numbers a network gives for a row, or for each place of one; None: it is not said."""

    @property
    def scores(self) -> tuple[Score, ...]:
        """The figures of a model. By the first of them models are judged."""

    def shape(self, row: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a network's output for one row of `x` with this shape, by the number of `outputs`."""

    def misfit(self, y: Tensor, rows: tuple[int, ...]) -> str | None:
        """Say what is wrong with targets for `x` of the shape `rows`; None: nothing is."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss."""

    def distance(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Return how far a student's outputs are from a teacher's, which gets no gradient."""

    def sums(self, outputs: Tensor, y: Tensor) -> Sums:
        """Return what all scores need of one test set."""


def packed(task: Task) -> dict[str, Any]:
    """Return a task as plain values, such as files and messages hold."""
    from heterophony.tasks.scored import Scored

    if isinstance(task, Scored):
        return {**packed(task.task), "own": [asdict(own) for own in task.own]}
    return {"kind": task.kind, **asdict(task)}  # type: ignore[call-overload]


def described(task: Task) -> dict[str, Any]:
    """Return what the files of a run say of its task. They say nothing of one class a row and the usual scores."""
    values = packed(task)
    return {} if task.kind == "classification" and "own" not in values else {"task": values}


def unpacked(values: Mapping[str, Any]) -> Task:
    """Return the task that plain values stand for."""
    from heterophony.tasks.kinds import KINDS
    from heterophony.tasks.scored import OwnScore, scored

    own = [OwnScore(**values) for values in values.get("own", ())]
    kind = values.get("kind")
    if kind not in KINDS:
        raise ValueError(f"there is no task {kind!r}{meant(str(kind), list(KINDS))}; there are {', '.join(KINDS)}")
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    made: Task = KINDS[kind](**{key: value for key, value in given.items() if key not in ("kind", "own")})
    return scored(made, own)
