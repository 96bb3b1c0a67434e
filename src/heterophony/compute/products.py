"""Convolutions and pooling written out, for stacks that are compiled.

A convolution of many equal networks is a grouped one, for which there are no good kernels. As a product with shifted
copies of its input, channels last, it is one batched product. The compiler fuses what is around it. One of a single
channel stays as it is: there is little to gain, and torch 2.11's compiler makes wrong gradients of it on a GPU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Product(nn.Module):
    """A convolution as a product of its weights and of shifted copies of its input."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias
        assert not isinstance(convolution.padding, str)
        self.stride, self.padding, self.dilation = convolution.stride, convolution.padding, convolution.dilation

    def forward(self, x: Tensor) -> Tensor:
        outputs, channels, *kernel = self.weight.shape
        down, across = self.padding
        x = x.permute(0, 2, 3, 1)
        if down or across:
            x = F.pad(x, (0, 0, across, across, down, down))
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, kernel, strict=True)]
        height, width = ((n - r) // s + 1 for n, r, s in zip(x.shape[1:3], reach, self.stride, strict=True))
        shifted = [
            x[
                :,
                i * self.dilation[0] :: self.stride[0],
                j * self.dilation[1] :: self.stride[1],
            ][:, :height, :width]
            for i in range(kernel[0])
            for j in range(kernel[1])
        ]
        rows = torch.cat(shifted, -1).reshape(-1, kernel[0] * kernel[1] * channels)
        out = rows @ self.weight.permute(2, 3, 1, 0).reshape(-1, outputs)
        if self.bias is not None:
            out = out + self.bias
        return out.reshape(-1, height, width, outputs).permute(0, 3, 1, 2)


class Largest(nn.Module):
    """Max pooling by comparisons; the first of equals wins, as in torch."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        k = self.size
        height, width = x.shape[-2] // k, x.shape[-1] // k
        parts = [x[..., i::k, j::k][..., :height, :width] for i in range(k) for j in range(k)]
        found = parts[0]
        for part in parts[1:]:
            found = torch.where(part > found, part, found)
        return found


def written_out(module: nn.Module) -> nn.Module:
    """Return the module with its convolutions and poolings written out, where that is possible.

    Its tensors stay its own.
    """
    if isinstance(module, nn.Conv2d):
        return Product(module) if _is_plain_convolution(module) else module
    if isinstance(module, nn.MaxPool2d):
        return Largest(module.kernel_size) if _is_plain_pooling(module) else module  # type: ignore[arg-type]
    for name, child in module.named_children():
        setattr(module, name, written_out(child))
    return module


def _is_plain_convolution(layer: nn.Conv2d) -> bool:
    """Return whether a convolution reads several channels, all of them, and is padded by zeros or not at all."""
    padded_plainly = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return padded_plainly and layer.groups == 1 and layer.in_channels > 1


def _is_plain_pooling(layer: nn.MaxPool2d) -> bool:
    """Return whether the windows of a pooling are squares that lie side by side."""
    if layer.ceil_mode or layer.return_indices:
        return False
    side_by_side = layer.stride == layer.kernel_size and not layer.padding and layer.dilation == 1
    return isinstance(layer.kernel_size, int) and side_by_side
