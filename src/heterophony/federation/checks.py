"""What is refused of a federation: as it is built, and, of what somebody made in Python, as a run begins.

Each error is one line that says what does not fit, and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from heterophony.base.wording import listed, meant
from heterophony.data.table import Data
from heterophony.kernel import ready
from heterophony.kernel.accountant import PrivacyError, library
from heterophony.kernel.by_level import check_known, pick, tables
from heterophony.kernel.fields import LARGEST
from heterophony.kernel.message import LINKS
from heterophony.kernel.networks import model_of
from heterophony.kernel.node import share_of
from heterophony.kernel.privacy import PrivateSteps
from heterophony.kernel.privacy_checks import check_affordable, check_delta, check_door, check_kinds, check_training
from heterophony.kernel.reaction import Every
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training

if TYPE_CHECKING:
    from heterophony.federation.federation import Federation


def check_consistent(federation: Federation) -> None:
    """Raise where something that is said of a federation does not fit the rest of it."""
    _check_roles(federation)
    _check_names(federation)
    _check_label_spaces(federation)
    _check_task(federation)
    _check_numbers(federation)
    _check_tables(federation)
    _check_quorums(federation)
    _check_liars(federation)
    _check_dropouts(federation)
    _check_egress(federation)
    _ = federation.kinds  # raises where one cannot be compressed


def check_startable(federation: Federation) -> None:
    """Raise where something is missing, or does not fit, that a run would only find out on its way.

    What a setting was read from has been checked.
    """
    if federation.recipe is None:
        tests = [(f"{split} set {domain}", data) for domain, split, data in federation.domain_tests]
        tests += [(f"private test of {node}", data) for node, data in federation.private_tests.items()]
        ready.check(federation.method, (_holding(federation, node) for node in federation.topology.roles), tests)
    check_alike(federation)


def _holding(federation: Federation, node: str) -> ready.Holding:
    """Return what a node has."""
    given = federation.of(federation.models, node) or {}
    models = {name: model_of(model) for name, model in given.items()}
    inner = bool(federation.topology.static[node].children)
    return ready.Holding(node, federation.topology.roles[node], models, federation.views(node), inner)


def check_alike(federation: Federation) -> None:
    """Raise where messages would not fit: every one would be refused, and the run stand still."""
    if found := federation.unlike:
        hint = "give all one network, or use a method for different networks"
        if found.width:
            hint = f"set width to at most {found.width}, or give all one network"
        raise ValueError(f"{_method(federation)} averages weights of one shape, but {found.line}: {hint}")


def _method(federation: Federation) -> str:
    """Return what the method is called in errors."""
    return type(federation.method).__name__


# -- names, tasks and numbers ------------------------------------------------------------------------------------
def _check_roles(federation: Federation) -> None:
    """Raise where the topology has a role that the method does not know, or lacks links that it needs."""
    strangers = set(federation.topology.roles.values()) - set(federation.method.roles)
    if strangers:
        raise ValueError(
            f"{_method(federation)} knows the roles {', '.join(federation.method.roles)}, "
            f"the topology has {', '.join(sorted(strangers))}"
        )
    if federation.method.complete and not federation.topology.complete:
        raise ValueError(f"{_method(federation)} needs a complete graph: link everyone with everyone")


def _check_names(federation: Federation) -> None:
    """Raise where something is said of a node, or a role, that there is not."""
    nodes, roles = set(federation.topology.roles), set(federation.topology.roles.values())
    for by_node_or_role in ("models", "data"):
        _check_keys(federation, by_node_or_role, nodes | roles)
    for by_any in ("capacity", "profiles", "privacy"):
        _check_keys(federation, by_any, nodes | roles | {""})
    if federation.attack is not None and (strangers := set(federation.attack.who) - nodes):
        raise ValueError(f"attack: no node is called {stranger(min(strangers), nodes)}")
    for by_node in ("joins", "egress", "homes", "private_tests"):
        _check_keys(federation, by_node, nodes)


def _check_keys(federation: Federation, table: str, known: Collection[str]) -> None:
    """Raise where a table of the federation speaks of somebody who is not known."""
    unknown = getattr(federation, table).keys() - known
    if unknown:
        raise ValueError(f"{table}: no node or role is called {stranger(min(unknown), known)}")


def stranger(name: str, known: Collection[str]) -> str:
    """Return an unknown name in words: what may have been meant, and what there is."""
    there = [node for node in known if node]
    return f"{name!r}{meant(name, there)}; there are {listed(sorted(there))}"


def _check_label_spaces(federation: Federation) -> None:
    """Raise where there are several label spaces, and a domain's is missing."""
    if not federation.tasks:
        return
    missing = {*federation.tests, *federation.homes.values()} - federation.tasks.keys()
    if missing:
        raise ValueError(f"tasks: the label space of domain {min(missing)!r} is missing")


