"""Methods side by side: every one on the same data, partition and seeds, with intervals and paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heterophony.base import toml
from heterophony.base.amounts import size
from heterophony.catalogue import registry
from heterophony.kernel.compute import Compute
from heterophony.kernel.networks import Slice
from heterophony.runs.findings.diverged import Diverged
from heterophony.runs.findings.skipped import Skipped
from heterophony.runs.summary import Summary
from heterophony.settings import Setting
from heterophony.settings.assemble import flat
from heterophony.settings.capacities import several
from heterophony.studies.campaign import PlannedRun
from heterophony.tables.interval import Interval, holm, interval, mean, paired
from heterophony.tasks.classification import LABELS
from heterophony.tasks.score import ACCURACY, Score
from heterophony.tasks.task import Task

SMALLEST = "-smallest"  # behind a method's name: everyone has the smallest slice
METRICS = ("acc", "wdp", "cdp", "inter", "worst", "private")
COLUMNS = ("acc", "wdp", "cdp", "worst")  # of the table
TITLES = {"acc": "all", "wdp": "own", "cdp": "others", "inter": "inter", "worst": "worst client"}

NAMES = {TITLES.get(name, name).split()[0]: name for name in METRICS}  # as on the command line -> as papers have them


class ComparisonError(ValueError):
    """A comparison that cannot be made; one line that says why."""


@dataclass(frozen=True)
class Compared:
    """One method of a comparison."""

    label: str
    figures: dict[str, Interval | None]  # by metric
    by_seed: dict[int, float]  # of the metric that is compared; without seeds whose runs diverged
    diverged: tuple[int, ...]  # seeds in which models gave outputs that are no numbers
    p: float | None  # of being as good as the best; None for the best itself and where it is not known
    rounds: int
    bytes: float  # mean over seeds
    clock: float | None  # virtual seconds
    seconds: float | None
    skipped: int = 0  # merges for which there were too few sound answers, in all seeds

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        figures = {
            name: None if found is None else {"mean": found.mean, "half": found.half, "n": found.n}
            for name, found in self.figures.items()
        }
        return {
            "method": self.label,
            "figures": figures,
            "by_seed": self.by_seed,
            "diverged": list(self.diverged),
            "p": self.p,
            "rounds": self.rounds,
            "bytes": self.bytes,
            "clock": self.clock,
            "seconds": self.seconds,
            "skipped": self.skipped,
        }


@dataclass(frozen=True)
class Comparison:
    """Methods side by side, in the order in which they were named."""

    setting: str
    metric: str
    seeds: tuple[int, ...]
    methods: tuple[Compared, ...]
    best: str | None
    task: Task = LABELS

    @property
    def score(self) -> Score:
        """The score that is compared: that by which the task judges models, on some sets, or another of its own."""
        return next((score for score in self.task.scores if score.name == self.metric), self.task.scores[0])

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        methods = [method.as_dict() for method in self.methods]
        head = {"setting": self.setting, "metric": self.metric, "seeds": list(self.seeds), "best": self.best}
        return {**head, "methods": methods}


def planned_runs(
    methods: Sequence[str],
    setting: Setting,
    *,
    seeds: Sequence[int],
    folder: Path,
    rounds: int | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    changes: Mapping[str, Any] | None = None,
    compute: Compute = Compute(),
    data: Path | None = None,
) -> list[PlannedRun]:
    """Plan one run for each method and seed, seeds first, so that all methods have their first figures early.

    Where participants can hold different amounts of a network, the first method that cuts slices also runs with the
    smallest slice for all.
    """
    names = list(dict.fromkeys(methods))
    entries = {name: registry.lookup(name) for name in names}
    arms: list[tuple[str, str, dict[str, Any]]] = [(name, name, {}) for name in names]
    slicing = [name for name in names if cuts(entries[name])]
    if slicing and several(setting):
        arms.append((f"{slicing[0]}{SMALLEST}", slicing[0], {"models.smallest": True}))
    found = []
    for seed in seeds:
        for label, name, more in arms:
            own = dict((options or {}).get(name, {})) | more
            asked = own.pop("rounds", None)
            found.append(
                PlannedRun(
                    label=label,
                    method=name,
                    setting=setting,
                    folder=folder / label / f"seed-{seed}",
                    seed=seed,
                    rounds=rounds or asked,
                    changes={**own, **(changes or {})},
                    compute=compute,
                    data=data,
                )
            )
    return found


def cuts(entry: registry.Entry) -> bool:
    """Return whether a method cuts slices of a common network."""
    return any(isinstance(choice, Slice) for own in entry.base.models.values() for choice in own.values())


def replanned(wanted: Sequence[PlannedRun]) -> str:
    """Say which methods have rounds of their own in the setting, and got others; nothing where none has."""
    said = {}
    for planned in wanted:
        own = planned.setting.methods.get(planned.method, {}).get("rounds")
        if own is not None and own != planned.goal:
            said[planned.method] = f"{planned.method} has {own}, gets {planned.goal}"
    return ", ".join(said.values())


def left_over(folder: Path, wanted: Sequence[PlannedRun]) -> str:
    """Say which methods and seeds have finished runs in a folder of comparisons and are not among the wanted ones."""
    known = {planned.folder for planned in wanted}
    rest = [path.parent for path in sorted(folder.glob("*/seed-*/result.json")) if path.parent not in known]
    methods = {planned.label for planned in wanted}
    others = list(dict.fromkeys(path.parent.name for path in rest if path.parent.name not in methods))
    names = {path.name.removeprefix("seed-") for path in rest}
    numbers = {int(name) for name in names if name.isdigit()} - {planned.seed for planned in wanted}
    parts = []
    if others:
        parts.append(", ".join(others))
    if numbers:
        parts.append(f"seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}")
    return " and ".join(parts)


def read_options(path: Path) -> dict[str, dict[str, Any]]:
    """Read a TOML file with a table of options for each method; return them by their whole names."""
    tables = toml.parsed(toml.text(path, ComparisonError), path, ComparisonError)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ComparisonError(f"{path}: {name} is no table; write [{name}] for the options of a method")
    found = {}
    for name, table in tables.items():
        try:
            found[name] = _method_options(name, table)
        except ValueError as error:
            raise ComparisonError(f"{path}: [{name}]: {error}") from None
    return found


def _method_options(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Check one method's options, and return them by their whole names."""
    entry = registry.lookup(name)
    plan = {key: table[key] for key in ("rounds", "evaluate") if key in table}
    own = {key: value for key, value in table.items() if key not in plan}
    given = {entry.full_name(key): value for key, value in flat(own, entry.options()).items()}
    entry.build(given)
    rounds = plan.get("rounds", 1)
    if rounds is not None and (not isinstance(rounds, int) or rounds < 1):
        raise ValueError(f"rounds is a whole number of at least 1, got {rounds!r}")
    return {**given, **plan}


