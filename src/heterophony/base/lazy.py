"""Packages whose public names are imported when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package that knows in which of its files each public name stands (`_HOME`), and imports it when asked."""

    _HOME: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._HOME:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{self.__name__}.{self._HOME[name]}"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # Python puts a file into its package, by its name, when it is imported. Where what the file defines has the
        # same name, as the function `fedprox` in fedprox.py, that is the public name.
        if isinstance(value, ModuleType) and self._HOME.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._HOME]


def lazily(package: str, home: Mapping[str, str]) -> None:
    """Make a package import its public names when they are asked for. `home` says in which of its files each stands."""
    module = sys.modules[package]
    vars(module)["_HOME"] = dict(home)
    module.__class__ = LazyPackage
