"""Who computes what: nodes on workers, by what their reactions took before.

Where a reaction is computed never changes what it computes, so timings may decide it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

MOVE = 0.05  # seconds that must be gained before a node is worth moving: its state travels, its data are made anew
SLACK = 1.1  # how much more than its share a worker may have before anything moves

NodeReaction = tuple[str, str]  # node and reaction


class Placement:
    """Homes of nodes. A wave is dealt dearest first; a node stays where it is unless moving it pays."""

    def __init__(self) -> None:
        self.homes: dict[str, int] = {}
        self.sizes: dict[str, float] = {}  # of nodes, parameters x rows: all that is known of one at first
        self.seconds: dict[NodeReaction, float] = {}  # as seen last
        self.seen = self.sized = 0.0  # sums over all that was seen: seconds, and sizes

    def cost(self, task: NodeReaction) -> float:
        """Return the seconds that a reaction is expected to take."""
        pace = self.seen / self.sized if self.sized else 1e-9
        return self.seconds.get(task, self.sizes.get(task[0], 1.0) * pace)

    def observe(self, task: NodeReaction, seconds: float) -> None:
        self.seconds[task] = seconds
        self.seen += seconds
        self.sized += self.sizes.get(task[0], 1.0)

    def deal(self, tasks: Sequence[NodeReaction], busy: Mapping[int, float]) -> list[int]:
        """Return a worker for each task. `busy` says who is there, and how many seconds of work each has already."""
        load, costs = dict(busy), [self.cost(task) for task in tasks]
        share = (sum(load.values()) + sum(costs)) / len(load)
        chosen = [0] * len(tasks)
        for place in sorted(range(len(tasks)), key=lambda i: (-costs[i], i)):
            cost, home = costs[place], self.homes.get(tasks[place][0])
            least = min(load, key=lambda worker: (load[worker], worker))
            if home in load:
                fair = load[home] + cost <= SLACK * max(share, cost)
                least = home if fair or load[home] - load[least] < MOVE else least
            chosen[place] = least
            load[least] += cost
        return chosen

    def settle(self, nodes: Iterable[str], workers: Collection[int]) -> None:
        """Find homes for nodes that have none: with whoever has the fewest."""
        count = Counter(dict.fromkeys(workers, 0))
        count.update(home for home in self.homes.values() if home in count)
        for node in nodes:
            if self.homes.get(node) not in count:
                self.homes[node] = min(count, key=lambda worker: (count[worker], worker))
                count[self.homes[node]] += 1

    def abandon(self, worker: int) -> None:
        """Forget a worker that is gone, and with it its copies of nodes."""
        self.homes = {node: home for node, home in self.homes.items() if home != worker}
