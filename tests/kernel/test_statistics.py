"""BatchNorm's running statistics taken anew after a fit: against plain means, in every way of computing."""

import copy

import pytest
import torch
from torch import nn

from heterophony import Data, Federation, Fit
from heterophony.base.seeds import generator, seeded
from heterophony.compute.batched import Batched
from heterophony.compute.eager import Eager, Job, WorkError, fit, predict, refresh
from heterophony.data.augment import CropFlip
from heterophony.engines import local
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.statistics import running
from heterophony.kernel.topology import star
from heterophony.kernel.work import FORWARD_SHARE
from heterophony.methods import FML, FedAvg
from heterophony.models import create
from heterophony.parts.losses import cross_entropy
from heterophony.parts.training import Training
from toys.world import TESTS, certain, net, normed, points, private


def first() -> nn.Module:
    """BatchNorm sees the rows themselves, which training does not change."""
    return nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 4))


def job(build=certain, rows=10, name="n", **work) -> Job:
    with seeded("statistics", name):
        slots = {"model": Slot(build())}
    order = {"epochs": 2, "batch": 4, "optimiser": sgd(0.1), "refresh": True, **work}
    node = Node(name, "client", slots=slots, data={"train": points(f"statistics {name}", rows)})
    return Job(node, Fit("model", cross_entropy, **order), "0")


def done(made: Job) -> nn.Module:
    Eager()([made])
    return made.node.models["model"]


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


# -- what they are ---------------------------------------------------------------------------------------------
def test_of_all_rows_at_once_they_are_the_rows_mean_and_variance() -> None:
    made = job(first, batch=None)
    layer = done(made)[0]
    x = made.node.data["train"].x
    assert torch.allclose(layer.running_mean, x.mean(0), atol=1e-6)
    assert torch.allclose(layer.running_var, x.var(0), atol=1e-6)
    assert layer.num_batches_tracked == 1


def test_of_several_batches_every_row_counts_alike() -> None:
    made = job(first, batch=3, drop_last=True)  # ten rows in three batches of four, three and three
    layer = done(made)[0]
    order = torch.randperm(10, generator=generator(0, "n", "train", "statistics"))
    parts = [made.node.data["train"].x[rows] for rows in (order[:4], order[4:7], order[7:])]
    variance = sum(len(part) * part.var(0) for part in parts) / 10
    assert torch.allclose(layer.running_mean, made.node.data["train"].x.mean(0), atol=1e-6)
    assert torch.allclose(layer.running_var, variance, atol=1e-6)
    assert layer.num_batches_tracked == 3


def test_they_are_those_of_the_trained_weights() -> None:
    made = job(batch=None)
    network = done(made)
    hidden = network[0](made.node.data["train"].x)
    assert torch.allclose(network[1].running_mean, hidden.mean(0), atol=1e-6)
    lagging = done(job(batch=None, refresh=False))
    assert not torch.allclose(lagging[1].running_mean, hidden.mean(0), atol=0.1)


def test_only_the_rows_of_the_fit_count() -> None:
    made = job(first, batch=None, rows=10)
    some = torch.tensor([1, 4, 5, 7])
    made.work = Fit(**{**vars(made.work), "rows": some})
    assert torch.allclose(done(made)[0].running_mean, made.node.data["train"].x[some].mean(0), atol=1e-6)


def test_a_column_in_place_of_the_inputs_counts() -> None:
    other = torch.randn(10, 8, generator=generator("other inputs"))
    assert torch.allclose(done(job(first, batch=None, extra={"x": other}))[0].running_mean, other.mean(0), atol=1e-6)


def test_images_count_as_they_are_and_not_as_training_changes_them() -> None:
    x = torch.randn(12, 3, 8, 8, generator=generator("pictures"))
    data = Data(x=x, y=torch.arange(12) % 4, classes=4).augmented(CropFlip(2))
    made = job(lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 4)), batch=None)
    made.node.data["train"] = data
    assert torch.allclose(done(made)[0].running_mean, x.mean((0, 2, 3)), atol=1e-6)


# -- what they are for -----------------------------------------------------------------------------------------
def test_a_network_that_has_learnt_its_few_images_knows_them_in_evaluation_too() -> None:
    """As FCCL's EfficientNet on 80 digits: a loss of next to nothing, and wrong answers about the same images."""
    with seeded("few images"):
        network = create("wrn-10-1", in_channels=1, size=8, classes=4)
        x, y = torch.randn(16, 1, 8, 8), torch.arange(16) % 4
    node = Node("n", "client", slots={"model": Slot(network)}, data={"train": Data(x=x + 5, y=y, classes=4)})
    work = Fit("model", cross_entropy, epochs=6, batch=None, optimiser=sgd(0.1), refresh=True)

    def right() -> float:
        return float((predict(network, node.data["train"]).argmax(1) == y).float().mean())

    fit(node, work)
    lagging = right()
    refresh(node, work)
    assert right() == 1.0
    assert lagging < 0.8


