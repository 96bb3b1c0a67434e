"""Limit cases and golden toys: numbers that can be checked by hand."""

import torch
import torch.nn.functional as F

from heterophony import Data, Federation
from heterophony.base.seeds import generator
from heterophony.engines import local
from heterophony.kernel.topology import star
from heterophony.methods import FML, FedAvg, fedprox
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from toys.by_hand import equal, scalar_net, server, squared
from toys.federations import B16, mutual_star, weights_star
from toys.world import net, private


def test_fedprox_with_mu_zero_is_fedavg():
    plain = local(weights_star(FedAvg(local=B16))).run(3)
    assert local(weights_star(fedprox(mu=0.0, local=B16))).run(3).digest == plain.digest
    assert local(weights_star(fedprox(mu=0.5, local=B16))).run(3).digest != plain.digest


def test_fedavg_with_one_client_is_plain_sgd():
    models = {role: {"model": net()} for role in ("server", "client")}
    federation = Federation(FedAvg(local=B16), star(["c0"]), models, private(["c0"]))
    result = local(federation).run(3)
    module, data = net()(), federation.data["c0"]["train"]
    module.load_state_dict(federation.node("server").models["model"].state_dict())
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    for epoch in range(3):
        order = torch.randperm(len(data), generator=generator(0, "c0", "train", epoch))
        for rows in order.split(16):
            optimiser.zero_grad()
            F.cross_entropy(module(data.x[rows]), data.y[rows]).backward()
            optimiser.step()
    assert equal(server(result), dict(module.state_dict()))


def test_fml_with_beta_one_is_unweighted_fedavg():
    """With beta = 1 the meme never hears the private model; only the names of the models differ."""
    fml = mutual_star()
    fml = Federation(FML(beta=1.0, local=Training(batch=16, momentum=0.9)), fml.topology, fml.models, fml.data)
    avg = weights_star(FedAvg(local=Training(batch=16, momentum=0.9), cohort=Cohort(weighted=False)))
    assert equal(server(local(fml).run(3)), server(local(avg).run(3)))


def test_golden_fedavg_on_one_number():
    """Client k holds n_k copies of (x = 1, y = y_k); the loss is (w - y_k)^2 / 2, so one full-batch step at rate 0.5
    gives w_k = w / 2 + y_k / 2. With (n, y) = (1, 0), (3, 8), weighted: w <- w/2 + (0 * 1 + 8 * 3) / 4 / 2 = w/2 + 3.
    From w = 0: 3, 4.5, 5.25. Unweighted: w <- w/2 + 2: 2, 3, 3.5.
    """
    data = {
        "c0": {"train": Data(x=torch.ones(1, 1), y=torch.zeros(1, 1))},
        "c1": {"train": Data(x=torch.ones(3, 1), y=torch.full((3, 1), 8.0))},
    }
    models = {role: {"model": scalar_net} for role in ("server", "client")}
    for weighted, expected in ((True, [3.0, 4.5, 5.25]), (False, [2.0, 3.0, 3.5])):
        method = FedAvg(local=Training(batch=None, lr=0.5), loss=squared, cohort=Cohort(weighted=weighted))
        for rounds, w in enumerate(expected, start=1):
            result = local(Federation(method, star(["c0", "c1"]), models, data)).run(rounds)
            assert server(result)["weight"].item() == w


def test_golden_fedprox_on_one_number():
    """As above with two epochs and mu = 1, unweighted, rate 0.5: the pull is w - w_global.
    First step as FedAvg's: w_k = w/2 + y_k/2. Second: w_k - (w_k - y_k)/2 - (w_k - w)/2 = y_k/2 + w/2.
    So from 0: mean of (0, 4) = 2; FedAvg alone would have gone to (0 + 6) / 2 = 3.
    """
    data = {
        "c0": {"train": Data(x=torch.ones(1, 1), y=torch.zeros(1, 1))},
        "c1": {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), 8.0))},
    }
    models = {role: {"model": scalar_net} for role in ("server", "client")}
    options = {"local": Training(batch=None, lr=0.5, epochs=2), "loss": squared}
    for method, expected in ((fedprox(mu=1.0, **options), 2.0), (FedAvg(**options), 3.0)):
        result = local(Federation(method, star(["c0", "c1"]), models, data)).run(1)
        assert server(result)["weight"].item() == expected


def test_the_world_is_learnable():
    """The toys learn something: a check that the checks above are not about noise."""
    federation = weights_star(FedAvg(local=Training(batch=16, lr=0.5)))
    accuracy = local(federation).run(30).table.select(product="global", set="here", quantity="accuracy")
    assert accuracy.last().mean() > 0.8
    assert accuracy.rows[0]["sum"] / accuracy.rows[0]["n"] < 0.8
