"""Exported graphs run without this library, and give what `predict` gives."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from heterophony.cli import app
from heterophony.data.sources.catalogue import load
from heterophony.models import create
from heterophony.runs import exported, portable
from heterophony.runs.run import RunError


def call(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


# What somebody does who has torch (or onnxruntime) alone. `heterophony` must not even be there.
READ = """
import sys, numpy as np
sys.modules["heterophony"] = None
kind, path, rows, to = sys.argv[1:]
x = np.load(rows)
if kind == "pt2":
    import torch
    run = torch.export.load(path).module()
    y = [run(torch.from_numpy(x)).detach().numpy(), run(torch.from_numpy(x[:1])).detach().numpy()]
else:
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    y = [session.run(None, {"x": part})[0] for part in (x, x[:1])]
np.savez(to, all=y[0], first=y[1])
"""


def elsewhere(tmp_path, kind, path, x):
    """Return what a graph gives for all rows, and for the first alone, in a process without this library."""
    np.save(tmp_path / "rows.npy", x.astype(np.float32) if x.dtype == np.float64 else x)
    command = [sys.executable, "-c", READ, kind, path, tmp_path / "rows.npy", tmp_path / "out.npz"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as found:
        return found["all"], found["first"]


def with_onnx(kind):
    if kind == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package)


SERIES = """
[data]
source = "rows.npz"
partition = {{ kind = "natural", by = "user" }}
test = 0.2
standardise = "{by}"
{task}
[data.arrays]
scale = 0.5
offset = 3
axes = [0, 2, 1]
[models]
participants = "{network}"
[local]
batch = 16
"""


@pytest.fixture
def series(tmp_path, monkeypatch):
    """A run on series that are stored as (rows, steps, channels) of float64; gives its folder."""
    monkeypatch.chdir(tmp_path)

    def made(network="cnn1d", by="participant", task="", y=None):
        rng = np.random.default_rng(1)
        x = rng.normal(5, 3, size=(60, 8, 2))
        label = (x[:, :, 0].sum(1) > 40).astype(np.int64) if y is None else y(x)
        np.savez("rows.npz", x=x, y=label, user=np.arange(60) % 2)
        (tmp_path / "s.toml").write_text(SERIES.format(network=network, by=by, task=task))
        answer = call("run", "solo", "--on", "s.toml", "--rounds", 1, "--out", tmp_path / "run")
        assert answer.exit_code == 0, answer.stderr
        return x

    return made


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_graphs_of_series_give_what_predict_gives_without_this_library(series, tmp_path, kind):
    with_onnx(kind)
    x = series()
    answer = call("export", "run", "--node", "user-1", "--to", "m.safetensors", "--format", kind)
    assert answer.exit_code == 0, answer.stderr
    assert answer.stderr.splitlines() == ["wrote m.safetensors", f"wrote m.{kind}"]
    found = json.loads(call("predict", "m.safetensors", "rows.npz", "--json").stdout)
    together, first = elsewhere(tmp_path, kind, tmp_path / f"m.{kind}", x)
    assert together.argmax(1).tolist() == found["labels"]
    np.testing.assert_allclose(together.max(1), found["confidence"], rtol=0, atol=1e-6)  # which is rounded so
    np.testing.assert_allclose(first, together[:1], rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_graphs_of_numbers_give_what_predict_gives(series, tmp_path, kind):
    with_onnx(kind)
    x = series("gru", "everyone", '[data.task]\nkind = "regression"', lambda x: x[:, :, 0].sum(1).astype(np.float32))
    assert call("export", "run", "--node", "user-0", "--to", "m", "--format", kind).exit_code == 0
    found = json.loads(call("predict", "m", "rows.npz", "--json").stdout)
    together, first = elsewhere(tmp_path, kind, tmp_path / f"m.{kind}", x)
    np.testing.assert_allclose(together, found["values"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first, together[:1], rtol=1e-5, atol=1e-6)


def about(name, **told):
    return {
        "network": {"name": name, "classes": 5, **told},
        "pixels": {"mean": 0.1, "std": 0.3},
        "arrays": {"layout": {}, "standardised": None},
        "run": {},
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pt2", "onnx"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lenet5", {"in_channels": 1, "size": 28}),
        ("resnet10", {"in_channels": 3, "size": 32}),
        ("vit-tiny", {"in_channels": 3, "size": 32}),
        ("byte-cnn", {"in_channels": 1, "size": 32}),
        ("lstm", {"shape": (3, 10)}),
        ("unet", {"shape": (1, 17, 16)}),
    ],
)
def test_graphs_of_our_networks_equal_them_for_any_number_of_rows(name, told, kind, tmp_path):
    with_onnx(kind)
    torch.manual_seed(0)
    network, said = create(name, **told, classes=5).eval(), about(name, **told)
    (tmp_path / "m").write_bytes(portable.written(network, said, (kind,))[kind])
    x = portable.example(said, rows=7)
    with torch.no_grad():
        expected = portable.answering(network, said)(x).numpy()
    together, first = elsewhere(tmp_path, kind, tmp_path / "m", x.numpy())
    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(first, expected[:1], rtol=0, atol=1e-5)


def test_images_are_scaled_in_the_graph_as_predict_scales_them():
    images = load("digits-embedded").train.x[:6]
    told = {"in_channels": 1, "size": images.shape[1]}
    torch.manual_seed(0)
    network, said = create("mlp", **told, classes=5).eval(), about("mlp", **told)
    x = exported.to_tensor(images, side=told["size"], channels=1, mean=0.1, std=0.3)
    with torch.no_grad():
        assert torch.equal(portable.answering(network, said)(torch.from_numpy(images)), network(x).softmax(-1))


class Choosing(nn.Module):
    """Which of two ways it goes depends on values: no graph can hold it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


def test_what_cannot_be_a_graph_is_refused_in_one_line():
    with pytest.raises(RunError, match=r"network 'mine:net' cannot be exported by torch.export: ") as error:
        portable.written(Choosing().eval(), about("mine:net", shape=(4,)), ("pt2",))
    assert "\n" not in str(error.value)


def test_onnx_that_is_not_installed_is_said_and_nothing_is_written(series, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    series()
    answer = call("export", "run", "--node", "user-1", "--to", "m", "--format", "pt2", "--format", "onnx")
    assert answer.exit_code == 2
    assert "ONNX needs onnx and onnxscript: pip install 'heterophony[onnx]'" in answer.stderr
    assert not list(tmp_path.glob("m*"))


def test_what_export_cannot_write_is_refused_in_one_line(series, tmp_path):
    series()
    for arguments, text in (
        (
            ("--to", "m", "--format", "onx"),
            "there is no format 'onx', perhaps you meant 'onnx'; there are pt2 and onnx",
        ),
        (("--to", "m.onnx"), "name the file of weights (.safetensors); --format onnx writes beside it"),
    ):
        answer = call("export", "run", "--node", "user-1", *arguments)
        assert answer.exit_code == 2
        assert text in answer.stderr.replace("\n", " ")
    assert not list(tmp_path.glob("m*"))


def test_a_scale_that_lies_in_the_data_is_no_part_of_a_graph():
    said = about("mlp", shape=(4,))
    said["arrays"]["layout"] = {"scale": "gain"}
    with pytest.raises(RunError, match=r"data\.arrays.scale = 'gain' is in the files of data"):
        portable.answering(nn.Identity(), said)
