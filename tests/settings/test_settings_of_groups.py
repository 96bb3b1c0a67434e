"""Windows that share steps, and own test rows of unequal and tiny groups."""

import numpy as np
import pytest

from heterophony.data import DataError
from heterophony.settings.building import build
from heterophony.settings.setting import DataPart


# -- windows that overlap --------------------------------------------------------------------------------------
@pytest.fixture
def recorded(tmp_path):
    """Steps of four users. Returns what the data of a setting are, for a step of windows."""
    steps = np.random.default_rng(4).normal(size=(80, 3)).astype(np.float32)
    np.savez(tmp_path / "f.npz", x=steps, y=np.arange(80) // 8 % 2, who=np.arange(80) // 20)

    def world(step, **taken):
        partition = {"kind": "natural", "by": "who"}
        part = {"source": str(tmp_path / "f.npz"), "partition": partition, **taken}
        return build(DataPart.model_validate({**part, "arrays": {"window": {"rows": 4, "step": step}}}), 0)

    return world


@pytest.mark.parametrize("taken", [{"test": 0.2}, {"test": 0.2, "validation": 0.1}])
def test_windows_that_share_steps_are_not_divided_between_train_and_test(recorded, taken):
    with pytest.raises(DataError, match=r"^domain f: windows share steps .* or give a test half$"):
        recorded(2, **taken)
    for world in (recorded(4, **taken), recorded(None, **taken), recorded(5, **taken)):
        assert len(world.views) == 4
    world = recorded(2, split="group", **taken)
    tested = set(world.tests["f"]["test"].x.flatten().tolist())
    assert all(tested.isdisjoint(own["train"]().x.flatten().tolist()) for own in world.views.values())


# -- own test rows of tiny and unequal groups ------------------------------------------------------------------
SIZES = {"ann": 1, "bo": 2, "cy": 40, "di": 3, "ed": 150, "flo": 1}


@pytest.fixture
def uneven(tmp_path):
    """Rows of very unequal groups; the first value of a row is its number."""
    group = np.repeat(list(SIZES), list(SIZES.values()))
    x = np.random.default_rng(6).normal(size=(len(group), 3)).astype(np.float32)
    x[:, 0] = np.arange(len(group))
    np.savez(tmp_path / "f.npz", x=x, y=np.arange(len(group)) % 2, who=group)

    def world(seed=0, **more):
        partition = {"kind": "natural", "by": "who", **more.pop("partition", {})}
        part = {"source": str(tmp_path / "f.npz"), "partition": partition, "test": 0.3, "private_test": True, **more}
        made = build(DataPart.model_validate(part), seed)
        held = {name: numbers(own["train"]()) for name, own in made.views.items()}
        private = {name: numbers(data) for name, data in made.private_tests.items()}
        return group, held, private, numbers(made.tests["f"]["test"])

    return world


def numbers(data):
    return data.x[:, 0].long().tolist()


@pytest.mark.parametrize("seed", range(6))
def test_a_group_keeps_a_row_and_its_test_rows_are_its_own(uneven, seed):
    group, held, private, tested = uneven(seed)
    assert list(held) == list(SIZES)  # participants are called after their groups
    for (name, rows), person in zip(held.items(), SIZES, strict=True):
        assert rows
        assert set(group[rows]) == {person}
        assert set(group[private.get(name, [])]) <= {person}
    assert sorted(row for rows in private.values() for row in rows) == sorted(tested)
    # As with `dirichlet`, whoever has too few rows to give some has no test of its own.
    assert {"ann", "flo"}.isdisjoint(private)
    assert {"cy", "ed"} <= set(private)


@pytest.mark.parametrize("seed", range(6))
def test_groups_that_are_joined_are_tested_on_the_rows_of_both(uneven, seed):
    group, held, private, tested = uneven(seed, partition={"min_size": 4})
    assert min(map(len, held.values())) >= 4
    for name, rows in private.items():
        assert set(group[rows]) <= set(group[held[name]])
    assert sorted(row for rows in private.values() for row in rows) == sorted(tested)


def test_fewer_participants_than_groups_are_tested_on_all_of_theirs(uneven):
    group, held, private, tested = uneven(clients=2)
    assert len(held) == len(private) == 2
    assert set(group[held["c0"]]).isdisjoint(group[held["c1"]])
    assert sorted([*private["c0"], *private["c1"]]) == sorted(tested)
