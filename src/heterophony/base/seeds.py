"""Derived randomness. Each draw follows from what it is for, so there is no state of a generator to keep."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(*parts: object) -> int:
    """Return a seed from (seed, node, round, purpose, ...). The same parts give the same seed everywhere."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(*parts: object) -> torch.Generator:
    """Return a fresh CPU generator that is seeded with `derive`."""
    return torch.Generator().manual_seed(derive(*parts))


@contextmanager
def seeded(*parts: object) -> Iterator[None]:
    """Seed torch's own generators for a block, and put them back afterwards.

    Initialisation and dropout use these generators.
    """
    # Not torch.manual_seed: for devices that are missing it formats a stack trace, which takes a millisecond a call.
    generators = [torch.default_generator, *torch.cuda.default_generators]  # CUDA has none until it is in use
    states = [(each, each.get_state()) for each in generators]
    try:
        for each in generators:
            each.manual_seed(derive(*parts))
        yield
    finally:
        for each, state in states:
            each.set_state(state)
