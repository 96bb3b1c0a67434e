"""Settings of arrays: natural partitions, whole groups, own test rows, standardisation, and what networks are told."""

import json

import numpy as np
import pytest
import torch

from heterophony.data import DataError
from heterophony.settings import Setting, SettingError
from heterophony.settings.assemble import assemble
from heterophony.settings.building import build
from heterophony.settings.setting import DataPart

SIZES = (1, 2, 9, 30, 18)  # rows of the users 0, 1, ...
USERS = np.repeat(np.arange(len(SIZES)), SIZES)
NATURAL = {"kind": "natural", "by": "user"}


@pytest.fixture
def file(tmp_path):
    """Writes windows of three channels; the first value of a row is its number. Returns the path as text."""

    def put(name="f.npz", users=USERS, shape=(3, 8), **more):
        rng = np.random.default_rng(len(users))
        x = rng.normal(size=(len(users), *shape)).astype(np.float32)
        x.reshape(len(x), -1)[:, 0] = np.arange(len(x))
        np.savez(tmp_path / name, x=x, y=np.arange(len(users)) % 3, user=users, **more)
        return str(tmp_path / name)

    return put


def world(source, seed=0, **more):
    return build(DataPart.model_validate({"source": source, **more}), seed)


def rows(data):
    """The numbers of the rows, which are their first values."""
    return data.x.flatten(1)[:, 0].long().tolist()


def held(made):
    return {name: rows(own["train"]()) for name, own in made.views.items()}


# -- natural partitions ----------------------------------------------------------------------------------------
def test_each_user_is_a_participant_and_keeps_its_rows_whole(file):
    made = world(file(), partition=NATURAL, test=0.2)
    tested = rows(made.tests["f"]["test"])
    trained = held(made)
    assert list(trained) == ["user-0", "user-1", "user-2", "user-3", "user-4"]
    for user, own in enumerate(trained.values()):
        assert own  # a tiny user is still there
        assert set(USERS[own]) == {user}
    assert sorted([*tested, *(row for own in trained.values() for row in own)]) == list(range(len(USERS)))
    assert abs(len(tested) - 0.2 * len(USERS)) <= 2


@pytest.mark.parametrize("seed", range(5))
def test_whole_users_are_held_out_if_asked(file, seed):
    made = world(file(), seed, partition=NATURAL, test=0.2, validation=0.2, split="group")
    tested, validated = (set(USERS[rows(made.tests["f"][split])]) for split in ("test", "validation"))
    trained = {user for own in held(made).values() for user in USERS[own]}
    assert (len(tested), len(validated), len(trained)) == (1, 1, 3)
    assert not tested & validated
    assert not (tested | validated) & trained


def test_the_seed_draws_which_users_are_held_out(file):
    path = file()

    def tested(seed):
        return rows(world(path, seed, arrays={"group": "user"}, test=0.2, split="group").tests["f"]["test"])

    assert len({frozenset(USERS[tested(seed)]) for seed in range(8)}) > 1
    assert tested(3) == tested(3)


def test_users_of_too_few_rows_are_joined(file):
    trained = held(world(file(), partition={**NATURAL, "min_size": 5}, test=0.1))
    assert min(len(own) for own in trained.values()) >= 5
    users = [set(USERS[own]) for own in trained.values()]
    assert set().union(*users) == {0, 1, 2, 3, 4}
    assert sum(map(len, users)) == 5


def test_fewer_participants_have_several_whole_users(file):
    users = [set(USERS[own]) for own in held(world(file(), partition=NATURAL, test=0.2, clients=2)).values()]
    assert len(users) == 2
    assert not users[0] & users[1]


def test_participants_are_tested_on_their_own_users(file):
    made = world(file(), partition=NATURAL, test=0.3, private_test=True)
    assert "user-3" in made.private_tests
    for name, data in made.private_tests.items():
        assert set(USERS[rows(data)]) == set(USERS[held(made)[name]])
    together = [row for data in made.private_tests.values() for row in rows(data)]
    assert sorted(together) == sorted(rows(made.tests["f"]["test"]))


@pytest.mark.parametrize(
    "partition",
    [
        {"kind": "iid"},
        {"kind": "dirichlet", "alpha": 0.5},
        {"kind": "shards", "per_client": 2},
        {"kind": "pathological", "classes_per_client": 2},
        {"kind": "quantity", "sigma": 1.0},
    ],
)
def test_every_partition_takes_arrays(file, partition):
    trained = held(world(file(), arrays={}, partition=partition, clients=3, test=0.2, private_test=True))
    together = sorted(row for own in trained.values() for row in own)
    assert len(together) == len(set(together)) == 48


