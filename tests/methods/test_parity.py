"""Whole rounds beside the authors' own code: equal weights, full batches, and the weights that their steps came to.

`parity.json` holds the toy's rule, for each method the file whose steps were taken, and their weights. The steps ran in
double precision; ours have single.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from heterophony import Data, Federation
from heterophony.engines import local
from heterophony.kernel.topology import star
from heterophony.methods import FML, QFFL, Ditto, FedNova, Moon, PerFedAvg, PFedMe
from heterophony.models.blocks import Halves
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training

KNOWN = json.loads((Path(__file__).parent / "parity.json").read_text())["methods"]
CLIENTS = ["c0", "c1", "c2"]
PLAIN = Cohort(weighted=False)


def network():
    module = Halves(nn.Sequential(nn.Linear(4, 5), nn.Tanh()), 5, 3)
    place = 0
    for parameter in module.parameters():
        count = parameter.numel()
        values = [math.cos(1 + place + i) / 2 for i in range(count)]
        parameter.data = torch.tensor(values).view_as(parameter)
        place += count
    return module


def rows(k):
    count = range(6 + 2 * k)
    x = torch.tensor([[math.sin(1 + 3 * i + 7 * j + 11 * k) for j in range(4)] for i in count])
    return Data(x=x, y=torch.tensor([(i * i + k) % 3 for i in count]), classes=3)


def whole(lr, epochs, **more):
    return Training(batch=None, lr=lr, epochs=epochs, **more)


# The authors' FML has KL + CE, which is twice our half of each: at half the rate, with twice the decay.
MUTUAL = whole(0.1, 2, momentum=0.9, weight_decay=2.5e-4)
METHODS = {
    "fednova": (FedNova(local=whole(0.1, {"c0": 1, "c1": 2, "c2": 3}, momentum=0.5)), 1),
    "pfedme": (PFedMe(pull=2.0, rate=0.05, inner=3, local=whole(0.1, 2, weight_decay=0.001)), 1),
    "per-fedavg": (PerFedAvg(alpha=0.1, local=whole(0.2, 2)), 1),
    "q-ffl": (QFFL(q=2.0, cohort=PLAIN, local=whole(0.1, 2)), 1),
    "ditto": (Ditto(pull=0.5, cohort=PLAIN, local=whole(0.1, 2)), 2),
    "fml": (FML(local=MUTUAL), 2),
    "moon": (Moon(mu=2.0, tau=0.5, local=whole(0.1, 2)), 2),
}


@pytest.mark.parametrize("name", METHODS)
def test_whole_rounds_equal_the_authors_code(name):
    method, rounds = METHODS[name]
    models = {role: dict.fromkeys(slots, network) for role, slots in method.networks().items()}
    data = {client: {"train": rows(k)} for k, client in enumerate(CLIENTS)}
    result = local(Federation(method, star(CLIENTS), models, data)).run(rounds)
    for node, weights in KNOWN[name]["nodes"].items():
        found = result.state(node)["models"]["model"]
        for tensor, values in weights.items():
            expected = torch.tensor(values)
            assert torch.allclose(found[tensor], expected, rtol=1e-4, atol=2e-6), (node, tensor)


def test_each_frozen_round_is_compared():
    assert set(METHODS) == set(KNOWN)
