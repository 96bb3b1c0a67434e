"""Folders as PFLlib, HtFLlib and LEAF write them are read as they are, and nothing in them is run."""

import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

from heterophony.cli import app
from heterophony.data import DataError, load
from heterophony.data.sources import pickles

SETTING = """
[data]
source = "folder:set"
partition = { kind = "natural", by = "client" }

[models]
participants = "mlp"
"""


def rows(client, half, count):
    draw = np.random.default_rng([client, half])
    x = draw.normal(size=(count, 1, 8, 8)).astype(np.float32)
    return x, (x.sum((1, 2, 3)) > 0).astype(np.int64)


def pfllib(place, clients=3, make=lambda x, y: {"x": x, "y": y}):
    """Write a folder as PFLlib's generators do."""
    for half, name in enumerate(("train", "test")):
        (place / name).mkdir(parents=True)
        for client in range(clients):
            with open(place / name / f"{client}.npz", "wb") as file:
                np.savez_compressed(file, data=np.array(make(*rows(client, half, 12 + client)), dtype=object))
    (place / "config.json").write_text("{}")


def leaf(place, clients=3):
    """Write a folder as LEAF's scripts do: several users a file, numbers as lists."""
    for half, name in enumerate(("train", "test")):
        (place / name).mkdir(parents=True)
        held = {f"f{client:04d}": rows(client, half, 12 + client) for client in range(clients)}
        data = {user: {"x": x.reshape(len(x), -1).tolist(), "y": y.tolist()} for user, (x, y) in held.items()}
        about = {"users": list(data), "num_samples": [len(own["y"]) for own in data.values()], "user_data": data}
        (place / name / f"all_data_{name}.json").write_text(json.dumps(about))


def test_a_folder_of_pfllib_has_its_rows_by_client(tmp_path):
    pfllib(tmp_path / "set", clients=11)
    source = load(f"folder:{tmp_path / 'set'}")
    assert list(dict.fromkeys(source.train.groups)) == list(range(11))
    for half, found in enumerate((source.train, source.test)):
        for client in (0, 10):
            own = found.groups == client
            x, y = rows(client, half, 12 + client)
            assert np.array_equal(found.x[own], x)
            assert np.array_equal(found.y[own], y)


def test_a_folder_of_leaf_has_its_rows_by_user(tmp_path):
    leaf(tmp_path / "set")
    source = load(f"folder:{tmp_path / 'set'}")
    x, y = rows(1, 0, 13)
    own = source.train.groups == "f0001"
    assert np.array_equal(source.train.x[own], x.reshape(13, -1))
    assert np.array_equal(source.train.y[own], y)


@pytest.mark.parametrize("write", [pfllib, leaf])
def test_such_a_folder_is_a_federation_with_a_participant_for_each_client(write, tmp_path, monkeypatch):
    write(tmp_path / "set")
    (tmp_path / "clients.toml").write_text(SETTING)
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, ["run", "fedavg", "--on", "clients.toml", "--rounds", "1", "--json"])
    assert answer.exit_code == 0, answer.stderr
    assert len(json.loads(answer.stdout)["metrics"]["participants"]) == 3


class Trap:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x, y: {"x": Trap(), "y": y}, "do not trust this file"),
        (lambda x, y: {"x": x}, "must hold x and y as arrays of numbers"),
        (lambda x, y: {"x": x, "y": y[:-1]}, "11 labels"),
        (lambda x, y: {"x": np.array([None, {}]), "y": y}, "must hold x and y|unexpected form"),
        (lambda x, y: "rows", "a dictionary is expected"),
        (lambda x, y: {"x": np.array(["a"] * len(y)), "y": y}, "only numbers are expected"),
    ],
)
def test_a_file_that_holds_something_else_is_one_line(make, words, tmp_path, capsys):
    pfllib(tmp_path / "set", make=make)
    with pytest.raises(DataError, match=words):
        load(f"folder:{tmp_path / 'set'}")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "has no user_data"),
        ("{}", "has no user_data"),
        ("{", "all_data_train.json"),
        ('{"user_data": {"u": {"x": [[1]]}}}', "'u' has no x and y"),
        ('{"user_data": {"u": {"x": ["to be"], "y": ["e"]}}}', "x holds str"),
    ],
)
def test_a_file_of_leaf_that_is_none_is_one_line(text, words, tmp_path):
    leaf(tmp_path / "set")
    (tmp_path / "set" / "train" / "all_data_train.json").write_text(text)
    with pytest.raises(DataError, match=words):
        load(f"folder:{tmp_path / 'set'}")


@pytest.mark.parametrize("kind", [">f8", "<i2", "?", "f4"])
def test_numbers_of_any_plain_type_are_read(kind):
    array = np.arange(6).reshape(2, 3).astype(kind)
    data = pickle.dumps(np.array({"x": array}, dtype=object), protocol=4)
    found = pickles.boxed(data)["x"]
    assert np.array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")