# -- what they leave alone -------------------------------------------------------------------------------------
def test_weights_orders_and_losses_are_those_of_a_fit_without_it() -> None:
    with_, without = job(), job(refresh=False)
    (a,), (b,) = Eager()([with_]), Eager()([without])
    assert a.losses == b.losses
    assert with_.node.epochs == without.node.epochs
    models = with_.node.models["model"], without.node.models["model"]
    assert all(torch.equal(p, q) for p, q in zip(*(m.parameters() for m in models), strict=True))
    assert not same(*models)


def untracked() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4, track_running_stats=False))


@pytest.mark.parametrize("build", [net(), untracked])
def test_networks_without_running_statistics_are_untouched(build) -> None:
    with_, without = job(build), job(build, refresh=False)
    assert same(done(with_), done(without))
    assert with_.work.samples(with_.node) == without.work.samples(without.node)


def test_without_a_step_statistics_stay() -> None:
    made = job(epochs=0)
    before = copy.deepcopy(made.node.models["model"])
    assert same(done(made), before)
    assert made.work.samples(made.node) == 0


def test_nothing_is_drawn_at_random_and_modes_and_momenta_are_put_back() -> None:
    made = job(normed)
    fit(made.node, made.work)
    network = made.node.models["model"]
    network[3].eval()
    network[1].momentum = 0.3
    state = torch.get_rng_state()
    refresh(made.node, made.work)
    again = copy.deepcopy(network)
    refresh(made.node, made.work)
    assert same(network, again)
    assert torch.equal(torch.get_rng_state(), state)
    assert network[1].momentum == 0.3
    assert [part.training for part in network] == [True, True, True, False, True]


def test_a_failure_says_whose_it_is() -> None:
    made = job()
    made.node.models["model"][1].register_forward_pre_hook(refuse)
    with pytest.raises(WorkError, match="node n, round 0, Fit: ValueError: no more"):
        Eager().refresh(made)


def refuse(module, given):
    raise ValueError("no more")


def test_it_costs_a_forward_pass_of_virtual_time() -> None:
    made = job()
    assert made.work.samples(made.node) == pytest.approx(2 * 10 + FORWARD_SHARE * 10)


# -- every way of computing ------------------------------------------------------------------------------------
@pytest.mark.parametrize("executor", ["branches", "stacked"])
def test_lanes_and_stacks_have_the_statistics_of_one_at_a_time(executor) -> None:
    def jobs() -> list[Job]:
        return [job(certain, 20, f"c{i}") for i in range(3)]

    ones, others = jobs(), jobs()
    for _ in range(2):
        Eager()(ones)
        batched = Batched(executor=executor)
        batched(others)
        assert batched.captured_fits
        assert not batched.alone
    for one, other in zip(ones, others, strict=True):
        a, b = (each.node.slots["model"].tensors() for each in (one, other))
        same = torch.equal if executor == "branches" else (lambda p, q: torch.allclose(p, q, atol=1e-5))
        assert all(same(a[name], b[name]) for name in a)


def test_all_models_of_a_fit_are_refreshed() -> None:
    clients = ["c0", "c1"]
    models = {"server": {"model": certain}, "client": {"model": certain, "meme": certain}}
    method = FML(local=Training(batch=None, refresh=True))
    result = local(Federation(method, star(clients), models, private(clients), TESTS)).run(1)
    x = private(clients)["c0"]["train"].x
    for name in ("model", "meme"):
        state = result.state("c0")["models"][name]
        hidden = x @ state["0.weight"].T + state["0.bias"]
        assert torch.allclose(state["1.running_mean"], hidden.mean(0), atol=1e-5)


def test_every_methods_local_training_can_ask_for_it() -> None:
    assert Training(refresh=True).fit("model", cross_entropy).refresh
    assert not Training().fit("model", cross_entropy).refresh
    clients = ["c0", "c1"]
    models = {"server": {"model": certain}, "client": {"model": certain}}
    digests = set()
    for on in (False, True):
        method = FedAvg(local=Training(batch=16, refresh=on))
        digests.add(local(Federation(method, star(clients), models, private(clients), TESTS)).run(1).digest)
    assert len(digests) == 2


def test_running_names_batchnorm_layers_with_statistics_alone() -> None:
    layers = [nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False), nn.LayerNorm(4)]
    assert running(nn.Sequential(*layers)) == layers[:1]
