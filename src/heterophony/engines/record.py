"""What an engine asks of the folder that keeps a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from heterophony.base.store import Store

if TYPE_CHECKING:
    from heterophony.engines.engine import Engine


class Record(Protocol):
    """Keeps a run on disk. `heterophony.runs.run.Run` is the one we have."""

    folder: Path
    nodes: Store  # rows of nodes, as a snapshot has them

    @property
    def seconds(self) -> float:
        """Return the real time of all processes that worked on the run."""

    @property
    def exists(self) -> bool:
        """Say whether there is a snapshot to go on from."""

    def begin(self) -> None:
        """Clear what was left by a run that was killed before its first snapshot."""

    def load(self, engine: Engine) -> None:
        """Put an engine into the state of the last snapshot."""

    def refuse_fewer(self, rounds: int, known: int) -> None:
        """Raise if a run is to end earlier than it was begun for."""

    def due(self) -> bool:
        """Say whether it is time for the next snapshot."""

    def save(self, engine: Engine) -> None:
        """Write a snapshot of the engine."""
