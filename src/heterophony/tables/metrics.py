"""The papers' metrics, as functions of the one evaluation table.

FedH2L pools samples: ACC over all sets, WDP on one's own, CDP over all the others. FCCL does not: intra is one's own
set, inter the plain mean over the others. Participants are averaged without weights. Undefined is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fractions import Fraction
from itertools import accumulate
from typing import Any

from heterophony.tables.table import Table
from heterophony.tasks.classification import Classification
from heterophony.tasks.score import Score

_PLACES = ("acc", "wdp", "cdp", "inter")  # on which sets a figure is
_TIE = 1e-12  # equal figures may differ by rounding

Evaluation = Mapping[str, Any]
Evaluations = Table | Sequence[Evaluation]
Figures = dict[str, float | None]
Rounds = int | Mapping[str, int]
_Model = dict[str, dict[str, Evaluation]]  # quantity -> set -> row
_Shares = list[tuple[Figures, int]]  # figures, and of how many participants they are


@dataclass(frozen=True)
class Metrics:
    """Means over participants of one product in one round; `worst` and `spread` are of WDP, or else of ACC.

    All of them are figures of the score by which the task is judged, such as accuracy; `scores` has the others.
    """

    acc: float | None = None
    wdp: float | None = None
    cdp: float | None = None
    intra: float | None = None
    inter: float | None = None
    worst: float | None = None
    spread: float | None = None
    private: float | None = None
    scores: Figures = field(default_factory=dict)  # all others of the task, pooled over all sets
    participants: dict[str, Figures] = field(default_factory=dict)

    def get(self, name: str) -> float | None:
        """Return a figure by its name: one of the fields, or one of `scores`."""
        found: float | None = self.scores[name] if name in self.scores else getattr(self, name, None)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as JSON has them: the other scores stand among the rest."""
        found = asdict(self)
        people, scores = found.pop("participants"), found.pop("scores")
        return {**found, **scores, "participants": people}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Metrics:
        """Return the metrics that such an object stands for."""
        own = {name: value[name] for name in (each.name for each in fields(cls)) if name in value}
        numbers = {name: one for name, one in value.items() if one is None or isinstance(one, int | float)}
        others = {name: one for name, one in numbers.items() if name not in own}
        return cls(**{"scores": others, **own})


def measure(
    table: Evaluations, homes: Mapping[str, str], product: str, *, split: str = "test", round: Rounds | None = None
) -> Metrics:
    """Return the metrics of a product after a round, or at the end.

    `round` is one for all, or by node (the models that `best_rounds` keeps). Of every participant's model its last
    evaluation until then counts: in a round that asks only some of them, the others' models stay as they are. Metrics
    are undefined while a participant has none. `homes` names each participant's own set; without any, whoever has the
    product is one, on all sets. Where only one node that is no participant has the product (a server's global model),
    every participant uses that model. Of two marks in one round the later counts.
    """
    rows, own_rows = _select(table, product, split), _select(table, product, "private-test")
    marked = rows or own_rows  # between organisations there may be no test set that everyone holds
    homes = homes or _homeless(marked)
    judged, *others = scores_of(table)
    audience = _audience(marked, homes, product)
    if not isinstance(round, Mapping):
        round = _last(marked, audience, round)
    models = _models(rows, audience, round)
    private = _models(own_rows, audience, round)
    shares: _Shares = []
    participants = {}
    for node, users in audience.items():
        model = models.get(node, {})
        all_sets = {score.name: pooled(score, model) for score in others}
        figures = _figures(judged, model, {homes[user] for user in users})
        own_tests = _pairs(judged, private.get(node, {}))
        for user in users:
            own = {**figures[homes[user]], "private": judged.figure(own_tests[user]) if user in own_tests else None}
            participants[user] = own
            shares.append(({**own, **all_sets}, 1))
    means = {name: _mean(shares, name) for name in (*_PLACES, "private")}
    basis = "acc" if means["wdp"] is None else "wdp"
    return Metrics(
        **means,
        intra=means["wdp"],
        worst=_worst(shares, basis, judged),
        spread=_spread(shares, basis),
        scores={score.name: _mean(shares, score.name) for score in others},
        participants=participants,
    )


