"""A message whose bytes are on another machine: as much of it as a clock, a ledger and a door need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heterophony.base import codec
from heterophony.engines.blob import Blob
from heterophony.kernel.message import Body, Send


class RemoteBody(Body):
    """Stands for a body: names, shapes, dtypes and whole numbers are here, floats are not (meta tensors).

    Sizes and fits follow from that. Whether the floats are sound has been found where they are, before they left.
    """

    __slots__ = ("blob",)

    def __init__(self, outline: Mapping[str, Any], verdict: str, blob: Blob) -> None:
        super().__init__(outline)
        self.verdict, self.blob = verdict, blob

    def whole(self) -> dict[str, Any]:
        return dict(codec.unpack(self.blob.read()))


def stand_in(send: Send, bound: float | None = None) -> Body:
    """Return what the driver needs of a message that stays with a worker: its outline, and whether it is sound."""
    about = {key: outline(value) for key, value in send.body.items()}
    return Body({"about": about, "verdict": send.kind.verdict(send.body, bound)})


def outline(value: Any) -> Any:
    """Return a field without its floats."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().to("meta")
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    return value