# -- standardisation -------------------------------------------------------------------------------------------
def test_training_rows_of_everyone_standardise_all(file):
    path = file()
    plain, made = (world(path, partition=NATURAL, test=0.3, standardise=how) for how in (None, "everyone"))
    trained = torch.cat([own["train"]().x for own in plain.views.values()]).double()
    mean, deviation = trained.mean((0, 2), keepdim=True), trained.std((0, 2), keepdim=True, correction=0)
    for name, own in made.views.items():
        assert torch.allclose(own["train"]().x.double(), (plain.views[name]["train"]().x - mean) / deviation, atol=1e-5)
    before, after = plain.tests["f"]["test"].x, made.tests["f"]["test"].x
    assert torch.allclose(after.double(), (before - mean) / deviation, atol=1e-5)


def test_each_row_is_standardised_by_its_participant(file):
    path = file()
    more = {"partition": {**NATURAL, "min_size": 8}, "test": 0.3, "private_test": True}
    plain, made = (world(path, standardise=how, **more) for how in (None, "participant"))
    for name, own in made.views.items():
        trained = plain.views[name]["train"]().x.double()
        mean, deviation = trained.mean((0, 2), keepdim=True), trained.std((0, 2), keepdim=True, correction=0)
        assert torch.allclose(own["train"]().x.double(), (trained - mean) / deviation, atol=1e-5)
        before, after = plain.private_tests[name].x, made.private_tests[name].x
        assert torch.allclose(after.double(), (before - mean) / deviation, atol=1e-5)


def test_a_feature_that_never_changes_becomes_zero(tmp_path):
    x = np.stack([np.arange(20), np.full(20, 0.1)], axis=1).astype(np.float32)
    np.savez(tmp_path / "f.npz", x=x, y=np.arange(20) % 2)
    made = world(str(tmp_path / "f.npz"), arrays={}, test=0.2, standardise="everyone")
    assert made.tests["f"]["test"].x[:, 1].abs().max() < 1e-4


# -- networks --------------------------------------------------------------------------------------------------
@pytest.fixture
def modules(tmp_path, monkeypatch):
    text = (
        "from torch import nn\n\n"
        "def flat(shape, classes):\n"
        "    size = 1\n    for length in shape:\n        size *= length\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(size, classes))\n\n"
        "def old(in_channels, size, classes):\n"
        "    return flat((in_channels, size, size), classes)\n\n"
        "def wrong(shape, classes):\n    return flat(shape, classes + 1)\n"
    )
    (tmp_path / "nets_of_arrays.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


def setting(source, network="mlp", **data):
    part = {"source": source, "partition": NATURAL, "test": 0.3, **data}
    return Setting.of({"name": "users", "data": part, "models": {"participants": network}})


@pytest.mark.parametrize("network", ["mlp", "nets_of_arrays:flat"])
@pytest.mark.parametrize("method", ["fedavg", "solo", "ditto"])
def test_a_federation_of_arrays_trains(file, modules, method, network):
    federation = assemble(method, setting(file(), network, private_test=True), changes={"epochs": 1})
    assert federation.recipe["shape"] == {"shape": [3, 8], "classes": 3}
    scored = {row["node"] for row in federation.run(1).table.last() if row["quantity"] == "accuracy"}
    assert ({"server"} if method == "fedavg" else {f"user-{user}" for user in range(5)}) <= scored


def test_our_own_networks_read_arrays_of_the_shape_of_images(file):
    federation = assemble("fedavg", setting(file(shape=(1, 16, 16)), "cnn1"))
    assert federation.node("user-3").models["model"](torch.zeros(2, 1, 16, 16)).shape == (2, 3)


def test_a_network_that_takes_shape_is_told_that_of_images(modules):
    part = {"source": "digits-embedded", "test": 0.3}
    made = Setting.of({"name": "s", "data": part, "models": {"participants": "nets_of_arrays:flat"}})
    assert assemble("solo", made).node("c0").models["model"](torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("lenet5", r"'lenet5' reads images; the rows here are arrays of \(3, 8\): take mlp"),
        ("nets_of_arrays:old", r"must take `shape`, which is \(3, 8\) here"),
        ("nets_of_arrays:wrong", r"gives \(2, 4\) for 2 arrays"),
        ("byte-cnn", "byte-cnn reads texts; users has arrays"),
    ],
)
def test_a_network_that_cannot_read_the_rows_is_refused(file, modules, network, said):
    with pytest.raises(ValueError, match=said) as caught:
        assemble("fedavg", setting(file(), network))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "y", "said"),
    [
        ("segmentation", np.zeros((60, 3, 8), np.int64), "for masks take unet, or a network of your own"),
        ("sequence", np.zeros((60, 8), np.int64), "for an answer a step take lstm or gru, or a network of your own"),
    ],
)
def test_a_network_with_one_answer_a_row_is_refused_with_those_that_give_more(tmp_path, task, y, said):
    np.savez(tmp_path / "f.npz", x=np.ones((60, *((3, 8) if task == "sequence" else (1, 3, 8))), np.float32), y=y)
    data = {"source": str(tmp_path / "f.npz"), "clients": 2, "test": 0.2, "task": {"kind": task, "classes": 2}}
    made = Setting.of({"name": "steps", "data": data, "models": {"participants": "mlp"}})
    with pytest.raises(SettingError, match=rf"network 'mlp' gives \(2, 2\) for 2 arrays; with 2 classes .*: {said}$"):
        assemble("fedavg", made)


