"""Results of very many participants: tables on the screen are short, and reading them imports nothing heavy."""

import json
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from heterophony import Data, Federation, star
from heterophony.cli import app
from heterophony.cli.looking import MOST
from heterophony.methods import FedAvg
from heterophony.parts import Training
from toys import world


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    names = [f"c{i:02}" for i in range(MOST + 5)]
    data = {name: Data(x=torch.ones(2, 8), y=torch.zeros(2).long(), classes=4) for name in names}
    model = {"model": world.net(2)}
    made = Federation(
        FedAvg(local=Training()),
        star(names),
        {"client": model, "server": model},
        data,
        world.TESTS,
        homes=dict.fromkeys(names, "here"),
    )
    made.run(1, where := tmp_path_factory.mktemp("many") / "run")
    return where


def said(*command):
    done = CliRunner().invoke(app, [*map(str, command)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_long_table_is_cut_and_says_how_to_see_all_of_it(folder):
    short, whole = said("show", folder), said("show", folder, "--all")
    assert "c39" in short
    assert "c40" not in short
    assert "(5 more)" in short
    assert "40 of 45 participants; all of them: heterophony show FOLDER --all, or --json" in short
    assert "c44" in whole
    assert "more)" not in whole
    assert len(json.loads(said("show", folder, "--json"))["metrics"]["participants"]) == MOST + 5
    edges = json.loads(said("ledger", folder, "--json"))["edges"]
    assert len(edges) == 2 * (MOST + 5)
    assert "40 of 90 rows; all of them: --all, or --json" in said("ledger", folder)
    assert " rows; " not in said("ledger", folder, "--all")


def test_reading_results_imports_nothing_heavy(folder):
    code = (
        "import sys; from heterophony.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "sys.exit(', '.join({'torch', 'numpy', 'pandas', 'matplotlib'} & sys.modules.keys()) or 0)"
    )
    for command in ("show", "ledger"):
        done = subprocess.run([sys.executable, "-c", code, command, str(folder)], capture_output=True, text=True)
        assert not done.returncode, done.stderr
