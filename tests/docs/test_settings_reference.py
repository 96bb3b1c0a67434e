"""docs/reference/settings-reference.md says what the schema says, of every field."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

from heterophony.settings import setting, shipped
from heterophony.settings.setting import Strict

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch):
    if not (ROOT / "tools" / "make_settings_page.py").exists():
        pytest.skip("not in a checkout")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("make_settings_page")


def test_the_page_is_current(tool):
    assert tool.PAGE.read_text() == tool.page(), "python tools/make_settings_page.py writes it anew"


def test_every_table_is_there_and_every_field_has_a_meaning(tool):
    found = dict(tool.tables(setting.Setting))
    ours = [kind for kind in Strict.__subclasses__() if kind.__module__ == setting.__name__]
    assert {table.__name__ for table in found.values()} == {kind.__name__ for kind in ours}
    for table in found.values():
        said = tool.meanings(table)
        assert list(said) == list(table.model_fields)
        assert all(text.endswith(".") for text in said.values())


def test_every_field_of_a_shipped_setting_is_in_the_page(tool):
    text = tool.page()
    for name, toml in shipped().items():
        for key, value in tomllib.loads(toml).items():
            assert f"| `{key}` |" in text, (name, key)
            if key in ("data", "models", "topology", "dropout"):
                table = re.search(rf"^## `\[{key}\]`$(.*?)^## ", text + "## ", re.DOTALL | re.MULTILINE)[1]
                assert all(f"| `{field}` |" in table for field in value), (name, key)


@pytest.mark.parametrize(
    "row",
    [
        "| `clients` | whole number, >= 1 | `1` | Participants of each domain. |",
        "| `source` | text | must be given | A data set",
        "| `drift` | `sudden` or `gradual` or `recurring` | `sudden` |",
        "| `unseen` | list of texts | - |",
        "| `global` | text | - |",
    ],
)
def test_a_row_says_what_a_field_takes(tool, row):
    assert row in tool.page()
