"""Make docs/reference/settings-reference.md: every table and field that a setting may have.

python tools/make_settings_page.py

Names, types, choices, bounds and defaults come from the schema (src/heterophony/settings/setting.py). A field means
what the text below it says. `tests/docs/test_settings_reference.py` fails where the page is not what this makes.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from textwrap import fill
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from heterophony.catalogue.options import notes
from heterophony.parts.schedules import Ramp, Stairs, Warmup
from heterophony.parts.training import Training
from heterophony.settings import setting

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings-reference.md"
HEAD = """# Every field of a setting

Made by `tools/make_settings_page.py` from the schema (`src/heterophony/settings/setting.py`).
[Settings](../how-to/settings.md) has an example, and says how to name your own data and networks. Only `data` and
`models` must be there. `--set data.clients=4` changes a field for one run, `--set lr=0.01` an option of the method.
"""
LOCAL = """Every method's local training, where it has such options. What is not given is the method's own
(`heterophony methods NAME`). If an `lr` is given here, `optimiser`, `momentum`, `nesterov`, `weight_decay` and `clip`
are those below. [Rates and training that change](../how-to/settings.md#rates-and-training-that-change) has what a
schedule is, and how a value is given by node."""
WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}
WORDS |= dict.fromkeys((Ramp, Stairs, Warmup), "schedule")


def page() -> str:
    """Return the text of the page."""
    out = [HEAD]
    for path, table in tables(setting.Setting):
        title = f"`[{path}]`" if path else "The top of the file"
        out += [f"## {title}", "", _about(table), "", *_rows(table), ""]
        if not path:
            out += ["## `[local]`", "", LOCAL, "", *_local(), ""]
    return "\n".join(out).rstrip() + "\n"


def tables(table: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield a table and all those in it, by the names that a file gives them."""
    yield path, table
    for name, field in table.model_fields.items():
        label = ".".join(filter(None, (path, field.alias or name)))
        if inner := _table(field.annotation):
            many = {dict: "{}.NAME", tuple: "[{}]"}.get(_origin(field.annotation), "{}")
            yield from tables(inner, many.format(label))


def meanings(table: type[BaseModel]) -> dict[str, str]:
    """Return, for each field of a table, the text below it."""
    (made,) = ast.parse(inspect.getsource(table)).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for line, below in zip(made.body, made.body[1:], strict=False):
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            assert isinstance(line.target, ast.Name)
            found[line.target.id] = " ".join(str(below.value.value).split())
    return found


def _about(table: type[BaseModel]) -> str:
    """Return what a table says of itself."""
    return fill(" ".join((inspect.getdoc(table) or "").split()), 120, break_on_hyphens=False)


def _rows(table: type[BaseModel]) -> Iterator[str]:
    """Yield the lines of a table's fields."""
    said = meanings(table)
    yield "| field | what it takes | default | |"
    yield "|---|---|---|---|"
    for name, field in table.model_fields.items():
        default = "must be given" if field.default is PydanticUndefined else _shown(field.default)
        if (table, name) == (setting.Setting, "name"):  # which `Setting.load` gives
            default = "the file's name"
        bounds = [text for text in map(_bound, field.metadata) if text]
        takes = ", ".join([_words(field.annotation), *bounds])
        yield f"| `{field.alias or name}` | {takes} | {default} | {said[name]} |"


def _local() -> Iterator[str]:
    """Yield the lines of the options of local training."""
    hints, said = get_type_hints(Training), notes(Training)
    yield "| field | what it takes | default | |"
    yield "|---|---|---|---|"
    for field in fields(Training):
        takes, text = _words(hints[field.name]), said[field.name]
        yield f"| `{field.name}` | {takes} | {_shown(field.default)} | {text[0].upper()}{text[1:]}. |"


def _origin(hint: Any) -> Any:
    """Return the collection that a type is, if it is one; of alternatives, that of the first."""
    if get_origin(hint) in (Union, UnionType):
        return _origin(get_args(hint)[0])
    return get_origin(hint)


def _table(hint: Any) -> type[BaseModel] | None:
    """Return the table that a type is, or is made of."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    return next((found for found in map(_table, get_args(hint)) if found), None)


def _words(hint: Any) -> str:
    """Return a type as a writer of TOML says it."""
    origin, inner = get_origin(hint), [part for part in get_args(hint) if part not in (type(None), ...)]
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in inner)
    if origin in (Union, UnionType):
        tables = [part for part in inner if get_origin(part) is dict and get_args(part)[1] is not Any]
        plain = " or ".join(dict.fromkeys(_words(part) for part in inner if part not in tables))
        by_node = plain and all(_words(get_args(part)[1]) == plain for part in tables)
        if tables and by_node:
            return f"{plain}, also by node"
        return " or ".join(dict.fromkeys(map(_words, inner)))
    if origin is tuple:
        pair = f"pairs of {_words(get_args(inner[0])[0])}s" if get_origin(inner[0]) is tuple else ""
        return f"list of {pair or ('tables' if _table(inner[0]) else f'{_words(inner[0])}s')}"
    if origin is dict:
        tables = _table(inner[1]) or get_origin(inner[1]) is dict
        return "table" if inner[1] is Any else "tables by name" if tables else f"{_words(inner[1])} by name"
    if get_origin(hint) is not None and inner:  # Annotated
        return _words(inner[0])
    return "table" if _table(hint) or (is_dataclass(hint) and hint not in WORDS) else WORDS[hint]


def _bound(limit: Any) -> str:
    """Return a bound of a number, or nothing."""
    for key, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
        if hasattr(limit, key):
            return f"{sign} {getattr(limit, key):g}"
    return ""


def _shown(value: Any) -> str:
    """Return a default as TOML would have it."""
    if value is None or value == () or value == {} or value == "":
        return "-"
    if isinstance(value, BaseModel) or (isinstance(value, tuple) and isinstance(value[0], BaseModel)):
        return "its own defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{value}`"


def main() -> None:
    PAGE.write_text(page())
    print(f"wrote {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    main()
