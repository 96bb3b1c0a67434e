"""Text as bytes: rows for language models (chopped from one long text) and for classifiers (a text each)."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from heterophony.data.errors import DataError
from heterophony.data.table import Data
from heterophony.tasks.sequence import Sequence

BYTES = 256
NAMES = tuple(f"byte {i}" for i in range(BYTES))  # the classes of a language model

Texts = npt.NDArray[np.uint8]


def chopped(texts: Iterable[str], length: int) -> Texts:
    """Chop texts, a line each, into rows of `length` + 1 bytes.

    Rows overlap by one byte, so that every byte but the first is predicted once. What is left at the end is dropped.
    """
    whole = np.frombuffer("".join(f"{text}\n" for text in texts).encode(), np.uint8)
    rows = max(0, len(whole) - 1) // length
    starts = np.arange(rows)[:, None] * length
    return whole[starts + np.arange(length + 1)] if rows else np.empty((0, length + 1), np.uint8)


def padded(texts: abc.Sequence[str], length: int) -> Texts:
    """Return a row for each text: its first `length` bytes, with zeros behind."""
    out = np.zeros((len(texts), length), np.uint8)
    for row, text in enumerate(texts):
        data = np.frombuffer(text.encode()[:length], np.uint8)
        out[row, : len(data)] = data
    return out


def text_data(texts: Texts, labels: npt.NDArray[Any], *, classes: int | None, sequence: bool) -> Data:
    """Return columns `x` (bytes, int64) and `y`: the labels, or of a sequence the next byte at each place."""
    if texts.dtype != np.uint8 or texts.ndim != 2:
        raise DataError(f"text must be uint8 of shape (rows, bytes), got {texts.dtype} {texts.shape}")
    x = torch.from_numpy(texts.astype(np.int64))
    if sequence:
        return Data(x=x[:, :-1].contiguous(), y=x[:, 1:].contiguous(), task=Sequence(BYTES))
    return Data(x=x, y=torch.from_numpy(np.array(labels, dtype=np.int64)), classes=classes)
