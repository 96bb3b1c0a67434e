"""FedNova and other methods that are FedAvg with another mean: limits, and numbers that can be checked by hand."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from heterophony import Data, Federation, Regression
from heterophony.engines import local
from heterophony.kernel.topology import star
from heterophony.methods import QFFL, TERM, DataSharing, FedAvg, FedCS, FedCurv, FedNova
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from toys.by_hand import equal, scalar_net, server, squared
from toys.federations import B16, shared_star, weights_star
from toys.world import PUBLIC, normed

STEP = Training(batch=None, lr=0.5)
QUARTER = Training(batch=None, lr=0.25)
PLAIN = Cohort(weighted=False)


def numbers(method, ys, rounds=1, **more):
    """Return the server's number; client k holds one (x = 1, y = y_k), so a step at 0.5 halves the way to y_k.

    With `task=Regression()` the loss is (w - y_k)^2, without the half, and it is a step at 0.25 that does so.
    """
    data = {
        f"c{i}": {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), float(y)), **more)} for i, y in enumerate(ys)
    }
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


# -- q-FFL and TERM --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", [QFFL(q=0.0, local=B16), TERM(tilt=0.0, local=B16), FedCurv(pull=0.0, local=B16)])
def test_without_its_term_a_method_is_fedavg(method):
    assert equal(server(local(weights_star(method)).run(3)), server(local(weights_star(FedAvg(local=B16))).run(3)))


def test_golden_q_ffl_on_one_number():
    """Targets 4 and 8 from 0: losses 16 and 64, models 2 and 4, L = 4, so dw is -8 and -16. With q = 1, the h are
    64 + 4 * 16 = 128 and 256 + 4 * 64 = 512. The server goes (16 * 8 + 64 * 16) / (128 + 512) = 1.8.
    With q = 2: F^2 = 256 and 4096, h = 2 * 16 * 64 + 4 * 256 = 3072 and 2 * 64 * 256 + 4 * 4096 = 49152.
    """
    for q, expected in ((1.0, 1.8), (2.0, (256 * 8 + 4096 * 16) / (3072 + 49152))):
        assert numbers(QFFL(q=q, local=QUARTER), [4, 8], task=Regression()) == pytest.approx(expected, rel=1e-6)


def test_a_high_q_counts_only_the_worst_client_and_overflows_nowhere():
    """It is a step towards the second client alone: F dw over q |dw|^2 + L F."""
    found = numbers(QFFL(q=1e4, local=QUARTER), [4, 8], task=Regression())
    assert found == pytest.approx(64 * 16 / (1e4 * 256 + 4 * 64), rel=1e-6)


def test_golden_term_on_one_number():
    """Losses are 16 and 64. With t = log(2) / 48 the second counts twice: (2 + 2 * 4) / 3. Far tilts take one alone."""
    for tilt, expected in ((math.log(2) / 48, 10 / 3), (1e6, 4.0), (-1e6, 2.0)):
        found = numbers(TERM(tilt=tilt, local=QUARTER), [4, 8], task=Regression())
        assert found == pytest.approx(expected, rel=1e-6)


# -- FedCurv ---------------------------------------------------------------------------------------------------
def test_golden_fedcurv_on_one_number():
    """The first round is FedAvg's: 2 and 4, so 3. Gradients there are -2 and -4, the Fisher information 4 and 16.
    With lambda = 1/16 the first then steps by (3 - 4) + 2/16 * 16 * (3 - 4) = -3, to 4.5, the second by
    (3 - 8) + 2/16 * 4 * (3 - 2) = -4.5, to 5.25.
    """
    assert numbers(FedCurv(pull=1 / 16, local=STEP, loss=squared), [4, 8], rounds=1) == 3.0
    assert numbers(FedCurv(pull=1 / 16, local=STEP, loss=squared), [4, 8], rounds=2) == 4.875


def test_fedcurvs_pull_is_never_stiffer_than_its_limit():
    """A stiffness of 32 is lowered to 10: the first steps by -1 + 10 * (3 - 4) = -11, the second by -5 + 8."""
    assert numbers(FedCurv(pull=1.0, local=STEP, loss=squared), [4, 8], rounds=2) == (8.5 + 1.5) / 2


def test_looking_for_fisher_information_changes_neither_statistics_nor_orders():
    still = nodropout()
    curved = local(weights_star(FedCurv(pull=0.0, local=B16), still)).run(3)
    plain = local(weights_star(FedAvg(local=B16), still)).run(3)
    for node in ("server", "c0"):
        assert equal(server(curved, node), server(plain, node))


def nodropout():
    """Return a network with BatchNorm whose dropout drops nothing."""

    def build():
        module = normed()
        module[3].p = 0.0
        return module

    return build


# -- data sharing ----------------------------------------------------------------------------------------------
def test_sharing_all_public_rows_is_fedavg_on_all_rows():
    found = local(shared_star(DataSharing(portion=1.0, warm=0, local=B16))).run(2)
    plain = local(shared_star(FedAvg(local=replace(B16, data="all")))).run(2)
    assert equal(server(found), server(plain))


def test_sharing_nothing_is_fedavg():
    whole = Training(batch=None)
    found = server(local(shared_star(DataSharing(portion=0.0, warm=0, local=whole))).run(2))
    plain = server(local(shared_star(FedAvg(local=whole))).run(2))
    assert all(torch.allclose(found[n], t, atol=1e-6) for n, t in plain.items())


def test_a_client_keeps_its_portion_and_the_server_begins_with_the_public_rows():
    """Clients take no step here; the server takes two with all public rows."""
    federation = shared_star(DataSharing(portion=0.25, warm=2, local=Training(batch=None, epochs=0)))
    found, module = local(federation).run(3), federation.node("server").models["model"]
    for _ in range(2):
        module.zero_grad()
        F.cross_entropy(module(PUBLIC.x), PUBLIC.y).backward()
        torch.optim.SGD(module.parameters(), 0.1).step()
    assert all(torch.allclose(server(found)[n], t, atol=1e-6) for n, t in module.state_dict().items())
    given = [found.state(c)["vars"]["given"].tolist() for c in ("c0", "c1", "c2")]
    assert [len(set(rows)) for rows in given] == [8, 8, 8]
    assert given[0] != given[1]


# -- FedCS -----------------------------------------------------------------------------------------------------
def test_fedcs_without_a_budget_is_fedavg():
    found, plain = local(weights_star(FedCS(local=B16))).run(3), local(weights_star(FedAvg(local=B16))).run(3)
    assert equal(server(found), server(plain))


def test_golden_selection_of_fedcs():
    """Alone, a is done at 1 + 2 = 3, b at 2 + 2 = 4, c at 0 + 6 = 6, d at 5 + 1 = 6. So a comes first. Then b could
    be done at 3 + 2 = 5, c at 9, d at 5 + 1 = 6: b. Then c at 11, d at 6: d. Last c, at 12.
    """
    told = {"c": (0.0, 6.0), "a": (1.0, 2.0), "d": (5.0, 1.0), "b": (2.0, 2.0)}
    for budget, expected in ((2.9, ""), (3, "a"), (5, "ab"), (6, "adb"), (11.9, "adb"), (12, "cadb"), (None, "cadb")):
        assert FedCS(budget=budget).selected(told) == tuple(expected)


def test_only_those_whom_fedcs_chooses_are_sent_the_model():
    """c0 says 40 ms and 80 ms, c1 96 + 300, c2 112 + 80: c0 is done at 120, c2 at 200. A tenth of a second is too
    little for anyone: rounds are skipped, and the model stays as it is."""
    told = {"seconds": {"c0": 1e-3, "*": 2e-3}, "upload": {"c1": 0.3, "*": 0.08}}
    found = local(weights_star(FedCS(local=B16, budget=0.2, **told))).run(2)
    assert {m["to"] for m in found.ledger.messages if m["kind"] == "global"} == {"c0", "c2"}
    hurried = weights_star(FedCS(local=B16, budget=0.1, **told))
    assert equal(server(local(hurried).run(2)), hurried.node("server").weights())
