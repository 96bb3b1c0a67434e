"""A setting that takes a moment, and runs of it that several tests read: fixtures for the folders that ask for them."""

import json

import pytest
from click.testing import Result as Answer
from typer.testing import CliRunner

from heterophony import cli

SMALL = """
summary = "Two tiny domains"
rounds = 2
[data]
test = 0.1
test_rows = 20
side = 16
validation = 0.05
public = { fraction = 0.02 }
domains.a = { source = "digits-embedded", rows = 32 }
domains.b = { source = "digits-embedded", rows = 32, degrees = 40 }
[models]
participants = "mlp"
[local]
epochs = 1
lr = 0.1
"""


@pytest.fixture(autouse=True)
def _no_data(monkeypatch, tmp_path_factory):
    """Nobody's data but the embedded ones."""
    monkeypatch.delenv("HETEROPHONY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("settings") / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="session")
def runs(small, tmp_path_factory):
    """Three methods, two seeds: DIR/METHOD/seed-N. Tests that change it make a copy."""
    folder = tmp_path_factory.mktemp("runs")
    answer = call("compare", "solo", "fedavg", "fccl", "--on", small, "--seeds", 2, "--out", folder, "--json")
    assert answer.exit_code == 0, answer.stderr
    return folder


def call(*words: object) -> Answer:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def said(answer: Answer):
    """What `--json` printed."""
    assert answer.exit_code == 0, (answer.stderr, answer.exception)
    (line,) = answer.stdout.splitlines()
    return json.loads(line)


def refused(answer: Answer, *words: str) -> None:
    """Bad input: exit code 2 and one clear line."""
    assert answer.exit_code == 2, (answer.exit_code, answer.exception, answer.stderr)
    (line,) = answer.stderr.splitlines()
    assert all(word in line for word in words), line
