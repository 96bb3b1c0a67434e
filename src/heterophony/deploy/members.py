"""Who is a member of a sum: whoever signs with a key that stands in the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heterophony.deploy.named_function import DeployError
from heterophony.kernel.method import Method
from heterophony.kernel.topology import Topology

if TYPE_CHECKING:
    from heterophony.deploy.plan import Plan

FILE = "federation.toml"


def check_members(plan: Plan, method: Method, topology: Topology) -> None:
    """Raise where somebody would be in a sum whose key does not stand in the plan."""
    if plan.secure is None:
        if plan.members:
            raise DeployError(f"{FILE}: members: keys are for secure sums: add [secure], or leave them out")
        return
    if strangers := sorted(plan.members.keys() - set(plan.everyone)):
        raise DeployError(f"{FILE}: members.{strangers[0]}: no organisation is called so")
    owners: dict[str, str] = {}
    for name, text in plan.members.items():
        other = owners.setdefault(" ".join(text.split()[:2]), name)
        if other != name:
            raise DeployError(f"{FILE}: members: {other} and {name} have the same key")
    for node in topology.roles:
        _check_children(plan, method, topology, node)


def _check_children(plan: Plan, method: Method, topology: Topology, node: str) -> None:
    """Raise where a child of a node that gets sums has no key in the plan."""
    rule = method.sums()
    if rule is None or not method.hides(rule.kind, topology.roles[node]):
        return
    for child in topology.static[node].children:
        if child not in plan.remote:
            raise DeployError(
                f"{FILE}: secure: {child}, which is in a sum at {node}, is the coordinator's: give it to an "
                'organisation, or take sums lower in the tree only: at = ["inner"]'
            )
        if holder(plan, child) not in plan.members:
            raise DeployError(f"{FILE}: members.{holder(plan, child)} is missing: the key in its node.pub")


def holder(plan: Plan, node: str) -> str:
    """Return which organisation holds a node."""
    return next(name for name in plan.everyone if node in plan.held_by(name))


def siblings(plan: Plan, topology: Topology, node: str) -> dict[str, str]:
    """Return, by node, the public keys of those who can be in a sum with a node, itself among them."""
    links = topology.static[node]
    if not links.parent:
        return {}
    others = [other for other in topology.static[links.parent[0]].children if other in plan.remote]
    return {other: plan.members[holder(plan, other)] for other in others if holder(plan, other) in plan.members}
