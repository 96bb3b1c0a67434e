"""Networks for series of steps, windows of sensors for one: a 1-D CNN, and an LSTM or a GRU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from heterophony.models.blocks import Halves, check_row


class Channelled(nn.Module):
    """A row without channels, (rows, steps), as one with a single channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1)


class StepsMean(nn.Module):
    """The mean over all steps, which makes a feature vector of a series of any length."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(-1)


class CNN1D(Halves):
    """Three convolutions over the steps (64, 64 and 128 channels) with ReLU, two poolings, and the mean over all steps.

    Kernels see 5, 5 and 3 steps. There is no BatchNorm, so that nothing but weights is averaged.
    Reference: Wang, Yan and Oates, "Time Series Classification from Scratch with Deep Neural Networks", 2017, for the
    form; this one has poolings, no BatchNorm and smaller kernels.
    Parameters: 48,006 for 6 channels and 6 classes.
    """

    def __init__(self, *, shape: Sequence[int], classes: int, width: int = 64) -> None:
        channels = series("CNN1D", shape, classes, least=4)
        body = nn.Sequential(
            *([Channelled()] if len(shape) == 1 else []),
            nn.Conv1d(channels, width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            StepsMean(),
        )
        super().__init__(body, 2 * width, classes)


class States(nn.Module):
    """A recurrent layer over (rows, channels, steps): its state after the last step, or (`each`) after every step.

    It is torch's own layer but for how weights are kept: `nn.LSTM` holds references to them, by which no executor can
    tell two of its kind apart.
    """

    def __init__(self, cell: Literal["lstm", "gru"], channels: int, hidden: int, each: bool) -> None:
        super().__init__()
        self.cell, self.each, self.hidden = cell, each, hidden
        layer = (nn.LSTM if cell == "lstm" else nn.GRU)(channels, hidden)  # draws the weights
        own = dict(layer.named_parameters())
        self.input_weight, self.state_weight = own["weight_ih_l0"], own["weight_hh_l0"]
        self.input_bias, self.state_bias = own["bias_ih_l0"], own["bias_hh_l0"]

    def forward(self, x: Tensor) -> Tensor:
        steps = x.transpose(1, 2)
        weights: list[Tensor] = [self.input_weight, self.state_weight, self.input_bias, self.state_bias]
        start = steps.new_zeros(1, steps.shape[0], self.hidden)  # `len` would fix the number of rows in a graph
        with_biases, layers, dropout, both_ways, rows_first = True, 1, 0.0, False, True
        how = (with_biases, layers, dropout, self.training, both_ways, rows_first)
        found = (
            torch.lstm(steps, [start, start], weights, *how)
            if self.cell == "lstm"
            else (torch.gru(steps, start, weights, *how))
        )
        states: Tensor = found[0]
        return states.transpose(1, 2) if self.each else states[:, -1]


class Recurrent(nn.Module):
    """One recurrent layer of 64 units, and a linear layer on its last state, or on each state for the task `sequence`.

    Reference: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with the forget gates of Gers et al., 2000;
    Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014, for the GRU.
    Parameters: 18,822 (LSTM) or 14,214 (GRU) for 6 channels and 6 classes.
    Deviations: torch's own layers, which have two vectors of biases.
    """

    def __init__(
        self,
        *,
        shape: Sequence[int],
        classes: int,
        task: str = "classification",
        cell: Literal["lstm", "gru"] = "lstm",
        hidden: int = 64,
    ) -> None:
        channels = series(cell.upper(), shape, classes, least=1)
        super().__init__()
        each = task == "sequence"
        states = States(cell, channels, hidden, each)
        self.body = nn.Sequential(*([Channelled()] if len(shape) == 1 else []), states)
        self.head = nn.Conv1d(hidden, classes, 1) if each else nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def series(network: str, shape: Sequence[int], classes: int, least: int) -> int:
    """Return the channels of rows (channels, steps) or (steps,); refuse other rows, and fewer steps than `least`."""
    check_row(network, shape, classes, "(channels, steps) or (steps,)", (1, 2))
    if shape[-1] < least:
        raise ValueError(f"{network} needs rows of at least {least} steps, got {shape[-1]}")
    return shape[0] if len(shape) == 2 else 1
