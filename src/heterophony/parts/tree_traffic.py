"""How many messages an undisturbed run of a tree costs, as a closed formula."""

from __future__ import annotations

from collections import Counter
from typing import Any

from heterophony.kernel.by_level import ByLevel, pick
from heterophony.kernel.topology import Topology


def tree_messages(
    topology: Topology,
    rounds: int,
    *,
    turns: ByLevel[int],
    fraction: ByLevel[float],
    buffer: ByLevel[int],
    residuals: int,
) -> Counter[str]:
    """Messages by kind, each counted on every link it uses.

    `residuals` is how many go up a residual link at most; 0: these links are not used.
    """

    def of(value: Any, node: str, level: int) -> Any:
        return pick(value, node, str(level), topology.roles[node])

    def cost_of(node: str, level: int, times: int) -> Counter[str]:
        """What so many turns of a node cost, all that happens below it included."""
        links = topology.static[node]
        n, merges = len(links.children), of(buffer, node, level)
        if not n:
            return Counter()
        if merges and level:
            raise NotImplementedError("how often an asynchronous inner node merges depends on the clock")
        asked = max(1, round(of(fraction, node, level) * n))
        executions = [cost_of(c, level + 1, of(turns, c, level + 1)) for c in links.children]
        everyone = asked == n and not merges
        if not everyone and any(cost != executions[0] for cost in executions):
            raise NotImplementedError("which subtree is asked how often depends on the clock and the seed")
        sent = asked + (times - 1) * merges if merges else times * asked
        chosen = min(residuals, merges or asked)
        cost = Counter({"down": sent, "push" if merges else "up": sent})
        down = 1 if residuals else 0
        cost["far-down"] = times * sum(len(topology.route(node, end)) - 1 for end in links.descendants) * down
        cost["far-up"] = times * sum(len(topology.route(node, end)) - 1 for end in links.ancestors) * chosen
        for execution in executions if everyone else executions[:1]:
            for kind, count in execution.items():
                cost[kind] += count * (times if everyone else sent)
        return cost

    root = next(node for node, role in topology.roles.items() if role == "root")
    return cost_of(root, 0, rounds)
