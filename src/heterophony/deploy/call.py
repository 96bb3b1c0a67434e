"""A function that a TOML file names: `module:callable`, or a table with its arguments."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from pydantic import model_validator

from heterophony.settings.setting import Strict


class DeployError(ValueError):
    """A deployment that cannot work as it is written down; one line that names the file or the field."""


def one_line(text: str, most: int = 500) -> str:
    """A text from outside as one printable line: in a log it must not pass for several, or for our own."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.split())[:most]


def beside(folder: Path) -> None:
    """Let modules that lie in the folder be found, as well as installed ones."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


class Call(Strict):
    """`"hospital.data:load"`, or `{ call = "hospital.data:load", arguments = { folder = "/data" } }`."""

    call: str
    arguments: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"call": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _named(self) -> Call:
        module, colon, name = self.call.partition(":")
        if not (module and colon and name):
            raise ValueError(f"{self.call!r}: write module:callable")
        return self

    def __call__(self) -> Any:
        module, _, name = self.call.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
            return function(**self.arguments)
        except Exception as error:  # whatever an organisation's own code does
            raise DeployError(f"{self.call}: {type(error).__name__}: {one_line(str(error))}") from error
