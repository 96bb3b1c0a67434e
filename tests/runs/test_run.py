"""Run folders: locked, versioned, checked; a killed process is resumed to the bit."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heterophony.engines import local
from heterophony.methods import FedAvg
from heterophony.parts.cohort import Cohort
from heterophony.runs.run import Run, RunError
from toys.altering import altered, flipped, row_of
from toys.federations import B16, weights_star

ROUNDS = 6


def federation(**options):
    return weights_star(FedAvg(local=B16), **options)


@pytest.fixture
def folder(tmp_path):
    federation().run(2, tmp_path / "run")
    return tmp_path / "run"


def test_an_existing_run_is_not_overwritten(folder):
    with pytest.raises(RunError, match="holds a run already: resume it, or choose another folder"):
        federation().run(2, folder)


def test_only_the_same_federation_resumes(folder):
    with pytest.raises(RunError, match="was run with seed = 0, not 1"):
        federation(seed=1).resume(folder, 3)
    with pytest.raises(RunError, match="holds no run"):
        federation().resume(folder.parent, 3)


def test_what_follows_from_a_recipe_need_not_be_in_an_older_folder(tmp_path):
    recipe = {"method": "fedavg", "setting": {"name": "s"}, "seed": 0, "changes": {}, "compute": {}}
    folder = tmp_path / "run"
    federation(recipe={**recipe, "shape": {"size": 8}}).run(1, folder)
    newer = {**recipe, "shape": {"size": 8}, "labels": {"here": ["cat", "dog"]}}
    assert federation(recipe=newer).resume(folder, 2).rounds == 2
    with pytest.raises(RunError, match=r"was run with recipe.changes.lr = None, not 1"):
        federation(recipe={**newer, "changes": {"lr": 1}}).resume(folder, 3)


def test_a_manifest_says_how_many_rounds_there_are_to_be_and_an_older_one_need_not(folder):
    assert Run(folder).goal == 2
    altered(folder, "snapshot/manifest.json", lambda value: {key: value[key] for key in value if key != "rounds"})
    assert "rounds" not in json.loads((folder / "snapshot" / "manifest.json").read_text())
    assert Run(folder).goal == 2
    assert federation().resume(folder).rounds == 2


def test_a_finished_run_resumes_to_itself(folder):
    before = {path: path.read_bytes() for path in folder.glob("*.jsonl")}
    again = federation().resume(folder)
    assert again.digest == local(federation()).run(2).digest
    assert {path: path.read_bytes() for path in folder.glob("*.jsonl")} == before


def test_what_cannot_be_written_is_called_as_it_was_asked_for(tmp_path):
    from heterophony.base.disk import Disk

    (tmp_path / "there").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        Disk().replace(tmp_path / "there", b"x")
    assert caught.value.filename == str(tmp_path / "there")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_folder_in_use_is_refused(folder):
    spec = federation().identity()
    with Run.open(folder, spec), pytest.raises(RunError, match="in use by another process"):
        Run.open(folder, spec)
    with Run.open(folder, spec):
        pass


def damage(path: Path):
    flipped(path, path.stat().st_size // 2)


def newest(folder, pattern):
    return sorted((folder / "snapshot").glob(pattern))[-1]


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda f: flipped(*row_of(f, "c0")), "nodes.hph is damaged"),
        (lambda f: damage(newest(f, "index*.hph")), "nodes.hph is damaged .the checksum of its index"),
        (lambda f: damage(newest(f, "queue*.hph")), "is damaged"),
        (lambda f: newest(f, "nodes.hph").unlink(), "is missing"),
        (lambda f: newest(f, "index*.hph").unlink(), "is missing"),
        (lambda f: (f / "snapshot/manifest.json").write_text("{"), "manifest.json is damaged"),
        (lambda f: (f / "snapshot/manifest.json").write_text("{}"), "manifest.json is damaged"),
        (lambda f: (f / "spec.json").write_text("nonsense"), "spec.json is damaged"),
        (lambda f: (f / "spec.json").write_text(json.dumps({"format": 99})), "another format"),
        (lambda f: (f / "metrics.jsonl").write_text(""), "is cut short"),
    ],
)
def test_a_damaged_run_is_one_clear_line_and_stays_as_it_is(folder, harm, text):
    harm(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}
    with pytest.raises(RunError, match=text) as caught:
        federation().resume(folder, 4)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert before == {path: path.read_bytes() for path in before}


def test_only_touched_nodes_are_rewritten(tmp_path):
    """With one client a round, a snapshot writes that client, the server and the queue, not the other clients."""
    from heterophony import Federation
    from heterophony.kernel.topology import star
    from toys.federations import CLIENTS
    from toys.world import net, private

    models = {role: {"model": net()} for role in ("server", "client")}
    made = Federation(FedAvg(cohort=Cohort(fraction=0.3)), star(CLIENTS), models, private(CLIENTS))
    with Run.create(tmp_path / "run", made.identity(), 2, cadence=0.0) as run:
        engine = local(made, record=run)
        engine.run(1)
        names, put = [], run.nodes.put
        run.nodes.put = lambda name, row, mark: (names.append(name), put(name, row, mark))
        engine.run(2)
    assert "server" in names
    assert 1 <= len({name for name in names if name.startswith("c")}) <= 2


SCRIPT = """
import sys; sys.path[:0] = {path!r}
import torch; torch.set_num_threads(1)
from pathlib import Path
from runs.test_run import federation, ROUNDS
from heterophony.engines import local
from heterophony.runs.run import Run
folder, made = Path({folder!r}), federation()
known = (folder / "spec.json").exists()
start = Run.open if known else Run.create
with start(folder, made.identity(), *([] if known else [ROUNDS]), cadence=0.0) as run:
    print("ready", flush=True)
    local(made, record=run).run(ROUNDS)
"""


def killed_run(folder, delay):
    """Start a run in a process of its own and kill -9 it; True if it had not finished."""
    code = SCRIPT.format(path=[str(Path(__file__).parents[1])], folder=str(folder))
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    return child.wait() == -signal.SIGKILL


def survive(folder, delays):
    killed = sum(killed_run(folder, delay) for delay in delays)
    result = (
        federation().resume(folder, ROUNDS) if (folder / "spec.json").exists() else federation().run(ROUNDS, folder)
    )
    whole = federation().run(ROUNDS, folder.parent / "whole")
    assert result.digest == whole.digest
    for name in ("metrics.jsonl", "ledger.jsonl"):
        assert (folder / name).read_bytes() == (folder.parent / "whole" / name).read_bytes()
    return killed


def test_three_real_kills(tmp_path):
    assert survive(tmp_path / "run", [0.0, 0.05, 0.15]) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("start", range(10))
def test_many_real_kills(tmp_path, start):
    """Twenty kills a run, at moments spread over it: two hundred in all."""
    survive(tmp_path / "run", [0.002 * start + 0.02 * (k % 10) for k in range(20)])
