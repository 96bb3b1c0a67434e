"""Whole rounds beside the authors' own code: equal weights, full batches, and the weights that their steps came to.

Where no authors' code is public, whole rounds are computed again by plain loops that follow the paper's algorithm.

`parity.json` holds the toy's rule, for each method the file whose steps were taken, and their weights. The steps ran in
double precision; ours have single.
"""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heterophony import Data, Federation
from heterophony.engines import local
from heterophony.kernel.topology import star
from heterophony.methods import FCCL, FML, QFFL, Ditto, FedDF, FedNova, Moon, PerFedAvg, PFedMe, fedmd_global
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


# -- by plain loops --------------------------------------------------------------------------------------------------
PUBLIC = 3  # the toy's rows of a fourth client are public


def taught(method, rounds, models):
    """Run a method that learns from public rows on the toy."""
    data = {client: {"train": rows(k), "public": rows(PUBLIC)} for k, client in enumerate(CLIENTS)}
    data["server"] = {"public": rows(PUBLIC)}
    return local(Federation(method, star(CLIENTS), models, data)).run(rounds)


def stepped(module, losses, count, optimiser=None):
    """Take so many steps on a loss, by plain PyTorch."""
    steps = optimiser or torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(count):
        steps.zero_grad()
        losses(module).backward()
        steps.step()


def near(result, node, module, slot="model"):
    found = result.state(node)["models"][slot]
    return all(torch.allclose(found[name], p, rtol=1e-4, atol=2e-6) for name, p in module.state_dict().items())


def test_whole_rounds_of_fedmd_global_with_lwof_by_plain_loops():
    """Algorithm 1 of FedMD+Global, Eq. 1 to 4: average the logits, learn them (L1, mean), then the labels and what the
    network said before (temperature 2)."""
    method = fedmd_global(distil=whole(0.1, 2), local=whole(0.1, 2), lwof=0.7)
    slots = {"server": {"model": network}, "client": {"model": network}}
    result = taught(method, 2, slots)
    nets, server, public = [network() for _ in CLIENTS], network(), rows(PUBLIC).x
    for _ in range(2):
        with torch.no_grad():
            agreed = torch.stack([net(public) for net in nets]).mean(0)
        for net in [*nets, server]:
            stepped(net, lambda m, agreed=agreed: (m(public) - agreed).abs().mean(), 2)
        for k, net in enumerate(nets):
            own = rows(k)
            with torch.no_grad():
                kept = (net(own.x) / 2).softmax(1)

            def loss(m, own=own, kept=kept):
                logits = m(own.x)
                old = -(kept * (logits / 2).log_softmax(1)).sum(1).mean()
                return F.cross_entropy(logits, own.y) + 0.7 * old

            stepped(net, loss, 2)
    assert near(result, "server", server)
    assert all(near(result, client, net) for client, net in zip(CLIENTS, nets, strict=True))


def test_whole_rounds_of_fccl_by_plain_loops():
    """Algorithm 1 of FCCL, Eq. 1 to 7: the correlation of each two outputs, by Python loops; then the labels, the model
    before the round and the one that was pretrained."""
    method = FCCL(collaborate=whole(0.1, 2), local=whole(0.1, 2), lambda_col=0.2, lambda_loc=0.5)
    result = taught(method, 2, {"client": dict.fromkeys(("model", "previous", "pretrained"), network)})
    nets, public = [network() for _ in CLIENTS], rows(PUBLIC).x
    pretrained = copy.deepcopy(nets)
    for _ in range(2):
        previous = copy.deepcopy(nets)
        with torch.no_grad():
            zbar = torch.stack([net(public) for net in nets]).mean(0)

        def correlation(m, zbar=zbar):
            z, total = m(public), 0.0
            for u in range(3):
                for v in range(3):
                    a, b = z[:, u] - z[:, u].mean(), zbar[:, v] - zbar[:, v].mean()
                    c = (a * b).sum() / (a.square().sum() * b.square().sum()).sqrt()
                    total = total + ((1 - c) ** 2 if u == v else 0.2 * (1 + c) ** 2)
            return total

        for k, net in enumerate(nets):
            stepped(net, correlation, 2)
            own = rows(k)
            with torch.no_grad():
                older = [m[k](own.x).log_softmax(1) for m in (previous, pretrained)]

            def loss(m, own=own, older=older):
                said = m(own.x).log_softmax(1)
                kl = sum((old.exp() * (old - said)).sum(1).mean() for old in older)
                return F.nll_loss(said, own.y) + 0.5 * kl

            stepped(net, loss, 2)
    assert all(near(result, client, net) for client, net in zip(CLIENTS, nets, strict=True))


def test_whole_rounds_of_feddf_by_plain_loops():
    """Algorithm 1 of FedDF: the mean by examples learns the mean of the clients' logits, by KL."""
    slots = {"server": {"net": network}, "client": {"model": network}}
    result = taught(FedDF(distil=whole(0.1, 2), local=whole(0.1, 2)), 2, slots)
    common, public = network(), rows(PUBLIC).x
    for _ in range(2):
        nets = [copy.deepcopy(common) for _ in CLIENTS]
        for k, net in enumerate(nets):
            own = rows(k)
            stepped(net, lambda m, own=own: F.cross_entropy(m(own.x), own.y), 2)
        counts = [len(rows(k).y) for k in range(3)]
        with torch.no_grad():
            teacher = torch.stack([net(public) for net in nets]).mean(0).log_softmax(1)
            for name, p in common.named_parameters():
                p.copy_(sum(n * dict(net.named_parameters())[name] for n, net in zip(counts, nets, strict=True)))
                p.div_(sum(counts))

        def imitate(m, teacher=teacher):
            return (teacher.exp() * (teacher - m(public).log_softmax(1))).sum(1).mean()

        stepped(common, imitate, 2)
    assert near(result, "server", common, "net")
    assert near(result, "c0", common)
