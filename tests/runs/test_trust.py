"""What a run folder or an exported file names is imported only if its reader trusts it, and it says so."""

import json
import os
import shutil
import stat
import sys

import numpy as np
import pytest
import safetensors.torch
from typer.testing import CliRunner

from heterophony import cli
from heterophony.base.imported import Untrusted
from heterophony.runs import exported
from heterophony.runs.run import Run
from heterophony.settings import reassemble
from heterophony.studies import tuned, tuning
from toys.altering import altered

SMALL = """
rounds = 1
data = { source = "digits-embedded", rows = 20, test = 0.1, test_rows = 10, side = 8, clients = 2 }
models.participants = "mlp"
local = { epochs = 1, batch = 16 }
"""
EVIL = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from heterophony.methods import FedAvg as method
def net(in_channels, size, classes):
    from heterophony.models import create
    return create("mlp", in_channels=in_channels, size=size, classes=classes)
def data():
    from heterophony.data import load
    raise ValueError("came to the data")
"""


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("trust")
    (place / "small.toml").write_text(SMALL)
    answer = call("run", "fedavg", "--on", place / "small.toml", "--out", place / "run", "--track", "none")
    assert answer.exit_code == 0, answer.stderr
    return place / "run"


@pytest.fixture
def folder(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """A module that leaves a file when it is imported."""
    (tmp_path / "evilmod_of_a_stranger.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("evilmod_of_a_stranger", None)
    yield lambda: (tmp_path / "ran").exists()
    sys.modules.pop("evilmod_of_a_stranger", None)


def method(spec):
    spec["recipe"]["method"] = "evilmod_of_a_stranger:method"


def network(spec):
    spec["recipe"]["setting"]["models"]["participants"] = "evilmod_of_a_stranger:net"


def common(spec):
    spec["recipe"]["setting"]["models"]["global"] = "evilmod_of_a_stranger:net"


def same(spec):
    spec["recipe"]["setting"]["models"]["same"] = "evilmod_of_a_stranger:net"


def data(spec):
    spec["recipe"]["setting"]["data"]["source"] = "evilmod_of_a_stranger:data"


def public(spec):
    spec["recipe"]["setting"]["data"]["public"] = {"source": "evilmod_of_a_stranger:data"}


def change(spec):
    spec["recipe"]["changes"]["models.same"] = "evilmod_of_a_stranger:net"


@pytest.mark.parametrize("named", [method, network, common, same, data, public, change])
def test_resume_imports_nothing_that_a_folder_names_unless_it_is_trusted(folder, ran, named):
    altered(folder, "spec.json", lambda spec: named(spec) or spec)
    answer = call("resume", folder)
    assert answer.exit_code == 2
    (line,) = answer.stderr.splitlines()
    assert "evilmod_of_a_stranger" in line
    assert str(folder) in line
    assert "--trust" in line
    assert not ran()
    with pytest.raises(Untrusted, match=r"evilmod_of_a_stranger.*trust=True"):
        reassemble(Run.spec(folder)["recipe"])
    call("resume", folder, "--trust")
    assert ran()


def test_with_trust_it_says_what_it_imports_and_goes_on(tmp_path, ran, caplog):
    (tmp_path / "small.toml").write_text(SMALL.replace('"mlp"', '"evilmod_of_a_stranger:net"'))
    assert call("run", "fedavg", "--on", "small.toml", "--out", "run").exit_code == 0  # the user has named it
    caplog.clear()
    assert call("resume", "run", "--rounds", 2).exit_code == 2
    assert not caplog.messages
    assert call("resume", "run", "--rounds", 2, "--trust").exit_code == 0
    expected = "importing evilmod_of_a_stranger, as run names network 'evilmod_of_a_stranger:net'"
    assert caplog.messages[0] == expected


def test_looking_at_a_folder_imports_nothing(folder, ran):
    pytest.importorskip("plotly", reason="a report needs heterophony[report]")
    for named in (method, network, data):
        altered(folder, "spec.json", lambda spec, named=named: named(spec) or spec)
    for command in (("show", folder), ("ledger", folder), ("report", folder)):
        assert call(*command).exit_code == 0
    call("export", folder, "--node", "client-0", "--to", folder.parent / "m")
    call("compare", "fedavg", "--on", "small.toml", "--out", folder.parent)
    assert not ran()


@pytest.fixture
def model(run, tmp_path):
    node = next(iter(Run.spec(run)["homes"]))
    exported.save(run, node, tmp_path / "m.safetensors")
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 8, 8), np.uint8))
    return tmp_path / "m.safetensors"


def rewritten(model, change):
    """The file with something else in it, and no checksum, as it was written before there were any."""
    with safetensors.safe_open(str(model), framework="pt") as file:
        about = json.loads(file.metadata()["heterophony"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    change(about)
    text = json.dumps({**about, "format": exported.UNSUMMED})
    safetensors.torch.save_file(tensors, model, {"heterophony": text})


def test_predict_imports_nothing_that_a_file_names_unless_it_is_trusted(model, ran, tmp_path):
    rewritten(model, lambda about: about["network"].update(name="evilmod_of_a_stranger:net"))
    answer = call("predict", model, tmp_path / "x.npz")
    assert answer.exit_code == 2
    assert "network 'evilmod_of_a_stranger:net'" in answer.stderr
    assert "--trust" in answer.stderr
    assert not ran()
    with pytest.raises(Untrusted):
        exported.load(model)
    assert call("predict", model, tmp_path / "x.npz", "--trust").exit_code == 0
    assert ran()


SPLICED = "heterophony.parts.spliced:Spliced"
THEIRS = {"make": "evilmod_of_a_stranger:net", "of": {"small": "mlp", "own": "mlp"}}


@pytest.mark.parametrize(
    "network",
    [
        THEIRS,
        {"make": SPLICED, "of": {"a": "mlp", "b": "evilmod_of_a_stranger:net"}},
        {"make": SPLICED, "of": {"a": THEIRS}},
    ],
    ids=["what builds it", "a part", "what builds a part"],
)
def test_nor_does_it_for_a_network_built_from_others(model, ran, network):
    rewritten(model, lambda about: about["network"].update(name=network))
    with pytest.raises(Untrusted, match="network 'evilmod_of_a_stranger:net', which would import and run"):
        exported.load(model)
    assert not ran()
    with pytest.raises(ValueError, match=r"m\.safetensors"):  # it is not the network of these weights
        exported.load(model, trust=True)
    assert ran()


def test_a_file_of_before_there_were_checksums_is_still_read(model, tmp_path):
    rewritten(model, lambda about: None)
    assert call("predict", model, tmp_path / "x.npz").exit_code == 0


@pytest.mark.parametrize("where", ["weights", "words"])
def test_a_changed_byte_of_a_model_is_noticed(model, tmp_path, where):
    whole = model.read_bytes()
    place = len(whole) - 9 if where == "weights" else whole.index(b"client") if b"client" in whole else 200
    model.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    answer = call("predict", model, tmp_path / "x.npz")
    assert answer.exit_code == 2
    assert str(model) in answer.stderr


def test_what_was_tuned_for_others_is_not_imported(tmp_path, ran):
    text = '[s."evilmod_of_a_stranger:method"]\noptions = {}\nvalue = 0.5\nby = "acc"\nbudget = 1\ntried = 1\n'
    (tmp_path / "tuned.toml").write_text(
        text + 'seeds = [0]\nrounds = 1\nplanned = true\nchanges = { "local.lr" = 1 }\n'
    )
    trial = tuning.Trial("fedavg", "s", {}, {"0": 0.5}, 1, "acc")
    with pytest.raises(ValueError, match=r"--set local.lr"):
        tuned.write(tmp_path / "tuned.toml", [trial], 1)
    assert not ran()


# -- who may look --------------------------------------------------------------------------------------------
def others(place):
    """What is below a place that others than its owner may read or write."""
    return [path for path in [place, *place.rglob("*")] if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.skipif(sys.platform == "win32", reason="there are other rights")
def test_a_run_folder_and_what_lies_in_it_is_for_its_owner_alone(tmp_path):
    pytest.importorskip("plotly", reason="a report needs heterophony[report]")
    before = os.umask(0o022)
    try:
        (tmp_path / "small.toml").write_text(SMALL)
        out, elsewhere = tmp_path / "there" / "out", tmp_path / "elsewhere"
        assert call("run", "fedavg", "--on", tmp_path / "small.toml", "--out", out).exit_code == 0
        assert call("report", out, "--figures", out / "figures").exit_code == 0
        node = next(iter(Run.spec(out)["homes"]))
        assert call("export", out, "--node", node, "--to", out / "m.safetensors").exit_code == 0
        assert len(list(out.rglob("*"))) > 15
        assert others(out) == []
        assert stat.S_IMODE(out.parent.stat().st_mode) == 0o755
        elsewhere.mkdir(mode=0o755)
        assert call("report", out, "--to", elsewhere / "r.html").exit_code == 0
        assert call("export", out, "--node", node, "--to", elsewhere / "m.safetensors").exit_code == 0
        assert {stat.S_IMODE(path.stat().st_mode) for path in elsewhere.iterdir()} == {0o644}
    finally:
        os.umask(before)
