"""Torch's global switches for exactness, and its threads, set for a run and put back."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from heterophony.federation import Federation


@contextmanager
def arithmetic(federation: Federation) -> Iterator[None]:
    """Set the switches as a federation's `compute` asks."""
    compute = federation.compute
    with threads(compute.threads), numerics(compute.device, compute.precision, compute.deterministic):
        yield


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Set torch's threads for the block. Two threads already differ from one in the last bits."""
    before = torch.get_num_threads()
    if before != number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if before != number:
            torch.set_num_threads(before)


@contextmanager
def numerics(device: str, precision: str, deterministic: bool) -> Iterator[None]:
    """Set, on a GPU, the precision of products, and whether only kernels that repeat to the bit are used."""
    if device == "cpu":
        yield
        return
    if deterministic:
        # cuBLAS reads it when it is first used; without it, two streams may not repeat
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    memory: Any = torch.utils.deterministic
    wanted: list[tuple[Any, str, bool]] = [
        (torch.backends.cuda.matmul, "allow_tf32", precision != "fp32"),
        (torch.backends.cudnn, "allow_tf32", precision != "fp32"),
        (torch.backends.cudnn, "deterministic", deterministic),
        (torch.backends.cudnn, "benchmark", not deterministic),
        (memory, "fill_uninitialized_memory", False),
    ]
    if deterministic:
        # which of a compiled reduction's forms is used, with sums in another order, is not a matter of timing then
        compiler: Any = importlib.import_module("torch._inductor.config")
        if hasattr(compiler, "deterministic"):  # torch 2.9 and later
            wanted.append((compiler, "deterministic", True))
    before = [(where, name, getattr(where, name)) for where, name, _ in wanted]
    strict = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(deterministic)
        for where, name, value in wanted:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)
        torch.use_deterministic_algorithms(strict)
