"""A method of somebody's own, that brings its own way to build a network from those of a setting."""

import json
import sys

import pytest
import safetensors
import safetensors.torch
import torch
from typer.testing import CliRunner

from heterophony import cli
from heterophony.base.imported import Untrusted
from heterophony.runs import exported

METHOD = """
from torch import nn

from heterophony import Built, Each, Every, Global, Kind, Mark, Method, Own, Round, Weights, on
from heterophony.parts.aggregate import mean
from heterophony.parts.losses import cross_entropy
from heterophony.parts.training import Training

DOWN = Kind("down", to="children", weights=Weights("model"))
UP = Kind("up", to="parent", weights=Weights("model"))


class Sum(nn.Module):
    def __init__(self, common, own):
        super().__init__()
        self.common, self.own = common, own

    def forward(self, x):
        return self.common(x) + self.own(x)


class Summed(Method):
    roles, kinds, headline = ("server", "client"), (DOWN, UP), "personalised"
    models = {
        "server": {"model": Global()},
        "client": {"model": Built(Sum, {"common": Global(), "own": Own()}, travels="common")},
    }

    local: Training = Training(lr=0.05)

    @on(Round, role="server")
    def begin(self, server):
        return DOWN(server.cohort(), weights={f"common.{n}": t for n, t in server.weights().items()})

    @on(Each(DOWN), role="client")
    def train(self, client, mail):
        client.round = mail.round
        client.load(mail.weights)
        yield self.local.fit("model", cross_entropy)
        yield Mark("personalised")
        return UP(weights={n.removeprefix("common."): t for n, t in client.weights().items()})

    @on(Every(UP, of="cohort"), role="server")
    def merge(self, server, mail):
        if mail:
            server.load(mean([m.weights for m in mail]))
        server.round += 1
"""
SETTING = """
rounds = 2
local = { epochs = 1, batch = 16 }
[data]
source = "digits-embedded"
rows = 20
test = 0.1
test_rows = 10
side = 28
clients = 2
[models]
participants = ["mlp", "lenet5"]
global = "mlp"
share = "body"
"""


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "own_summed.py").write_text(METHOD)
    (tmp_path / "small.toml").write_text(SETTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("own_summed", None)
    return tmp_path


def test_it_runs_is_resumed_and_exported(place):
    answer = call("run", "own_summed:Summed", "--on", "small.toml", "--out", "run", "--rounds", 1, "--track", "none")
    assert answer.exit_code == 0, answer.stderr
    assert call("resume", "run", "--rounds", 2, "--trust").exit_code == 0
    nodes = json.loads((place / "run" / "spec.json").read_text())["nodes"]
    who = next(name for name in nodes if name != "server")
    assert call("export", "run", "--node", who, "--to", "model").exit_code == 0
    with pytest.raises(Untrusted, match="network 'own_summed:Sum', which would import and run own_summed"):
        exported.load(place / "model")
    module, about = exported.load(place / "model", trust=True)
    assert about["network"]["name"] == {"make": "own_summed:Sum", "of": {"common": "mlp", "own": "mlp"}}
    assert module(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (
            "= common, own",
            "= common, own.nothing",
            "Built(Sum): the call failed (AttributeError: 'MLP' object has no attri",
        ),
        (
            '"own": Own()',
            '"mine": Own()',
            "Built(Sum): the call failed (TypeError: Sum.__init__() got an unexpected keyword",
        ),
        ('travels="common"', 'travels="commons"', "share names 'commons', but the model has no such part with weights"),
        (
            '{"model": Global()},',
            '{"model": "global"},',
            "Summed.models: server.model = 'global'; it is one of Own(), ",
        ),
    ],
    ids=["raises", "takes other parts", "has no such part", "a word"],
)
def test_a_mistake_in_it_is_one_line(place, before, after, text):
    assert METHOD.count(before) == 1
    (place / "own_wrong.py").write_text(METHOD.replace(before, after))
    sys.modules.pop("own_wrong", None)
    answer = call("run", "own_wrong:Summed", "--on", "small.toml", "--out", "run", "--rounds", 1, "--track", "none")
    assert answer.exit_code == 2
    assert text in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_a_file_whose_network_is_none_is_refused_in_one_line(place):
    call("run", "fedmrl", "--on", "small.toml", "--out", "run", "--rounds", 1, "--track", "none")
    exported.save(place / "run", "server", place / "model")
    with safetensors.safe_open(str(place / "model"), framework="pt") as file:
        about = json.loads(file.metadata()["heterophony"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    for name in ({"make": "os:system"}, ["mlp"], {"make": "heterophony.parts.spliced:Spliced", "of": {"small": 1}}):
        about["network"]["name"] = name
        text = json.dumps({**about, "format": exported.UNSUMMED})
        safetensors.torch.save_file(tensors, place / "model", {"heterophony": text})
        with pytest.raises(ValueError, match="is no model that `heterophony export` wrote"):
            exported.load(place / "model", trust=True)