def best_round(table: Evaluations, homes: Mapping[str, str], product: str) -> int | None:
    """Return the round with the best validation ACC, the earliest of equals; None without validation rows.

    Nothing in this module ever selects on test: this looks at the split "validation" alone.
    """
    entries = [at for at in curve(table, homes, product, split="validation") if at["acc"] is not None]
    sign = _sign(table)
    highest = max((sign * at["acc"] for at in entries), default=0.0)
    return next((at["round"] for at in entries if sign * at["acc"] >= highest - _TIE), None)


def best_rounds(table: Evaluations, homes: Mapping[str, str], product: str) -> dict[str, int]:
    """Return for each node that has the product the round in which its own validation ACC was best.

    Who has no server keeps the best of its own models, as in FedH2L. This looks at the split "validation" alone.
    """
    rows = _select(table, product, "validation")
    nodes = _audience(rows, homes, product)
    judged, sign = scores_of(table)[0], _sign(table)
    best: dict[str, tuple[float, int]] = {}
    for round, models in sorted(_by_round(rows, nodes).items()):
        for node, model in models.items():
            acc = pooled(judged, model)
            if acc is not None and sign * acc > best.get(node, (-math.inf, 0))[0] + _TIE:
                best[node] = sign * acc, round
    return {node: round for node, (_, round) in best.items()}


def diverged(table: Evaluations, product: str) -> list[str]:
    """Return the nodes whose model of this product gave outputs that are no numbers when it was evaluated last."""
    wanted = scores_of(table)[0].quantities
    last: dict[str, tuple[int, bool]] = {}
    for row in table:
        if row["product"] == product and row["quantity"] in wanted:
            round, lost = last.get(row["node"], (-1, False))
            if row["round"] >= round:
                last[row["node"]] = row["round"], row["sum"] is None or (lost and row["round"] == round)
    return sorted(node for node, (_, lost) in last.items() if lost)


def conflicts(table: Evaluations) -> dict[str, dict[str, float]]:
    """Return how often the two gradients of a node conflicted, for each node that noted their cosine (FedH2L).

    `share` is of its rounds. `cosine` is the mean in rounds of conflict; minus it is the share of a gradient that
    projection removes.
    """
    noted: dict[str, list[float]] = {}
    for row in table:
        if row["product"] == "note" and row["quantity"] == "gradients.cosine" and row["sum"] is not None:
            noted.setdefault(row["node"], []).append(row["sum"] / row["n"])
    found = {}
    for node, values in noted.items():
        against = [value for value in values if value < 0]
        strength = math.fsum(against) / len(against) if against else 0.0
        found[node] = {"rounds": len(values), "share": len(against) / len(values), "cosine": strength}
    return found


def curve(table: Evaluations, homes: Mapping[str, str], product: str, *, split: str = "test") -> list[dict[str, Any]]:
    """Return one entry per round, in order: round, time (of its last mark), acc, wdp, cdp and inter as in `measure`.

    A model counts from one round in which it was evaluated to the next. Until all are known there is None.
    """
    rows = _select(table, product, split)
    homes = homes or _homeless(rows)
    # Counted by home, since thousands can share a global model and a home.
    crowds = {node: Counter(homes[user] for user in users) for node, users in _audience(rows, homes, product).items()}
    everyone = sum(crowd.total() for crowd in crowds.values())
    judged = scores_of(table)[0]
    entries = []
    known: dict[str, dict[str, Figures]] = {}  # by node and home
    totals = _Totals()
    for round, models in sorted(_by_round(rows, crowds).items()):
        for node, model in models.items():  # only what has changed: rounds may be many, and cohorts small
            totals.add(known.get(node, {}), crowds[node], -1)
            known[node] = _figures(judged, model, crowds[node])
            totals.add(known[node], crowds[node], 1)
        first = judged.quantities[0]
        times = [row["time"] for model in models.values() for row in model.get(first, {}).values()]
        if times:
            means = totals.means(everyone, whole=len(known) == len(crowds))
            entries.append({"round": round, "time": max(times), **means})
    return entries


