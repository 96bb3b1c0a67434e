"""docs/tutorials/first-run.md: its commands work in this order, here with fewer rows and rounds."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heterophony.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "first-run.md"
SMALL = ["--set", "data.rows=60", "--set", "data.test_rows=30"]


def test_the_commands_work(tmp_path, monkeypatch):
    if not PAGE.exists():
        pytest.skip("not in a checkout")
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^heterophony (.*)$", PAGE.read_text(), re.MULTILINE)
    for command in commands:
        short = command.replace("--rounds 3", "--rounds 1").replace("--rounds 5", "--rounds 2")
        words = shlex.split(short.replace("--seeds 2", "--seeds 1"))
        answer = CliRunner().invoke(app, [*words, *(SMALL if words[0] in ("run", "compare") else [])])
        assert answer.exit_code == 0, (command, answer.output)
    assert len(commands) == 11
    assert len(list(Path("runs/first").rglob("*.html"))) == 1
