"""An experiment as far as its runs are finished: its table and claims, gathered from the run folders and written."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from heterophony.kernel.compute import Compute
from heterophony.studies.experiments import facts, written
from heterophony.studies.experiments.claims import claims
from heterophony.studies.experiments.experiment import Experiment, ExperimentError
from heterophony.studies.experiments.planning import GroupAndArm, Version, fits, planned_runs
from heterophony.studies.experiments.rows import Row, gather, table


@dataclass(frozen=True)
class Reproduction:
    """What came of an experiment, and the Markdown file that says it."""

    facts: dict[str, Any]
    rows: list[Row]
    claims: list[dict[str, Any]]
    page: Path

    def as_json(self) -> str:
        """Return all of it as one JSON object."""
        return json.dumps({**self.facts, "rows": [asdict(row) for row in self.rows], "claims": self.claims})


def reproduction(
    experiment: Experiment,
    version: Version,
    folder: Path,
    compute: Compute = Compute(),
    data: Path | None = None,
    made: Collection[GroupAndArm] = (),
) -> Reproduction:
    """Gather what is finished in a folder, and write it there.

    It is always the whole table as far as it goes, so that parts which were run one by one add up. `made` names the
    runs that the user asked for: their folders must hold these runs. Other folders that hold something else are left
    out.
    """
    whole = replace(version, only=())
    every = planned_runs(experiment, whole, folder, compute, data)
    known = {place: [planned for planned in runs if place in made or fits(planned)] for place, runs in every.items()}
    found = gather(experiment, known)
    rows, said = table(experiment, found), claims(experiment, found)
    if not rows:
        raise ExperimentError(f"{folder} holds no finished run of {experiment.name}")
    about = facts.about(experiment, whole, known)
    return Reproduction(about, rows, said, written.write(folder, about, rows, said))
