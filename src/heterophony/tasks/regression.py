"""One or several numbers for each row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from heterophony.base.later import later
from heterophony.tasks.score import Pairs, Score, Sums, finite, quotient

if TYPE_CHECKING:
    import torch
    import torch.nn.functional as F
    from torch import Tensor
else:
    later(globals(), torch="torch", F="torch.nn.functional")


def _root(pairs: Pairs) -> float:
    mean = quotient(pairs)
    return math.sqrt(mean) if mean >= 0 else math.nan


def _explained(pairs: Pairs) -> float:
    """Return 1 - squared errors / squared deviations from the mean, both summed over all targets."""
    (errors, _), (squares, _), *targets = pairs
    around = squares - math.fsum(total * total / n for total, n in targets if n)
    return 1 - errors / around if around > 0 else math.nan


@dataclass(frozen=True)
class Regression:
    """Targets `y` (N,) or (N, targets) are numbers; outputs are (N, targets).

    Arguments:
        targets: how many numbers a row has.
        error: what is averaged in training: squared errors, absolute ones, or Huber's, which are absolute beyond 1.
    """

    targets: int = 1
    error: Literal["squared", "absolute", "huber"] = "squared"
    kind: ClassVar[str] = "regression"
    term: ClassVar[str] = "error"

    def __post_init__(self) -> None:
        if self.targets < 1:
            raise ValueError(f"regression needs targets >= 1, got {self.targets}")
        if self.error not in ("squared", "absolute", "huber"):
            raise ValueError(f"error is squared, absolute or huber, got {self.error!r}")

    @property
    def classes(self) -> None:
        return None

    @property
    def outputs(self) -> int:
        return self.targets

    @property
    def scores(self) -> tuple[Score, ...]:
        """The mean absolute error, the root of the mean squared error, and R2: the share of variance explained.

        With several targets, errors are means over them, and R2 is of the variance of all together.
        """
        r2 = ("squared", "target squared", *(f"target {place}" for place in range(self.targets)))
        return (
            Score("mae", ("absolute",), title="MAE", higher=False, percent=False),
            Score("rmse", ("squared",), _root, "RMSE", higher=False, percent=False),
            Score("r2", r2, _explained, "R2", percent=False),
        )

    def shape(self, row: tuple[int, ...]) -> tuple[int, ...]:
        return (self.targets,)

    def misfit(self, y: Tensor, rows: tuple[int, ...]) -> str | None:
        """Say what is wrong with targets: they are finite numbers, so many for each row."""
        wanted = (rows[0], self.targets)
        if tuple(y.shape) != wanted and not (self.targets == 1 and tuple(y.shape) == rows[:1]):
            return f"{self.targets} numbers for each of {rows[0]} rows are needed, targets have {tuple(y.shape)}"
        if y.is_floating_point() and not bool(y.isfinite().all()):
            row = int((~y.isfinite()).reshape(len(y), -1).any(1).nonzero()[0])
            return f"row {row} has a target that is no finite number"
        return None

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean error over rows and targets."""
        return self._error(outputs, y.to(outputs.dtype).view(outputs.shape))

    def distance(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Return the same error between two networks' outputs."""
        return self._error(student, teacher.detach())

    def _error(self, outputs: Tensor, wanted: Tensor) -> Tensor:
        if self.error == "absolute":
            return F.l1_loss(outputs, wanted)
        return F.mse_loss(outputs, wanted) if self.error == "squared" else F.huber_loss(outputs, wanted)

    def sums(self, outputs: Tensor, y: Tensor) -> Sums:
        """Return sums of errors, each a mean over targets for a row, and what R2 needs of the targets."""
        if outputs.ndim != 2 or y.numel() != outputs.numel():
            raise ValueError(
                f"expected outputs and targets (N, {self.targets}), got {tuple(outputs.shape)} and {tuple(y.shape)}"
            )
        wanted = y.reshape(outputs.shape).double()
        apart = outputs.detach().double() - wanted
        rows, targets = apart.shape
        sums = {"absolute": (float(apart.abs().sum()) / targets, rows)}
        sums["squared"] = (float(apart.square().sum()) / targets, rows)
        sums["target squared"] = (float(wanted.square().sum()) / targets, rows)
        root = math.sqrt(targets)  # so that squares of the sums are means over targets too
        sums |= {f"target {place}": (float(column.sum()) / root, rows) for place, column in enumerate(wanted.T)}
        usable = bool(torch.isfinite(apart).all())
        return {name: (finite(total) if usable else None, n) for name, (total, n) in sums.items()}
