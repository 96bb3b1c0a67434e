"""Federations of every task: they learn, every way of computing agrees, and methods that do not serve one say so."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import (
    Classification,
    Data,
    Federation,
    Model,
    MultiLabel,
    Regression,
    Segmentation,
    Sequence,
    star,
    tree,
)
from heterophony.methods.afl import AFL
from heterophony.methods.bhfl import BHFL
from heterophony.methods.ditto import Ditto
from heterophony.methods.fedavg import FedAvg
from heterophony.methods.fedmd import FedMD
from heterophony.methods.fedproto import FedProto
from heterophony.methods.fml import FML
from heterophony.methods.ifca import IFCA
from heterophony.methods.scaffold import Scaffold
from heterophony.parts import Training
from heterophony.tables.metrics import best_round, curve

CLIENTS = ("c0", "c1", "c2")
LOCAL = Training(lr=0.05, batch=8)


class Dense(nn.Module):
    """Gives outputs for each place of a row."""

    def __init__(self, places, outputs):
        super().__init__()
        self.layers = (nn.Conv1d if places == 1 else nn.Conv2d)(1, outputs, 3, padding=1)

    def forward(self, x):
        return self.layers(x)


def network(task):
    if task.kind == "sequence":
        return Dense(1, task.classes)
    if task.kind == "segmentation":
        return Dense(2, task.classes)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, task.outputs))


def rows(task, n, seed):
    """Return rows whose targets follow from x by a rule."""
    draw = torch.Generator().manual_seed(seed)
    if task.kind == "sequence":
        x = torch.randn(n, 1, 6, generator=draw)
        return Data(x=x, y=(x[:, 0] > 0).long(), task=task)
    if task.kind == "segmentation":
        x = torch.randn(n, 1, 6, 6, generator=draw)
        return Data(x=x, y=(x[:, 0] > 0.5).long(), task=task)
    x = torch.randn(n, 5, generator=draw)
    score = x @ torch.tensor([1.0, -1.0, 0.5, 0.0, 2.0])
    if task.kind == "regression":
        return Data(x=x, y=score if task.targets == 1 else torch.stack([score, -score], 1), task=task)
    if task.kind == "multilabel":
        return Data(x=x, y=torch.stack([score > 0, score < 1, x[:, 0] > 0], 1).long()[:, : task.labels], task=task)
    return Data(x=x, y=(score > 0).long(), task=task)


def federation(method, task, **more):
    topology = tree({"root": {"edge": list(CLIENTS)}}) if isinstance(method, BHFL) else star(CLIENTS)
    slots = {slot for own in method.networks().values() for slot in own}
    models = {slot: Model(lambda: network(task), common=True) for slot in slots}
    return Federation(
        method,
        topology,
        dict.fromkeys(method.roles, models),
        {name: {"train": rows(task, 40, place)} for place, name in enumerate(CLIENTS)},
        {f"d{place}": rows(task, 30, 10 + place) for place in range(3)},
        homes={name: f"d{place}" for place, name in enumerate(CLIENTS)},
        **more,
    )


TASKS = [Classification(2), Regression(), Regression(2), MultiLabel(3), MultiLabel(1), Segmentation(2), Sequence(2)]
METHODS = [FedAvg(local=LOCAL), FML(local=LOCAL), Ditto(local=LOCAL), BHFL(local=LOCAL), Scaffold(local=LOCAL)]


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_methods_for_any_task_learn_it(method, task):
    result = federation(method, task).run(6)
    first, last = result.metrics(round=0), result.metrics()
    score = task.scores[0]
    assert score.better(last.acc, first.acc)
    assert set(last.scores) == {score.name for score in task.scores[1:]}
    if score.percent:
        assert 0 <= last.worst <= last.acc <= 1
    else:
        assert last.worst >= last.acc


@pytest.mark.parametrize("method", [AFL(local=LOCAL), IFCA(local=LOCAL, clusters=2)], ids=lambda m: type(m).__name__)
def test_methods_that_look_at_losses_take_the_tasks(method):
    result = federation(method, Regression()).run(2)
    assert all(row["sum"] is not None for row in result.table if row["quantity"] == "absolute")


@pytest.mark.parametrize("task", TASKS[1:], ids=str)
def test_the_executors_agree_on_every_task(task):
    made = federation(FedAvg(local=LOCAL), task)
    eager, batched = made.computed(executor="eager").run(2), made.computed(executor="stacked").run(2)
    for name in CLIENTS:
        for (key, one), (_, other) in zip(weights(eager, name), weights(batched, name), strict=True):
            torch.testing.assert_close(one, other, msg=key)


def weights(result, node):
    return result.state(node)["models"]["model"].items()


@pytest.mark.parametrize("method", [FedMD(), FedProto()], ids=lambda method: type(method).__name__)
def test_a_method_for_classes_refuses_other_tasks_before_anything_runs(method):
    with pytest.raises(
        ValueError, match=f"{type(method).__name__} serves classification, and the test sets are regression"
    ):
        federation(method, Regression())


def test_test_sets_that_no_one_score_judges_are_refused():
    made = federation(FedAvg(), Regression())
    with pytest.raises(ValueError, match="no single score can judge: regression and segmentation"):
        Federation(made.method, made.topology, made.models, made.data, {**made.tests, "x": rows(Segmentation(2), 4, 0)})


def test_validation_chooses_the_round_with_the_least_error():
    made = federation(FedAvg(local=LOCAL), Regression())
    tests = {name: {"test": data, "validation": data} for name, data in made.tests.items()}
    result = replace(made, tests=tests).run(4)
    found = best_round(result.table, result.homes, "global")
    points = curve(result.table, result.homes, "global", split="validation")
    assert found == min(points, key=lambda at: at["acc"])["round"]
