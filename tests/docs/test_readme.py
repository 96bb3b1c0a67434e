"""The README's Python example runs as it stands, and its commands exist."""

import re
from pathlib import Path

import pytest

from heterophony import methods

README = Path(__file__).parents[2] / "README.md"


def test_the_python_example_runs(capsys):
    if not README.exists():
        pytest.skip("not in a checkout")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    accuracy, sent = capsys.readouterr().out.strip().splitlines()
    assert float(accuracy) > 0.7
    assert sent == str({"global": 20 * 5 * 4 * (8 * 16 + 16 + 16 * 3 + 3), "update": 20 * 5 * 4 * 195})


def test_the_commands_exist():
    from typer.testing import CliRunner

    from heterophony.cli import app

    if not README.exists():
        pytest.skip("not in a checkout")
    commands = set(re.findall(r"^heterophony (\w+)", README.read_text(), re.MULTILINE))
    assert commands
    for command in commands:
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0


def test_the_table_names_methods_of_ours_none_of_them_twice():
    """The list of all is made from the code, so that a new method need not be written in here."""
    if not README.exists():
        pytest.skip("not in a checkout")
    section = README.read_text().partition("## Methods\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert len(named) > 20
    assert set(named) <= set(methods.NAMES)
    assert len(named) == len(set(named))


def test_it_can_be_read_in_five_minutes():
    if not README.exists():
        pytest.skip("not in a checkout")
    assert len(README.read_text().split()) < 900
