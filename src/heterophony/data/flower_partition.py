"""Partitions of the library `flwr-datasets`: `FlowerPartition("DirichletPartitioner", {"alpha": 0.3})`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from heterophony.data.errors import DataError
from heterophony.data.partitions import Column, Rows

LABEL, GROUP, ROW = "label", "group", "row"  # columns of the table that a partitioner sees


@dataclass(frozen=True)
class FlowerPartition:
    """Share rows out by a class of `flwr_datasets.partitioner`.

    Arguments:
        call: the name of the class.
        arguments: what it is told. Left out: `num_partitions` is the number of clients, `partition_by` is "label" (the
            class of a row), or "group" for a NaturalIdPartitioner, and `seed` follows from the run's.
    """

    call: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def split(self, labels: Column, clients: int, rng: np.random.Generator, groups: Column | None = None) -> list[Rows]:
        datasets = _library("datasets")
        columns = {LABEL: np.asarray(labels), ROW: np.arange(len(labels))}
        if groups is not None:
            columns[GROUP] = np.asarray(groups)
        partitioner = self._made(clients, int(rng.integers(2**31)))
        try:
            partitioner.dataset = datasets.Dataset.from_dict({name: list(value) for name, value in columns.items()})
            number = partitioner.num_partitions
            if number != clients:
                raise DataError(f"{self.call} makes {number} parts, and there are {clients} participants")
            parts = [
                np.sort(np.asarray(partitioner.load_partition(each)[ROW], dtype=np.int64)) for each in range(number)
            ]
        except DataError:
            raise
        except Exception as error:  # of a library that we do not know
            raise DataError(
                f"{self.call} could not share {len(labels)} rows out: {str(error) or type(error).__name__}"
            ) from error
        return self._checked(parts, len(labels))

    def _made(self, clients: int, seed: int) -> Any:
        library = _library("flwr_datasets.partitioner")
        base, chosen = library.Partitioner, getattr(library, self.call, None)
        if not (isinstance(chosen, type) and issubclass(chosen, base)):
            names = ", ".join(name for name in library.__all__ if name.endswith("Partitioner"))
            raise DataError(f"flwr-datasets has no partitioner {self.call!r}; it has {names}")
        known = inspect.signature(chosen).parameters
        column = GROUP if "NaturalId" in self.call else LABEL
        defaults: dict[str, Any] = {"num_partitions": clients, "seed": seed, "partition_by": column}
        given = {name: value for name, value in defaults.items() if name in known} | dict(self.arguments)
        if wrong := [name for name in given if name not in known]:
            raise DataError(f"{self.call} has no argument {wrong[0]!r}; it has {', '.join(known)}")
        try:
            return chosen(**given)
        except (TypeError, ValueError) as error:
            raise DataError(f"{self.call}: {error}") from None

    def _checked(self, parts: list[Rows], count: int) -> list[Rows]:
        """Return the parts; raise unless each row is in one of them."""
        times = np.bincount(np.concatenate(parts), minlength=count)
        if (twice := np.flatnonzero(times > 1)).size:
            raise DataError(f"{self.call} gives row {twice[0]} to {times[twice[0]]} participants")
        if missing := int((times == 0).sum()):
            raise DataError(f"{self.call} leaves {missing} of {count} rows out: choose arguments that use them all")
        if empty := [place for place, part in enumerate(parts) if not len(part)]:
            raise DataError(f"{self.call} gives participant {empty[0]} no row: use fewer participants")
        return parts


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise DataError("partitions of Flower need flwr-datasets: pip install 'heterophony[partitioners]'") from None
