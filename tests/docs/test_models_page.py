"""The settings and the network of docs/how-to/models.md run as they stand, on data that are made up here."""

import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from heterophony.cli import app
from heterophony.models import create

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "models.md"


@pytest.fixture
def page():
    if not PAGE.exists():
        pytest.skip("not in a checkout")
    return PAGE.read_text()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the page's data and weights."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    windows = rng.normal(size=(60, 6, 32)).astype(np.float32)
    activity = (windows[:, 0].mean(1) > 0).astype(np.int64)
    np.savez("sensors.npz", windows=windows, activity=activity, user=np.arange(60) % 4)
    image = rng.normal(size=(40, 1, 16, 16)).astype(np.float32)
    np.savez("cells.npz", image=image, mask=(image[:, 0] > 0.5).astype(np.int64))
    torch.manual_seed(0)
    safetensors.torch.save_file(create("cnn1d", shape=(6, 32), classes=9).state_dict(), "pretrained.safetensors")
    return tmp_path


@pytest.mark.parametrize("name", ["sensors", "cells", "pretrained"])
def test_each_setting_runs_as_it_stands(page, here, name):
    (text,) = re.findall(rf"```toml\n(# {name}\.toml\n.*?)```", page, re.DOTALL)
    (here / f"{name}.toml").write_text(text)
    answer = CliRunner().invoke(app, ["run", "fedavg", "--on", f"{name}.toml", "--rounds", "1", "--out", "run"])
    assert answer.exit_code == 0, answer.stderr


def test_the_network_of_ones_own_is_one(page, here, monkeypatch):
    (text,) = re.findall(r"```python\n# ours\.py\n(.*?)```", page, re.DOTALL)
    (here / "ours.py").write_text(text)
    monkeypatch.syspath_prepend(str(here))
    assert create("ours:small", shape=(6, 32), classes=4)(torch.zeros(2, 6, 32)).shape == (2, 4)
