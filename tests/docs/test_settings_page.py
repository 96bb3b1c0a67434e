"""The example of docs/how-to/settings.md runs as it stands."""

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heterophony.cli import app
from heterophony.data import load

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "settings.md"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The files that the page shows."""
    if not PAGE.exists():
        pytest.skip("not in a checkout")
    for language, text in re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        name = re.match(r"# (\S+)", text)
        assert name is not None, language
        (tmp_path / name[1]).write_text(text)
        monkeypatch.delitem(sys.modules, Path(name[1]).stem, raising=False)  # another test's module of that name
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)  # another page's module of that name
    yield
    sys.modules.pop("nets", None)


@pytest.mark.parametrize("method", ["fml", "fedmd"])
def test_the_example_runs(method, tmp_path, written):
    answer = CliRunner().invoke(app, ["run", method, "--on", str(tmp_path / "ward.toml"), "--rounds", "2", "--json"])
    assert answer.exit_code == 0, answer.stderr
    assert set(json.loads(answer.stdout)["metrics"]["participants"]) == {"M0.0", "M0.1", "M40.0", "M40.1"}


def test_the_example_of_rates_runs(tmp_path, written):
    answer = CliRunner().invoke(app, ["run", "fedavg", "--on", str(tmp_path / "rates.toml"), "--rounds", "2", "--json"])
    assert answer.exit_code == 0, answer.stderr
    assert set(json.loads(answer.stdout)["metrics"]["participants"]) == {"M0", "M40"}


def test_the_page_shows_the_example_of_sensors(tmp_path, written):
    whole = tomllib.loads((PAGE.parents[2] / "examples" / "sensors" / "sensors.toml").read_text())
    shown = tomllib.loads((tmp_path / "sensors.toml").read_text())
    assert {key: whole[key] for key in shown} == shown


def test_the_file_of_arrays_is_data(tmp_path, written):
    runpy.run_path(str(tmp_path / "make_mine.py"))
    source = load("mine.npz")
    assert (source.classes, source.train.x.shape, len(source.test)) == (("cat", "dog", "fish"), (90, 16, 16, 1), 30)