# -- refusals --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"partition": {"kind": "natural"}}, "natural needs groups: name their column in data.partition.by"),
        ({"partition": {"kind": "natural", "by": "person"}}, "no array 'person'; there are x, y, user"),
        ({"partition": NATURAL, "clients": 9}, "5 users cannot make 9 clients"),
        ({"split": "group"}, r'data\.split = "group" needs groups'),
        ({"rotations": [0, 20]}, "rotations, .* are for images; M0, M20 are arrays"),
        ({"side": 28}, "side, channels, mean and std are for images; f are arrays"),
        ({"augment": "crop-flip"}, "augment, .* are for images"),
        ({"length": 64}, "data.length is for texts; arrays have a shape"),
        ({"arrays": {"dtype": "int64"}, "standardise": "everyone"}, "int64 would cut off|standardise needs float32"),
        ({"clients": 3, "standardise": "participant"}, "some test rows belong to no participant"),
        (
            {"partition": NATURAL, "public": {"fraction": 0.1}, "standardise": "participant"},
            'data.public is for several participants: with it, set data.standardise = "everyone"',
        ),
        (
            {"partition": NATURAL, "split": "group", "private_test": True},
            "domain f: data.private_test: no participant's group has test rows",
        ),
        ({"public": {"source": "digits-embedded"}}, "data.arrays is for files of one's own; digits-embedded is"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(file, data, said):
    with pytest.raises(DataError, match=said) as caught:
        world(file(), **{"arrays": {}, "test": 0.3, **data})
    assert "\n" not in str(caught.value)


def test_the_natural_partition_names_its_column_once():
    with pytest.raises(SettingError, match=r"partition\.by and arrays\.group name two columns: user and who"):
        Setting.of(
            {
                "name": "s",
                "data": {"source": "f.npz", "partition": NATURAL, "arrays": {"group": "who"}},
                "models": {"participants": "mlp"},
            }
        )
    with pytest.raises(SettingError, match=r"data\.partition: iid has no by"):
        DataPart(source="f.npz", partition={"kind": "iid", "by": "user"}).partition.build()


def test_rows_of_two_shapes_are_refused(file):
    domains = {"a": {"source": file("a.npz")}, "b": {"source": file("b.npz", shape=(4, 8))}}
    with pytest.raises(DataError, match=r"all rows must be alike, but .*a\.npz has float32 \(3, 8\), .*b\.npz has"):
        build(DataPart.model_validate({"domains": domains, "arrays": {}, "test": 0.2}), 0)


def test_bytes_that_are_no_squares_are_not_stretched_in_silence(tmp_path):
    x = np.zeros((20, 6, 128), np.uint8)
    np.savez(tmp_path / "f.npz", train_x=x, train_y=np.arange(20) % 2)
    path = str(tmp_path / "f.npz")
    with pytest.raises(DataError, match=r"f\.npz has rows of 6x128, which are no squares: set data\.arrays"):
        world(path, test=0.2)
    assert world(path, test=0.2, side=32).tests["f"]["test"].x.shape[1:] == (1, 32, 32)
    made = world(path, test=0.2, arrays={"dtype": "float32"})
    assert made.tests["f"]["test"].x.shape[1:] == (6, 128)
    assert made.told == {"shape": (6, 128)}


def test_tables_of_several_hospitals_are_domains(tmp_path):
    for place, name in enumerate(("north", "south")):
        lines = [f"{30 + row + place},{row % 2},{'yes' if row % 3 else 'no'}" for row in range(30)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,sex,ill", *lines]))
    domains = {name: {"source": str(tmp_path / f"{name}.csv")} for name in ("north", "south")}
    part = {"domains": domains, "arrays": {"y": "ill", "classes": ["no", "yes"]}, "test": 0.2}
    made = build(DataPart.model_validate({**part, "standardise": "participant"}), 0)
    assert made.homes == {"north": "north", "south": "south"}
    assert made.told == {"shape": (2,)}
    assert abs(made.views["south"]["train"]().x.mean()) < 1e-5


def test_what_is_said_of_arrays_comes_back_from_a_run_folder(file):
    made = setting(file(), arrays={"scale": 0.5, "axes": [0, 2, 1]}, standardise="everyone")
    again = Setting.of(json.loads(json.dumps(made.plain())))
    assert again == made
    assert again.data.layout == made.data.layout
    assert again.data.layout.group == "user"


# -- known sets of arrays ---------------------------------------------------------------------------------------
@pytest.fixture
def hospitals(tmp_path):
    """The files of the heart data, with made-up patients."""
    draw = np.random.default_rng(0)
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        lines = []
        for _ in range(30):
            ill = draw.integers(0, 3)
            pain, ecg = draw.integers(1, 5), draw.integers(0, 3)
            numbers = [40 + 5 * ill + draw.integers(9), 1, pain, 120, 200, 0, ecg, 150, 0, 1.5, -9, -9, -9, ill]
            lines.append(",".join(map(str, numbers)))
        (tmp_path / f"processed.{name}.data").write_text("\n".join(lines))
    return tmp_path


def test_two_classes_of_a_known_set_can_be_one_label_by_one_logit(hospitals):
    setting = Setting.load("heart")
    result = assemble("fedavg", setting, root=hospitals, changes={"steps": 5}).run(2)
    assert list(result.metrics().participants) == ["cleveland", "hungarian", "switzerland", "va"]
    assert result.metrics().scores["auroc"] is not None
    plain = assemble("fedavg", setting.changed({"data.task": {"kind": "classification"}}), root=hospitals)
    assert plain.run(1).metrics().acc is not None
    for kind in ("regression", "segmentation"):
        with pytest.raises(DataError, match=f"{kind} is for data of one's own; heart/cleveland has a class"):
            assemble("fedavg", setting.changed({"data.task": {"kind": kind}}), root=hospitals)


def test_the_hospitals_of_the_whole_set_are_its_groups(hospitals):
    spec = {"source": "heart", "partition": {"kind": "natural"}, "private_test": True}
    made = build(DataPart.model_validate(spec), 0, hospitals)
    assert [len(own["train"]()) for own in made.views.values()] == [19] * 4
    assert [len(data) for data in made.private_tests.values()] == [11] * 4


def test_a_table_is_the_value_of_an_option_also_by_its_last_name(hospitals):
    setting = Setting.load("heart").changed({"methods.fedavg": {"lr": {"start": 0.1, "stop": 0.01, "over": 3}}})
    method = assemble("fedavg", setting, root=hospitals).method
    assert (method.local.lr.start, method.local.lr.over) == (0.1, 3)
    solo = assemble("solo", setting, root=hospitals).method
    assert solo.local.steps == {"cleveland": 2500, "hungarian": 2150, "switzerland": 400, "va": 1100}
    with pytest.raises(SettingError, match="fedavg has no option 'rates'"):
        assemble("fedavg", setting.changed({"methods.fedavg": {"rates": {"start": 0.1}}}), root=hospitals)


def test_a_share_of_the_rows_is_public_where_targets_are_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(f"{i},{i * i % 7},{i * 0.1}\n" for i in range(60)))
    (tmp_path / "s.toml").write_text(
        '[data]\nsource = "t.csv"\nclients = 4\ntest = 0.2\npublic = { fraction = 0.2 }\n'
        'task = { kind = "regression" }\n'
        '[data.arrays]\nx = ["a", "b"]\ny = "y"\n[models]\nparticipants = "linear"\n[local]\nlr = 0.0001\n'
    )
    setting = Setting.load("s.toml")
    assert assemble("bhfl", setting).run(1, quiet=True).metrics().acc is not None
    rows = build(setting.data, seed=0).public()
    assert (len(rows), rows.y.dtype, rows.task.kind) == (12, torch.float32, "regression")
