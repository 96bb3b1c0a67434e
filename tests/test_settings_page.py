"""The example of docs/settings.md runs as it stands."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heterophony.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


@pytest.mark.parametrize("method", ["fml", "fedmd"])
def test_the_example_runs(method, tmp_path, monkeypatch):
    if not PAGE.exists():
        pytest.skip("not in a checkout")
    for language, text in re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        name = re.match(r"# (\S+)", text)
        assert name is not None, language
        (tmp_path / name[1]).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    answer = CliRunner().invoke(app, ["run", method, "--on", str(tmp_path / "ward.toml"), "--rounds", "2", "--json"])
    assert answer.exit_code == 0, answer.stderr
    assert set(json.loads(answer.stdout)["metrics"]["participants"]) == {"M0.0", "M0.1", "M40.0", "M40.1"}
