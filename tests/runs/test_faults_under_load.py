"""The short forms of two scripts of length: real kills over many methods, and a soak of a deployment under churn."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(name, *words):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "kills"), [("local", 60), ("process", 6)])
def test_runs_that_are_killed_time_and_again_end_as_if_nobody_had(engine, kills, tmp_path):
    tally = tmp_path / "tally.jsonl"
    done = script("kill_runs.py", engine, "--tally", tally, "--kills", kills)
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows(tally)
    assert sum(row["kills"] for row in found) >= kills
    assert all(row["same"] for row in found)
    again = script("kill_runs.py", engine, "--tally", tally, "--kills", kills)
    assert again.returncode == 0
    assert rows(tally) == found  # there are enough: nothing is made again
    assert "0 of" in script("kill_runs.py", "told", "--tally", tally).stdout


@pytest.mark.slow
def test_a_run_of_the_tally_that_ended_otherwise_is_told(tmp_path):
    tally = tmp_path / "tally.jsonl"
    tally.write_text('{"engine": "local", "run": "fedavg", "turn": 0, "kills": 2, "same": false}\n{"engine": "lo')
    told = script("kill_runs.py", "told", "--tally", tally)
    assert told.returncode == 1
    assert "1 of 1 runs ended otherwise" in told.stdout


@pytest.mark.slow
def test_a_deployment_of_eight_nodes_under_churn_is_flat_and_ends_as_a_calm_run(tmp_path):
    out = tmp_path / "soak.jsonl"
    done = script("soak.py", "--minutes", 0.5, "--nodes", 8, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    told = rows(out)[-1]
    assert told["same"]
    assert told["flat"]
    assert Counter(told["done"])["lost"] > 0
    assert told["rounds"] > 0
