"""Make docs/reference/api.md: every public name of the Python library, with its arguments and its docstring.

python tools/make_api_page.py

`tests/docs/test_api_page.py` fails where the page is not what this makes.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import heterophony

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
# From each of these, everything in `__all__` is public.
PLACES = ("heterophony", "heterophony.data", "heterophony.parts", "heterophony.engines", "heterophony.models")
HEAD = """# The Python library

Made by `tools/make_api_page.py` from the docstrings. What is not here is free to change.
[From Python](../how-to/python.md) shows a federation, and [Add a method](../tutorials/add-a-method.md) a method.
"""


def page() -> str:
    """Return the text of the page."""
    out = [HEAD]
    for place in PLACES:
        module = importlib.import_module(place)
        out += [f"## `{place}`", "", first_line(module), ""]
        for home, names in by_home(module):
            out += [f"### `{home.removeprefix('heterophony.')}`", "", f"*{first_line(sys.modules[home])}.*", ""]
            for name in names:
                out += entry(name, getattr(module, name))
    return "\n".join(out).rstrip() + "\n"


def by_home(module: ModuleType) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules in which a place's public names are defined, in order, and the names."""
    homes: dict[str, list[str]] = {}
    for name in module.__all__:
        if module is not heterophony and name in heterophony.__all__:
            continue  # it stands there
        homes.setdefault(home_of(module, name), []).append(name)
    yield from sorted(homes.items())


def home_of(module: ModuleType, name: str) -> str:
    """Return the module that a public name is taken from."""
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return value.__name__
    own = getattr(value, "__module__", "")
    if own.startswith("heterophony"):
        return str(own)
    for line in inspect.getsource(module).splitlines():  # an alias of types, a number
        if (found := re.match(rf" *from (heterophony\S*) import .*\b{name}\b", line)) is not None:
            return found.group(1)
    return f"heterophony.{heterophony._HOME[name]}" if module is heterophony else module.__name__


def entry(name: str, value: Any) -> list[str]:
    """Return the lines of one name."""
    if isinstance(value, ModuleType):
        return [f"#### `{name}`", "", first_line(value), ""]
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return [f"#### `{name}`", "", *alias(name, value), ""]
    out = [f"#### `{name}`", "", *call(name, value), *text(value)]
    if inspect.isclass(value):
        for member, method in vars(value).items():
            if not member.startswith("_") and is_documented(method):
                out += [f"- `{member}{arguments(method)}`: {summary(method)}"]
        out += [""] if out[-1].startswith("- ") else []
    return out


def alias(name: str, value: Any) -> list[str]:
    """Return what a name that is no class stands for, as it is written where it is defined."""
    for module in [module for key, module in sys.modules.items() if key.startswith("heterophony.")]:
        if vars(module).get(name) is not value:
            continue
        if (found := re.search(rf"^ *{name}(?:: \w+)? = (.+)$", inspect.getsource(module), re.MULTILINE)) is not None:
            return ["```python", f"{name} = {found.group(1)}", "```"]
    raise ValueError(f"{name} is defined nowhere")


def call(name: str, value: Any) -> list[str]:
    """Return how a class or function is called; nothing for what nobody calls."""
    if inspect.isclass(value) and (issubclass(value, BaseException) or getattr(value, "_is_protocol", False)):
        return []
    shown = arguments(value)
    return ["```python", f"{name}{shown}", "```", ""] if shown else []


def arguments(value: Any) -> str:
    """Return what stands in the brackets of a call, without addresses and long defaults."""
    if isinstance(value, property):
        return ""
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    shown = []
    known = {field.name: field for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else {}
    star = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        before = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = parameter.default
        if default is not parameter.empty:
            factory = parameter.name in known and known[parameter.name].default is dataclasses.MISSING
            shown.append(f"{before}{parameter.name}={'...' if factory else shortened(plain(default))}")
        else:
            shown.append(before + parameter.name)
    return f"({', '.join(shown)})"


def plain(value: Any) -> str:
    """Return a default as one would write it."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return str(value.__name__)
    return repr(value)


def shortened(words: str) -> str:
    """Return a text that is short enough for a line."""
    return words if len(words) <= 60 and " at 0x" not in words else "..."


def is_documented(method: Any) -> bool:
    """Return whether a member of a class is something to call or to read, and says what it is."""
    return isinstance(method, property | classmethod | staticmethod | type(page)) and bool(inspect.getdoc(method))


def text(value: Any) -> list[str]:
    """Return a docstring; none where it is that of a parent, or made by `dataclass`."""
    found = inspect.cleandoc(value.__doc__ or "")
    if not found or found.startswith(f"{getattr(value, '__name__', '')}("):
        return []
    lines, listing = [], False
    for line in found.splitlines():
        if line == "Arguments:":
            listing, line = True, "Arguments:\n"
        elif listing and (item := re.match(r"    (\w+): (.*)", line)) is not None:
            line = f"- `{item.group(1)}`: {item.group(2)}"
        elif listing and not line.startswith(" "):
            listing = False
        lines.append(line[2:] if listing and line.startswith("    ") else line)
    return ["\n".join(lines), ""]


def first_line(module: ModuleType) -> str:
    """Return the first sentence of a module's docstring."""
    return " ".join(inspect.cleandoc(module.__doc__ or module.__name__).split("\n\n")[0].split()).rstrip(".")


def summary(method: Any) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(method) or "").split("\n\n")[0].split())


def main() -> None:
    PAGE.write_text(page())
    print(f"wrote {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    main()
