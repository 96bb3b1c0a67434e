"""A small causal language model over bytes: dilated convolutions that look back only."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from heterophony.data.text import BYTES
from heterophony.models.blocks import Turned, check_image


class Back(nn.Module):
    """A residual convolution that sees the present byte and those before it."""

    def __init__(self, width: int, dilation: int, kernel: int = 3) -> None:
        super().__init__()
        self.reach = (kernel - 1) * dilation
        self.conv = nn.Conv1d(width, width, kernel, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.conv(F.pad(x, (self.reach, 0))))


class ByteLM(nn.Module):
    """Bytes (rows, places) to logits (rows, classes, places): at each place those of the byte that comes next.

    Five convolutions of width 64 with dilations 1 to 16, so that it sees 63 bytes. Convolutions rather than a recurrent
    network: quick on a CPU, and plain operations for captured graphs and stacks.
    Reference: van den Oord et al., "WaveNet", 2016, for the idea; no gates, no skip connections.
    Parameters: 94,784.
    """

    def __init__(self, *, in_channels: int, size: int, classes: int, width: int = 64, depth: int = 5) -> None:
        check_image("ByteLM", in_channels, size, classes, smallest=1)
        super().__init__()
        embed = nn.Embedding(BYTES, width)
        self.body = nn.Sequential(embed, Turned(), *(Back(width, 2**i) for i in range(depth)))
        self.head = nn.Conv1d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits
