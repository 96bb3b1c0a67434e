"""Who holds what: base images stay apart, views have the right rows, and what cannot be is said in one line."""

import numpy as np
import pytest
import torch

from heterophony.base.seeds import generator
from heterophony.data import DataError, LeakageError, load, to_tensor
from heterophony.data.augment import CropFlip
from heterophony.settings import Setting
from heterophony.settings.building import build
from heterophony.settings.setting import DataPart

ANGLES = (0, 20, 40, 60)
ROTATED = {
    "source": "digits-embedded",
    "rotations": ANGLES,
    "test": 0.15,
    "validation": 0.1,
    "public": {"fraction": 0.1},
}


def world(root=None, seed=0, **changes):
    return build(DataPart.model_validate({**ROTATED, **changes}), seed, root)


def domains(root, seed=0, **spec):
    return build(DataPart.model_validate(spec), seed, root)


@pytest.fixture(scope="module")
def digits():
    """The base images, turned by each angle, and their labels."""
    base = load("digits-embedded").train
    return {angle: to_tensor(base.x, degrees=angle).flatten(1) for angle in ANGLES}, base.y


def rows_of(digits, data, angle):
    """Which base images these are, told from their pixels alone."""
    images, labels = digits
    away = torch.cdist(data.x.flatten(1), images[angle])
    best, rows = away.min(1)
    assert best.max() < 0.1
    assert (away < 0.5).sum(1).max() == 1
    assert np.array_equal(labels[rows], data.y.numpy())
    return rows.tolist()


def all_rows(digits, made, angles=ANGLES):
    """domain -> purpose -> base images, from pixels."""
    found = {}
    for place, angle in enumerate(angles):
        name = f"M{angle}"
        public = made.public()
        own = public.take(torch.nonzero(public.domain == place).flatten())
        found[name] = {
            "train": rows_of(digits, made.views[name]["train"](), angle),
            "public": rows_of(digits, own, angle),
            **{split: rows_of(digits, data, angle) for split, data in made.tests[name].items()},
        }
    return found


def equal(a, b):
    return a.columns.keys() == b.columns.keys() and all(torch.equal(a.columns[n], b.columns[n]) for n in a.columns)


def same_world(a, b):
    views = [(name, view) for name, own in a.views.items() for view in own]
    return (
        a.homes == b.homes
        and all(equal(a.views[name][view](), b.views[name][view]()) for name, view in views)
        and all(equal(a.tests[d][s], b.tests[d][s]) for d, splits in a.tests.items() for s in splits)
    )


# -- leakage ---------------------------------------------------------------------------------------------------
def test_base_images_are_split_once_for_all_domains(digits):
    made = world()
    held = all_rows(digits, made)
    sizes = {"train": 650, "validation": 100, "public": 100, "test": 150}
    for name, own in held.items():
        assert {purpose: len(rows) for purpose, rows in own.items()} == sizes
        # Rotations of the same rows, in the same order.
        assert own == held["M0"], name
    everything = [row for rows in held["M0"].values() for row in rows]
    assert sorted(everything) == list(range(1000))
    assert made.coverage.images == sizes
    assert [(o.first, o.second, o.images) for o in made.coverage.overlaps] == [("train", "train", 650)]
    assert made.coverage.untrained() == ()


def test_a_leaky_split_is_taken_and_flagged(digits):
    made = world(leaky=True)
    held = all_rows(digits, made)
    for own in held.values():  # apart within a domain, of the same sizes
        assert sorted(row for rows in own.values() for row in rows) == list(range(1000))
        assert [len(own[p]) for p in ("train", "validation", "public", "test")] == [650, 100, 100, 150]
    trained = {row for own in held.values() for row in own["train"]}
    tested = {row for own in held.values() for row in own["test"]}
    assert held["M0"] != held["M20"]
    flagged = {(o.first, o.second): o.images for o in made.coverage.overlaps}
    assert flagged["train", "test"] == len(trained & tested) > 100
    assert {("train", "validation"), ("train", "public"), ("public", "test")} <= set(flagged)
    assert not same_world(made, world())


@pytest.mark.parametrize("leaky", [False, True])
def test_the_same_seed_repeats_and_another_differs(leaky):
    first = world(seed=1, leaky=leaky)
    assert same_world(first, world(seed=1, leaky=leaky))
    other = world(seed=2, leaky=leaky)
    assert not same_world(first, other)
    assert not equal(first.tests["M0"]["test"], other.tests["M0"]["test"])


def test_another_amount_of_training_rows_does_not_move_the_test(digits):
    """Two domains of one set with different `rows` are still split at the same place."""
    some = {"M0": {"source": "digits-embedded", "rows": 100}}
    some["M20"] = {"source": "digits-embedded", "degrees": 20, "rows": 300}
    spec = {key: value for key, value in ROTATED.items() if key not in ("source", "rotations")}
    held = all_rows(digits, domains(None, domains=some, **spec), (0, 20))
    assert [len(own["train"]) for own in held.values()] == [100, 300]
    assert held["M0"]["test"] == held["M20"]["test"]
    assert not (set(held["M0"]["train"]) | set(held["M20"]["train"])) & set(held["M0"]["test"])
    # And the same test as without `rows`, so that figures can be compared.
    assert held["M0"]["test"] == all_rows(digits, world())["M0"]["test"]


def test_sets_made_of_the_same_images_may_share_training_images_and_nothing_else(store):
    """MNIST-M's row i is MNIST's digit i."""
    index = {"train_index": np.arange(0, 60, 2), "test_index": np.arange(0, 30, 2)}
    store("mnist")
    root = store("mnistm", train=30, test=15, shape=(32, 32, 3), **index)
    both = {"mnist": {"source": "mnist"}, "mnistm": {"source": "mnistm"}}
    made = domains(root, domains=both)
    assert [(o.first, o.second, o.base, o.images) for o in made.coverage.overlaps] == [
        ("train", "train", "mnist/train", 30)
    ]
    # Each set would hold out rows of its own, which the other trains on.
    for part in ({"test": 0.2}, {"validation": 0.2}, {"public": {"fraction": 0.2}}):
        with pytest.raises(LeakageError, match="mnist/train"):
            domains(root, domains=both, **part)
        assert domains(root, domains=both, leaky=True, **part).coverage.overlaps


@pytest.mark.parametrize("rows", [None, 300])
def test_public_data_from_the_set_itself_are_leakage(rows):
    """Public rows would be the private, validation and test rows of the domains."""
    with pytest.raises(LeakageError, match="public"):
        world(public={"source": "digits-embedded", "rows": rows})


def test_public_data_of_the_same_base_images_are_leakage(store):
    store("mnist", shape=(28, 28, 1))
    root = store("mnistm", train=30, test=15, shape=(32, 32, 3), train_index=np.arange(30), test_index=np.arange(15))
    with pytest.raises(LeakageError, match="public"):
        domains(root, source="mnist", public={"source": "mnistm", "labelled": False})


# -- views -----------------------------------------------------------------------------------------------------
def test_views_have_the_right_rows_in_the_right_order():
    made = world()
    assert made.homes == {f"M{a}": f"M{a}" for a in ANGLES}
    assert (made.told, made.outputs) == ({"in_channels": 1, "size": 28}, 10)
    public = made.public()
    assert public.domain.tolist() == [i for i in range(4) for _ in range(100)]
    assert public.classes == 10
    for place, name in enumerate(made.homes):
        views = {view: data() for view, data in made.views[name].items()}
        assert set(views) == {"train", "own", "all", "public", "mine", "validation"}
        assert equal(views["public"], public)
        assert equal(views["validation"], made.tests[name]["validation"])
        assert views["mine"].row.tolist() == list(range(100 * place, 100 * (place + 1)))
        mine = slice(100 * place, 100 * (place + 1))
        for column in ("x", "y"):
            train, everyone = views["train"].columns[column], public.columns[column]
            assert torch.equal(views["own"].columns[column], torch.cat([train, everyone[mine]]))
            assert torch.equal(views["all"].columns[column], torch.cat([train, everyone]))
        assert all(data.classes == 10 for data in views.values())
        assert views["train"].x.dtype == torch.float32


def test_without_public_data_there_is_only_train():
    made = world(public=None, validation=0.0)
    assert made.public is None
    assert all(set(own) == {"train"} for own in made.views.values())
    assert all(set(splits) == {"test"} for splits in made.tests.values())
    assert len(made.views["M0"]["train"]()) == 850


def test_public_data_are_made_once():
    made = world()
    assert made.views["M0"]["public"]() is made.views["M60"]["public"]() is made.public()


@pytest.mark.parametrize(
    "partition",
    [{"kind": "iid"}, {"kind": "dirichlet", "alpha": 0.3, "min_size": 20}, {"kind": "shards", "per_client": 4}],
)
def test_clients_of_a_domain_share_its_rows(digits, partition):
    made = world(clients=3, partition=partition)
    assert list(made.homes) == [f"M{a}.{i}" for a in ANGLES for i in range(3)]
    assert made.homes["M20.2"] == "M20"
    whole = world()
    for angle in ANGLES:
        parts = [rows_of(digits, made.views[f"M{angle}.{i}"]["train"](), angle) for i in range(3)]
        assert min(map(len, parts)) >= 20
        assert sorted(row for part in parts for row in part) == rows_of(
            digits, whole.views[f"M{angle}"]["train"](), angle
        )
        for i in range(3):  # the public rows of the domain are everybody's
            assert len(made.views[f"M{angle}.{i}"]["own"]()) == len(parts[i]) + 100
    assert equal(made.public(), whole.public())
    assert equal(made.tests["M40"]["test"], whole.tests["M40"]["test"])


def test_one_domain_numbers_its_clients():
    made = world(rotations=(), clients=3)
    assert made.homes == {f"c{i}": "digits-embedded" for i in range(3)}
    assert world(rotations=()).homes == {"c0": "digits-embedded"}


def test_domain_names_become_ids(store):
    store("usps")
    made = domains(store("svhn", shape=(32, 32, 3)), domains={"pacs/a b": {"source": "usps"}, "c": {"source": "svhn"}})
    assert made.homes == {"pacs-a-b": "pacs/a b", "c": "c"}
    assert set(made.tests) == {"pacs/a b", "c"}


def test_domain_names_that_give_one_id_are_refused(store):
    root = store("usps")
    with pytest.raises(ValueError, match="a-b"):
        domains(root, domains={"a b": {"source": "usps"}, "a-b": {"source": "usps", "degrees": 9}})


def test_private_tests_follow_the_training_classes(digits):
    made = world(clients=2, partition={"kind": "shards", "per_client": 5}, private_test=True)
    for angle in ANGLES:
        whole = rows_of(digits, made.tests[f"M{angle}"]["test"], angle)
        parts = []
        for i in range(2):
            own = made.private_tests[f"M{angle}.{i}"]
            assert set(own.y.tolist()) == set(made.views[f"M{angle}.{i}"]["train"]().y.tolist())
            parts += rows_of(digits, own, angle)
        assert sorted(parts) == whole
    assert made.coverage.images["private-test"] == 150
    assert {(o.first, o.second) for o in made.coverage.overlaps} == {("train", "train")}
    assert world().private_tests == {}


def test_test_rows_are_a_part_of_the_test(digits):
    whole, some = all_rows(digits, world()), all_rows(digits, world(test_rows=40))
    assert len(some["M0"]["test"]) == 40
    assert set(some["M0"]["test"]) < set(whole["M0"]["test"])
    assert all(own["test"] == some["M0"]["test"] for own in some.values())
    # Rows that are left out of the test are not trained on either.
    held = {row for own in some.values() for rows in own.values() for row in rows}
    assert not held & (set(whole["M0"]["test"]) - set(some["M0"]["test"]))
    assert len(world(test_rows=4000).tests["M0"]["test"]) == 150


# -- form ------------------------------------------------------------------------------------------------------
def test_side_and_channels_are_brought_to_what_is_asked():
    made = world(side=32, channels=3)
    assert (made.told, made.outputs) == ({"in_channels": 3, "size": 32}, 10)
    for data in (made.views["M20"]["all"](), made.public(), *made.tests["M20"].values()):
        assert data.x.shape[1:] == (3, 32, 32)
        assert torch.equal(data.x[:, 0], data.x[:, 2])
    expected = torch.nn.functional.interpolate(world().tests["M20"]["test"].x, size=32, mode="bilinear")
    assert torch.allclose(made.tests["M20"]["test"].x[:, :1], expected, atol=1e-5)


def test_sets_of_different_form_are_brought_to_the_largest(store):
    store("usps", shape=(16, 16, 1))
    root = store("svhn", shape=(32, 32, 3))
    both = {"usps": {"source": "usps"}, "svhn": {"source": "svhn"}}
    made = domains(root, domains=both)
    assert (made.told, made.outputs) == ({"in_channels": 3, "size": 32}, 10)
    assert {tuple(own["train"]().x.shape[1:]) for own in made.views.values()} == {(3, 32, 32)}
    grey = domains(root, domains=both, channels=1, side=8)
    assert (grey.told, grey.outputs) == ({"in_channels": 1, "size": 8}, 10)
    assert {tuple(data["test"].x.shape[1:]) for data in grey.tests.values()} == {(1, 8, 8)}


# -- public data of another set --------------------------------------------------------------------------------
def test_public_data_of_another_set(store):
    root = store("usps", train=50)
    made = world(root, public={"source": "usps", "rows": 20, "labelled": False})
    public = made.public()
    assert set(public.columns) == {"x", "domain"}
    assert public.x.shape == (20, 1, 28, 28)
    assert public.domain.tolist() == [-1] * 20
    assert made.views["M0"]["public"]() is public
    assert len(made.views["M0"]["train"]()) == 750
    assert len(made.views["M0"]["own"]()) == 750  # there is no public data of its own domain
    labelled = world(root, public={"source": "usps", "rows": 20}).public()
    assert torch.equal(labelled.x, public.x)
    assert len(set(labelled.y.tolist())) > 3
    assert equal(labelled, world(root, public={"source": "usps", "rows": 20}).public())
    assert not equal(labelled, world(root, seed=1, public={"source": "usps", "rows": 20}).public())
    assert len(world(root, public={"source": "usps"}).public()) == 50


def test_more_public_rows_than_there_are_are_refused(store):
    root = store("usps", train=50)
    with pytest.raises(DataError, match="51 public rows wanted, usps has 50"):
        world(root, public={"source": "usps", "rows": 51})


def test_unlabelled_public_data_of_the_domains_have_no_labels():
    public = world(public={"fraction": 0.1, "labelled": False}).public()
    assert set(public.columns) == {"x", "domain"}


def fine_and_coarse(store, train=200):
    """A set of 100 classes in 20 groups, under CIFAR-100's name."""
    coarse = {"train_y_coarse": np.arange(train) % 20, "test_y_coarse": np.arange(30) % 20}
    names = {"names": [f"k{i}" for i in range(100)], "classes_coarse": np.array([f"g{i}" for i in range(20)])}
    return store("cifar100", train=train, shape=(32, 32, 3), classes=100, **coarse, **names)


@pytest.mark.parametrize(("joint", "more"), [("fine", 100), ("coarse", 20)])
def test_another_sets_classes_can_have_outputs_of_their_own(store, joint, more):
    root = fine_and_coarse(store)
    made = world(root, public={"source": "cifar100", "joint": joint})
    public = made.public()
    assert (made.told, made.outputs) == ({"in_channels": 1, "size": 28}, 10 + more)
    assert public.classes == 10 + more
    assert sorted(public.y.unique().tolist()) == list(range(10, 10 + more))
    plain = world(root, public={"source": "cifar100", "labelled": False})
    assert torch.equal(plain.public().x, public.x)
    assert (plain.told, plain.outputs) == ({"in_channels": 1, "size": 28}, 10)
    # Private and test rows keep their own classes: only those outputs count in a test.
    assert made.tests["M0"]["test"].classes == made.views["M0"]["train"]().classes == 10
    assert equal(made.tests["M0"]["test"], plain.tests["M0"]["test"])


def test_joined_views_know_the_joint_classes(store):
    view = world(fine_and_coarse(store), public={"source": "cifar100", "joint": "fine"}).views["M0"]["all"]()
    assert view.classes is not None
    assert view.y.max() < view.classes


def test_joint_coarse_classes_of_a_set_without_are_refused(store):
    with pytest.raises(DataError, match="coarse"):
        world(store("usps"), public={"source": "usps", "joint": "coarse"})


def test_public_labels_of_another_label_space_are_refused_or_left_out(store):
    root = fine_and_coarse(store)
    try:
        public = world(root, public={"source": "cifar100"}).public()
    except ValueError:
        return
    assert "y" not in public.columns or public.y.max() < public.classes


# -- refused ---------------------------------------------------------------------------------------------------
def one_line(caught, *parts):
    text = str(caught.value)
    assert "\n" not in text
    assert all(part in text for part in parts), text


def test_more_rows_than_there_are_are_refused(store):
    root = store("usps", train=60)
    with pytest.raises(DataError) as caught:
        domains(root, domains={"u": {"source": "usps", "rows": 61}})
    one_line(caught, "domain u", "61", "60")
    assert len(domains(root, domains={"u": {"source": "usps", "rows": 60}}).views["c0"]["train"]()) == 60
    with pytest.raises(DataError, match="domain u: 60 rows wanted, 48 are there"):
        domains(root, domains={"u": {"source": "usps", "rows": 60}}, validation=0.2)


def test_a_set_without_a_test_half_needs_data_test(store):
    with pytest.raises(DataError) as caught:
        world(test=None)
    one_line(caught, "digits-embedded", "data.test")
    root = store("usps", test=0)
    with pytest.raises(DataError, match=r"usps has no test half: set data\.test"):
        domains(root, source="usps")
    assert len(domains(root, source="usps", test=0.25).tests["usps"]["test"]) == 15


def test_the_sets_own_test_half_is_used_unless_a_fraction_is_asked_for(store):
    root = store("usps", train=60, test=30)
    own = domains(root, source="usps")
    assert (len(own.views["c0"]["train"]()), len(own.tests["usps"]["test"])) == (60, 30)
    held_out = domains(root, source="usps", test=0.25)
    assert (len(held_out.views["c0"]["train"]()), len(held_out.tests["usps"]["test"])) == (45, 15)


@pytest.mark.parametrize("parts", [(0.5, 0.3, 0.3), (0.5, 0.4, 0.1), (0.5, 0.5, 0.2)])
def test_fractions_that_leave_nothing_are_refused(parts):
    test, validation, public = parts
    with pytest.raises(ValueError, match=rf"test = {test} .* public.fraction = {public} leave no rows to train on"):
        world(test=test, validation=validation, public={"fraction": public})


@pytest.mark.parametrize(
    ("partition", "clients"),
    [
        ({"kind": "iid"}, 1000),
        ({"kind": "dirichlet", "alpha": 0.1, "min_size": 400}, 2),
        ({"kind": "pathological", "classes_per_client": 2}, 3),
    ],
)
def test_partitions_that_cannot_be_are_refused(partition, clients):
    with pytest.raises(DataError) as caught:
        world(partition=partition, clients=clients)
    one_line(caught)


def test_absent_and_unknown_sets_are_refused(tmp_path):
    with pytest.raises(DataError, match="usps is not under"):
        domains(tmp_path, source="usps")
    with pytest.raises(DataError, match="usps is not under"):
        world(tmp_path, public={"source": "usps"})
    with pytest.raises(DataError, match="perhaps you meant 'mnist'"):
        domains(tmp_path, source="mnits")


# -- label spaces ----------------------------------------------------------------------------------------------
def two_tasks(store):
    store("usps")
    return store("cifar100", train=200, shape=(32, 32, 3), classes=100, names=[f"k{i}" for i in range(100)])


TASKS = {"a": {"source": "usps"}, "b": {"source": "cifar100"}, "c": {"source": "usps", "degrees": 20}}


def test_domains_may_have_different_classes(store):
    made = domains(two_tasks(store), domains=TASKS)
    assert made.tasks == {"a": "a", "b": "b", "c": "a"}
    assert made.classes == {"a": 10, "b": 100, "c": 10}
    assert (made.told, made.outputs) == ({"in_channels": 3, "size": 32}, 10)
    for name, count in made.classes.items():
        data = made.views[name]["train"]()
        assert (data.classes, made.tests[name]["test"].classes) == (count, count)
        assert int(data.y.max()) < count
    assert int(made.views["b"]["train"]().y.max()) > 10


def test_as_many_classes_with_other_names_are_another_label_space(store):
    store("usps")
    root = store("cifar10", shape=(32, 32, 3), names=[f"animal {i}" for i in range(10)])
    both = {"a": {"source": "usps"}, "b": {"source": "cifar10"}}
    assert domains(root, domains=both).tasks == {"a": "a", "b": "b"}


def test_one_label_space_has_no_tasks():
    assert world().tasks == {}
    assert world().classes == {f"M{a}": 10 for a in ANGLES}


