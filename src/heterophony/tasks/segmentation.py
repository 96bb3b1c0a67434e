"""One of several classes for each pixel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from heterophony.base.later import later
from heterophony.tasks.classification import ce, flat, kl, labels_misfit
from heterophony.tasks.score import ACCURACY, Pairs, Score, Sums, finite

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    later(globals(), torch="torch")


def _dice(pairs: Pairs) -> float:
    """Return 2 common / (predicted + true): mean over the classes that are there."""
    found = [2 * common / both for common, both in pairs if both]
    return math.fsum(found) / len(found) if found else math.nan


def _iou(pairs: Pairs) -> float:
    """Return common / (predicted or true): mean over the classes that are there."""
    found = [common / (both - common) for common, both in pairs if both]
    return math.fsum(found) / len(found) if found else math.nan


@dataclass(frozen=True)
class Segmentation:
    """Masks `y` (N, H, W) hold the class of each pixel; outputs are logits (N, classes, H, W).

    Arguments:
        classes: how many there are; class 0 is the background.
        criterion: what is trained: cross-entropy, mean over pixels ("ce"), 1 - soft Dice ("dice"), or their sum.
        background: whether Dice and IoU count class 0 too.
    """

    classes: int
    criterion: Literal["ce", "dice", "both"] = "ce"
    background: bool = False
    kind: ClassVar[str] = "segmentation"
    term: ClassVar[str] = "mask"

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"segmentation needs classes >= 2, the background among them, got {self.classes}")
        if self.criterion not in ("ce", "dice", "both"):
            raise ValueError(f"criterion is ce, dice or both, got {self.criterion!r}")

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def scores(self) -> tuple[Score, ...]:
        """Dice, IoU (intersection over union), the share of pixels that are right, and the cross-entropy."""
        overlaps = tuple(f"overlap {place}" for place in range(0 if self.background else 1, self.classes))
        return (
            Score("dice", overlaps, _dice, "Dice"),
            Score("iou", overlaps, _iou, "IoU"),
            ACCURACY,
            Score("loss", higher=False, percent=False),
        )

    def shape(self, row: tuple[int, ...]) -> tuple[int, ...]:
        return (self.classes, *row[-2:])

    def misfit(self, y: Tensor, rows: tuple[int, ...]) -> str | None:
        """Say what is wrong with masks: they hold whole numbers, one for each pixel."""
        wanted = (rows[0], *rows[-2:])
        if tuple(y.shape) != wanted:
            return f"masks of the shape {wanted} are needed, they have {tuple(y.shape)}"
        return labels_misfit(y, self.classes)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return what is trained, by `criterion`."""
        if self.criterion == "ce":
            return ce(outputs, y)
        soft = self._missed(outputs, y)
        return soft if self.criterion == "dice" else ce(outputs, y) + soft

    def _missed(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return 1 - soft Dice, which puts probabilities in the place of predictions: mean over the classes."""
        first = 0 if self.background else 1
        shares = flat(outputs).softmax(-1)[:, first:]
        true = torch.nn.functional.one_hot(y.flatten(), self.classes)[:, first:].to(shares.dtype)
        common, both = (shares * true).sum(0), shares.sum(0) + true.sum(0)
        return 1 - ((2 * common + 1) / (both + 1)).mean()  # 1 more on both sides: a class may be missing in a batch

    def distance(self, teacher: Tensor, student: Tensor) -> Tensor:
        """Return KL(teacher || student): summed over classes, mean over pixels."""
        return kl(teacher, student)

    def sums(self, outputs: Tensor, y: Tensor) -> Sums:
        """Return the pixels that are right, the loss, and by class how many pixels are predicted and true.

        The n of `overlap` are pixels that are predicted as this class, and those that are it, both counted.
        """
        if outputs.ndim != 4 or y.shape != (outputs.shape[0], *outputs.shape[2:]):
            raise ValueError(
                f"expected logits (N, C, H, W), masks (N, H, W), got {tuple(outputs.shape)}, {tuple(y.shape)}"
            )
        logits, labels = flat(outputs[:, : self.classes].detach().float()), y.flatten()
        guess = logits.argmax(-1)
        count = partial(torch.bincount, minlength=self.classes)
        common, both = count(labels[guess == labels]), count(guess) + count(labels)
        loss = -logits.log_softmax(-1).gather(1, labels[:, None]).double().sum()
        pixels = len(labels)
        sums: dict[str, tuple[float, int]] = {"accuracy": (int(common.sum()), pixels), "loss": (float(loss), pixels)}
        sums |= {f"overlap {place}": (int(common[place]), int(both[place])) for place in range(self.classes)}
        usable = not bool(logits.isnan().any())
        return {name: (finite(total) if usable else None, n) for name, (total, n) in sums.items()}
