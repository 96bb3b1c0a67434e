"""What a method says of a window whose sum is enough for it."""

from __future__ import annotations

from dataclasses import dataclass

from heterophony.kernel.message import Kind


class NotSummable(ValueError):
    """A method that reads single messages where only their sum would be known; the text says what reads them."""


@dataclass(frozen=True)
class Sum:
    """The reaction to a window of `kind` reads nothing of single messages: a mean is enough.

    Arguments:
        kind: the kind of message that the window waits for.
        means: its fields of which only the mean is read.
        by: the field that says how much each message counts; its sum is read too. None: there is no such field.
        weighted: whether the means count by it.
    """

    kind: Kind
    means: tuple[str, ...]
    by: str | None = None
    weighted: bool = True

    def __post_init__(self) -> None:
        if self.weighted and self.by is None:
            object.__setattr__(self, "weighted", False)
        told = {*self.means, *([self.by] if self.by is not None else [])}
        if told != self.kind.fields.keys():
            odd = min(told ^ self.kind.fields.keys())
            raise NotSummable(f"{odd!r} of {self.kind.name!r} is read beside the means, so that a sum is not enough")
