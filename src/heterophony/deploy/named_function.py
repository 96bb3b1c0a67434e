"""A function that a TOML file names: `module:callable`, or a table with its arguments."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import model_validator

from heterophony.settings.setting import Strict

# Networks and data of our own, that every plan may name: what these export, not what else is in their modules.
OURS = ("heterophony.models", "heterophony.data")


class DeployError(ValueError):
    """A deployment that cannot work as it is written down; one line that names the file or the field."""


def one_line(text: str, most: int = 500) -> str:
    """Return a text from outside as one printable line: in a log it must not pass for several, or for our own."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.split())[:most]


def beside(folder: Path) -> None:
    """Let modules that lie in the folder be found, after installed ones: a file must not stand in for one of those."""
    others = [place for place in sys.path if Path(place).resolve() != folder.resolve()]
    sys.path[:] = [*others, str(folder)]


class NamedFunction(Strict):
    """`"hospital.data:load"`, or `{ call = "hospital.data:load", arguments = { folder = "/data" } }`."""

    call: str
    arguments: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"call": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _named(self) -> NamedFunction:
        module, colon, name = self.call.partition(":")
        if not (module and colon and name):
            raise ValueError(f"{self.call!r}: write module:callable")
        return self

    def function(self) -> Any:
        module, _, name = self.call.partition(":")
        with self._complaining():
            return getattr(importlib.import_module(module), name)

    def __call__(self) -> Any:
        function = self.function()
        with self._complaining():
            return function(**self.arguments)

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever an organisation's own code does
            raise DeployError(f"{self.call}: {type(error).__name__}: {one_line(str(error))}") from error


def permit(functions: Mapping[str, NamedFunction], modules: Collection[str], folder: Path) -> None:
    """Raise unless the plan names only functions of modules in the folder, of those in `modules`, and what OURS export.

    A module is not even imported before; and a function must be of such a module itself, not only be found there.
    """
    for field, named in functions.items():

        def require(module: str, about: str = f"federation.toml: {field} = {named.call!r}") -> None:
            if not _within(module, modules) and not _lies_in(folder, module):
                raise DeployError(
                    f"{about} runs {module!r}, which is not in this folder; if you trust it, name it under modules in "
                    "organisation.toml"
                )

        module, _, name = named.call.partition(":")
        if module in OURS and name in importlib.import_module(module).__all__:
            for text in _texts(named.arguments):
                if ":" in text:  # `heterophony.models` takes such a name for one's own network
                    require(text.partition(":")[0])
            continue
        require(module)
        require(str(getattr(named.function(), "__module__", "")))


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _within(module: str, allowed: Collection[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def _lies_in(folder: Path, module: str) -> bool:
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    places = [] if found is None else [found.origin, *(found.submodule_search_locations or ())]
    return any(Path(place).resolve().is_relative_to(folder.resolve()) for place in places if place)
