"""Modules that are imported when they are first used: reading results needs none of torch, which takes a second."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from importlib import import_module
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """Stands for a module until something of it is asked for. Then the module itself takes its place."""

    def __init__(self, name: str, alias: str, users: MutableMapping[str, Any]) -> None:
        super().__init__(name)
        vars(self).update(_alias=alias, _users=users)

    def __getattr__(self, name: str) -> Any:
        module = import_module(self.__name__)
        if vars(self)["_users"].get(vars(self)["_alias"]) is self:
            vars(self)["_users"][vars(self)["_alias"]] = module
        return getattr(module, name)


def later(users: MutableMapping[str, Any], **modules: str) -> None:
    """Put modules among the global names of a file, by alias. One that is imported already is taken as it is."""
    for alias, name in modules.items():
        users[alias] = sys.modules.get(name) or Later(name, alias, users)
