"""The clock over a pool of Ray workers."""

from __future__ import annotations

from heterophony.engines.engine import Engine
from heterophony.engines.ray_host import RayHost
from heterophony.tables.result import Result


class RayEngine(Engine):
    """An `Engine` that has workers while it runs, and gives their cores back afterwards."""

    host: RayHost

    def run(self, rounds: int | None = None) -> Result:
        with self.host.working():
            return super().run(rounds)
