"""The README's Python example runs as it stands, and its commands exist."""

import re
from pathlib import Path

import pytest

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

    for command in set(re.findall(r"^heterophony (\w+)", README.read_text(), re.MULTILINE)):
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
