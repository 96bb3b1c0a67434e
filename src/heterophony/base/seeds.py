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
    # torch.manual_seed formats a stack trace for devices that are not there: a millisecond a call
    generators = [torch.default_generator, *torch.cuda.default_generators]  # the latter: none until CUDA is in use
    states = [(each, each.get_state()) for each in generators]
    try:
        for each in generators:
            each.manual_seed(derive(*parts))
        yield
    finally:
        for each, state in states:
            each.set_state(state)