class _Totals:
    """Sums of the figures over participants, exact so that taking a model out leaves no rounding behind."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(_PLACES, Fraction())
        self.undefined = Counter[str]()

    def add(self, by_home: Mapping[str, Figures], crowd: Mapping[str, int], sign: int) -> None:
        """Add a model's figures for everyone who uses it, or take them out (`sign` -1)."""
        for home, own in by_home.items():
            for name in _PLACES:
                value = own[name]
                if value is None:
                    self.undefined[name] += sign * crowd[home]
                else:
                    self.sums[name] += sign * crowd[home] * Fraction(value)

    def means(self, everyone: int, whole: bool) -> Figures:
        """Return the means; None where one is undefined, or not all models are known (`whole`)."""
        found: Figures = {}
        for name in _PLACES:
            defined = whole and not self.undefined[name]
            found[name] = float(self.sums[name] / everyone) if defined else None
        return found


def scores_of(table: Evaluations | Iterable[Evaluation]) -> tuple[Score, ...]:
    """Return the scores of a table's task, the one by which models are judged first; plain rows are of classes."""
    return (table.task if isinstance(table, Table) else Classification()).scores


def _sign(table: Evaluations) -> int:
    """Return 1 where more is better, -1 where less is."""
    return 1 if scores_of(table)[0].higher else -1


def _select(table: Evaluations, product: str, split: str) -> list[Evaluation]:
    return [row for row in table if row["product"] == product and row["split"] == split]


def _homeless(rows: Iterable[Evaluation]) -> dict[str, str]:
    return {row["node"]: "" for row in rows}


def _audience(rows: Iterable[Evaluation], homes: Mapping[str, str], product: str) -> dict[str, list[str]]:
    """Return each node with a model that counts, and the participants who use it: itself, or all of them."""
    nodes = {row["node"] for row in rows}
    if not homes or not nodes or not nodes.isdisjoint(homes):
        return {participant: [participant] for participant in homes}
    if len(nodes) > 1:
        raise ValueError(
            f"no participant has the product {product!r}, and {len(nodes)} other nodes have it, such as {min(nodes)}"
        )
    return {nodes.pop(): list(homes)}


def _last(rows: Iterable[Evaluation], nodes: Collection[str], until: int | None) -> Mapping[str, int]:
    """Return the last round of each node, none later than `until`; nothing if one of them has none."""
    own: dict[str, int] = {}
    for row in rows:
        if until is None or row["round"] <= until:
            own[row["node"]] = max(row["round"], own.get(row["node"], 0))
    return own if own.keys() >= set(nodes) else {}


def _models(rows: Iterable[Evaluation], nodes: Collection[str], rounds: Mapping[str, int]) -> dict[str, _Model]:
    here = [row for row in rows if rounds.get(row["node"]) == row["round"]]
    return {node: model for models in _by_round(here, nodes).values() for node, model in models.items()}


def _by_round(rows: Iterable[Evaluation], nodes: Collection[str]) -> dict[int, dict[str, _Model]]:
    """Return the rows of these nodes by round, node, quantity and set."""
    found: dict[int, dict[str, _Model]] = {}
    for row in rows:
        if row["node"] in nodes:
            sets = found.setdefault(row["round"], {}).setdefault(row["node"], {}).setdefault(row["quantity"], {})
            before = sets.get(row["set"])
            if before is None or row["time"] >= before["time"]:
                sets[row["set"]] = row
    return found


