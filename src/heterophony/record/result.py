"""What a finished run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heterophony.record.ledger import Ledger
from heterophony.record.table import Table

if TYPE_CHECKING:
    from heterophony.engines.host import Host


@dataclass(frozen=True)
class Result:
    """Tables as plain rows, the digest of all final models, virtual and real seconds."""

    rounds: int
    table: Table
    ledger: Ledger
    digest: str
    clock: float
    seconds: float
    host: Host = field(repr=False)

    def state(self, node: str) -> dict[str, Any]:
        """A node's final state: models, optimisers, variables."""
        return self.host.state(node)
