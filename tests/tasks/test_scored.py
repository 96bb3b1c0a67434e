"""Scores of one's own: counted by plain loops, kept with a run, and imported only where they are used."""

import sys

import pytest
import torch

from heterophony import Classification, OwnScore, Regression, Scored
from heterophony.runs.show import lines
from heterophony.runs.summary import Summary
from heterophony.settings import Setting, SettingError, assemble
from heterophony.tasks.task import described, packed, unpacked

OWN = """
import torch

def within(outputs, y):
    return ((outputs - y.reshape(outputs.shape)).abs() < 1).float().mean(1)

def mae(outputs, y):
    return y

def one(outputs, y):
    return torch.tensor(1.0)
"""
TABLE = "site,a,b,y\n" + "".join(f"{i % 3},{i},{i * i % 7},{i * 0.1}\n" for i in range(60))
SETTING = """
rounds = 2
[data]
source = "t.csv"
partition = { kind = "natural", by = "site" }
test = 0.3
validation = 0.2
standardise = "everyone"
task = { kind = "regression", scores = [{ call = "own_scores:CALL", percent = true, title = "within one" }] }
[data.arrays]
x = ["a", "b"]
y = "y"
[models]
participants = "linear"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_scores.py").write_text(OWN)
    (tmp_path / "t.csv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("own_scores", None)


def setting(folder, call="within"):
    (folder / "s.toml").write_text(SETTING.replace("CALL", call))
    return Setting.load("s.toml")


def test_a_score_of_ones_own_adds_up_over_sets(folder):
    task = Scored(Regression(2), (OwnScore("own_scores:within"),))
    draw = torch.Generator().manual_seed(0)
    outputs, y = torch.randn(9, 2, generator=draw), torch.randn(9, 2, generator=draw)
    parts = [task.sums(outputs[:4], y[:4])["within"], task.sums(outputs[4:], y[4:])["within"]]
    loops = sum(
        sum(abs(float(o) - float(t)) < 1 for o, t in zip(own, row, strict=True)) / 2
        for own, row in zip(outputs, y, strict=True)
    )
    assert [n for _, n in parts] == [4, 5]
    assert task.scores[-1].figure([tuple(map(sum, zip(*parts, strict=True)))]) == pytest.approx(loops / 9)


@pytest.mark.parametrize("inner", [Regression(2, "huber"), Classification(3)])
def test_a_task_with_scores_is_the_same_after_its_plain_values(inner):
    task = Scored(inner, (OwnScore("own_scores:within", higher=False, percent=True, title="within"),))
    assert unpacked(packed(task)) == task
    assert unpacked(described(task)["task"]) == task
    assert (task.kind, task.outputs, task.scores[0]) == (inner.kind, inner.outputs, inner.scores[0])
    assert described(Classification(3)) == {}


def test_a_run_shows_its_own_scores_and_is_read_without_their_module(folder):
    assemble("fedavg", setting(folder)).run(2, folder / "run", quiet=True)
    sys.modules.pop("own_scores")
    (folder / "own_scores.py").unlink()
    summary = Summary.load(folder / "run")
    assert 0 <= summary.metrics.scores["within"] <= 1
    assert any("R2 " in line and "within one " in line and line.endswith(" %") for line in lines(summary))


def test_what_a_score_of_ones_own_cannot_be_is_one_line(folder):
    with pytest.raises(ValueError, match="'none' in module 'own_scores' does not exist"):
        assemble("fedavg", setting(folder, "none"))
    with pytest.raises(ValueError, match="there is a score 'mae' already"):
        assemble("fedavg", setting(folder, "mae"))
    with pytest.raises(SettingError, match="a score of your own is module:callable, got 'own_scores:'"):
        setting(folder, "")
    with pytest.raises(ValueError, match=r"'own_scores:one' must give a tensor of one number for each of 3 rows: \[\]"):
        Scored(Regression(), (OwnScore("own_scores:one"),)).sums(torch.zeros(3, 1), torch.zeros(3))


def test_a_setting_names_its_scores_among_what_it_imports(folder):
    assert ("score", "own_scores:within") in setting(folder).imports()
