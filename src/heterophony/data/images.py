"""From stored images (uint8 NHWC) to what models read (float32 NCHW), and rotation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from heterophony.data.errors import DataError
from heterophony.data.table import Data

# Rows turned at a time, so that resizing needs little memory besides the result.
_BLOCK = 4096
# Red, green and blue as the eye weighs them (ITU-R BT.601, which image libraries use).
_GREY = (0.299, 0.587, 0.114)

Constant = float | Sequence[float]


def to_data(
    images: npt.NDArray[np.uint8],
    labels: npt.NDArray[Any],
    *,
    classes: int | None = None,
    side: int | None = None,
    channels: int | None = None,
    degrees: float = 0.0,
    mean: Constant = 0.5,
    std: Constant = 0.5,
) -> Data:
    """Return images and labels as a `Data` with columns `x` and `y`. The options are those of `to_tensor`."""
    x = to_tensor(images, side=side, channels=channels, degrees=degrees, mean=mean, std=std)
    return Data(x=x, y=torch.from_numpy(np.array(labels, dtype=np.int64)), classes=classes)


def to_tensor(
    images: npt.NDArray[np.uint8],
    *,
    side: int | None = None,
    channels: int | None = None,
    degrees: float = 0.0,
    mean: Constant = 0.5,
    std: Constant = 0.5,
) -> Tensor:
    """Return (x / 255 - mean) / std as float32 NCHW, after turning clockwise, resizing and changing the channels.

    Images are turned before they are normalised, so that the corners are filled with black.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise DataError(f"images must be uint8 of shape (N, H, W, 1 or 3), got {images.dtype} {images.shape}")
    count, height, width, depth = images.shape
    depth = depth if channels is None else channels
    if depth not in (1, 3) or (side is not None and side < 1):
        raise DataError(f"images have 1 or 3 channels and a positive side, asked for {channels} and {side}")
    shift, scale = _constant(mean, depth, "mean"), _constant(std, depth, "std")
    if bool((scale <= 0).any()):
        raise DataError(f"std must be positive, got {std}")
    out = torch.empty(count, depth, side or height, side or width)
    for start in range(0, count, _BLOCK):
        block = torch.from_numpy(images[start : start + _BLOCK].copy()).permute(0, 3, 1, 2).float() / 255
        # Grey is made first and colour last, so that the rest is done on one channel where it can be.
        block = resize(rotate(recolour(block, min(depth, block.shape[1])), degrees), side)
        out[start : start + _BLOCK] = (recolour(block, depth) - shift) / scale
    return out


def recolour(images: Tensor, channels: int) -> Tensor:
    """Return grey images in three equal channels, or colour images as grey ones."""
    if images.shape[1] == channels:
        return images
    if channels == 3:
        return images.expand(-1, 3, -1, -1)
    weights = torch.tensor(_GREY, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(1, keepdim=True)


def resize(images: Tensor, side: int | None) -> Tensor:
    """Return images of `side` x `side`. Those that have that size already are left as they are."""
    if side is None or images.shape[2:] == (side, side):
        return images
    return F.interpolate(images, size=(side, side), mode="bilinear", align_corners=False, antialias=True)


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Turn float images (NCHW) clockwise about their centre, bilinear, with zeros where nothing was."""
    if images.ndim != 4 or not images.is_floating_point():
        raise DataError(f"rotate takes float images (N, C, H, W), got {images.dtype} {tuple(images.shape)}")
    if not math.isfinite(degrees):
        raise DataError(f"an angle must be finite, got {degrees}")
    if degrees % 360 == 0 or not len(images):
        return images
    count, channels, height, width = images.shape
    angle = math.radians(degrees % 360)
    sine, cosine = math.sin(angle), math.cos(angle)
    # The grid says where each output pixel comes from; its unit is half the width or height.
    matrix = [[cosine, sine * height / width, 0.0], [-sine * width / height, cosine, 0.0]]
    theta = torch.tensor([matrix], dtype=images.dtype, device=images.device)
    grid = F.affine_grid(theta, [1, 1, height, width], align_corners=False)
    # One grid serves all images when they are laid out as channels of a single one.
    flat = images.reshape(1, count * channels, height, width)
    turned = F.grid_sample(flat, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return turned.reshape(images.shape)


def _constant(value: Constant, channels: int, name: str) -> Tensor:
    numbers = torch.as_tensor(value, dtype=torch.float32).reshape(-1)
    if len(numbers) not in (1, channels):
        raise DataError(f"{name} must be one number or one for each of {channels} channels, got {value}")
    return numbers.view(1, -1, 1, 1)
