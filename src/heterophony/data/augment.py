"""Random changes of images while a model is trained on them, as a table of parameters that is drawn beforehand.

Drawing and applying are apart, so that a whole epoch's randomness is drawn on the CPU and applied on any device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

BLACK = -1.0  # as `to_tensor` gives it unless told otherwise


class Augmentation(Protocol):
    """What a data view may carry: parameters for so many rows, and what they do to images."""

    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        """Draw the parameters of so many rows: int64 [rows, k], on the CPU."""
        ...

    def apply(self, x: Tensor, params: Tensor) -> Tensor:
        """Return images [n, c, h, w], each changed by its own row of parameters [n, k]."""
        ...


@dataclass(frozen=True)
class CropFlip:
    """A crop of the image with `pad` black pixels around it, then a flip from left to right in half of the cases."""

    pad: int = 4
    flip: bool = True
    fill: float = BLACK

    def draw(self, rows: int, generator: torch.Generator) -> Tensor:
        """Draw for each row how far down and to the right the crop begins, and whether it is flipped."""
        corner = torch.randint(0, 2 * self.pad + 1, (rows, 2), generator=generator)
        turned = torch.randint(0, 2 if self.flip else 1, (rows, 1), generator=generator)
        return torch.cat([corner, turned], 1)

    def apply(self, x: Tensor, params: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        wide = F.pad(x, (self.pad,) * 4, value=self.fill)
        down, right, turned = params.to(x.device).unsqueeze(-1).unbind(1)  # each [n, 1]
        column = torch.arange(width, device=x.device)
        rows = torch.arange(height, device=x.device) + down
        columns = column + turned * (width - 1 - 2 * column) + right
        tall = wide.gather(2, rows[:, None, :, None].expand(count, channels, height, wide.shape[3]))
        return tall.gather(3, columns[:, None, None, :].expand(count, channels, height, width))


NAMED = {"crop-flip": CropFlip}
