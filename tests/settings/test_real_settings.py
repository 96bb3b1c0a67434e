"""The shipped settings on real data, made small."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heterophony.data import LeakageError, load
from heterophony.data.augment import CropFlip
from heterophony.settings import Setting, assemble
from heterophony.settings.building import build
from toys.bytes import formula


def small(name, rows=None, **changes):
    """A setting with few rows and a quick network; `rows` for those that name one set."""
    setting = Setting.load(name).changed({"data.test_rows": 200, "models.participants": "mlp", **changes})
    if rows is None:
        return setting
    source = setting.data.source
    return setting.changed({"data.source": None, "data.domains": {source: {"source": source, "rows": rows}}})


def one_round(setting):
    federation = assemble("solo", setting, changes={"epochs": 1})
    result = federation.run(1)
    participants = set(federation.homes)
    tested = {
        (row["node"], row["set"]) for row in result.table if (row["quantity"], row["split"]) == ("accuracy", "test")
    }
    assert tested == {(node, domain) for node in participants for domain in federation.tests}
    assert all(row["sum"] is not None for row in result.table)
    return federation, result


# -- mnist-shards ----------------------------------------------------------------------------------------------
def test_mnist_shards_have_no_class_on_two_clients(need):
    need("mnist")
    made = build(Setting.load("mnist-shards").data, 0)
    assert list(made.homes) == [f"c{i}" for i in range(5)]
    held = [set(made.views[name]["train"]().y.unique().tolist()) for name in made.homes]
    assert [len(own) for own in held] == [2] * 5
    assert set.union(*held) == set(range(10))
    for name, own in zip(made.homes, held, strict=True):
        assert set(made.private_tests[name].y.tolist()) == own
    assert sum(len(data) for data in made.private_tests.values()) == 10_000
    assert made.coverage.images == {"train": 60_000, "test": 10_000, "private-test": 10_000}
    assert made.coverage.overlaps == ()
    assert (made.told, made.outputs) == ({"in_channels": 1, "size": 28}, 10)


def test_mnist_shards_run(need):
    need("mnist")
    federation, result = one_round(small("mnist-shards", rows=3000))
    private = {
        (r["node"], r["set"]) for r in result.table if (r["quantity"], r["split"]) == ("accuracy", "private-test")
    }
    assert private == {(node, node) for node in federation.homes}
    metrics = result.metrics()
    assert metrics.private > 2 * metrics.acc  # two classes each


# -- FML on CIFAR ----------------------------------------------------------------------------------------------
def one_round_of_fml(setting):
    federation = assemble("fml", setting, changes={"epochs": 1})
    result = federation.run(1)
    assert all(row["sum"] is not None for row in result.table)
    assert result.ledger.bytes() == formula(federation, 1)
    assert all(federation.node(name).data["train"].augment == CropFlip() for name in federation.homes)
    return federation, result


def test_fml_with_different_tasks_runs(need):
    need("cifar10", "cifar100")
    rows = {"data.domains.cifar10.rows": 100, "data.domains.cifar100.rows": 150, "data.test_rows": 50}
    federation, result = one_round_of_fml(Setting.load("fml-tasks").changed(rows))
    classes = {name: federation.node(name).data["train"].classes for name in federation.homes}
    assert classes == {"cifar10": 10, "cifar100": 100}
    tested = {(row["node"], row["set"]) for row in result.table if row["quantity"] == "accuracy"}
    assert tested == {("cifar10", "cifar10"), ("cifar100", "cifar100")}


@pytest.mark.parametrize(
    ("name", "networks"),
    [
        ("fml-models", ["MLP", "LeNet5", "CNN1", "CNN2", "CNN2"]),
        ("fml-catfish-cifar", ["CNN2", "MLP", "MLP", "MLP", "MLP"]),
    ],
)
def test_fml_with_different_models_runs(need, name, networks):
    need("cifar10")
    setting = Setting.load(name)
    sizes = [len(data) for data in build(setting.data, 0).private_tests.values()]
    assert sum(sizes) == 10_000
    assert all(abs(size - 2000) <= 5 for size in sizes)  # as each client's classes are, to the row
    federation, result = one_round_of_fml(setting.changed({"data.rows": 300, "data.test_rows": 100}))
    made = [federation.node(client).models for client in federation.homes]
    assert [type(own["model"]).__name__ for own in made] == networks
    assert {type(own["meme"]).__name__ for own in made} == {"LeNet5"}
    assert [len(federation.node(client).data["train"]) for client in federation.homes] == [60] * 5
    tested = {(row["node"], row["product"]) for row in result.table if row["split"] == "private-test"}
    assert tested == {("server", "global"), *((f"c{i}", "personalised") for i in range(5))}


def test_cifar_shards_run(need):
    need("cifar10")
    federation, _ = one_round(small("cifar-shards", rows=500))
    held = [set(federation.node(name).data["train"].y.tolist()) for name in federation.homes]
    assert [len(own) for own in held] == [2] * 5
    assert federation.node("c0").data["train"].augment == CropFlip()


# -- cifar10-dirichlet -----------------------------------------------------------------------------------------
def test_cifar10_dirichlet_runs(need):
    need("cifar10", "cifar100")
    public = {"source": "cifar100", "rows": 100, "joint": "coarse"}
    federation, _ = one_round(small("cifar10-dirichlet", rows=3000, **{"data.public": public}))
    assert list(federation.homes) == [f"c{i}" for i in range(20)]
    sizes = [len(federation.node(name).data["train"]) for name in federation.homes]
    assert sum(sizes) == 3000
    assert min(sizes) >= 64
    seen = federation.node("c7").data["public"]
    assert seen.x.shape == (100, 3, 32, 32)
    assert (seen.classes, seen.y.min() >= 10, seen.y.max() < 30) == (30, True, True)
    assert federation.node("c7").models["model"](seen.x).shape == (100, 30)
    assert {data.classes for _, _, data in federation.test_sets("c7")} == {10}


def test_cifar10_dirichlet_has_the_papers_line_up():
    models = Setting.load("cifar10-dirichlet").models
    depths = [int(name.split("-")[1]) for name in models.names]
    assert depths == [10] * 6 + [16] * 4 + [22] * 4 + [28] * 4 + [34] * 2
    assert models.travelling == "wrn-40-1"


def test_fedavg_without_its_weak_clients(need):
    need("cifar10", "cifar100")
    public = {"source": "cifar100", "rows": 50, "joint": "coarse"}
    setting = Setting.load("cifar10-dirichlet").changed(
        {"data.test_rows": 50, "data.rows": 1500, "data.public": public}
    )
    changes = {"models.same": "wrn-10-1", "dropout.weakest": 0.6, "epochs": 1}
    federation = assemble("fedavg", setting, changes=changes)
    result = federation.run(1)
    heard = {row["from"] for row in result.ledger.messages if (row["kind"], row["status"]) == ("update", "sent")}
    assert heard == {f"c{i}" for i in range(12, 20)}


# -- digits ----------------------------------------------------------------------------------------------------
DIGITS = ("mnist", "usps", "svhn", "mnistm")


def test_digits_run(need):
    need(*DIGITS, "cifar100")
    federation, _ = one_round(small("digits", **{"data.public.rows": 100, "data.domains.svhn.rows": 500}))
    assert list(federation.homes) == list(DIGITS)
    sizes = [len(federation.node(name).data["train"]) for name in DIGITS]
    assert sizes == [150, 80, 500, 1800]
    for name in DIGITS:
        data = federation.node(name).data
        assert data["train"].x.shape[1:] == data["public"].x.shape[1:] == (3, 32, 32)
    assert "y" not in federation.node("usps").data["public"].columns


def test_digits_share_training_images_and_never_test_images(need):
    """MNIST-M's rows are MNIST's: training rows may be common, no training row may be another's test row."""
    need(*DIGITS, "cifar100")
    made = build(Setting.load("digits").data, 0)
    assert made.coverage.images["train"] <= 150 + 80 + 5000 + 1800
    assert {(o.first, o.second, o.base) for o in made.coverage.overlaps} <= {("train", "train", "mnist/train")}
    assert made.coverage.untrained() == ()
    sizes = {name: len(splits["test"]) for name, splits in made.tests.items()}
    assert sizes == {name: min(3000, len(load(name).test)) for name in DIGITS}