def _check_task(federation: Federation) -> None:
    """Raise where test sets cannot be judged alike, or where the method does not serve their task."""
    judged = {data.task.scores[0].name: data.task.kind for data in federation.all_tests}
    if len(judged) > 1:
        raise ValueError(f"test sets have tasks that no single score can judge: {' and '.join(judged.values())}")
    serves = federation.method.serves
    if judged and serves and federation.task.kind not in serves:
        served = " and ".join(serves)
        raise ValueError(f"{_method(federation)} serves {served}, and the test sets are {federation.task.kind}")


def _check_numbers(federation: Federation) -> None:
    """Raise where a number of the federation is too small or too large."""
    if federation.evaluate < 1:
        raise ValueError(f"evaluate is at least 1, got {federation.evaluate}")
    if federation.bound is not None and not 0 < federation.bound <= LARGEST:
        raise ValueError(f"bound is a number > 0 and at most {LARGEST:g}, got {federation.bound}")
    if federation.expel is not None and federation.expel < 1:
        raise ValueError(f"expel is a number of messages >= 1, got {federation.expel}")


# -- options by node ---------------------------------------------------------------------------------------------
def _check_tables(federation: Federation) -> None:
    """Raise where a method's option by node names what is not there, or says nothing of a node that trains."""
    if not any(True for _ in tables(federation.method)):
        return
    topology = federation.topology
    depth = max(map(topology.level, topology.roles))
    check_known(federation.method, topology.roles, federation.method.roles, depth)
    for name, training in federation.trainings.items():
        _check_training(federation, name, training)


def _check_training(federation: Federation, name: str, training: Training) -> None:
    """Raise where a table of a training has no value for a participant, and is not that of the nodes above."""
    topology = federation.topology
    inner = any(links.children for links in topology.static.values())
    for option, table in tables(training):
        silent = [node for node in topology.roles if pick(table, *topology.names(node)) is None]
        participants = [node for node in silent if not topology.static[node].children]
        above = [node for node in silent if topology.static[node].children]
        if participants and (above or not inner) and option != "steps":
            raise ValueError(f"{name}.{option} has no value for {participants[0]}: give one, or one for '*'")


# -- who waits for whom, and what may leave -------------------------------------------------------------------------
def _check_quorums(federation: Federation) -> None:
    """Raise where a node waits for more children than it asks: it would skip every round."""
    for node, window in _windows(federation):
        if window.of not in {*LINKS} - {"children"}:
            _check_quorum(federation, node, window)


def _windows(federation: Federation) -> Iterator[tuple[str, Every]]:
    """Yield every node with each window in which it waits for several messages."""
    for reaction in federation.method.reactions:
        if isinstance(reaction.trigger, Every):
            for node, role in federation.topology.roles.items():
                if role in reaction.roles:
                    yield node, reaction.trigger


def _check_quorum(federation: Federation, node: str, window: Every) -> None:
    """Raise where one window of a node would wait for more messages than can come."""
    names, asked = federation.topology.names(node), _asked(federation, node, window)
    wanted = federation.method.setting(window.quorum, *names)
    if wanted is None:
        raise ValueError(f"{window.quorum} has no value for {node}: give one, or one for '*'")
    if isinstance(wanted, int) and wanted > asked > 0:
        raise ValueError(f"quorum is {wanted}, but {node} can hear from {asked}; a share in (0, 1] fits all")
    least: int = federation.method.setting(window.least, *names)
    if least > asked > 0:
        raise ValueError(f"{window.least} is {least}, but {node} can hear from {asked} only")


