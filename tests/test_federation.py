"""A federation from Python: what it refuses, and what its folder and its result say."""

import pytest
import torch

from heterophony import Federation, show
from heterophony.methods import FedAvg, Solo
from heterophony.parts.losses import cross_entropy
from heterophony.parts.training import Training
from heterophony.record.run import RunError
from heterophony.topology import complete, star
from heterophony.work import Fit
from toys.world import TESTS, net, points

CLIENTS = ["c0", "c1"]


def federation(width=12, **options):
    models = {role: {"model": net(width)} for role in ("server", "client")}
    data = {c: {"train": points(c)} for c in CLIENTS}
    return Federation(FedAvg(local=Training(batch=16)), star(CLIENTS), models, data, TESTS, **options)


def test_a_folder_says_that_its_run_is_finished(tmp_path):
    result = federation().run(2, tmp_path / "run")
    found = show.load(tmp_path / "run")
    assert found["finished"]
    assert found["digest"] == result.digest
    assert "None" not in show.table(found).title
    longer = federation().resume(tmp_path / "run", 3)
    assert show.load(tmp_path / "run")["digest"] == longer.digest
    with pytest.raises(RunError, match="a run of 3 rounds"):
        federation().resume(tmp_path / "run", 2)


def test_another_network_is_named(tmp_path):
    federation().run(1, tmp_path / "run")
    other = federation()
    other = Federation(
        other.method, other.topology,
        {role: {"model": lambda: torch.nn.Sequential(torch.nn.Linear(8, 4))} for role in ("server", "client")},
        other.data, TESTS,
    )  # fmt: skip
    with pytest.raises(ValueError, match="not the network that was saved"):
        other.resume(tmp_path / "run", 2)


@pytest.mark.parametrize("rounds", [0, -1, 2.5])
def test_a_number_of_rounds(rounds):
    with pytest.raises(ValueError, match="whole number of rounds"):
        federation().run(rounds)


@pytest.mark.parametrize("wrong", [{"batch": -3}, {"batch": 0}, {"epochs": -1}, {"steps": -1}])
def test_a_fit_out_of_range(wrong):
    with pytest.raises(ValueError, match="a fit needs"):
        Fit("model", cross_entropy, **wrong)


def test_without_homes_accuracy_is_over_all_sets():
    result = federation().run(2)
    rows = [row for row in result.table if (row["product"], row["quantity"], row["round"]) == ("global", "accuracy", 1)]
    assert result.metrics().acc == sum(row["sum"] for row in rows) / sum(row["n"] for row in rows)
    assert result.metrics().cdp is None
    solo = Federation(
        Solo(), complete(CLIENTS), {"peer": {"model": net()}}, {c: {"train": points(c)} for c in CLIENTS}, TESTS
    ).run(1)
    assert solo.metrics().participants.keys() == set(CLIENTS)


def test_a_product_that_there_is_not():
    with pytest.raises(ValueError, match="no product 'globul'; there are global"):
        federation().run(1).metrics("globul")