@pytest.mark.parametrize("public", [{"fraction": 0.2}, {"source": "svhn", "labelled": False}])
def test_public_data_need_one_label_space(store, public):
    root = two_tasks(store)
    store("svhn", shape=(32, 32, 3))
    with pytest.raises(DataError) as caught:
        domains(root, domains=TASKS, public=public)
    one_line(caught, "a has 10 classes", "b has 100 classes", "k0 to k99", "label space", "data.public")


# -- augmentation and wrong labels -----------------------------------------------------------------------------
def test_training_views_carry_the_augmentation_and_no_others_do():
    made = world(augment="crop-flip", private_test=True)
    views = {name: view() for name, view in made.views["M20"].items()}
    assert {name: data.augment for name, data in views.items()} == {
        "train": CropFlip(pad=4, flip=True), "own": CropFlip(), "all": CropFlip(), "public": None, "mine": None,
        "validation": None,
    }  # fmt: skip
    assert all(data.augment is None for data in (*made.tests["M0"].values(), made.private_tests["M0"]))
    assert same_world(made, world(private_test=True))
    assert all(view().augment is None for view in world().views["M20"].values())


AUGMENTED = {"fraction": 0.1, "augment": "crop-flip"}


def test_public_images_are_augmented_once_by_the_seed():
    plain, first, again = world().public(), world(public=AUGMENTED), world(public=AUGMENTED).public()
    assert equal(first.public(), again)
    params = CropFlip().draw(len(plain), generator(0, "public augment", "once"))
    assert torch.equal(again.x, CropFlip().apply(plain.x, params))
    assert torch.equal(again.y, plain.y)
    assert not torch.equal(again.x, plain.x)
    assert first.views["M0"]["public"]() is first.views["M60"]["public"]() is first.public()
    assert equal(first.views["M0"]["train"](), world().views["M0"]["train"]())
    other = world(seed=1, public=AUGMENTED).public()
    assert not torch.equal(other.x, CropFlip().apply(world(seed=1).public().x, params))


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_label_noise_gives_a_share_of_ones_rows_a_wrong_label(share):
    whole, made = world(), world(participants={"M20": {"label_noise": share}})
    data, clean = made.views["M20"]["train"](), whole.views["M20"]["train"]()
    assert torch.equal(data.x, clean.x)
    moved = (data.y - clean.y) % 10
    assert int((moved > 0).sum()) == round(share * 650)
    assert set(moved.tolist()) >= set(range(1, 10))
    assert data.y.min() >= 0
    assert torch.equal(made.views["M20"]["all"]().y[:650], data.y)
    assert same_world(made, world(participants={"M20": {"label_noise": share}}))
    for name in ("M0", "M40"):
        assert equal(made.views[name]["train"](), whole.views[name]["train"]())
    assert equal(made.tests["M20"]["test"], whole.tests["M20"]["test"])


def test_wrong_labels_of_nobody_are_refused():
    with pytest.raises(DataError) as caught:
        world(participants={"M9": {"label_noise": 0.1}})
    one_line(caught, "data.participants", "'M9'", "M0, M20, M40, M60")


# -- the shipped setting ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["rotated-mnist", "rotated-mnist-mixed"])
def test_the_shipped_rotations_are_these(name):
    data = Setting.load(name).data
    assert not data.leaky
    assert build(data, 0).coverage.images == {"train": 650, "validation": 100, "public": 100, "test": 150}


def test_rows_of_a_source_are_those_of_each_domain_made_of_it(digits):
    made = world(rows=120)
    first, second = (rows_of(digits, made.views[f"M{angle}"]["train"](), angle) for angle in (0, 20))
    assert first == second
    assert len(first) == 120


def test_pixels_are_standardised_and_what_a_crop_brings_in_is_black():
    plain, scaled = world(augment="crop-flip"), world(augment="crop-flip", mean=0.25, std=0.2)
    for name, views in plain.views.items():
        was, now = views["train"](), scaled.views[name]["train"]()
        assert torch.allclose(now.x, ((was.x * 0.5 + 0.5) - 0.25) / 0.2, atol=1e-5)
        assert (was.augment, now.augment) == (CropFlip(fill=-1.0), CropFlip(fill=-1.25))
        assert now.x.min() == pytest.approx(-1.25)
    sets = {name: splits["test"] for name, splits in scaled.tests.items()}
    assert all(data.x.min() == pytest.approx(-1.25) for data in sets.values())
