"""What is what in arrays of one's own, and what is done to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heterophony.data.errors import DataError

Keys = str | tuple[str, ...]


@dataclass(frozen=True)
class TimeWindow:
    """Cuts rows that are steps in time into windows: `rows` steps each, the next one `step` further on.

    No window reaches into another file or another group. What is left over at an end is no window.
    """

    rows: int
    # As many as `rows` if not given, so that no two windows share a step.
    step: int | None = None
    # The label of a window: that of most of its steps (of equals the first class), or that of its last step.
    label: Literal["majority", "last"] = "majority"

    def __post_init__(self) -> None:
        if self.rows < 1 or (self.step is not None and self.step < 1):
            raise DataError(f"data.arrays.window: rows and step must be 1 or more, got {self.rows} and {self.step}")

    @property
    def stride(self) -> int:
        """Return how many steps the next window is further on."""
        return self.step or self.rows


@dataclass(frozen=True)
class ArrayLayout:
    """Which arrays (or columns) of a file or a folder are what, and what is done to them.

    A key that ends with `.npy` or `.txt` names a file beside the one that is read, or in the folder that is read.
    """

    # What networks read: one array; or several of one shape, which become the channels of a row. By default `x` or
    # `train_x`, the array of an `.npy` or `.txt` file, or all columns of a table but those of labels and groups. A `*`
    # in the name of a file stands for anything: `"*_train.txt"` are several files, by their names.
    x: Keys | None = None
    # Labels: whole numbers from 0, or others, of which each becomes a class. By default `y` or `train_y`. Several
    # columns are several numbers for each row.
    y: Keys | None = None
    # Whose each row is: a person, a device, a hospital.
    group: str | None = None
    # The test half: a file beside this one, or arrays of this one.
    test_file: str | None = None
    test_x: Keys | None = None
    test_y: Keys | None = None
    test_group: str | None = None
    # Of a folder, which files are read: `"user_{user}.csv"`. What stands in braces becomes a column of that name.
    files: str | None = None
    test_files: str | None = None
    each_file: Literal["rows", "row"] = "rows"
    # Of a folder that Hugging Face `datasets` saved: its splits. By default `train`, and `test` if it is there.
    train_split: str | None = None
    test_split: str | None = None
    window: TimeWindow | None = None
    # x * scale + offset; numbers, or keys of the same file.
    scale: float | str = 1.0
    offset: float | str = 0.0
    dtype: Literal["float32", "int64"] | None = None
    # The stored axes in the order in which networks read them; rows come first.
    axes: tuple[int, ...] = ()
    # Names of the classes, in their order.
    classes: tuple[str, ...] = ()
    # What the targets are: the kind of task.
    task: str = "classification"

    def __post_init__(self) -> None:
        if self.window is not None and self.task != "classification":
            raise DataError(f"data.arrays.window needs one class for each step; the task is {self.task}")
        for name in ("x", "y", "test_x", "test_y"):
            if getattr(self, name) is not None and not getattr(self, name):
                raise DataError(f"data.arrays.{name} names nothing: name a key, or leave it out")

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> ArrayLayout:
        """Make a layout of plain values, as a setting or an exported model holds them."""
        given: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        if isinstance(window := given.get("window"), Mapping):
            given["window"] = TimeWindow(**window)
        return cls(**given)


def only_of(layout: ArrayLayout, where: object, wanted: str, *names: str) -> None:
    """Raise where a layout asks for what only another kind of source has, such as `files` of a folder."""
    plain = ArrayLayout()
    for name in names:
        if getattr(layout, name) != getattr(plain, name):
            raise DataError(f"{where}: data.arrays.{name} is for {wanted}")
