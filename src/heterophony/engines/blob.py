"""Bytes that a driver passes on without reading them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

INLINE = 2**16  # bytes; what is smaller rides along with its header


@dataclass(frozen=True)
class Blob:
    """A few bytes, or a reference to many in Ray's object store.

    `held` is a view of the copy on the driver's machine: while it is there, losing another machine loses nothing.
    """

    data: Any
    held: Any = field(default=None, repr=False)

    def read(self) -> bytes | memoryview:
        if isinstance(self.data, bytes):
            return self.data
        import ray

        return memoryview(ray.get(self.data))
