"""Partitioners of `flwr-datasets`: each row goes to one participant, the same in each run, or one line says why not."""

import sys

import numpy as np
import pytest

from heterophony.data import DataError, FlowerPartition
from heterophony.settings.setting import PartitionPart, SettingError

LABELS = np.random.default_rng(0).integers(0, 5, 300)
GROUPS = np.array([f"user{row % 4}" for row in range(300)])


def split(call, seed=1, **arguments):
    return FlowerPartition(call, arguments).split(LABELS, 4, np.random.default_rng(seed), GROUPS)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("IidPartitioner", {}),
        ("DirichletPartitioner", {"alpha": 0.3}),
        ("InnerDirichletPartitioner", {"alpha": 0.5, "partition_sizes": [75] * 4}),
        ("LinearPartitioner", {}),
        ("NaturalIdPartitioner", {}),
    ],
)
def test_each_row_goes_to_one_participant_and_the_same_in_each_run(call, arguments):
    pytest.importorskip("flwr_datasets")
    parts = split(call, **arguments)
    assert sorted(np.concatenate(parts)) == list(range(300))
    assert all((one == other).all() for one, other in zip(parts, split(call, **arguments), strict=True))
    if call == "DirichletPartitioner":
        assert any(
            len(a) != len(b) or (a != b).any() for a, b in zip(parts, split(call, seed=2, alpha=0.3), strict=True)
        )
    if call == "NaturalIdPartitioner":
        assert all(len(set(GROUPS[part])) == 1 for part in parts)


@pytest.mark.parametrize(
    ("call", "arguments", "text"),
    [
        ("Nonsense", {}, "has no partitioner 'Nonsense'; it has .*DirichletPartitioner"),
        ("Dataset", {}, "has no partitioner"),
        ("DirichletPartitioner", {"alfa": 1}, "has no argument 'alfa'"),
        ("DirichletPartitioner", {"alpha": -1.0}, "DirichletPartitioner: Alpha"),
        ("IidPartitioner", {"num_partitions": 3}, "makes 3 parts, and there are 4 participants"),
        ("ShardPartitioner", {"num_shards_per_partition": 2}, "leaves 4 of 300 rows out"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(call, arguments, text):
    pytest.importorskip("flwr_datasets")
    with pytest.raises(DataError, match=text):
        split(call, **arguments)


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"pip install 'heterophony\[partitioners\]'"):
        split("IidPartitioner")


def test_a_setting_names_the_class_and_its_arguments():
    part = PartitionPart(kind="flwr", call="DirichletPartitioner", arguments={"alpha": 0.3})
    assert part.build() == FlowerPartition("DirichletPartitioner", {"alpha": 0.3})
    with pytest.raises(SettingError, match="flwr needs call"):
        PartitionPart(kind="flwr").build()
    with pytest.raises(SettingError, match="iid has no call"):
        PartitionPart(kind="iid", call="IidPartitioner").build()
