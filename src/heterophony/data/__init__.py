"""Data sets, their partitions and the checks that keep train and test apart."""

from heterophony.data.errors import DataError
from heterophony.data.flower_partition import FlowerPartition
from heterophony.data.images import rotate, to_data, to_tensor
from heterophony.data.leakage import BaseIds, Coverage, LeakageError
from heterophony.data.leakage import check as check_leakage
from heterophony.data.partitions import (
    Dirichlet,
    Domain,
    Iid,
    Natural,
    Partition,
    Pathological,
    Quantity,
    Shards,
    divide,
    holdout,
    holdout_of_groups,
    private_test,
    private_test_of_groups,
)
from heterophony.data.sources import ArrayLayout, KnownSet, Listing, Source, Split, TimeWindow, known, load
from heterophony.data.table import Data

__all__ = [
    "ArrayLayout",
    "BaseIds",
    "Data",
    "DataError",
    "Dirichlet",
    "Domain",
    "FlowerPartition",
    "KnownSet",
    "Iid",
    "LeakageError",
    "Listing",
    "Natural",
    "Partition",
    "Pathological",
    "Quantity",
    "Coverage",
    "Shards",
    "Source",
    "Split",
    "TimeWindow",
    "check_leakage",
    "divide",
    "holdout",
    "holdout_of_groups",
    "known",
    "load",
    "private_test",
    "private_test_of_groups",
    "rotate",
    "to_data",
    "to_tensor",
]
