"""Derived randomness: every draw follows from what it is for, so there is no generator state to keep."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(*parts: object) -> int:
    """A seed from (seed, node, round, purpose, ...): the same parts give the same seed everywhere."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(*parts: object) -> torch.Generator:
    """A fresh CPU generator seeded with `derive`."""
    return torch.Generator().manual_seed(derive(*parts))


@contextmanager
def seeded(*parts: object) -> Iterator[None]:
    """Torch's own generator, seeded for the block and put back afterwards: initialisation and dropout use it."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(*parts))
        yield