@pytest.mark.parametrize("part", [{"data.validation": 0.1}, {"data.test": 0.1}, {"data.public": {"fraction": 0.1}}])
def test_digits_with_rows_held_out_are_refused(need, part):
    """Each set holds out rows of its own: MNIST's would be MNIST-M's training rows."""
    need(*DIGITS, "cifar100")
    with pytest.raises(LeakageError, match="mnist/train"):
        build(Setting.load("digits").changed(part).data, 0)


@pytest.mark.parametrize("half", ["train", "test"])
def test_mnist_m_is_made_of_the_digits_that_its_index_names(need, half):
    """Told from pixels: the photograph comes back smooth only where the right digit is taken out of it."""
    need("mnist", "mnistm")
    mnist, blended = load("mnist"), getattr(load("mnistm"), half)
    base, other = (getattr(mnist, name) for name in ((half, "test") if half == "train" else (half, "train")))

    def masks(split, rows):
        return F.pad(torch.from_numpy(split.x[rows]).permute(0, 3, 1, 2) > 0, (2, 2, 2, 2))

    def roughness(image, mask):
        found = torch.where(mask, 1 - image, image)
        return sum((found.diff(dim=axis)).abs().sum((1, 2, 3)) for axis in (2, 3))

    rng = np.random.default_rng(0)
    for i in rng.permutation(len(blended))[:40]:
        image = torch.from_numpy(blended.x[i : i + 1]).permute(0, 3, 1, 2).float() / 255
        own = roughness(image, masks(base, blended.index[i : i + 1]))
        alike = rng.permutation(np.flatnonzero(other.y == blended.y[i]))[:200]  # of the half that it must not be from
        assert own < roughness(image, masks(other, alike)).min()


# -- pacs ------------------------------------------------------------------------------------------------------
def test_pacs_peers_teach_each_other(need):
    need("pacs/photo", "pacs/sketch")
    setting = Setting.load("pacs").changed({"models.participants": "mlp", "data.test_rows": 50})
    federation = assemble("fedh2l", setting)
    sizes = {name: len(federation.node(name).data["train"]) for name in federation.homes}
    whole = {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}
    assert sizes == {name: pytest.approx(0.65 * count, abs=1) for name, count in whole.items()}
    result = federation.run(2)
    assert result.ledger.bytes() == formula(federation, 2)
    assert {row["node"] for row in result.table.select(product="local", quantity="accuracy")} == set(federation.homes)
