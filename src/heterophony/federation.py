"""What a user builds: a method, a topology, models and data, and what the world around them is like."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from heterophony.base.seeds import seeded
from heterophony.base.wording import listed, meant
from heterophony.data.table import Data
from heterophony.data.views import completed
from heterophony.kernel import ready
from heterophony.kernel.accountant import PrivacyError, library
from heterophony.kernel.alike import Unlike, unlike
from heterophony.kernel.attack import Attack
from heterophony.kernel.by_level import check_known, pick, tables, values
from heterophony.kernel.capacity import Capacity, Cutting, largest, smallest
from heterophony.kernel.compression import Compression, coded_kinds
from heterophony.kernel.compute import Compute
from heterophony.kernel.fields import LARGEST, Sliceable, form_of
from heterophony.kernel.message import LINKS, Kind
from heterophony.kernel.method import Method
from heterophony.kernel.networks import Model, Slice, checked
from heterophony.kernel.node import Node, Slot, laid_out, share_of
from heterophony.kernel.privacy import Charge, Privacy, PrivateSteps
from heterophony.kernel.privacy_checks import check_affordable, check_delta, check_door, check_kinds, check_training
from heterophony.kernel.profile import Dropout, Profile
from heterophony.kernel.reaction import Count, Each, Every
from heterophony.kernel.statistics import statistics
from heterophony.kernel.topology import Topology
from heterophony.kernel.work import Fit, Predict, Work
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from heterophony.tasks.classification import Classification
from heterophony.tasks.task import Task, described

if TYPE_CHECKING:
    from heterophony.tables.result import Result


Models = Mapping[str, Model | nn.Module | Callable[[], nn.Module]]
NodeData = Mapping[str, Data | Callable[[], Data]]


@dataclass(frozen=True)
class Federation:
    """Data x models x topology x method. `models` and `data` are looked up by node id, then by role.

    Factories (rather than instances) let nodes be built when they are first needed, and rebuilt on resume.
    """

    method: Method
    topology: Topology
    models: Mapping[str, Models]
    data: Mapping[str, Data | NodeData]  # rows to train on, or views by name
    tests: Mapping[str, Data | Mapping[str, Data]] = field(default_factory=dict)  # by domain (and split)
    private_tests: Mapping[str, Data] = field(default_factory=dict)  # by node: its own view of the test data
    homes: Mapping[str, str] = field(default_factory=dict)  # participant -> the domain that is its own
    tasks: Mapping[str, str] = field(default_factory=dict)  # domain -> its label space, where there are several
    seed: int = 0
    compute: Compute = Compute()
    evaluate: int = 1  # every so many rounds, and in the last one; whoever takes part in some rounds only, in each
    capacity: Mapping[str, Capacity] = field(default_factory=dict)  # by node id, role, or "" for all others
    profiles: Mapping[str, Profile] = field(default_factory=dict)  # by node id, role, or "" for all others
    dropout: Dropout = field(default_factory=Dropout)
    joins: Mapping[str, float] = field(default_factory=dict)  # nodes that come later, and when
    egress: Mapping[str, Collection[str]] = field(default_factory=dict)  # kinds that may leave a node
    privacy: Mapping[str, Privacy] = field(default_factory=dict)  # by node id, role, or "" for all others
    compress: Mapping[str, Compression] = field(default_factory=dict)  # by kind of message; the others travel whole
    attack: Attack | None = None  # who lies, and how
    bound: float | None = None  # the largest float that a tensor in a message may hold; 1e15 if not given
    expel: int | None = None  # after so many messages that are refused or doubted, a participant is put out
    recipe: Mapping[str, Any] | None = None  # how to build it again, where it was built from names
    leaks: tuple[str, ...] = ()  # images on both sides of a line, where a leaky split was asked for
    untrained: tuple[str, ...] = ()  # classes that are tested, though nobody trains on them

    def __post_init__(self) -> None:
        ready.check_values(self.method, self.topology, self.models, self.data, self.tests)
        if any(isinstance(views, Data) for views in self.data.values()):
            views = {owner: {"train": own} if isinstance(own, Data) else own for owner, own in self.data.items()}
            object.__setattr__(self, "data", views)
        self._check_roles()
        self._check_names()
        self._cut()
        self._check_tasks()
        self._check_task()
        if self.evaluate < 1:
            raise ValueError(f"evaluate is at least 1, got {self.evaluate}")
        self._check_tables()
        if self.bound is not None and not 0 < self.bound <= LARGEST:
            raise ValueError(f"bound is a number > 0 and at most {LARGEST:g}, got {self.bound}")
        if self.expel is not None and self.expel < 1:
            raise ValueError(f"expel is a number of messages >= 1, got {self.expel}")
        self._check_quorums()
        self._check_liars()
        self._check_dropouts()
        self._check_egress()
        _ = self.kinds  # raises where one cannot be compressed
        if self.guarded:
            self._check_privacy()

    def _check_roles(self) -> None:
        """Raise where the topology has a role that the method does not know, or lacks links that it needs."""
        strangers = set(self.topology.roles.values()) - set(self.method.roles)
        if strangers:
            raise ValueError(
                f"{type(self.method).__name__} knows the roles {', '.join(self.method.roles)}, "
                f"the topology has {', '.join(sorted(strangers))}"
            )
        if self.method.complete and not self.topology.complete:
            raise ValueError(f"{type(self.method).__name__} needs a complete graph: link everyone with everyone")

    def _check_names(self) -> None:
        """Raise where something is said of a node, or a role, that there is not."""
        nodes, roles = set(self.topology.roles), set(self.topology.roles.values())
        for by_node_or_role in ("models", "data"):
            self._check_keys(by_node_or_role, nodes | roles)
        for by_any in ("capacity", "profiles", "privacy"):
            self._check_keys(by_any, nodes | roles | {""})
        if self.attack is not None and (strangers := set(self.attack.who) - nodes):
            raise ValueError(f"attack: no node is called {_stranger(min(strangers), nodes)}")
        for by_node in ("joins", "egress", "homes", "private_tests"):
            self._check_keys(by_node, nodes)

    def _cut(self) -> None:
        """Put slices in the place of the networks that the method slices, for each node by its capacity."""
        if not self.slices:
            return
        known: dict[tuple[int, str, Capacity], dict[str, Model]] = {}  # equal nodes have one table
        models: dict[str, Models] = {}
        for node, role in self.topology.roles.items():
            given: Models | None = self.of(self.models, node)
            if given is None:
                continue
            own = self.capacity_of(node)
            key = id(given), role, own
            if key not in known:
                slices = self.slices.get(role, {})
                made = {slot: _model(model) for slot, model in given.items()}
                known[key] = {
                    slot: slices[slot].of(model, own, self._whole) if slot in slices else model
                    for slot, model in made.items()
                }
            models[node] = known[key]
        object.__setattr__(self, "models", models)

    @cached_property
    def slices(self) -> dict[str, dict[str, Slice]]:
        """Return, by role and slot, of which networks nodes hold slices."""
        found = {}
        for role, needed in checked(self.method.networks(), self.method.roles).items():
            own = {slot: choice for slot, choice in needed.items() if isinstance(choice, Slice)}
            if own:
                found[role] = own
        return found

    def capacity_of(self, node: str) -> Capacity:
        """Return what a node can hold of a network; whoever leads holds the whole, if nothing is said of it."""
        found: Capacity | None = self.of(self.capacity, node) or self.capacity.get("")
        return found or self._largest

    @cached_property
    def _largest(self) -> Capacity:
        return largest(self.capacity.values())

    @cached_property
    def _whole(self) -> Capacity:
        """Return the capacity of the first node of the role that leads."""
        leading = self.method.roles[0]
        return self.capacity_of(next((n for n, role in self.topology.roles.items() if role == leading), ""))

    def smallest(self) -> Federation:
        """Return the same federation in which everyone, the server too, has what the smallest participant can hold."""
        own = [self.capacity_of(n) for n, role in self.topology.roles.items() if role == self.method.roles[-1]]
        return replace(self, capacity={"": smallest(own)})

    def held(self, receiver: str, sender: str, slot: str) -> Sliceable | None:
        """Return what may travel of the slice that a sender holds of a receiver's model; None: there are no slices."""
        model = (self.of(self.models, receiver) or {}).get(slot)
        if model is None or not isinstance(model.build, Cutting):
            return None
        key = receiver, slot, self.capacity_of(sender)
        if key not in self._held:
            build = replace(model.build, own=key[-1])
            with seeded("only to see what travels"):
                own = Slot(build(), model.parts, model.buffers, model.norms)
            self._held[key] = Sliceable(own.form, form_of(statistics(own.module)))
        return self._held[key]

    @cached_property
    def _held(self) -> dict[tuple[str, str, Capacity], Sliceable]:
        return {}

    def cost(self, node: Node, work: Work) -> float:
        """Return what work on a node's slices costs, as a share of what it costs on the whole network."""
        if not self.slices or not isinstance(work, Fit | Predict):
            return 1.0
        names = work.names if isinstance(work, Fit) else (work.model.partition(".")[0],)
        models = self.of(self.models, node.id) or {}
        rows = node.data[work.data]
        builds = [getattr(models.get(name), "build", None) for name in names]
        if not len(rows) or not any(isinstance(build, Cutting) for build in builds):
            return 1.0
        row = rows.take(torch.zeros(1, dtype=torch.int64)).x
        costs = [build.cost(row) if isinstance(build, Cutting) else 1.0 for build in builds]
        return sum(costs) / len(costs)

    def _check_keys(self, table: str, known: Collection[str]) -> None:
        unknown = getattr(self, table).keys() - known
        if unknown:
            raise ValueError(f"{table}: no node or role is called {_stranger(min(unknown), known)}")

    def _check_tasks(self) -> None:
        """Raise where there are several label spaces, and a domain's is missing."""
        if not self.tasks:
            return
        missing = {*self.tests, *self.homes.values()} - self.tasks.keys()
        if missing:
            raise ValueError(f"tasks: the label space of domain {min(missing)!r} is missing")

    def _check_task(self) -> None:
        """Raise where test sets cannot be judged alike, or where the method does not serve their task."""
        judged = {data.task.scores[0].name: data.task.kind for data in self._all_tests()}
        if len(judged) > 1:
            raise ValueError(f"test sets have tasks that no single score can judge: {' and '.join(judged.values())}")
        serves = self.method.serves
        if judged and serves and self.task.kind not in serves:
            name = type(self.method).__name__
            raise ValueError(f"{name} serves {' and '.join(serves)}, and the test sets are {self.task.kind}")

    def _all_tests(self) -> list[Data]:
        return [*(data for _, _, data in self._test_sets), *self.private_tests.values()]

    @property
    def task(self) -> Task:
        """The task of the test sets; classification where there are none."""
        return next((data.task for data in self._all_tests()), Classification())

    def _check_tables(self) -> None:
        """Raise where a method's option by node names what is not there, or says nothing of a node that trains."""
        if not any(True for _ in tables(self.method)):
            return
        topology = self.topology
        depth = max(map(topology.level, topology.roles))
        check_known(self.method, topology.roles, self.method.roles, depth)
        for name, training in self.trainings.items():
            self._check_training(name, training)

    def _check_training(self, name: str, training: Training) -> None:
        """Raise where a table of a training has no value for a participant, and is not that of the nodes above."""
        topology = self.topology
        for option, table in tables(training):
            silent = [node for node in topology.roles if pick(table, *topology.names(node)) is None]
            participants = [node for node in silent if not topology.static[node].children]
            above = [node for node in silent if topology.static[node].children]
            if participants and (above or not self._has_inner) and option != "steps":
                raise ValueError(f"{name}.{option} has no value for {participants[0]}: give one, or one for '*'")

    @property
    def _has_inner(self) -> bool:
        """Return whether some nodes have others below them."""
        return any(links.children for links in self.topology.static.values())

    def _check_egress(self) -> None:
        """Raise where a node may send a kind that the method does not have."""
        kinds = {kind.name for kind in self.method.kinds}
        for node, allowed in self.egress.items():
            unknown = set(allowed) - kinds
            if unknown:
                raise ValueError(f"egress of {node}: {type(self.method).__name__} has no kind {min(unknown)!r}")

    def _check_privacy(self) -> None:
        """Raise where a node cannot keep the privacy that its owner asks for."""
        library()
        topology, checked = self.topology, set()
        for node, role in topology.roles.items():
            privacy, links = self.private(node), topology.static[node]
            form = (id(privacy), role, *(bool(links.group(link)) for link in LINKS))
            if privacy is not None and form not in checked:
                checked.add(form)
                check_door(self.method, node, role, links, privacy)
            train = (self.of(self.data, node) or {}).get("train")
            if privacy is not None and isinstance(train, Data):
                check_delta(node, len(train), privacy)
            elif privacy is not None and privacy.central:  # what is told of is a child with all its rows
                check_delta(node, len(links.children), privacy, "children")
        for name, training in self.trainings.items():
            if training.private is not None:
                self._check_private_training(name, training.private)
        for node in self.topology.roles:
            self._check_steps(node)

    def _check_private_training(self, name: str, private: PrivateSteps) -> None:
        """Raise where rows cannot be told apart in training, or are told of beside it."""
        for role in set(self.topology.roles.values()):
            node = self.first(role)
            if not node.links.children:
                check_training(name, private, node.models)
        for id, links in self.topology.static.items():  # each has an owner, who protects other kinds
            if not links.children:
                check_kinds(name, [kind for kind in self.method.told if links.group(kind.to)], self.private(id))

    def _check_steps(self, node: str) -> None:
        """Raise where a node's privacy is that of private training, and there is none, or not a step can be paid."""
        privacy, trainings = self.private(node), [part for part in self.trainings.values() if part.private is not None]
        if privacy is None or self.topology.static[node].children:
            return
        if privacy.kinds == () and not trainings:
            raise PrivacyError(
                f"privacy of {node}: no kind is protected (kinds = []), and no training is private: set local.private, "
                "or protect kinds"
            )
        for charge in self.step_charges(node):
            check_affordable(node, charge, privacy)

    def step_charges(self, node: str) -> list[Charge]:
        """Return what one step of each private training costs a node, where its rows are known."""
        train = (self.of(self.data, node) or {}).get("train")
        if not isinstance(train, Data) or self.topology.static[node].children:
            return []
        found = []
        for part in self.trainings.values():
            names = self.topology.names(node)
            noise: float | None = None
            if part.private is not None and part.private.noise is not None:
                noise = pick(part.private.noise, *names)
            if noise is not None and part.data == "train":
                batch: int | None = None if part.batch is None else pick(part.batch, *names)
                found.append(Charge("training", noise, min(1.0, (batch or len(train)) / len(train))))
        return found

    def _check_quorums(self) -> None:
        """Raise where a node waits for more children than it asks: it would skip every round."""
        for reaction in self.method.reactions:
            if not isinstance(reaction.trigger, Every) or reaction.trigger.of in {*LINKS} - {"children"}:
                continue
            for node, role in self.topology.roles.items():
                if role in reaction.roles:
                    self._check_quorum(node, reaction.trigger)

    def _check_quorum(self, node: str, window: Every) -> None:
        wanted, asked = self.method.setting(window.quorum, *self.topology.names(node)), self._asked(node, window)
        if wanted is None:
            raise ValueError(f"{window.quorum} has no value for {node}: give one, or one for '*'")
        if isinstance(wanted, int) and wanted > asked > 0:
            raise ValueError(f"quorum is {wanted}, but {node} can hear from {asked}; a share in (0, 1] fits all")
        least: int = self.method.setting(window.least, *self.topology.names(node))
        if least > asked > 0:
            raise ValueError(f"{window.least} is {least}, but {node} can hear from {asked} only")

    def _check_liars(self) -> None:
        """Raise where a rule for combining reckons with more liars than it can bear among those that a node asks."""
        cohort = getattr(self.method, "cohort", None)
        if not isinstance(cohort, Cohort):
            return
        if cohort.trusts and not self.method.trusts:
            raise ValueError(f"cohort.combine: {type(self.method).__name__} has no server that learns from public rows")
        for reaction in self.method.reactions:
            if not isinstance(reaction.trigger, Every):
                continue
            for node in (n for n, role in self.topology.roles.items() if role in reaction.roles):
                asked = self._asked(node, reaction.trigger)
                names = self.topology.names(node)
                rule = None if cohort.combine is None else pick(cohort.combine, *names)
                if asked and rule is not None and (lacks := rule.lacks(asked)):
                    raise ValueError(
                        f"cohort.combine: {lacks}, and {node} asks {asked}: name fewer liars, or another rule"
                    )

    def _asked(self, node: str, window: Every) -> int:
        """Return from how many children a node can hear in a round: of a group, from those drawn."""
        children = len(self.topology.static[node].children)
        if window.of in LINKS:
            return children
        share = self.method.setting(window.share, *self.topology.names(node))
        if share is None:
            raise ValueError(f"{window.share} has no value for {node}: give one, or one for '*'")
        return share_of(children, share)

    def _check_dropouts(self) -> None:
        """Raise where a node that drops out is not known, or where its parent would wait for it for ever."""
        unknown = set(self.dropout.always) - set(self.topology.roles)
        if unknown:
            raise ValueError(f"dropout: no node is called {_stranger(min(unknown), self.topology.roles)}")
        if not self.dropout.rate and not self.dropout.always:
            return
        for node in self.topology.roles:
            if self.topology.static[node].children and self.merges_as_mail_comes(node):
                raise ValueError(
                    f"dropout: {type(self.method).__name__} is asynchronous, so {node} would never hear that a node"
                    " has dropped out, nor ask it again; take `dropout` out, or say in `profiles` when nodes are"
                    " `available`"
                )

    def merges_as_mail_comes(self, node: str) -> bool:
        """Tell whether a node merges its children's mail without waiting for all.

        Such a node never learns that a child has dropped out, and runs out of children.
        """
        role = self.topology.roles[node]
        reactions = [reaction for reaction in self.method.reactions if role in reaction.roles]
        waits = any(isinstance(reaction.trigger, Every) for reaction in reactions)
        for trigger in (reaction.trigger for reaction in reactions):
            if isinstance(trigger, Each) and trigger.kind.to == "parent" and not waits:
                return True
            if isinstance(trigger, Count) and trigger.kind.to == "parent":
                counted: int = self.method.setting(trigger.n, *self.topology.names(node))
                if counted > 0:
                    return True
        return False

    @cached_property
    def unlike(self) -> Unlike | None:
        """Return what travels and is not of one shape, though the method averages it."""
        models = {n: (role, self.of(self.models, n) or {}) for n, role in self.topology.roles.items()}
        return unlike(self.method, models)

    def check_alike(self) -> None:
        """Raise where messages would not fit: every one would be refused, and the run stand still."""
        if found := self.unlike:
            hint = "give all one network, or use a method for different networks"
            if found.width:
                hint = f"set width to at most {found.width}, or give all one network"
            raise ValueError(f"{type(self.method).__name__} averages weights of one shape, but {found.line}: {hint}")

    def check(self) -> None:
        """Raise where something is missing, or does not fit, that a run would only find out on its way.

        What a setting was read from has been checked.
        """
        if self.recipe is None:
            tests = [(f"{split} set {domain}", data) for domain, split, data in self._test_sets]
            tests += [(f"private test of {node}", data) for node, data in self.private_tests.items()]
            ready.check(self.method, map(self._holding, self.topology.roles), tests)
        self.check_alike()

    def _holding(self, node: str) -> ready.Holding:
        """Return what a node has."""
        models = {name: _model(model) for name, model in (self.of(self.models, node) or {}).items()}
        inner = bool(self.topology.static[node].children)
        return ready.Holding(node, self.topology.roles[node], models, self.views(node), inner)

    def views(self, node: str) -> dict[str, Any]:
        """Return a node's data by view: what it was given, and what follows from that.

        Public rows are those that everyone holds, so a node that was not given them has those of the others.
        """
        given: Mapping[str, Any] = self.of(self.data, node) or {}
        if "public" not in given and self._public is not None:
            given = {**given, "public": self._public}
        attack = self.attack
        if attack is not None and attack.poison is not None and node in attack.who and "train" in given:
            given = {**given, "train": partial(attack.poisoned, given["train"])}
        return completed(given)

    @cached_property
    def _public(self) -> Any:
        """Return the public rows, if the method needs some and all who were given any have the same ones."""
        if not self.method.public:
            return None
        held = [views for views in self.data.values() if not isinstance(views, Data)]
        found = [views["public"] for views in held if "public" in views]
        return found[0] if found and all(view is found[0] for view in found) else None

    def computed(self, **changes: Any) -> Federation:
        """Return the same federation with another `compute`, as in `federation.computed(device="cuda")`."""
        return replace(self, compute=replace(self.compute, **changes))

    def of(self, table: Mapping[str, Any], node: str) -> Any:
        """Return a table's entry for a node: its own, or that of its role."""
        return table.get(node, table.get(self.topology.roles[node])) if table else None

    def node(self, id: str) -> Node:
        """Build a node in its initial state."""
        models: Models = self.of(self.models, id) or {}
        return Node(
            id,
            self.topology.roles[id],
            slots={name: self._slot(id, name, _model(model)) for name, model in models.items()},
            data=self.views(id),
            memory=self.method.memory,
            links=self.topology.links(id, 0, self.seed),
            seed=self.seed,
            device=self.compute.device,
            capacity=self.capacity_of,
        )

    def _slot(self, node: str, name: str, model: Model) -> Slot:
        """Build one of a node's models. What is common to all nodes starts from the same randomness."""
        device = self.compute.device
        with seeded(self.seed, "init", "" if model.common else node, name):
            module = model.build().to(device)
        if device != "cpu":  # there, ways of computing choose the layout; here it is the factory's
            laid_out(module, torch.contiguous_format)
        slot = Slot(module, model.parts, model.buffers, model.norms)
        slot.shared()  # raises where `share` names nothing
        return slot

    def first(self, role: str) -> Node:
        """Build the first node of a role."""
        return self.node(next(node for node, other in self.topology.roles.items() if other == role))

    @property
    def partial(self) -> bool:
        """Tell whether a participant may miss rounds, the last among them."""
        windows = [r.trigger for r in self.method.reactions if isinstance(r.trigger, Every)]
        shares = [share for window in windows for share in values(self.method.option(window.share))]
        return self.dropout.rate > 0 or min(shares, default=1.0) < 1

    def profile(self, node: str) -> Profile:
        """Return what a node's device and network are like."""
        if not self.profiles:
            return self._others
        found: Profile = self.of(self.profiles, node) or self._others
        return found

    def private(self, node: str) -> Privacy | None:
        """Return how what a node sends is clipped and noised; None: it leaves as it is."""
        found: Privacy | None = self.of(self.privacy, node) or self.privacy.get("")
        return found

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """Return the method's kinds by name, as they travel."""
        return coded_kinds(self.method, self.compress)

    @cached_property
    def trainings(self) -> dict[str, Training]:
        """Return the method's local trainings, by the names of their options."""
        found = {part.name: getattr(self.method, part.name) for part in fields(self.method)}  # type: ignore[arg-type]
        return {name: part for name, part in found.items() if isinstance(part, Training)}

    @cached_property
    def guarded(self) -> bool:
        """Return whether something that leaves a node is noised or charged."""
        return bool(self.privacy) or any(training.private for training in self.trainings.values())

    @cached_property
    def _others(self) -> Profile:
        return self.profiles.get("") or Profile()

    @cached_property
    def _test_sets(self) -> list[tuple[str, str, Data]]:
        """Return all domains' sets as (domain, split, data)."""
        found: list[tuple[str, str, Data]] = []
        for domain, splits in self.tests.items():
            by_split = {"test": splits} if isinstance(splits, Data) else splits
            found += [(domain, split, data) for split, data in by_split.items()]
            if self.attack is not None and self.attack.trigger is not None and "test" in by_split:
                found.append((domain, "backdoor", self.attack.trigger(by_split["test"])))
        return found

    def test_sets(self, node: str) -> list[tuple[str, str, Data]]:
        """Return all that a node's products are evaluated on, as (set, split, data).

        These are the domains' sets, and its private test.

        A node that has no private test of its own, such as a server, is evaluated on everybody's. Where there are
        several label spaces, a participant is evaluated on domains of its own; a server, which has none, on nothing.
        """
        domains, tests = self._test_sets, self.private_tests
        if self.tasks:
            own = self.tasks.get(self.homes.get(node, ""))
            domains = [test for test in domains if self.tasks[test[0]] == own]
            tests = {name: data for name, data in tests.items() if self.tasks[self.homes[name]] == own}
        if node in self.homes or node in tests:
            tests = {node: tests[node]} if node in tests else {}
        return domains + [(name, "private-test", data) for name, data in tests.items()]

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a run to be resumed: everything that is not a module or a tensor.

        It stands in the run folder's `spec.json`.
        """
        identity = {
            "method": type(self.method).__name__,
            "settings": options_of(self.method),
            "nodes": dict(self.topology.roles),
            "links": self.topology.digest,
            "models": {owner: _starts(models) for owner, models in self.models.items()},
            "tests": [[name, split, len(data)] for name, split, data in self._test_sets],
            "seed": self.seed,
            **self.compute.deciding(),
            "evaluate": self.evaluate,
            "profiles": {key: _readable(asdict(value)) for key, value in self.profiles.items()},
            "dropout": {"rate": self.dropout.rate, "always": sorted(self.dropout.always)},
            "joins": dict(self.joins),
            "egress": {node: sorted(kinds) for node, kinds in self.egress.items()},
            "homes": dict(self.homes),
            "tasks": dict(self.tasks),
            "headline": self.method.headline,
            "recipe": self.recipe,
            "leaks": list(self.leaks),
        }
        if self.capacity:
            identity["capacity"] = {name: asdict(own) for name, own in self.capacity.items()}
        if self.privacy:
            identity["privacy"] = {name: _readable(privacy) for name, privacy in self.privacy.items()}
        if self.bound is not None or self.expel is not None:
            identity["door"] = {"bound": self.bound, "expel": self.expel}
        if self.attack is not None:
            identity["attack"] = self.attack.told()
        if self.untrained:
            identity["untrained"] = list(self.untrained)
        return {**identity, **described(self.task)}

    def run(self, rounds: int, out: str | Path | None = None, *, quiet: bool = False, **options: Any) -> Result:
        """Run on the local engine; with `out`, into a run folder that can be resumed.

        Progress is shown on a terminal and in a notebook, unless it is to be `quiet`.
        """
        from heterophony.runs.run import Run

        if not isinstance(rounds, int) or rounds < 1:
            raise ValueError(f"a run has a whole number of rounds, at least 1, got {rounds!r}")
        self.check()
        if out is None:
            return self._run(rounds, quiet, options)
        with Run.create(Path(out), self.identity(), rounds) as run:
            return self._finished(self._run(rounds, quiet, {**options, "record": run}), Path(out))

    def resume(self, out: str | Path, rounds: int | None = None, *, quiet: bool = False, **options: Any) -> Result:
        """Continue a run folder where its last snapshot stands; `rounds` extends it."""
        from heterophony.runs.run import Run

        self.check()
        with Run.open(Path(out), self.identity()) as run:
            return self._finished(self._run(rounds or run.goal, quiet, {**options, "record": run}), Path(out))

    def _run(self, rounds: int, quiet: bool, options: dict[str, Any]) -> Result:
        """Run on the local engine, and show progress unless it is to be quiet or somebody else shows it."""
        from heterophony.engines import local
        from heterophony.runs import progress

        if quiet or "progress" in options:
            return local(self, **options).run(rounds)
        with progress.shown(self, rounds) as tick:
            return local(self, progress=tick, **options).run(rounds)

    def _finished(self, result: Result, out: Path) -> Result:
        from heterophony.runs.summary import finish

        finish(self.identity(), result, out)
        return result


def _stranger(name: str, known: Collection[str]) -> str:
    """Return an unknown name in words: what may have been meant, and what there is."""
    there = [node for node in known if node]
    return f"{name!r}{meant(name, there)}; there are {listed(sorted(there))}"


def _model(model: Model | nn.Module | Callable[[], nn.Module]) -> Model:
    """Return a model with a factory. A live module is copied for each node that gets it."""
    if isinstance(model, Model):
        return model
    return Model(partial(deepcopy, model) if isinstance(model, nn.Module) else model)


def _starts(models: Models) -> dict[str, list[Any]]:
    """Return, for each slot, what of its model is known without building it."""
    found = {slot: _model(model) for slot, model in models.items()}
    return {
        slot: [model.share, model.buffers, model.common, *(["norms"] if model.norms == "private" else [])]
        for slot, model in found.items()
    }


def options_of(method: Method) -> dict[str, Any]:
    """Return all options of a method, as a run folder keeps them."""
    return {key: _readable(value) for key, value in vars(method).items()}


def _readable(value: Any) -> Any:
    """Return an option as JSON has it. A part that is a function or an object is written as text."""
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, Mapping):
        return {str(key): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _readable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, partial):
        return [_readable(value.func), _readable(value.args), _readable(value.keywords)]
    text = getattr(value, "__qualname__", None) or repr(value)
    return type(value).__qualname__ if " at 0x" in text else text  # an address says nothing to another process
