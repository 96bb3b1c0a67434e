"""What a run folder gets beside its tables: who takes part as a run begins, what came of their networks at its end."""

from __future__ import annotations

from pathlib import Path

from heterophony.federation import Federation
from heterophony.runs import correlations, features, population
from heterophony.tables.result import Result


def begin(federation: Federation, folder: Path) -> None:
    """Write down who takes part, before the run begins."""
    population.write(federation, folder)


def end(federation: Federation, result: Result, folder: Path) -> None:
    """Write down what came of the networks, after the run has ended."""
    if federation.method.correlates:
        correlations.write(federation, result, folder)
    features.write(federation, result, folder)
