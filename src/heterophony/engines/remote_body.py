"""A message whose bytes lie elsewhere: as much of it as a clock, a ledger and a door need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heterophony.base import codec
from heterophony.engines.blob import Blob
from heterophony.kernel.message import Body


class Elsewhere(Body):
    """Stands for a body: names, shapes, dtypes and whole numbers are here, floats are not (meta tensors).

    Sizes and fits follow from that. Whether the floats are sound has been found where they are, before they left.
    """

    __slots__ = ("blob",)

    def __init__(self, outline: Mapping[str, Any], verdict: str, blob: Blob) -> None:
        super().__init__(outline)
        self.verdict, self.blob = verdict, blob

    def whole(self) -> dict[str, Any]:
        return dict(codec.unpack(self.blob.read()))


def outline(value: Any) -> Any:
    """A field without its floats."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().to("meta")
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    return value
