"""A tree from a run: what is near is joined, and participants who learn the same come together."""

import pytest
import torch
from typer.testing import CliRunner

from heterophony.base.seeds import generator
from heterophony.cli import app
from heterophony.parts.linkage import apart, joined

SETTING = """
evaluate = 3
[data]
source = "digits-embedded"
rotations = [0, 180]
test = 0.1
test_rows = 30
clients = 2
[models]
participants = "mlp"
[local]
batch = 16
lr = 0.05
"""


def test_golden_joining():
    """Points at 0, 1, 5 and 7: 0 and 1 are joined, then 5 and 7, and then both."""
    points = torch.tensor([[0.0], [5.0], [1.0], [7.0]])
    for count, groups in ((4, [[0], [1], [2], [3]]), (3, [[0, 2], [1], [3]]), (2, [[0, 2], [1, 3]])):
        assert joined(apart(points, "weights"), count) == groups


def test_updates_are_compared_by_their_angles_from_the_mean():
    rows = torch.randn(4, 3, generator=generator("angles"), dtype=torch.float64)
    found, mean = apart(rows, "updates"), rows.mean(0)
    for i in range(4):
        for j in range(4):
            a, b = rows[i] - mean, rows[j] - mean
            assert float(found[i, j]) == pytest.approx(1 - float(a @ b / (a.norm() * b.norm())), abs=1e-9)


def test_participants_of_a_kind_come_together_and_the_tree_is_a_setting(tmp_path):
    (tmp_path / "two.toml").write_text(SETTING)

    def call(*words):
        return CliRunner().invoke(app, [str(word) for word in words])

    run = tmp_path / "flat"
    assert call("run", "fedavg", "--on", tmp_path / "two.toml", "--rounds", 3, "--out", run).exit_code == 0
    answer = call("tree", run, "--clusters", 2)
    said = '[topology.tree.root]\nedge0 = ["M0.0", "M0.1"]\nedge1 = ["M180.0", "M180.1"]\n'
    assert answer.stdout == said
    (tmp_path / "tree.toml").write_text(SETTING + said)
    words = ("run", "hierfavg", "--on", tmp_path / "tree.toml", "--rounds", 1, "--out", tmp_path / "tree")
    assert call(*words).exit_code == 0
    for more, why in (((5,), "5 clusters of 4 participants"), ((2, "--by", "name"), "--by is weights or updates")):
        refused = call("tree", run, "--clusters", *more)
        assert refused.exit_code != 0
        assert why in refused.stderr