def _pairs(score: Score, model: Mapping[str, Mapping[str, Evaluation]]) -> dict[str, list[tuple[float, int]]]:
    """Return by set what a score needs of it: sums, NaN where they are undefined, and their numbers."""
    columns = [model.get(name, {}) for name in score.quantities]
    return {name: [_pair(column.get(name)) for column in columns] for name in columns[0]}


def _pair(row: Evaluation | None) -> tuple[float, int]:
    """Return a row's sum and number. One of no rows may be missing."""
    return (0.0, 0) if row is None else (math.nan if row["sum"] is None else float(row["sum"]), row["n"])


def pooled(score: Score, model: Mapping[str, Mapping[str, Evaluation]]) -> float | None:
    """Return a model's figure on all of its sets together."""
    pairs = _pairs(score, model).values()
    return score.figure([_added(own) for own in zip(*pairs, strict=True)]) if pairs else None


def _added(pairs: Iterable[tuple[float, int]]) -> tuple[float, int]:
    found = list(pairs)
    return sum(total for total, _ in found), sum(n for _, n in found)


def _figures(score: Score, model: _Model, homes: Iterable[str]) -> dict[str, Figures]:
    """Return a model's figures for participants with these homes, in time linear in the sets and the homes."""
    sets = _pairs(score, model)
    place = {name: at for at, name in enumerate(sets)}
    # An empty last place, for a home that is no set.
    own = [*sets.values(), [(0.0, 0)] * len(score.quantities)]
    columns = [_Column(pairs) for pairs in zip(*own, strict=True)]
    rates = [*(math.nan if (rate := score.figure(pairs)) is None else rate for pairs in sets.values()), 0.0]
    other_rates = _without(rates)
    acc = score.figure([column.all for column in columns])
    figures = {}
    for home in homes:
        at = place.get(home, len(sets))
        figures[home] = {
            "acc": acc,
            "wdp": score.figure(own[at]),
            "cdp": score.figure([column.others[at] for column in columns]) if home else None,
            "inter": _ratio(other_rates[at], len(sets) - (home in sets)) if home else None,
        }
    return figures


class _Column:
    """One sum of a score on all sets: of all of them together, and of all but each one."""

    def __init__(self, pairs: Sequence[tuple[float, int]]) -> None:
        sums, ns = [total for total, _ in pairs], [n for _, n in pairs]
        self.all = sum(sums), sum(ns)
        self.others = list(zip(_without(sums), _without(ns), strict=True))


def _without(values: Sequence[float]) -> list[float]:
    """Return for each place the sum of all others, from both ends: subtracting from the total loses digits."""
    before = accumulate(values[:-1], initial=0.0)
    after = list(accumulate(values[:0:-1], initial=0.0))
    return [low + high for low, high in zip(before, reversed(after), strict=True)]


def _ratio(total: float, n: float) -> float | None:
    return total / n if n and math.isfinite(total) else None


def _mean(shares: _Shares, name: str) -> float | None:
    """Return the mean over participants; None where one of them has none."""
    values = _values(shares, name)
    if not values:
        return None
    first = values[0][0]  # differences to it make the mean of equal values exactly that value
    return first + math.fsum((value - first) * count for value, count in values) / sum(count for _, count in values)


def _worst(shares: _Shares, name: str, score: Score) -> float | None:
    last = min if score.higher else max
    return last((value for value, _ in _values(shares, name)), default=None)


def _spread(shares: _Shares, name: str) -> float | None:
    mean = _mean(shares, name)
    if mean is None:
        return None
    values = _values(shares, name)
    return math.sqrt(math.fsum((value - mean) ** 2 * n for value, n in values) / sum(n for _, n in values))


def _values(shares: _Shares, name: str) -> list[tuple[float, int]]:
    """Return a figure of all participants and their numbers; nothing where one is undefined."""
    values = [(value, count) for figures, count in shares if (value := figures[name]) is not None]
    return values if len(values) == len(shares) else []
