"""What benchmark scripts share: a run that is kept is taken for what it was made with, not for its name alone."""

import importlib.util
from pathlib import Path

PLACE = Path(__file__).parents[2] / "benchmarks" / "tables.py"


def test_other_arguments_or_changes_are_other_runs(tmp_path):
    spec = importlib.util.spec_from_file_location("benchmark_tables", PLACE)
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    ran = []

    def job(name, seed):
        ran.append(name)
        return len(ran)

    def collect(changes, rounds):
        return tables.collect(tmp_path / "x.json", {"a": ("solo", changes)}, 1, job, {"rounds": rounds})

    assert collect({}, 5) == collect({}, 5) == {"a": [1]}
    assert collect({"lr": 0.1}, 5) == {"a": [2]}
    assert collect({}, 6) == {"a": [3]}
    assert collect({}, 5) == {"a": [1]}
