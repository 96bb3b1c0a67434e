"""What both ends have agreed upon: the method and its options, who takes part, networks and data."""

import json

import torch
from torch import nn

from heterophony import Data
from heterophony.deploy.plan import Plan


def plan(config):
    """Return the plan of a federation, from what `flwr run` was told (`[tool.flwr.app.config]`)."""
    clients = [f"client{number}" for number in range(int(config["clients"]))]
    common = {"call": "heterophony_flower.task:network"}
    about = {"id": "heterophony-in-flower", "method": config["method"], "rounds": config["rounds"], "seed": 0}
    about |= {"address": "127.0.0.1:8000", "participants": clients, "networks": {"common": common}}
    about |= {"tests": {"call": "heterophony_flower.task:tests"}, "options": json.loads(config.get("options", "{}"))}
    return Plan.model_validate(about)


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def rows(name, count=60):
    """Return the rows of a client. Here they are made up: load your own, which only this node can see."""
    draw = torch.Generator().manual_seed(sum(map(ord, name)))
    x = torch.randn(count, 8, generator=draw)
    rule = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    return Data(x=x, y=(x @ rule).argmax(1), classes=3)


def tests():
    return {"points": rows("test", 200)}
