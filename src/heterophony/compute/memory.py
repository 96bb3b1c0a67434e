"""How this process asks for memory: fresh pages can cost a step on a CPU a third of its time.

Values never depend on it. Where the C library is not GNU's nothing happens, and limits that its user has set stay.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

TRIM, MMAP = -1, -3  # what `mallopt` calls the two limits
LARGE = 32 << 20  # tensors of so many bytes have pages of their own, given back when they are freed
KEPT = 1 << 30  # of smaller ones so much is kept: by itself the library gives back, and fetches again, every step

# Read at torch's first large allocation: tensors of two megabytes and more are on huge pages, each worth 512 faults.
if Path("/sys/kernel/mm/transparent_hugepage").exists():  # torch warns where there are none
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def keep_freed() -> None:
    """Keep memory that was freed for the next step."""
    if not any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        _call("mallopt", MMAP, LARGE)
        _call("mallopt", TRIM, KEPT)


def give_back_freed() -> None:
    """Give freed memory back before a fork. A fork shares it, and whoever writes to it first would have to copy it."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library, where there is one of that name."""
    function = getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
    if function is not None:
        function(*arguments)
