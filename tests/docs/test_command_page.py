"""docs/reference/commands.md says what the command line says of itself."""

import importlib
from pathlib import Path

import pytest
import typer

from heterophony.cli import app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch):
    if not (ROOT / "tools" / "make_command_page.py").exists():
        pytest.skip("not in a checkout")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("make_command_page")


def test_the_page_is_current(tool):
    assert tool.PAGE.read_text() == tool.page(), "python tools/make_command_page.py writes it anew"


def test_every_command_and_option_is_in_the_page(tool):
    text = tool.page()
    for words, command in tool.commands(typer.main.get_command(app), ("heterophony",)):
        section = text.partition(f"## `{' '.join(words)}`\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help" and not parameter.hidden:
                assert parameter.opts[0] in section, (words, parameter.opts)
