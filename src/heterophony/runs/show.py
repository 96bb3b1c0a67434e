"""What a person reads of a run: a table of its figures and the lines below it, two runs compared, a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heterophony.base.amounts import counted, size
from heterophony.runs import findings
from heterophony.runs.findings.finding import Finding
from heterophony.runs.findings.gains import Gains
from heterophony.runs.findings.refusals import RefusedMessages
from heterophony.runs.findings.skipped import Skipped
from heterophony.runs.run import Run, RunError
from heterophony.runs.summary import Summary, evaluations, task_of
from heterophony.tables import clients
from heterophony.tables.ledger import Ledger
from heterophony.tables.metrics import Figures, Metrics
from heterophony.tasks.classification import LABELS
from heterophony.tasks.score import Score

if TYPE_CHECKING:
    from rich.table import Table as Grid

TITLES = {"acc": "all domains", "wdp": "own domain", "cdp": "other domains", "private": "private test"}


# -- one run -----------------------------------------------------------------------------------------------------
def table(summary: Summary, most: int | None = None) -> Grid:
    """Return a rich table of the figures of the first participants, of all if no number is given, and of their mean."""
    from rich.table import Table as Grid

    setting = "" if summary.setting is None else f" on {summary.setting}"
    grid = Grid(title=f"{summary.method}{setting}, seed {summary.seed}", title_justify="left")
    score, columns = summary.score, _columns(summary.metrics, summary.score)
    grid.add_column("participant")
    for title in columns.values():
        grid.add_column(title, justify="right")
    everyone = summary.metrics.participants
    for name, own in islice(everyone.items(), most):
        grid.add_row(name, *(score.text(own[key]) for key in columns))
    if most is not None and len(everyone) > most:
        grid.add_row(f"({len(everyone) - most} more)", *("" for _ in columns))
    grid.add_section()
    grid.add_row("mean", *(score.text(getattr(summary.metrics, key)) for key in columns), style="bold")
    return grid


def _columns(metrics: Metrics, score: Score) -> dict[str, str]:
    """Return the figures that say something, and their titles: one domain is the own and all there is."""
    rows: list[Figures] = [{key: getattr(metrics, key) for key in TITLES}, *metrics.participants.values()]
    titles = {
        key: title for key, title in TITLES.items() if key == "acc" or any(row.get(key) is not None for row in rows)
    }
    if "cdp" in titles or any(row["wdp"] != row["acc"] for row in rows):
        return titles
    alone = {"acc": score.label}
    return alone | ({"private": titles["private"]} if "private" in titles else {})


def lines(summary: Summary, kept: bool = True) -> list[str]:
    """Return what goes below the table. Of a run that is not `kept` in a folder, no other command can tell more."""
    resume = "Federation.resume" if summary.setting is None else "heterophony resume"
    if not summary.rounds:
        refused = summary.found(RefusedMessages)
        said = [] if refused is None else refused.lines(summary)
        return [f"no round is finished yet: `{resume}` continues it", *said]
    text = [_reached(summary), *_scores(summary), *_best(summary)]
    text += _said(summary, findings.FIGURES)
    text.append(_traffic(summary, kept))
    text += _said(summary, findings.WARNINGS)
    if summary.unchecked:
        text.append("UNCHECKED: begun before run folders had checksums, so that a changed figure may go unnoticed")
    if summary.finished and summary.seconds is not None and summary.digest is not None:
        text.append(f"{summary.seconds:.1f} s, models {summary.digest[:12]}")
    else:
        text.append(f"not finished: `{resume}` continues it")
    return text


def _said(summary: Summary, kinds: Sequence[type[Finding]]) -> list[str]:
    """Return the lines of the findings of these kinds, in this order."""
    found = [summary.found(kind) for kind in kinds]
    return [line for finding in found if finding is not None for line in finding.lines(summary)]


def _reached(summary: Summary) -> str:
    worst = summary.score.text(summary.metrics.worst)
    rounds = counted(summary.rounds, "round")
    return f"after {rounds}, product {summary.product!r}; worst participant on its own domain {worst}"


def _scores(summary: Summary) -> list[str]:
    """Return the task's other scores. The usual ones of classes are many, and stand in JSON and tables."""
    usual = LABELS.scores if summary.task.kind == "classification" else summary.task.scores[:1]
    metrics = summary.metrics.scores
    said = [f"{own.label} {own.text(metrics.get(own.name))}" for own in summary.task.scores if own not in usual]
    if not said:
        return []
    return [f"on all test data, mean over participants: {', '.join(said)}"]


def _best(summary: Summary) -> list[str]:
    best = summary.best
    if best is None:
        return []
    whose = "" if best.training is None else "the root's "
    return [f"best by validation: {whose}round {best.round + 1}, all domains {summary.score.text(best.metrics.acc)}"]


def _traffic(summary: Summary, kept: bool) -> str:
    """Return how much was sent, and how much of it went wrong."""
    kinds = ", ".join(f"{kind} {size(n)}" for kind, n in summary.bytes.items()) or "nothing"
    troubles = counted(summary.incidents, "incident")
    skipped = summary.found(Skipped)
    if skipped is not None:
        troubles += f", among them {counted(skipped.value, 'skipped merge')} (too few answers)"
    if summary.incidents:
        troubles += ": see `heterophony ledger`" if kept else ": with --out, `heterophony ledger` lists them"
    return f"sent {size(summary.sent)}: {kinds}; {troubles}"


# -- two runs ----------------------------------------------------------------------------------------------------
def against(folder: Path, other: Path) -> Gains:
    """Compare two runs, participant by participant, on its own data, which must be the same."""
    ours, theirs = Run.spec(folder), Run.spec(other)
    for what, a, b in (
        ("participants", sorted(ours["homes"].items()), sorted(theirs["homes"].items())),
        ("seed", ours["seed"], theirs["seed"]),
        ("data", _data(ours), _data(theirs)),
    ):
        if a != b:
            named = f": {a} and {b}" if what == "seed" else ""
            raise RunError(f"{folder} and {other} cannot be compared, they differ in their {what}{named}")
    mine, known = _own(folder, ours), _own(other, theirs)
    rounds = [Summary.load(place).rounds for place in (folder, other)]
    after = "" if rounds[0] == rounds[1] else f" (after {counted(rounds[1], 'round')})"
    return Gains.between(mine, known, f"{other}{after}", task_of(ours).scores[0])


def _data(spec: dict[str, Any]) -> Any:
    return (spec.get("recipe") or {}).get("setting", {}).get("data")


def _own(folder: Path, spec: dict[str, Any]) -> clients.ByParticipant:
    return clients.own(evaluations(folder, spec), spec["homes"], spec["headline"])


# -- the ledger --------------------------------------------------------------------------------------------------
def ledger(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a run's traffic by edge, kind and status, and its incidents."""
    Run.spec(folder)
    book = Ledger(Run(folder).rows("ledger"))
    edges: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in book.messages:
        named = {name: row[name] for name in ("from", "to", "kind", "status")}
        edge = edges.setdefault(tuple(named.values()), {**named, "messages": 0, "bytes": 0, "wire": 0})
        edge["messages"] += 1
        edge["bytes"] += row["payload"] * row["hops"]
        edge["wire"] += row["wire"] * row["hops"]
    return list(edges.values()), book.incidents
