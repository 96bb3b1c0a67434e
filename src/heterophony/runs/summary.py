"""What a run has to say: the object that `show --json` prints, and that a report, a comparison or a table reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from heterophony.base.disk import Disk
from heterophony.base.machine import machine
from heterophony.base.seal import sealed
from heterophony.runs import findings
from heterophony.runs.findings.finding import Evidence, Finding
from heterophony.runs.run import Run, RunError
from heterophony.tables.ledger import Ledger
from heterophony.tables.metrics import Metrics, best_round, measure
from heterophony.tables.result import Result
from heterophony.tables.table import Table
from heterophony.tasks.classification import LABELS
from heterophony.tasks.score import Score
from heterophony.tasks.task import Task, described, unpacked

FILE = "result.json"
NEEDED = frozenset({"method", "rounds", "metrics", "bytes", "digest", "seconds"})  # in every version's file
Found = TypeVar("Found", bound=Finding)


@dataclass(frozen=True)
class Best:
    """The round with the best figure on validation rows.

    Leaves of a tree count their own trainings: then `round` is the root's at that time and `training` is theirs.
    """

    round: int
    metrics: Metrics
    training: int | None = None

    def as_json(self) -> dict[str, Any]:
        training = {} if self.training is None else {"training": self.training}
        return {"round": self.round, **self.metrics.as_dict(), **training}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Best:
        figures = {name: one for name, one in value.items() if name not in ("round", "training")}
        return cls(value["round"], Metrics.from_dict(figures), value.get("training"))


@dataclass(frozen=True)
class Summary:
    """What a run has come to: figures of the product that is the method's headline, traffic, and findings.

    Of a run that has not ended, `digest`, `seconds`, `clock` and `machine` are None.
    """

    method: str
    setting: str | None  # None: built in Python
    seed: int
    product: str
    rounds: int
    metrics: Metrics
    best: Best | None  # None without validation rows
    bytes: Mapping[str, int]  # that left nodes, by kind of message
    incidents: int
    findings: tuple[Finding, ...] = ()
    digest: str | None = None
    seconds: float | None = None
    clock: float | None = None  # virtual seconds
    machine: str | None = None
    finished: bool = False
    unchecked: bool = field(default=False, kw_only=True)  # begun before run folders had checksums
    task: Task = field(default=LABELS, kw_only=True)

    @property
    def score(self) -> Score:
        """The score by which models are judged."""
        return self.task.scores[0]

    @property
    def sent(self) -> int:
        """All bytes that left nodes."""
        return sum(self.bytes.values())

    def found(self, kind: type[Found]) -> Found | None:
        """Return the finding of a kind; None where the run has none."""
        return next((each for each in self.findings if isinstance(each, kind)), None)

    def having(self, finding: Finding) -> Summary:
        """Return the same summary with this finding in place of any other of its kind."""
        others = [each for each in self.findings if type(each) is not type(finding)]
        return dataclasses.replace(self, findings=(*others, finding))

    def as_json(self) -> dict[str, Any]:
        """Return the object that `show --json` prints."""
        return {
            "method": self.method,
            "setting": self.setting,
            "seed": self.seed,
            "product": self.product,
            "metrics": self.metrics.as_dict(),
            "best": None if self.best is None else self.best.as_json(),
            "bytes": {"total": self.sent, **self.bytes},
            "incidents": self.incidents,
            **{finding.key: finding.value for finding in self.findings},
            "rounds": self.rounds,
            "digest": self.digest,
            "seconds": self.seconds,
            "clock": self.clock,
            "machine": self.machine,
            "finished": self.finished,
            **({"unchecked": True} if self.unchecked else {}),
            **described(self.task),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Summary:
        """Return the summary that such an object stands for. Files of older versions may lack what came later."""
        best = value.get("best")
        return cls(
            method=value["method"],
            setting=value.get("setting"),
            seed=value.get("seed", 0),
            product=value.get("product", ""),
            rounds=value["rounds"],
            metrics=Metrics.from_dict(value["metrics"]),
            best=None if best is None else Best.from_json(best),
            bytes={kind: n for kind, n in value["bytes"].items() if kind != "total"},
            incidents=value.get("incidents", 0),
            findings=tuple(kind(value[kind.key]) for kind in findings.ALL if kind.key in value),
            digest=value["digest"],
            seconds=value["seconds"],
            clock=value.get("clock"),
            machine=value.get("machine"),
            finished=value.get("finished", True),
            unchecked=value.get("unchecked", False),
            task=task_of(value),
        )

    @classmethod
    def of(cls, spec: Mapping[str, Any], result: Result) -> Summary:
        """Sum up a run that has come to its end."""
        return dataclasses.replace(
            _known(Evidence(spec, result.table, result.ledger), result.rounds),
            digest=result.digest,
            seconds=round(result.seconds, 3),
            clock=result.clock,
            machine=machine(spec["device"]),
            finished=True,
        )

    @classmethod
    def load(cls, folder: Path) -> Summary:
        """Read what a run folder has to say: as it was written at the end, or what is known so far."""
        spec = Run.spec(folder)
        Run(folder).check()
        found = written(folder)
        if found is None or found.rounds < Run(folder).goal:
            evidence = Evidence(spec, evaluations(folder, spec), Ledger(Run(folder).rows("ledger")))
            marked = [row["round"] for row in evidence.table if row["product"] == evidence.product]
            found = _known(evidence, rounds=1 + max(marked, default=-1))
        return dataclasses.replace(found, unchecked=not Run.checked(folder))


def task_of(spec: Mapping[str, Any]) -> Task:
    """Return the task of a run by its description. One that names none is of classes."""
    return unpacked(spec["task"]) if "task" in spec else LABELS


def evaluations(folder: Path, spec: Mapping[str, Any]) -> Table:
    """Return the evaluation table of a run folder."""
    return Table(Run(folder).rows("metrics"), task_of(spec))


def written(folder: Path) -> Summary | None:
    """Return what a finished run wrote down; None where it has not ended, or its tables have grown since."""
    found = Run.part(folder, FILE)
    if found is None:
        return None
    if not found.keys() >= NEEDED:
        raise RunError(f"{folder / FILE} is damaged: it lacks a part")
    tables = found.pop("tables", None)
    if tables not in (None, Run(folder).sums_of_tables()):
        return None
    return Summary.from_json(found)


def finish(spec: Mapping[str, Any], result: Result, folder: Path | None) -> Summary:
    """Sum up a run that has come to its end, and write that into its folder unless it stands there already."""
    made = Summary.of(spec, result)
    if folder is None:
        return made
    known = written(folder)
    if known is not None and known.rounds == made.rounds:  # nothing was left to do
        return known
    data = {**made.as_json(), "tables": Run(folder).sums_of_tables()}
    Disk().replace(folder / FILE, sealed(data, indent=1))
    return made


def _known(evidence: Evidence, rounds: int) -> Summary:
    """Sum up what is known of a run, whether it has ended or not."""
    spec, recipe = evidence.spec, evidence.recipe
    found = [kind.of(evidence) for kind in findings.ALL]
    return Summary(
        method=recipe.get("method", spec["method"]),
        setting=recipe.get("setting", {}).get("name"),
        seed=spec["seed"],
        product=evidence.product,
        rounds=rounds,
        metrics=measure(evidence.table, evidence.homes, evidence.product),
        best=_best(evidence),
        bytes=evidence.ledger.bytes(),
        incidents=len(evidence.incidents),
        findings=tuple(finding for finding in found if finding is not None),
        task=evidence.table.task,
    )


def _best(evidence: Evidence) -> Best | None:
    """Return the best round by validation, by the root's count where the run is a tree."""
    best = best_round(evidence.table, evidence.homes, evidence.product)
    if best is None:
        return None
    metrics = measure(evidence.table, evidence.homes, evidence.product, round=best)
    wanted = (evidence.product, "validation", best)
    chosen = [row for row in evidence.table if (row["product"], row["split"], row["round"]) == wanted]
    root = next((node for node, role in evidence.spec["nodes"].items() if role == "root"), None)
    if root is None or any(row["node"] == root for row in chosen):
        return Best(best, metrics)
    end = max(row["time"] for row in chosen)
    begun = [row["round"] for row in evidence.ledger.messages if row["from"] == root and row["time"] < end]
    return Best(max(begun), metrics, training=best) if begun else Best(best, metrics)
