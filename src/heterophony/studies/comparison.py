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
from heterophony.runs.findings.diverged import Diverged
from heterophony.runs.findings.skipped import Skipped
from heterophony.runs.summary import Summary
from heterophony.settings import Setting
from heterophony.settings.assemble import flat
from heterophony.studies.campaign import Order
from heterophony.tables.interval import Interval, holm, interval, mean, paired

METRICS = ("acc", "wdp", "cdp", "inter", "worst", "private", "top5", "f1")
COLUMNS = ("acc", "wdp", "cdp", "worst")  # of the table
TITLES = {"acc": "all", "wdp": "own", "cdp": "others", "inter": "inter", "worst": "worst client"}

NAMES = {TITLES.get(name, name).split()[0]: name for name in METRICS}  # as on the command line -> as papers have them


class ComparisonError(ValueError):
    """A comparison that cannot be made; one line that says why."""


@dataclass(frozen=True)
class Line:
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
    """The lines in the order in which the methods were named."""

    setting: str
    metric: str
    seeds: tuple[int, ...]
    lines: tuple[Line, ...]
    best: str | None

    def as_dict(self) -> dict[str, Any]:
        lines = [line.as_dict() for line in self.lines]
        head = {"setting": self.setting, "metric": self.metric, "seeds": list(self.seeds), "best": self.best}
        return {**head, "methods": lines}


def orders(
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
) -> list[Order]:
    """One run a method and seed, seeds first, so that all methods have their first figures early."""
    names = list(dict.fromkeys(methods))
    for name in names:
        registry.lookup(name)
    found = []
    for seed in seeds:
        for name in names:
            own = dict((options or {}).get(name, {}))
            asked = own.pop("rounds", None)
            found.append(
                Order(
                    name,
                    name,
                    setting,
                    folder / name / f"seed-{seed}",
                    seed,
                    rounds or asked,
                    {**own, **(changes or {})},
                    compute,
                    data,
                )
            )
    return found


def replanned(wanted: Sequence[Order]) -> str:
    """Which methods have rounds of their own in the setting, and got others; nothing where none has."""
    plans = {order.method: (order.setting.methods.get(order.method, {}).get("rounds"), order.goal) for order in wanted}
    return ", ".join(f"{name} has {own}, gets {got}" for name, (own, got) in plans.items() if own not in (None, got))