def metrics_of(task: Task) -> tuple[str, ...]:
    """Return the names of all figures that can be compared: on some sets, and the task's other scores on all."""
    return (*METRICS, *(score.name for score in task.scores[1:]))


def names_of(task: Task) -> dict[str, str]:
    """Return all figures by the names of the command line, and what papers call them."""
    return {**NAMES, **{score.name: score.name for score in task.scores[1:]}}


def metric_of(name: str, task: Task = LABELS) -> str:
    """Return a metric by its own name or by the heading of its column."""
    known = names_of(task)
    if (found := known.get(name, name)) not in known.values():
        raise ComparisonError(f"there is no metric {name!r}; it is one of {', '.join(known)}")
    return found


def compare(setting: str, runs: Sequence[tuple[str, int, Summary]], metric: str = "acc") -> Comparison:
    """Compare runs, each given as (label, seed, summary); those of one label have had equally many rounds.

    The best has the highest mean. The others' p is of a paired test against it, corrected for their number. The best is
    chosen by the figures it is then compared on, so a small p against it is a little too small.
    """
    task = next((summary.task for _, _, summary in runs), LABELS)
    metric = metric_of(metric, task)
    by_label: dict[str, dict[int, Summary]] = {}
    for label, seed, summary in runs:
        by_label.setdefault(label, {})[seed] = summary
    values = {label: _values(own, metric) for label, own in by_label.items()}
    # Whoever came to nothing in one of the seeds cannot be the best by the others.
    whole = {label: own for label, own in values.items() if own and len(own) == len(by_label[label])}
    means = {label: sum(own.values()) / len(own) for label, own in whole.items()}
    best = _best(means, Comparison(setting, metric, (), (), None, task).score)
    ps = {} if best is None else _tests(values, best)
    methods = tuple(_compared(label, own, values[label], ps.get(label)) for label, own in by_label.items())
    seeds = tuple(sorted({seed for _, seed, _ in runs}))
    return Comparison(setting, metric, seeds, methods, best, task)


def _best(means: Mapping[str, float], score: Score) -> str | None:
    last = max if score.higher else min
    return last(means, key=means.__getitem__) if means else None


def _values(own: Mapping[int, Summary], metric: str) -> dict[int, float]:
    """Return the figures of the metric by seed, of the runs that have one."""
    found = {seed: summary.metrics.get(metric) for seed, summary in own.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def _tests(values: Mapping[str, Mapping[int, float]], best: str) -> dict[str, float | None]:
    """Return the corrected p of every other method being as good as the best."""
    return holm({label: paired(own, values[best]) for label, own in values.items() if label != best})


def _compared(label: str, own: Mapping[int, Summary], values: dict[int, float], p: float | None) -> Compared:
    """Sum up the runs of one method."""
    ordered = [own[seed] for seed in sorted(own)]
    rounds = sorted({summary.rounds for summary in ordered})
    if len(rounds) > 1:
        raise ComparisonError(f"{label}: its seeds have had {' and '.join(map(str, rounds))} rounds: no mean of those")
    skipped = [summary.found(Skipped) for summary in ordered]
    return Compared(
        label=label,
        figures={
            name: interval([summary.metrics.get(name) for summary in ordered]) for name in metrics_of(ordered[0].task)
        },
        by_seed=values,
        diverged=tuple(seed for seed in sorted(own) if own[seed].found(Diverged)),
        p=p,
        rounds=rounds[0],
        bytes=mean(summary.sent for summary in ordered) or 0.0,
        clock=mean(summary.clock for summary in ordered),
        seconds=mean(summary.seconds for summary in ordered),
        skipped=sum(found.value for found in skipped if found),
    )


# -- as a table -------------------------------------------------------------------------------------------------
def header(comparison: Comparison) -> list[str]:
    """Return the heads of the table's columns."""
    figures = [TITLES.get(name, name) for name in columns(comparison)]
    return ["method", *figures, "rounds", "sent", "virtual", "wall", *(["p"] if tested(comparison) else [])]


def tested(comparison: Comparison) -> bool:
    """Return whether there is anything to test: several methods and seeds."""
    return len(comparison.methods) > 1 and len(comparison.seeds) > 1 and comparison.best is not None


def columns(comparison: Comparison) -> list[str]:
    """Return the figures that are shown: what is compared, then those that anyone has."""
    others = [name for name in COLUMNS if any(method.figures[name] is not None for method in comparison.methods)]
    if one_domain(comparison):
        others = [name for name in others if name != "wdp"]  # the same as all
    return list(dict.fromkeys((comparison.metric, *others)))


def one_domain(comparison: Comparison) -> bool:
    """Return whether everyone's own domain is all there is."""
    figures = [method.figures for method in comparison.methods]
    return all(own["cdp"] is None and own["wdp"] == own["acc"] for own in figures)


def cells(comparison: Comparison) -> list[list[str]]:
    """Return the rows of the table, one a method."""
    found = []
    for method in comparison.methods:
        figures = [figure(method.figures[name], score_of(comparison, name)) for name in columns(comparison)]
        if method.diverged and method.figures[comparison.metric] is None:
            figures[0] = "diverged"
        row = [method.label, *figures, str(method.rounds), size(method.bytes)]
        row += [_seconds(method.clock), _seconds(method.seconds)]
        if tested(comparison):
            row.append(_p(method, comparison.best))
        found.append(row)
    return found


def _p(method: Compared, best: str | None) -> str:
    """Return the cell with a method's p against the best."""
    if method.label == best:
        return "best"
    return "-" if method.p is None else p_text(method.p)


def figure(found: Interval | None, score: Score = ACCURACY) -> str:
    """Write a figure with its interval."""
    return "-" if found is None else found.text(score.scale, score.digits)


def score_of(comparison: Comparison, name: str) -> Score:
    """Return the score of a column."""
    return next((score for score in comparison.task.scores if score.name == name), comparison.task.scores[0])


def p_text(value: float) -> str:
    """Write a p."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Write a table in Markdown: names to the left, figures to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def note(comparison: Comparison) -> str:
    """Say what the figures mean."""
    several = len(comparison.seeds) > 1
    title = TITLES.get(comparison.metric, comparison.metric)
    where = "" if one_domain(comparison) else " of all, the own and the others' domains"
    seeds = f"seed{'s' if several else ''} {', '.join(map(str, comparison.seeds))}"
    what = _measured(comparison)
    parts = [f"{what} on test data{where}, last round, {seeds}"]
    if several:
        parts[0] += ": mean and half of the 95 % interval (t)"
    if lost := _lost(comparison):
        parts.append(f"outputs are no numbers any more (a lower learning rate may help): {', '.join(lost)}")
    if skipped := [f"{method.label} {method.skipped}" for method in comparison.methods if method.skipped]:
        parts.append(f"merges skipped for want of sound answers (`heterophony ledger` has why): {', '.join(skipped)}")
    if comparison.best is None:
        parts.append(f"none is best by {title}, which none of them has")
    elif tested(comparison):
        parts.append(f"p: paired t test by seed, with Holm's correction, against the best by {title}")
    return "; ".join(parts)


def _measured(comparison: Comparison) -> str:
    """Say which scores the columns are of; nothing is said of accuracy but that it is in per cent."""
    scores = list(dict.fromkeys(score_of(comparison, name) for name in columns(comparison)))
    if scores == [ACCURACY]:
        return "Per cent"
    return " and ".join(f"{score.label} (per cent)" if score.percent else score.label for score in scores)


def _lost(comparison: Comparison) -> list[str]:
    """Name the methods whose runs diverged, and in how many seeds."""
    total, found = len(comparison.seeds), []
    for method in comparison.methods:
        if method.diverged:
            how_many = f" in {len(method.diverged)} of {total} seeds" if total > 1 else ""
            found.append(method.label + how_many)
    return found
