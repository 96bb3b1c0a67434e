"""Arrays brought to mean 0 and deviation 1 in each feature or channel. Only training rows are measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from heterophony.data import DataError, Split
from heterophony.data.moments import Moments
from heterophony.settings.allocation import Allocation, DomainRows, OutsideRows
from heterophony.settings.setting import DataPart

Array = npt.NDArray[Any]


Standardised = tuple[Allocation, dict[str, Moments]]


def standardised(spec: DataPart, allocation: Allocation) -> Standardised:
    """Return the same rows for everybody, standardised as the setting says, and by what.

    That is by participant; "" stands for everyone.
    """
    if spec.standardise is None:
        return allocation, {}
    kinds = {held.train.x.dtype.name for held in allocation.domains.values()}
    if kinds != {"float32"}:
        raise DataError("data.standardise needs float32; int64 are tokens: set data.arrays.dtype")
    return _by_everyone(allocation) if spec.standardise == "everyone" else _by_participant(spec, allocation)


def _by_everyone(allocation: Allocation) -> Standardised:
    """Return all rows by the training rows of all participants."""
    moments = Moments.of([rows for domain in allocation.domains for rows in _trained(allocation, domain)])

    def made(held: DomainRows) -> DomainRows:
        return replace(held, train=_changed(held.train, moments), test=_changed(held.test, moments))

    outside = allocation.outside
    if outside is not None:
        source = replace(outside.source, train=_changed(outside.source.train, moments))
        outside = OutsideRows(source, outside.rows)
    changed = replace(
        allocation,
        domains={name: made(held) for name, held in allocation.domains.items()},
        unseen={name: made(held) for name, held in allocation.unseen.items()},
        outside=outside,
    )
    return changed, {"": moments}


def _trained(allocation: Allocation, domain: str) -> Iterator[Array]:
    """Yield the training rows of a domain's participants."""
    held = allocation.domains[domain]
    for client in allocation.clients_of(domain):
        if client.name not in allocation.away and len(client.rows):
            yield held.train.x[client.rows]


def _by_participant(spec: DataPart, allocation: Allocation) -> Standardised:
    """Return each row by the training rows of the participant that it belongs to."""
    wrong = [
        name for name, there in (("public", spec.public), ("unseen", spec.unseen), ("stream", spec.stream)) if there
    ]
    if wrong:
        raise DataError(f'data.{wrong[0]} is for several participants: with it, set data.standardise = "everyone"')
    domains: dict[str, DomainRows] = {}
    moments: dict[str, Moments] = {}
    for domain, held in allocation.domains.items():
        own = _measured(domain, held)
        domains[domain] = _owned(domain, held, own)
        moments |= dict(zip(allocation.names[domain], own, strict=True))
    return replace(allocation, domains=domains), moments


def _measured(name: str, held: DomainRows) -> list[Moments]:
    """Measure the training rows of each client of a domain."""
    for number, rows in enumerate(held.clients):
        if not len(rows):
            raise DataError(f"domain {name}: data.standardise: client {number} has no rows to measure")
    return [Moments.of([held.train.x[rows]]) for rows in held.clients]


def _owned(name: str, held: DomainRows, moments: list[Moments]) -> DomainRows:
    """Return the rows of a domain, each by the training rows of its owner."""
    train, test = np.array(held.train.x), np.array(held.test.x)
    for own, rows in zip(moments, held.clients, strict=True):
        train[rows] = own.applied(held.train.x[rows])
    for split, made, rows in ((held.train, train, held.validation), (held.test, test, np.arange(len(test)))):
        owners = _owners(name, held, split, rows)
        for number, own in enumerate(moments):
            theirs = rows[owners == number]
            made[theirs] = own.applied(split.x[theirs])
    return replace(held, train=replace(held.train, x=train), test=replace(held.test, x=test))


def _owners(name: str, held: DomainRows, split: Split, rows: Array) -> Array:
    """Return the number of the client that each of these rows belongs to: the only one, or that of its group."""
    if len(held.clients) == 1:
        return np.zeros(len(rows), dtype=np.int64)
    owners = np.full(len(rows), -1)
    if held.train.groups is not None and split.groups is not None:
        for number, own in enumerate(held.clients):
            theirs = np.isin(split.groups[rows], held.train.groups[own])
            if (owners[theirs] >= 0).any():
                owners[:] = -1  # a group that is on two clients belongs to none
                break
            owners[theirs] = number
    if (owners < 0).any():
        raise DataError(
            f'domain {name}: data.standardise = "participant": some test rows belong to no participant: set it to '
            '"everyone", or take a natural partition and data.split = "row"'
        )
    return owners


def _changed(split: Split, moments: Moments) -> Split:
    return replace(split, x=moments.applied(split.x))
