"""The tutorials: their files are written as the pages say, and each command in them works, in this order."""

import importlib.util
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from heterophony.cli import app

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def follow(page, skip=()):
    """Write the page's files, run its commands, and return those that were run."""
    if not FOLDER.exists():
        pytest.skip("not in a checkout")
    done = []
    for kind, text in BLOCK.findall((FOLDER / page).read_text()):
        if kind in ("python", "toml"):
            path = Path(re.match(r"# (\S+)", text)[1])
            assert path.parent.exists(), path
            path.write_text(text)
            continue
        for command in text.splitlines():
            if not any(word in command for word in skip):
                ran(shlex.split(command), command)
                done.append(command)
    return done


def ran(words, command):
    if words[0] == "heterophony":
        answer = CliRunner().invoke(app, words[1:])
        assert answer.exit_code == 0, (command, answer.output, answer.exception)
    else:
        subprocess.run([sys.executable if words[0] == "python" else words[0], *words[1:]], check=True)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("wardnets", "centres"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("rehearse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_my_hospital(here, rehearse):
    pytest.importorskip("plotly")
    pytest.importorskip("flwr", reason="needs heterophony[flower]")
    done = follow("my-hospital.md", () if rehearse else ("--engine flower",))
    assert len(done) == 6 + rehearse
    assert (here / "runs/ward/report.html").exists()


def test_from_pfllib(here):
    assert len(follow("from-pfllib.md")) == 3


def test_from_flower(here):
    """Without flwr-datasets the page's setting has our partition; `test_flower_partition.py` is about the other one."""
    if not FOLDER.exists():
        pytest.skip("not in a checkout")
    text = (FOLDER / "from-flower.md").read_text()
    if importlib.util.find_spec("flwr_datasets"):
        assert len(follow("from-flower.md")) == 2
    else:
        made = re.sub(r'kind = "flwr".*\}', 'kind = "dirichlet", alpha = 0.3 }', dict(BLOCK.findall(text))["toml"])
        Path("shared.toml").write_text(made)
        ran(["heterophony", "run", "fedavg", "--on", "shared.toml"], "run")


class Stand(torch.utils.data.Dataset):
    """Has the form of FLamby's FedHeartDisease: 13 numbers and a label of one number for each patient of a centre."""

    def __init__(self, center=0, train=True):
        draw = torch.Generator().manual_seed(10 * center + train)
        self.x = torch.randn(40 if train else 20, 13, generator=draw)
        self.y = (self.x[:, :3].sum(1, keepdim=True) > 0).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        return self.x[place], self.y[place]


def test_from_flamby(here, monkeypatch):
    pytest.importorskip("plotly")
    for name in ("flamby", "flamby.datasets", "flamby.datasets.fed_heart_disease"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["flamby.datasets.fed_heart_disease"].FedHeartDisease = Stand
    assert len(follow("from-flamby.md")) == 3
