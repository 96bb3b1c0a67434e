"""A small vision transformer."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heterophony.models.blocks import Halves, ResidualBlock, check_row


class Tokens(nn.Module):
    """A map (rows, width, H, W) as tokens (rows, places, width); what stands for its place is added to each."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(1, places, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2).transpose(1, 2) + self.places


class Attention(nn.Module):
    """Every token takes from all others what its own queries ask for; plain products, which every executor can take."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, 1 / math.sqrt(width // heads)
        self.asked, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.asked(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts[0], parts[1], parts[2]
        found = (query * self.scale @ key.transpose(-1, -2)).softmax(-1) @ value
        taken: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return taken


class TokensMean(nn.Module):
    """The mean over all tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class ViT(Halves):
    """Patches as tokens of 64 numbers, four blocks of attention (4 heads) and a perceptron; the mean of all tokens.

    A patch is about an eighth of the shorter side: 4x4 pixels of 32x32, 3x3 of 28x28, 1x1 below 16x16. What is left
    over at two sides is not seen.
    Reference: Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", 2021.
    Parameters: 207,946 for 3x32x32 and 10 classes; 1,205,642 for the form with six blocks, 128 wide (`vit-small`).
    Deviations: far smaller; the mean of the tokens in place of a token for the class; no dropout.
    """

    def __init__(self, *, shape: Sequence[int], classes: int, width: int = 64, depth: int = 4, heads: int = 4) -> None:
        check_row("ViT", shape, classes, "(channels, height, width)", (3,))
        channels, height, breadth = shape
        patch = max(1, min(height, breadth) // 8)
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, patch, stride=patch),
            Tokens((height // patch) * (breadth // patch), width),
        ]
        for _ in range(depth):
            layers += [
                ResidualBlock(nn.Sequential(nn.LayerNorm(width), Attention(width, heads)), nn.Identity()),
                ResidualBlock(nn.Sequential(nn.LayerNorm(width), _perceptron(width)), nn.Identity()),
            ]
        super().__init__(nn.Sequential(*layers, nn.LayerNorm(width), TokensMean()), width, classes)


def _perceptron(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
