"""The plan: what all organisations of a federation have agreed upon, in `federation.toml`.

Everyone has a copy of it, and a node works only with a coordinator whose copy says the same. What it does not say, each
organisation keeps to itself (`organisation.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator
from torch import nn

from heterophony.base import toml
from heterophony.catalogue import registry
from heterophony.data.table import Data
from heterophony.data.views import completed
from heterophony.deploy.holders import COORDINATOR, check_data, check_holders, check_learners
from heterophony.deploy.members import check_members
from heterophony.deploy.named_function import DeployError, NamedFunction
from heterophony.federation import Federation
from heterophony.kernel import by_level
from heterophony.kernel.capacity import Capacity
from heterophony.kernel.method import Method
from heterophony.kernel.networks import Model, NotOffered, Offer, checked, choose
from heterophony.kernel.profile import Profile
from heterophony.kernel.topology import (
    Topology,
    check_names,
    form_of_roles,
    graph,
    of_peers,
    star,
    tree,
)
from heterophony.settings.assemble import flat
from heterophony.settings.refusal import refusal
from heterophony.settings.setting import CompressPart, SecurePart, Strict

FILE = "federation.toml"
# The clock of a deployed federation is a real one: how long work takes is seen, not computed from private sizes.
REAL_TIME = Profile(seconds_per_sample=0.0)


class CommonNetworks(Strict):
    """The networks that travel, which all must build alike; `common` is the one that parameters are averaged of, or
    that FML calls global. `share` and `buffers` are as in `Model`."""

    common: NamedFunction | None = None
    share: str | tuple[str, ...] = ""
    buffers: Literal["shared", "private"] = "shared"


class LinkTable(Strict):
    """Who is linked to whom, where the method leaves a choice. `proxy` names the root, inner nodes, or roles, that
    train on data of their own."""

    kind: Literal["complete", "ring", "torus", "regular", "regular-anew", "pairs", "edges"] = "complete"
    degree: int = Field(default=3, ge=2)
    edges: tuple[tuple[str, str], ...] = ()
    tree: dict[str, Any] | None = None
    residuals: tuple[tuple[str, str], ...] = ()
    proxy: tuple[str, ...] = ()


class Pace(Strict):
    """Real seconds. Deadlines and quorums of a round are options of the method."""

    poll: float = Field(default=1.0, gt=0)  # how often the coordinator looks for answers
    again: float = Field(default=900.0, gt=0)  # after which a node that is connected is asked again
    patience: float = Field(
        default=3600.0, gt=0
    )  # a round waits no longer for a node that only refuses; a run that is otherwise over, for none


class Plan(Strict):
    """`federation.toml`."""

    id: str = Field(pattern=r"^[A-Za-z0-9._-]{8,64}$")
    method: str
    rounds: int = Field(ge=1)
    seed: int = 0
    evaluate: int = Field(default=1, ge=1)
    address: str = Field(pattern=r"^[^:/\s]+:\d+$")  # where nodes find the coordinator
    participants: tuple[str, ...] = Field(min_length=1)
    organisations: dict[str, tuple[str, ...]] = {}  # who holds which inner nodes; empty: the coordinator holds all
    options: dict[str, Any] = {}  # of the method
    links: LinkTable = LinkTable()
    networks: CommonNetworks = CommonNetworks()
    public: NamedFunction | None = None  # data that everyone holds -> Data
    tests: NamedFunction | None = None  # test sets that everyone holds -> {domain: Data}
    homes: dict[str, str] = {}  # participant -> the domain of `tests` that is its own
    recipe: str | None = None  # of a rehearsal (`rehearsal.py`): a setting from which everything else follows, as JSON
    limit: int = Field(default=2**30, ge=1)  # bytes of a question to a node, or of its answer
    pace: Pace = Pace()
    bound: float | None = Field(default=None, gt=0, le=1e15)  # the largest number in a message
    secure: SecurePart | None = None  # servers get sums of masked numbers instead of messages
    members: dict[str, str] = {}  # with `secure`: by organisation, the public key in whose name it signs
    capacity: dict[str, Capacity] = {}  # by participant: what it holds of the common network, as { width = 0.5 }
    compress: dict[str, CompressPart] = {}  # by kind of message, how its weights are put into few bits
    expel: int | None = Field(default=None, ge=1)  # after so many messages refused or doubted, a participant is put out

    @field_validator("address")
    @classmethod
    def _port(cls, address: str) -> str:
        if not 1 <= int(address.rpartition(":")[2]) <= 65535:
            raise ValueError(f"the port in {address!r} must be from 1 to 65535")
        return address

    @field_validator("participants")
    @classmethod
    def _folders(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        check_names(names)  # before any topology is built: each becomes the name of a folder
        return names

    @field_validator("organisations")
    @classmethod
    def _more_folders(cls, held: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        check_names(held)
        return held

    @classmethod
    def load(cls, path: Path) -> Plan:
        found: Plan = parsed(cls, path)
        return found

    @property
    def digest(self) -> str:
        """Return a hash of what was agreed. Where the coordinator is and how patient it is may change."""
        later = ("bound", "expel", "compress", "secure", "members", "capacity")
        own = {name for name in later if not getattr(self, name)}  # as before there were any
        agreed = self.model_dump(mode="json", exclude={"address", "pace", "rounds", *own})
        return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).hexdigest()

    # -- who holds what --------------------------------------------------------------------------------------
    @property
    def everyone(self) -> tuple[str, ...]:
        """Return the organisations, each with a key: the participants, and who holds inner nodes only."""
        others = [n for n, nodes in self.organisations.items() if n != COORDINATOR and nodes]
        return tuple(dict.fromkeys((*self.participants, *others)))

    def held_by(self, organisation: str) -> tuple[str, ...]:
        """Return the nodes that an organisation holds: its own as a participant, then inner ones."""
        own = (organisation,) if organisation in self.participants else ()
        return (*own, *self.organisations.get(organisation, ()))

    @property
    def remote(self) -> tuple[str, ...]:
        """Return the nodes that are not the coordinator's."""
        return tuple(node for name in self.everyone for node in self.held_by(name))

    def functions(self) -> dict[str, NamedFunction]:
        """Return, by field, the functions that everyone runs who works with this plan."""
        named = {"networks.common": self.networks.common, "public": self.public, "tests": self.tests}
        if ":" in self.method and self.recipe is None:
            named["method"] = NamedFunction(call=self.method)
        return {field: function for field, function in named.items() if function is not None}

    # -- what follows from it --------------------------------------------------------------------------------
    def build_method(self) -> Method:
        entry = registry.lookup(self.method)
        made = entry.build(flat(self.options, entry.options()))
        if self.secure is None:
            return made
        try:
            from heterophony.masking.transform import secure

            return secure(made, self.secure.build())
        except ValueError as error:
            raise DeployError(f"{FILE}: {error}") from None

    def topology(self, method: Method) -> Topology:
        names, part = list(self.participants), self.links
        form = form_of_roles(method.roles)
        if form == "tree":
            if part.tree is None:
                raise DeployError(f"{self.method} needs a tree: links.tree = {{ root = {{ edge = [...] }} }}")
            try:
                made = tree(part.tree, part.residuals)
            except ValueError as error:
                raise DeployError(f"{FILE}: links.tree: {error}") from None
        elif form == "star":
            made = star(names)
        elif part.kind == "edges":
            made = graph(part.edges)
        else:
            try:
                made = of_peers(part.kind, names, part.degree, self.seed)
            except ValueError as error:
                raise DeployError(f"{FILE}: links: {error}") from None
        if strangers := [name for name in names if name not in made.roles]:
            raise DeployError(f"participants: {strangers[0]} has no place in the topology")
        check_holders(made, names, self.organisations)
        check_learners(method, made, part.proxy, self.public is not None)
        by_level.check_known(method, made.roles, method.roles, max(map(made.level, made.roles)))
        return made

    def coordinator(self, held: Mapping[str, Mapping[str, Data]] | None = None, **options: Any) -> Federation:
        """Build what the coordinator knows: its own nodes' models and data; of the organisations' nodes, names only.

        `held` are data that nodes of its own train on.
        """
        if self.recipe is not None:
            return self.rehearsed()
        method = self.build_method()
        topology, held = self.topology(method), held or {}
        check_members(self, method, topology)
        own = [node for node in topology.roles if node not in self.remote]
        if strangers := [node for node in held if node not in own]:
            raise DeployError(f"coordinator.toml: nodes.{strangers[0]}: the coordinator holds no such node")
        for node in own:
            check_data(topology, self.links.proxy, node, held.get(node, {}), "coordinator.toml")
        models = {node: self.slots(method, topology.roles[node], None) for node in own}
        return self._federation(
            method, topology, models, *self._views(method, {n: held.get(n, {}) for n in own}), **options
        )

    def organisation(self, node: str, own: Model, data: Mapping[str, Data], **options: Any) -> Federation:
        """Build what an organisation knows for a node that it holds: its model and data beside the plan."""
        method = self.build_method()
        topology = self.topology(method)
        check_members(self, method, topology)
        if node not in self.remote:
            raise DeployError(f"no organisation holds {node}; theirs are {', '.join(self.remote)}")
        check_data(topology, self.links.proxy, node, data, "organisation.toml")
        models = {node: self.slots(method, topology.roles[node], own)}
        return self._federation(method, topology, models, *self._views(method, {node: data}), **options)

    def _views(self, method: Method, held: Mapping[str, Mapping[str, Data]]) -> tuple[dict[str, Any], dict[str, Data]]:
        """Return nodes' data by view, with the public ones; and their private tests: `test` among the data is one."""
        public, data, tests = self.public_data(method), {}, {}
        for node, views in held.items():
            if "test" in views:
                tests[node] = views["test"]
            rows = {view: rows for view, rows in views.items() if view != "test"}
            data[node] = rows if public is None else completed({"public": public, **rows})
        return data, tests

    def rehearsed(self, **options: Any) -> Federation:
        """Build the whole federation of a setting, of which everyone builds its own node only."""
        from heterophony.settings import reassemble

        federation = reassemble(json.loads(self.recipe or "{}"), trust=True)  # whoever runs it wrote it
        _check_no_clocks(self.method, federation.method, federation.topology)
        return replace(federation, profiles={"": REAL_TIME}, **options)

    def public_data(self, method: Method) -> Data | None:
        if self.public is None:
            if method.public:
                raise DeployError(f"{self.method} needs public data that everyone holds: set public")
            return None
        found = self.public()
        if not isinstance(found, Data):
            raise DeployError(f"public: {self.public.call} gave a {type(found).__name__}, not Data")
        return found

    def slots(self, method: Method, role: str, own: Model | None) -> dict[str, Model]:
        """Return the models that a role needs: of a participant's own network, and of the one in common."""
        common = None
        if self.networks.common is not None:
            common = Model(_network(self.networks.common), self.networks.share, self.networks.buffers)
        needed = checked(method.networks(), method.roles).get(role, {})
        try:
            return choose(needed, Offer(own, travelling=common, same=common))
        except NotOffered as missing:
            raise DeployError(self._not_offered(missing.which, role)) from None

    def _not_offered(self, which: str, role: str) -> str:
        if which == "own":
            return f"{self.method}: {role} needs a network of a participant, which is not told"
        if which == "architectures":
            return f"{self.method} needs every participant's network at the server, which is not told"
        return f"{self.method} has a network in common: set networks.common"

    def _federation(
        self, method: Method, topology: Topology, models: Any, data: Any, private_tests: Any, **options: Any
    ) -> Federation:
        tests = {} if self.tests is None else dict(self.tests())
        homes = self.homes or {name: name for name in self.participants}
        same: dict[str, Any] = {
            "seed": self.seed,
            "evaluate": self.evaluate,
            "profiles": {"": REAL_TIME},
            "homes": homes,
            "private_tests": private_tests,
            "bound": self.bound,
            "compress": {name: part.build() for name, part in self.compress.items()},
            "expel": self.expel,
            "capacity": self.capacity,
        }
        _check_no_clocks(self.method, method, topology)
        try:
            return Federation(method, topology, models, data, tests, **same, **options)
        except DeployError:
            raise
        except ValueError as error:
            raise DeployError(f"{FILE}: {error}") from None


def _check_no_clocks(name: str, method: Method, topology: Topology) -> None:
    """Raise where a node reacts to a clock of its own: that is one of virtual time."""
    if any(method.clocks(*topology.names(node)) for node in topology.roles):
        raise DeployError(f"{name}: a node's own clock is one of virtual time, for simulations only: leave out `live`")


def parsed(kind: type[Any], path: Path) -> Any:
    """Return a TOML file as one of our models; raise with one line that says what is wrong with it."""
    if not path.exists():
        raise DeployError(f"{path} is missing")
    values = toml.parsed(toml.text(path, DeployError), path, DeployError)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise DeployError(f"{path}: {refusal(kind, error, 'file')}") from None


def _network(named: NamedFunction) -> Any:
    def build() -> nn.Module:
        made = named()
        if not isinstance(made, nn.Module):
            raise DeployError(f"{named.call} gave a {type(made).__name__}, not a torch.nn.Module")
        return made

    return build
