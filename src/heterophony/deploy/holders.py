"""Who holds the inner nodes of a tree, which the plan says; and the data that they train on, which it does not.

An inner node runs at the organisation that holds it, as a participant's node does: with that one's key and on its disk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import Field

from heterophony.data.table import Data
from heterophony.deploy.named_function import DeployError, NamedFunction
from heterophony.kernel.by_level import pick
from heterophony.kernel.method import Method
from heterophony.kernel.topology import Topology
from heterophony.parts.training import Training
from heterophony.settings.setting import Strict

COORDINATOR = "coordinator"  # in the plan: who holds the root, and every inner node while no organisation does
PROXY = "proxy"  # a method's option that says how nodes train which have others below them


class HeldData(Strict):
    """`[nodes.NAME]`: the data of an inner node that is held here."""

    data: NamedFunction | None = None  # -> Data, or {"train": Data, "test": Data, ...}

    def views(self, node: str) -> dict[str, Data]:
        """Load the data, by view."""
        return {} if self.data is None else views_of(self.data, f"nodes.{node}")


class CoordinatorsOwn(Strict):
    """`coordinator.toml`: where the SuperLink listens, and what the coordinator's own nodes are.

    On 127.0.0.1 the SuperLink needs a proxy in front (nginx.conf).
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    nodes: dict[str, HeldData] = {}
    device: str = "cpu"
    threads: int = Field(default=1, ge=1)

    @property
    def address(self) -> str:
        """Return the address as it is seen from this machine."""
        return f"{'127.0.0.1' if self.host in ('0.0.0.0', '::') else self.host}:{self.port}"


def views_of(named: NamedFunction, who: str) -> dict[str, Data]:
    """Load data by a function that a file names. What it gives alone is called "train"."""
    found = named()
    views = {"train": found} if isinstance(found, Data) else found
    if not isinstance(views, Mapping) or not all(isinstance(view, Data) for view in views.values()):
        raise DeployError(f"{who}: {named.call} must give Data, or Data by name such as train and test")
    return dict(views)


def check_holders(
    topology: Topology, participants: Collection[str], organisations: Mapping[str, Collection[str]]
) -> None:
    """Raise unless each inner node is held by one organisation, where the plan says who holds any."""
    _check_participants(topology, participants)
    inner = [node for node, role in topology.roles.items() if role == "inner"]
    holder: dict[str, str] = {}
    for name, nodes in organisations.items():
        if name == COORDINATOR and name in participants:
            raise DeployError(f"organisations: a participant is called {COORDINATOR!r}, which here is the coordinator")
        if len(set(nodes)) < len(nodes):
            raise DeployError(f"organisations: {name} lists a node twice")
        for node in nodes:
            if node not in inner:
                there = f"those are {', '.join(inner[:8])}" if inner else "this federation has none"
                raise DeployError(f"organisations: {name} lists {node!r}, which is no inner node of the tree; {there}")
            if (other := holder.setdefault(node, name)) != name:
                raise DeployError(f"organisations: {other} and {name} both claim {node}; a node is held by one")
    missing = [node for node in inner if node not in holder]
    if organisations and missing:
        raise DeployError(
            f"organisations: nobody holds {missing[0]}: give it to one, or write {COORDINATOR} = [{missing[0]!r}]"
        )


def _check_participants(topology: Topology, participants: Collection[str]) -> None:
    """Raise where a participant has nodes below it, or a leaf of a tree is nobody's."""
    above = [name for name in participants if topology.static[name].children]
    if above:
        raise DeployError(
            f"participants: {above[0]} has nodes below it; say under organisations who holds it, not among participants"
        )
    leaves = [node for node, role in topology.roles.items() if role == "leaf"]
    if strange := [node for node in leaves if node not in participants]:
        raise DeployError(f"links.tree: leaf {strange[0]!r} is no participant; those are {', '.join(participants)}")


def check_learners(method: Method, topology: Topology, names: Collection[str], public: bool) -> None:
    """Raise where `links.proxy` names what cannot train. `public`: whether there are data that everyone holds."""
    for name in names:
        nodes = [node for node in topology.roles if name in (node, topology.roles[node])]
        if not nodes or any(not topology.static[node].children for node in nodes):
            raise DeployError(f"links.proxy: no internal node or role is called {name!r}")
        training = getattr(method, PROXY, None)
        for node in nodes:
            if not isinstance(training, Training) or pick(training.epochs, *topology.names(node)) == 0:
                raise DeployError(f"links.proxy: the method lets {node} train for no epochs ({PROXY}.epochs)")
            if training.data != "train" and not public:
                raise DeployError(f"{PROXY}.data = {training.data!r} takes public data too: set public, or say 'train'")


def check_data(topology: Topology, names: Collection[str], node: str, views: Collection[str], where: str) -> None:
    """Raise unless an internal node has data to train on if, and only if, the plan says that it trains."""
    if not topology.static[node].children:
        return
    trains = {node, topology.roles[node]} & set(names)
    if trains and "train" not in views:
        raise DeployError(
            f"{node} trains, as links.proxy in federation.toml says: set data under [nodes.{node}] in {where}"
        )
    if "train" in views and not trains:
        raise DeployError(f"{where}: {node} has data to train on, but links.proxy in federation.toml does not name it")
