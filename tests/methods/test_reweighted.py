"""FedNova and other methods that are FedAvg with another mean: limits, and numbers that can be checked by hand."""

from dataclasses import replace

import pytest
import torch

from heterophony import Data, Federation
from heterophony.engines import local
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, FedNova
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from toys.by_hand import scalar_net, server, squared
from toys.federations import weights_star

STEP = Training(batch=None, lr=0.5)
PLAIN = Cohort(weighted=False)


def numbers(method, ys, rounds=1):
    """Return the server's number; client k holds one (x = 1, y = y_k), so a step at 0.5 halves the way to y_k."""
    data = {f"c{i}": {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), float(y)))} for i, y in enumerate(ys)}
    models = {role: {"model": scalar_net} for role in ("server", "client")}
    return server(local(Federation(method, star(list(data)), models, data)).run(rounds))["weight"].item()


# -- FedNova ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_fednova_with_equal_steps_is_fedavg(momentum):
    same = Training(batch=16, steps=3, momentum=momentum)
    plain = local(weights_star(FedAvg(local=same))).run(3)
    assert local(weights_star(FedNova(local=same))).run(3).digest == plain.digest
    unequal = Training(batch=16, momentum=momentum)  # 3, 3 and 4 steps
    plain = local(weights_star(FedAvg(local=unequal))).run(3)
    assert local(weights_star(FedNova(local=unequal))).run(3).digest != plain.digest


def test_golden_fednova_on_one_number():
    """Targets 4 and 8; the second client takes two steps. From 0 they come to 2 and 6; per step that is 2 and 3.
    The mean, 2.5, times the mean number of steps, 1.5, is 3.75. FedAvg would have 4.
    With momentum 0.5 the second goes 4, then 4 + (2 + 0.5 * 4) = 8. Its |a| is 1 + 1.5 = 2.5, so that per unit it is
    3.2: (2 + 3.2) / 2 * (1 + 2.5) / 2 = 4.55.
    """
    twice = replace(STEP, epochs={"c1": 2, "*": 1})
    assert numbers(FedAvg(local=twice, loss=squared), [4, 8]) == 4.0
    assert numbers(FedNova(local=twice, loss=squared), [4, 8]) == pytest.approx(3.75, rel=1e-6)
    found = numbers(FedNova(local=replace(twice, momentum=0.5), loss=squared), [4, 8])
    assert found == pytest.approx(4.55, rel=1e-6)


def test_fednova_refuses_what_is_no_sum_of_gradients():
    for how in (Training(optimiser="adam"), Training(clip=1.0)):
        with pytest.raises(ValueError, match=r"local\.optimiser=sgd"):
            FedNova(local=how)
