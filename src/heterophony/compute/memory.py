"""How this process asks for memory: fresh pages can cost a step on a CPU a third of its time.

Values never depend on it. Where the C library is not GNU's, or its user has set it up, all of this does nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys

TRIM, MMAP = -1, -3  # what `mallopt` calls the two limits
LARGE = 32 << 20  # tensors of so many bytes have pages of their own, given back when they are freed
KEPT = 1 << 30  # of smaller ones so much is kept: by itself the library gives back, and fetches again, every step

# Read at torch's first large allocation: tensors of two megabytes and more are on huge pages, each worth 512 faults.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def keep_freed() -> None:
    """Keep memory that was freed for the next step."""
    if sys.platform == "linux" and not any(name.startswith("MALLOC_") for name in os.environ):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(MMAP, LARGE)
            mallopt(TRIM, KEPT)


def give_back_freed() -> None:
    """Before a fork, which shares what is kept: the first one to write to it would have to copy it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