def _check_liars(federation: Federation) -> None:
    """Raise where a rule for combining reckons with more liars than it can bear among those that a node asks."""
    cohort = getattr(federation.method, "cohort", None)
    if not isinstance(cohort, Cohort):
        return
    if cohort.trusts and not federation.method.trusts:
        raise ValueError(f"cohort.combine: {_method(federation)} has no server that learns from public rows")
    for node, window in _windows(federation):
        asked = _asked(federation, node, window)
        rule = None if cohort.combine is None else pick(cohort.combine, *federation.topology.names(node))
        if asked and rule is not None and (lacks := rule.lacks(asked)):
            raise ValueError(f"cohort.combine: {lacks}, and {node} asks {asked}: name fewer liars, or another rule")


def _asked(federation: Federation, node: str, window: Every) -> int:
    """Return from how many children a node can hear in a round: of a group, from those drawn."""
    children = len(federation.topology.static[node].children)
    if window.of in LINKS:
        return children
    share = federation.method.setting(window.share, *federation.topology.names(node))
    if share is None:
        raise ValueError(f"{window.share} has no value for {node}: give one, or one for '*'")
    return share_of(children, share)


def _check_dropouts(federation: Federation) -> None:
    """Raise where a node that drops out is not known, or where its parent would wait for it for ever."""
    unknown = set(federation.dropout.always) - set(federation.topology.roles)
    if unknown:
        raise ValueError(f"dropout: no node is called {stranger(min(unknown), federation.topology.roles)}")
    if not federation.dropout.rate and not federation.dropout.always:
        return
    if (node := federation.asynchronous) is not None:
        raise ValueError(
            f"dropout: {_method(federation)} is asynchronous, so {node} would never hear that a node"
            " has dropped out, nor ask it again; take `dropout` out, or say in `profiles` when nodes are"
            " `available`"
        )


def _check_egress(federation: Federation) -> None:
    """Raise where a node may send a kind that the method does not have."""
    kinds = {kind.name for kind in federation.method.kinds}
    for node, allowed in federation.egress.items():
        unknown = set(allowed) - kinds
        if unknown:
            raise ValueError(f"egress of {node}: {_method(federation)} has no kind {min(unknown)!r}")


# -- privacy -----------------------------------------------------------------------------------------------------
def check_privacy(federation: Federation) -> None:
    """Raise where a node cannot keep the privacy that its owner asks for. Nodes are built to see their networks."""
    library()
    topology, checked = federation.topology, set()
    for node, role in topology.roles.items():
        privacy, links = federation.private(node), topology.static[node]
        form = (id(privacy), role, *(bool(links.group(link)) for link in LINKS))
        if privacy is not None and form not in checked:
            checked.add(form)
            check_door(federation.method, node, role, links, privacy)
        train = (federation.of(federation.data, node) or {}).get("train")
        if privacy is not None and isinstance(train, Data):
            check_delta(node, len(train), privacy)
        elif privacy is not None and privacy.central:  # what is told of is a child with all its rows
            check_delta(node, len(links.children), privacy, "children")
    for name, training in federation.trainings.items():
        if training.private is not None:
            _check_private_training(federation, name, training.private)
    for node in federation.topology.roles:
        _check_steps(federation, node)


def _check_private_training(federation: Federation, name: str, private: PrivateSteps) -> None:
    """Raise where rows cannot be told apart in training, or are told of beside it."""
    for role in set(federation.topology.roles.values()):
        node = federation.first(role)
        if not node.links.children:
            check_training(name, private, node.models)
    for id, links in federation.topology.static.items():  # each has an owner, who protects other kinds
        if not links.children:
            check_kinds(name, [kind for kind in federation.method.told if links.group(kind.to)], federation.private(id))


def _check_steps(federation: Federation, node: str) -> None:
    """Raise where a node's privacy is that of private training, and there is none, or not a step can be paid."""
    privacy = federation.private(node)
    trainings = [part for part in federation.trainings.values() if part.private is not None]
    if privacy is None or federation.topology.static[node].children:
        return
    if privacy.kinds == () and not trainings:
        raise PrivacyError(
            f"privacy of {node}: no kind is protected (kinds = []), and no training is private: set local.private, "
            "or protect kinds"
        )
    for charge in federation.step_charges(node):
        check_affordable(node, charge, privacy)
