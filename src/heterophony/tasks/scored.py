"""Scores of one's own beside those of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heterophony.base import imported
from heterophony.base.later import later
from heterophony.tasks.score import Score, Sums, finite
from heterophony.tasks.task import Task

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    later(globals(), torch="torch")


@dataclass(frozen=True)
class OwnScore:
    """A score of one's own: the mean over rows of what a function gives for each.

    The function gets all outputs and all targets of a test set, on the CPU, and returns a tensor of one number a row.
    Sums over rows add up over sets.

    Arguments:
        call: where the function is, as `module:callable`.
        higher: whether more is better.
        percent: whether it is a share, which is shown in per cent.
        title: what a person reads; the function's name if not given.
    """

    call: str
    higher: bool = True
    percent: bool = False
    title: str = ""

    def __post_init__(self) -> None:
        module, _, name = self.call.partition(":")
        if not module or not name.isidentifier():
            raise ValueError(f"a score of your own is module:callable, got {self.call!r}")

    @property
    def name(self) -> str:
        """What files and options call it."""
        return self.call.partition(":")[2]

    @property
    def score(self) -> Score:
        return Score(self.name, title=self.title, higher=self.higher, percent=self.percent)

    def sum(self, outputs: Tensor, y: Tensor) -> tuple[float | None, int]:
        """Return the sum over rows, and their number."""
        given = imported.call(self.call, "score", outputs.detach(), y)
        if not isinstance(given, torch.Tensor) or given.shape != y.shape[:1]:
            found = list(given.shape) if isinstance(given, torch.Tensor) else f"a {type(given).__name__}"
            raise ValueError(f"score {self.call!r} must give a tensor of one number for each of {len(y)} rows: {found}")
        return finite(float(given.to(torch.float64).sum())), len(y)


@dataclass(frozen=True)
class Scored:
    """A task with scores of one's own behind its own: `Scored(Regression(), (OwnScore("mine:within_ten"),))`."""

    task: Task
    own: tuple[OwnScore, ...]

    def __post_init__(self) -> None:
        known = [score.name for score in self.task.scores]
        for own in self.own:
            if own.name in known:
                raise ValueError(f"there is a score {own.name!r} already: call the function of {own.call!r} otherwise")
            known.append(own.name)

    @property
    def kind(self) -> str:
        return self.task.kind

    @property
    def term(self) -> str:
        return self.task.term

    @property
    def classes(self) -> int | None:
        return self.task.classes

    @property
    def outputs(self) -> int | None:
        return self.task.outputs

    @property
    def scores(self) -> tuple[Score, ...]:
        """The task's own scores, by the first of which models are judged, and the others."""
        return (*self.task.scores, *(own.score for own in self.own))

    def shape(self, row: tuple[int, ...]) -> tuple[int, ...]:
        return self.task.shape(row)

    def misfit(self, y: Tensor, rows: tuple[int, ...]) -> str | None:
        return self.task.misfit(y, rows)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return self.task.loss(outputs, y)

    def distance(self, teacher: Tensor, student: Tensor) -> Tensor:
        return self.task.distance(teacher, student)

    def sums(self, outputs: Tensor, y: Tensor) -> Sums:
        return {**self.task.sums(outputs, y), **{own.name: own.sum(outputs, y) for own in self.own}}


def scored(task: Task, own: Sequence[OwnScore]) -> Task:
    """Return a task with these scores of one's own, if there are any."""
    return Scored(task, tuple(own)) if own else task
