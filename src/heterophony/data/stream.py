"""A participant's data as a stream that drifts: rows come once, a bounded memory keeps some, the distribution changes.

A stream goes on with its participant's rounds, or with virtual time, whatever the participant does. What a round, or a
step of so many `seconds`, sees follows from (seed, participant, its number) alone. So there is nothing to save and
nothing to restore.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from heterophony.base.seeds import generator
from heterophony.data.errors import DataError
from heterophony.data.table import Data

DriftKind = Literal["sudden", "gradual", "recurring"]
Item = tuple[int, int]  # concept, row of its pool


@dataclass(frozen=True)
class Drift:
    """Which of so many concepts (kinds of data) holds when, by the participant's round.

    `sudden` goes from one to the next after `every` rounds and stays at the last. `recurring` begins anew after the
    last. `gradual` mixes: over `every` rounds the share of the next one grows from none to all.
    """

    kind: DriftKind
    concepts: int
    every: int

    def __post_init__(self) -> None:
        if self.concepts < 1 or self.every < 1:
            raise DataError(f"a drift needs concepts >= 1 and every >= 1, got {self.concepts} and {self.every}")

    def shares(self, round: int) -> tuple[float, ...]:
        """Return the share of each concept in a round. They sum to one."""
        stage, within = divmod(round, self.every)
        shares = [0.0] * self.concepts
        if self.kind == "recurring":
            shares[stage % self.concepts] = 1.0
        elif self.kind == "sudden" or stage >= self.concepts - 1:
            shares[min(stage, self.concepts - 1)] = 1.0
        else:
            shares[stage + 1] = within / self.every
            shares[stage] = 1.0 - shares[stage + 1]
        return tuple(shares)


def round_at(time: float, seconds: float) -> int:
    """Return in which round of so many seconds a moment is. Sums of seconds round: a hair before a round is in it."""
    return int(time / seconds + 1e-9)


class Stream:
    """A data view that changes with its node's round: what memory has kept, and behind it what has just come.

    `concepts` are the data under each concept. Those with the same number in `pools` are the same rows, seen otherwise:
    a row comes once, whatever the concept it is seen under. `memory` is how many rows are kept: the most `recent` ones,
    or a random sample of all so far (`reservoir`). With `seconds`, a round of the stream is so long, in virtual time.
    """

    def __init__(
        self,
        concepts: Sequence[Callable[[], Data]],
        drift: Drift,
        *,
        arrivals: int,
        memory: int = 0,
        keep: Literal["recent", "reservoir"] = "recent",
        pools: Sequence[int] | None = None,
        name: str = "",
        seed: int = 0,
        seconds: float | None = None,
    ) -> None:
        if seconds is not None and not seconds > 0:
            raise DataError(f"a stream needs seconds > 0, or none where it goes by rounds, got {seconds}")
        if len(concepts) != drift.concepts or arrivals < 1 or memory < 0:
            raise DataError(
                f"a stream needs {drift.concepts} concepts, arrivals >= 1 and memory >= 0, got {len(concepts)}, "
                f"{arrivals} and {memory}"
            )
        self.concepts, self.drift, self.arrivals, self.memory, self.keep = concepts, drift, arrivals, memory, keep
        self.pools = tuple(pools or [0] * len(concepts))
        self.name, self.seed, self.seconds = name, seed, seconds
        self._orders: dict[int, torch.Tensor] = {}
        self._seen: tuple[int, Data] | None = None
        self._begin()

    def __call__(self) -> Data:
        """Return what the participant can train on in the first round."""
        return self.at(0)

    def step(self, round: int, time: float) -> int:
        """Return in which of its rounds the stream is, in this round of its participant and at this moment."""
        return round if self.seconds is None else round_at(time, self.seconds)

    def at(self, round: int) -> Data:
        """Return what the participant can train on in a round."""
        if self._seen is None or self._seen[0] != round:
            self._seen = round, self._data([*self.kept(round), *self.come(round)])
        return self._seen[1]

    def come(self, round: int) -> list[Item]:
        """Return the rows that come in a round, each with the concept it is seen under."""
        self._go(round)
        return self._draw(round)[0]

    def kept(self, round: int) -> list[Item]:
        """Return what memory holds when a round begins."""
        self._go(round)
        return list(self._memory)

    # What is known of the past is only a shortcut: asked for an earlier round, it is worked out anew.
    def _begin(self) -> None:
        self._round, self._count = 0, 0
        self._used = dict.fromkeys(self.pools, 0)
        self._memory: list[Item] = []

    def _go(self, round: int) -> None:
        if round < self._round:
            self._begin()
        while self._round < round:
            items, self._used = self._draw(self._round)
            self._remember(items)
            self._round += 1

    def _draw(self, round: int) -> tuple[list[Item], dict[int, int]]:
        """Draw the rows of the present round. Return them, and how many of each pool have come after it."""
        shares = torch.tensor(self.drift.shares(round), dtype=torch.float64)
        draw = generator(self.seed, self.name, "stream", round)
        chosen = torch.multinomial(shares, self.arrivals, replacement=True, generator=draw).tolist()
        used, items = dict(self._used), []
        for concept in chosen:
            pool = self.pools[concept]
            order = self._order(pool, concept)
            if used[pool] >= len(order):
                raise DataError(
                    f"the stream of {self.name or 'a participant'} is dry in round {round}: its {len(order)} rows have "
                    "all come; give it more, or fewer a round"
                )
            items.append((concept, int(order[used[pool]])))
            used[pool] += 1
        return items, used

    def _order(self, pool: int, concept: int) -> torch.Tensor:
        if pool not in self._orders:
            rows = len(self.concepts[concept]())
            self._orders[pool] = torch.randperm(rows, generator=generator(self.seed, self.name, "stream order", pool))
        return self._orders[pool]

    def _remember(self, items: Sequence[Item]) -> None:
        if self.keep == "recent":
            self._memory = [*self._memory, *items][-self.memory :] if self.memory else []
            return
        draw = generator(self.seed, self.name, "reservoir", self._round)
        for item in items:  # Vitter's algorithm R
            if len(self._memory) < self.memory:
                self._memory.append(item)
            elif self.memory:
                place = int(torch.randint(0, self._count + 1, (), generator=draw))
                if place < self.memory:
                    self._memory[place] = item
            self._count += 1

    def _data(self, items: Sequence[Item]) -> Data:
        places = [[i for i, item in enumerate(items) if item[0] == c] for c in range(len(self.concepts))]
        parts = {
            c: self.concepts[c]().take(torch.tensor([items[i][1] for i in own])) for c, own in enumerate(places) if own
        }
        back = torch.tensor([i for own in places for i in own]).argsort()
        first = next(iter(parts.values()))
        columns = {
            n: torch.cat([part.columns[n] for part in parts.values()]).index_select(0, back) for n in first.columns
        }
        return Data.of_columns(columns, first.task).augmented(first.augment)