def left_over(folder: Path, wanted: Sequence[Order]) -> str:
    """The methods and the seeds of finished runs in a folder of comparisons that are not among these orders."""
    known = {order.folder for order in wanted}
    rest = [path.parent for path in sorted(folder.glob("*/seed-*/result.json")) if path.parent not in known]
    names = {order.method for order in wanted}
    others = list(dict.fromkeys(path.parent.name for path in rest if path.parent.name not in names))
    numbers = sorted({int(seed) for path in rest if (seed := path.name.removeprefix("seed-")).isdigit()})
    seeds = [str(seed) for seed in numbers if seed not in {order.seed for order in wanted}]
    parts = [", ".join(others)] if others else []
    parts += [f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"] if seeds else []
    return " and ".join(parts)


def read_options(path: Path) -> dict[str, dict[str, Any]]:
    """A TOML file with a table of options for each method, by their whole names."""
    tables = toml.parsed(toml.text(path, ComparisonError), path, ComparisonError)
    found: dict[str, dict[str, Any]] = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ComparisonError(f"{path}: {name} is no table; write [{name}] for the options of a method")
        try:
            entry = registry.lookup(name)
            plan = {key: table[key] for key in ("rounds", "evaluate") if key in table}
            own = {key: value for key, value in table.items() if key not in plan}
            given = {entry.full_name(key): value for key, value in flat(own, entry.options()).items()}
            entry.build(given)
        except ValueError as error:
            raise ComparisonError(f"{path}: [{name}]: {error}") from None
        if (rounds := plan.get("rounds", 1)) is not None and (not isinstance(rounds, int) or rounds < 1):
            raise ComparisonError(f"{path}: [{name}]: rounds is a whole number of at least 1, got {rounds!r}")
        found[name] = {**given, **plan}
    return found


def metric_of(name: str) -> str:
    """A metric, by its own name or by the heading of its column."""
    if (found := NAMES.get(name, name)) not in METRICS:
        raise ComparisonError(f"there is no metric {name!r}; it is one of {', '.join(NAMES)}")
    return found


def compare(setting: str, runs: Sequence[tuple[str, int, Summary]], metric: str = "acc") -> Comparison:
    """What runs (label, seed, summary) say; those of one label have had equal rounds.

    The best has the highest mean; the others' p is of a paired test against it, corrected.
    The best is chosen by the figures it is then compared on, so a small p against it is a little too small.
    """
    metric = metric_of(metric)
    labels = list(dict.fromkeys(label for label, _, _ in runs))
    by_label = {label: {seed: found for name, seed, found in runs if name == label} for label in labels}
    by_seed: dict[str, dict[int, float]] = {
        label: {seed: v for seed, f in own.items() if (v := getattr(f.metrics, metric)) is not None}
        for label, own in by_label.items()
    }
    lost = {
        label: tuple(seed for seed, f in sorted(own.items()) if f.found(Diverged)) for label, own in by_label.items()
    }
    # Whoever came to nothing in one of the seeds cannot be the best by the others.
    whole = {label: own for label, own in by_seed.items() if own and len(own) == len(by_label[label])}
    means = {label: sum(own.values()) / len(own) for label, own in whole.items()}
    best = max(means, key=means.__getitem__) if means else None
    raw = {label: paired(own, by_seed[best]) for label, own in by_seed.items() if best is not None and label != best}
    ps = holm(raw)
    lines = []
    for label, own in by_label.items():
        ordered = [own[seed] for seed in sorted(own)]
        figures = {name: interval([getattr(f.metrics, name) for f in ordered]) for name in METRICS}
        total = mean(f.sent for f in ordered)
        clock, seconds = mean(f.clock for f in ordered), mean(f.seconds for f in ordered)
        rounds = sorted({f.rounds for f in ordered})
        if len(rounds) > 1:
            raise ComparisonError(
                f"{label}: its seeds have had {' and '.join(map(str, rounds))} rounds: no mean of those"
            )
        known = by_seed[label], lost[label], ps.get(label)
        skipped = sum(found.value for f in ordered if (found := f.found(Skipped)))
        lines.append(Line(label, figures, *known, rounds[0], total or 0.0, clock, seconds, skipped))
    seeds = tuple(sorted({seed for _, seed, _ in runs}))
    return Comparison(setting, metric, seeds, tuple(lines), best)


# -- as a table -------------------------------------------------------------------------------------------------
def header(comparison: Comparison) -> list[str]:
    figures = [TITLES.get(name, name) for name in columns(comparison)]
    return ["method", *figures, "rounds", "sent", "virtual", "wall", *(["p"] if tested(comparison) else [])]


def tested(comparison: Comparison) -> bool:
    """Whether there is anything to test: several methods and seeds."""
    return len(comparison.lines) > 1 and len(comparison.seeds) > 1 and comparison.best is not None


def columns(comparison: Comparison) -> list[str]:
    """The figures that are shown: what is compared, then those that anyone has."""
    others = [name for name in COLUMNS if any(line.figures[name] is not None for line in comparison.lines)]
    if one_domain(comparison):
        others = [name for name in others if name != "wdp"]  # the same as all
    return list(dict.fromkeys((comparison.metric, *others)))


def one_domain(comparison: Comparison) -> bool:
    """Whether everyone's own domain is all there is."""
    figures = [line.figures for line in comparison.lines]
    return all(own["cdp"] is None and own["wdp"] == own["acc"] for own in figures)


def cells(comparison: Comparison) -> list[list[str]]:
    found = []
    for line in comparison.lines:
        figures = [figure(line.figures[name]) for name in columns(comparison)]
        if line.diverged and line.figures[comparison.metric] is None:
            figures[0] = "diverged"
        p = "best" if line.label == comparison.best else "-" if line.p is None else p_text(line.p)
        rest = [str(line.rounds), size(line.bytes), _seconds(line.clock), _seconds(line.seconds)]
        found.append([line.label, *figures, *rest, *([p] if tested(comparison) else [])])
    return found


def figure(found: Interval | None) -> str:
    return "-" if found is None else found.text()


def p_text(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown: names to the left, figures to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def note(comparison: Comparison) -> str:
    """What the figures mean."""
    seeds = f"seed{'s' if len(comparison.seeds) > 1 else ''} {', '.join(map(str, comparison.seeds))}"
    title = TITLES.get(comparison.metric, comparison.metric)
    where = "" if one_domain(comparison) else " of all, the own and the others' domains"
    text = f"Per cent on test data{where}, last round, {seeds}"
    if len(comparison.seeds) > 1:
        text += ": mean and half of the 95 % interval (t)"
    among = f" of {len(comparison.seeds)} seeds" if len(comparison.seeds) > 1 else ""
    lost = [
        line.label + (f" in {len(line.diverged)}{among}" if among else "") for line in comparison.lines if line.diverged
    ]
    if lost:
        text += f"; outputs are no numbers any more (a lower learning rate may help): {', '.join(lost)}"
    if skipped := [f"{line.label} {line.skipped}" for line in comparison.lines if line.skipped]:
        text += f"; merges skipped for want of sound answers (`heterophony ledger` has why): {', '.join(skipped)}"
    if comparison.best is None:
        return text + f"; none is best by {title}, which none of them has"
    tests = f"; p: paired t test by seed, with Holm's correction, against the best by {title}"
    return text + (tests if tested(comparison) else "")
