"""A federation from Python: what it refuses, and what its folder and its result say."""

from dataclasses import replace

import pytest
import torch

from heterophony import Dropout, Federation
from heterophony.kernel.topology import complete, star, tree
from heterophony.kernel.work import Fit
from heterophony.methods import BHFL, FedAsync, FedAvg, FedBuff, Solo
from heterophony.parts.cohort import Cohort
from heterophony.parts.losses import cross_entropy
from heterophony.parts.training import Training
from heterophony.runs import show
from heterophony.runs.run import RunError
from heterophony.runs.summary import Summary
from toys.world import TESTS, net, points

CLIENTS = ["c0", "c1"]


def federation(width=12, **options):
    models = {role: {"model": net(width)} for role in ("server", "client")}
    data = {c: {"train": points(c)} for c in CLIENTS}
    return Federation(FedAvg(local=Training(batch=16)), star(CLIENTS), models, data, TESTS, **options)


def test_a_folder_says_that_its_run_is_finished(tmp_path):
    result = federation().run(2, tmp_path / "run")
    found = Summary.load(tmp_path / "run")
    assert found.finished
    assert found.digest == result.digest
    assert "None" not in show.table(found).title
    longer = federation().resume(tmp_path / "run", 3)
    assert Summary.load(tmp_path / "run").digest == longer.digest
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


def test_a_quorum_that_cannot_be_met_is_refused():
    method = FedAvg(local=Training(batch=16), cohort=Cohort(quorum=3))
    models = {role: {"model": net(12)} for role in ("server", "client")}
    data = {c: {"train": points(c)} for c in CLIENTS}
    with pytest.raises(ValueError, match="quorum is 3, but server can hear from 2"):
        Federation(method, star(CLIENTS), models, data, TESTS)


@pytest.mark.parametrize(("fraction", "quorum", "asked"), [(0.5, 3, 2), (0.1, 2, 1), (0.9, 4, 4)])
def test_a_quorum_is_of_the_cohort_that_is_drawn(fraction, quorum, asked):
    clients = [f"c{i}" for i in range(4)]
    method = FedAvg(local=Training(batch=16), cohort=Cohort(fraction=fraction, quorum=quorum))
    models = {role: {"model": net(12)} for role in ("server", "client")}
    data = {c: {"train": points("c0")} for c in clients}
    if quorum <= asked:
        assert not Federation(method, star(clients), models, data, TESTS).run(1).ledger.incidents
        return
    with pytest.raises(ValueError, match=f"quorum is {quorum}, but server can hear from {asked}"):
        Federation(method, star(clients), models, data, TESTS)


def test_a_trees_quorum_is_of_the_cohort_of_its_level():
    shape = tree({"root": {"e0": ["l0", "l1"], "e1": ["l2", "l3"]}})
    models = {role: {"model": net(12)} for role in ("root", "inner", "leaf")}
    data = {leaf: {"train": points("c0")} for leaf in ("l0", "l1", "l2", "l3")}
    method = BHFL(local=Training(batch=16), far=False, cohort=Cohort(fraction={"1": 0.5, "*": 1.0}, quorum=2))
    with pytest.raises(ValueError, match="quorum is 2, but e0 can hear from 1"):
        Federation(method, shape, models, data, TESTS)
    fitting = replace(method.cohort, quorum={"inner": 1, "*": 2})
    Federation(replace(method, cohort=fitting), shape, models, data, TESTS)


@pytest.mark.parametrize("method", [FedAsync(), FedBuff(buffer=1), BHFL(buffer=1)])
@pytest.mark.parametrize("dropout", [Dropout(rate=0.4), Dropout(always=("a",))])
def test_dropouts_of_an_asynchronous_method_are_refused(method, dropout):
    shape = tree({"root": ["a", "b"]}) if isinstance(method, BHFL) else star(["a", "b"])
    models = {role: {"model": net(12)} for role in set(shape.roles.values())}
    data = {c: {"train": points("c0")} for c in ("a", "b")}
    with pytest.raises(ValueError, match=f"dropout: {type(method).__name__} is asynchronous"):
        Federation(method, shape, models, data, TESTS, dropout=dropout)
    Federation(method, shape, models, data, TESTS)


def test_dropouts_of_a_tree_that_waits_are_none_of_that():
    models = {role: {"model": net(12)} for role in ("root", "leaf")}
    data = {c: {"train": points("c0")} for c in ("a", "b")}
    waits = Federation(BHFL(), tree({"root": ["a", "b"]}), models, data, TESTS, dropout=Dropout(rate=0.4))
    assert waits.run(4).rounds == 4


def test_skipped_merges_and_divergence_are_said_and_a_join_is_no_trouble(tmp_path):
    skipped = federation(dropout=Dropout(1.0)).run(2, tmp_path / "skipped")
    assert {row["incident"] for row in skipped.ledger.incidents} == {"skipped"}
    text = " ".join(show.lines(Summary.load(tmp_path / "skipped")))
    assert "2 incidents, among them 2 skipped merges (too few answers): see `heterophony ledger`" in text
    federation(joins={"c1": 0.01}).run(2, tmp_path / "joined")
    assert "; 0 incidents" in " ".join(show.lines(Summary.load(tmp_path / "joined")))
    wild = Training(batch=16, lr=1e30)
    data = {c: {"train": points(c)} for c in CLIENTS}
    Federation(Solo(local=wild), complete(CLIENTS), {"peer": {"model": net()}}, data, TESTS).run(2, tmp_path / "wild")
    text = " ".join(show.lines(Summary.load(tmp_path / "wild")))
    assert "DIVERGED: the outputs of c0, c1 are no numbers any more" in text
