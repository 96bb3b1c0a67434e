"""What a user builds: a method, a topology, models and data, and what the world around them is like."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from heterophony.base.seeds import seeded
from heterophony.data.table import Data
from heterophony.data.views import completed
from heterophony.federation import checks
from heterophony.federation.identity import identity_of
from heterophony.federation.slicing import Slicing
from heterophony.kernel import ready
from heterophony.kernel.alike import Unlike, unlike
from heterophony.kernel.attack import Attack
from heterophony.kernel.by_level import pick, values
from heterophony.kernel.capacity import Capacity, largest, smallest
from heterophony.kernel.compression import Compression, coded_kinds
from heterophony.kernel.compute import Compute
from heterophony.kernel.message import Kind
from heterophony.kernel.method import Method
from heterophony.kernel.networks import Model, Models, model_of
from heterophony.kernel.node import Node, Slot, laid_out
from heterophony.kernel.privacy import Charge, Privacy
from heterophony.kernel.profile import Dropout, Profile
from heterophony.kernel.reaction import Count, Each, Every
from heterophony.kernel.topology import Topology
from heterophony.parts.training import Training
from heterophony.tasks.classification import Classification
from heterophony.tasks.task import Task

if TYPE_CHECKING:
    from heterophony.tables.result import Result

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
        checks.check_consistent(self)
        if self.slicing.needed:
            object.__setattr__(self, "models", self.slicing.models())
        if self.guarded:
            checks.check_privacy(self)

    def check(self) -> None:
        """Raise where a run would only find out on its way that something is missing, or does not fit."""
        checks.check_startable(self)

    # -- what is said of a node ----------------------------------------------------------------------------------
    def of(self, table: Mapping[str, Any], node: str) -> Any:
        """Return a table's entry for a node: its own, or that of its role."""
        return table.get(node, table.get(self.topology.roles[node])) if table else None

    def capacity_of(self, node: str) -> Capacity:
        """Return what a node can hold of a network; whoever leads holds the whole, if nothing is said of it."""
        found: Capacity | None = self.of(self.capacity, node) or self.capacity.get("")
        return found or self._largest

    @cached_property
    def _largest(self) -> Capacity:
        return largest(self.capacity.values())

    def profile(self, node: str) -> Profile:
        """Return what a node's device and network are like."""
        if not self.profiles:
            return self._others
        found: Profile = self.of(self.profiles, node) or self._others
        return found

    @cached_property
    def _others(self) -> Profile:
        return self.profiles.get("") or Profile()

    def private(self, node: str) -> Privacy | None:
        """Return how what a node sends is clipped and noised; None: it leaves as it is."""
        found: Privacy | None = self.of(self.privacy, node) or self.privacy.get("")
        return found

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

    # -- nodes ---------------------------------------------------------------------------------------------------
    def node(self, id: str) -> Node:
        """Build a node in its initial state."""
        models: Models = self.of(self.models, id) or {}
        return Node(
            id,
            self.topology.roles[id],
            slots={name: self._slot(id, name, model_of(model)) for name, model in models.items()},
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

    @cached_property
    def slicing(self) -> Slicing:
        """Return which slices of networks nodes hold."""
        return Slicing(self)

    # -- what follows from the method ----------------------------------------------------------------------------
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

    @cached_property
    def asynchronous(self) -> str | None:
        """Return a node that merges its children's mail without waiting for all; none if there is no such node."""
        parents = (node for node in self.topology.roles if self.topology.static[node].children)
        return next((node for node in parents if self.merges_as_mail_comes(node)), None)

    @cached_property
    def partial(self) -> bool:
        """Tell whether a participant may miss rounds, the last among them.

        Where mail is merged as it comes, a participant never knows that a round is the last.
        """
        windows = [r.trigger for r in self.method.reactions if isinstance(r.trigger, Every)]
        shares = [share for window in windows for share in values(self.method.option(window.share))]
        return self.dropout.rate > 0 or min(shares, default=1.0) < 1 or self.asynchronous is not None

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

    # -- test sets -----------------------------------------------------------------------------------------------
    @property
    def task(self) -> Task:
        """The task of the test sets; classification where there are none."""
        return next((data.task for data in self.all_tests), Classification())

    @property
    def all_tests(self) -> list[Data]:
        """Return all test sets, those of domains and private ones."""
        return [*(data for _, _, data in self.domain_tests), *self.private_tests.values()]

    @cached_property
    def domain_tests(self) -> list[tuple[str, str, Data]]:
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
        domains, tests = self.domain_tests, self.private_tests
        if self.tasks:
            own = self.tasks.get(self.homes.get(node, ""))
            domains = [test for test in domains if self.tasks[test[0]] == own]
            tests = {name: data for name, data in tests.items() if self.tasks[self.homes[name]] == own}
        if node in self.homes or node in tests:
            tests = {node: tests[node]} if node in tests else {}
        return domains + [(name, "private-test", data) for name, data in tests.items()]

    # -- the same in other circumstances -------------------------------------------------------------------------
    def computed(self, **changes: Any) -> Federation:
        """Return the same federation with another `compute`, as in `federation.computed(device="cuda")`."""
        return replace(self, compute=replace(self.compute, **changes))

    def smallest(self) -> Federation:
        """Return the same federation in which everyone, the server too, has what the smallest participant can hold."""
        own = [self.capacity_of(n) for n, role in self.topology.roles.items() if role == self.method.roles[-1]]
        return replace(self, capacity={"": smallest(own)})

    # -- a run ---------------------------------------------------------------------------------------------------
    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a run to be resumed: everything that is not a module or a tensor.

        It stands in the run folder's `spec.json`.
        """
        return identity_of(self)

    def run(
        self,
        rounds: int,
        out: str | Path | None = None,
        *,
        quiet: bool = False,
        track: str = "none",
        **options: Any,
    ) -> Result:
        """Run on the local engine or another; with `out`, into a run folder that can be resumed.

        Progress is shown on a terminal and in a notebook, unless it is to be `quiet`. `track` names the trackers that
        are told in the folder, as `--track` does. `engine=engines.process` and others run it elsewhere. `watch` is
        called with the engine as the run goes on. All other options are the engine's.
        """
        from heterophony.runs.execution import execute, execute_in

        if not isinstance(rounds, int) or rounds < 1:
            raise ValueError(f"a run has a whole number of rounds, at least 1, got {rounds!r}")
        self.check()
        if out is None:
            return execute(self, rounds, loud=not quiet, **options)
        return execute_in(Path(out), self, rounds, new=True, track=track, loud=not quiet, **options).result

    def resume(
        self,
        out: str | Path,
        rounds: int | None = None,
        *,
        quiet: bool = False,
        track: str | None = None,
        **options: Any,
    ) -> Result:
        """Continue a run folder where its last snapshot stands; `rounds` extends it."""
        from heterophony.runs.execution import execute_in

        self.check()
        return execute_in(Path(out), self, rounds, new=False, track=track, loud=not quiet, **options).result
