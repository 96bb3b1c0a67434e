"""What only one organisation knows, in its own TOML file: its network, its data, and what may leave it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, model_validator
from torch import nn

from heterophony.data.table import Data
from heterophony.deploy import keys
from heterophony.deploy.budget import Budget
from heterophony.deploy.holders import HeldData, views_of
from heterophony.deploy.home_vault import HomeVault
from heterophony.deploy.members import holder, siblings
from heterophony.deploy.named_function import DeployError, NamedFunction
from heterophony.deploy.plan import FILE as PLAN
from heterophony.deploy.plan import Plan, parsed
from heterophony.federation import Federation
from heterophony.kernel.compute import Compute
from heterophony.kernel.networks import Model
from heterophony.kernel.topology import Topology
from heterophony.settings.setting import PrivacyPart, Strict

FILE = "organisation.toml"
FigureSplit = Literal["test", "validation", "proxy", "private-test", "train", "note"]
SPLITS: tuple[FigureSplit, ...] = get_args(FigureSplit)


class Egress(Strict):
    """What may leave. `kinds` None: what the method declares. `metrics` are the splits whose figures the coordinator
    hears of: "test" (sets that everyone holds), "private-test", "train" (losses), "note" (what a method measures); all
    figures are in the organisation's own table in any case. `digest`: hashes of its models, to compare runs.
    `reactions`: how often it answers at all, as a coordinator could go through one round for ever; None: no limit.
    `privacy`: how what leaves is clipped and noised; None: it leaves as it is.
    `least`: the fewest members of a secure sum that it takes part in; None: as the plan says."""

    kinds: tuple[str, ...] | None = None
    metrics: tuple[FigureSplit, ...] = ("test",)
    digest: bool = True
    reactions: int | None = Field(default=None, ge=1)
    privacy: PrivacyPart | None = None
    least: int | None = Field(default=None, ge=3)

    @model_validator(mode="after")
    def _only_messages(self) -> Egress:
        if self.privacy is not None and (self.metrics or self.digest):
            raise ValueError("privacy covers messages alone: set metrics = [] and digest = false beside it")
        return self


class HeldNode(HeldData):
    """`[nodes.NAME]` of an organisation: an inner node that it holds, with a policy of its own if it needs one."""

    egress: Egress | None = None


class Organisation(Strict):
    """`organisation.toml`."""

    name: str
    federation: str  # the id in federation.toml
    model: NamedFunction | None = None  # -> torch.nn.Module; None where all have the plan's network
    share: str | tuple[str, ...] = ""  # where the method averages a part of one's own model
    buffers: Literal["shared", "private"] = "shared"
    data: NamedFunction | None = None  # -> Data, or {"train": Data, "test": Data, ...}
    nodes: dict[str, HeldNode] = {}  # inner nodes that are held here; those without data need not be named
    modules: tuple[str, ...] = ()  # installed ones whose functions the plan may name, beside those in this folder
    rehearsal: bool = False  # whether the plan may have a recipe, that brings networks and data of its own
    egress: Egress = Egress()
    budget: Path | None = None  # of privacy: the file of this data set, for all federations, outside their folders
    witness: Path | None = None  # what counts beside it, in a second place
    secrets: Path | None = None  # a folder for the secrets of secure sums, which no backup has; None: beside the state
    folder: Path = Path("state")  # private state, beside this file unless absolute
    port: int = Field(default=9094, ge=1, le=65535)  # of the node's own programs, on this machine only
    device: str = "cpu"
    threads: int = Field(default=1, ge=1)

    @classmethod
    def load(cls, path: Path) -> Organisation:
        found: Organisation = parsed(cls, path)
        here = path.parent.resolve()
        places = {"folder": (here / found.folder).resolve()}
        if found.secrets is not None:
            places["secrets"] = (here / found.secrets).resolve()
        for name in ("budget", "witness"):
            place = getattr(found, name)
            if place is not None:
                places[name] = (here / place).resolve()
                if places[name].is_relative_to(here):
                    raise DeployError(f"{path}: {name}: {place} is in the folder of one federation: keep it outside")
        if "budget" in places and places["budget"].parent == places.get("witness", here).parent:
            raise DeployError(f"{path}: witness: it is beside the budget, and would be rolled back with it")
        return found.model_copy(update=places)

    def check(self, plan: Plan) -> None:
        """Raise unless the plan knows this organisation as it says that it is."""
        if self.federation != plan.id:
            raise DeployError(f"{self.name}: federation = {self.federation!r}, but federation.toml is {plan.id!r}")
        held = plan.held_by(self.name)
        if not held:
            raise DeployError(f"{self.name} holds no node in federation.toml; there are {', '.join(plan.everyone)}")
        inner = [node for node in held if node not in plan.participants]
        if strangers := [node for node in self.nodes if node not in inner]:
            raise DeployError(
                f"{self.name}: nodes.{strangers[0]}: it is no inner node that federation.toml gives to {self.name}"
            )
        if self.data is not None and held == tuple(inner):
            raise DeployError(f"{self.name}: data are a participant's own; put them under [nodes.{inner[0]}]")

    def policy(self, node: str) -> Egress:
        """Return what may leave a node: as its own policy says, else as the organisation's does."""
        named = self.nodes.get(node)
        return self.egress if named is None or named.egress is None else named.egress

    def account(self, node: str) -> Budget | None:
        """Return the privacy budget that a node spends from; None where its policy has no privacy."""
        privacy = self.policy(node).privacy
        if privacy is None:
            return None
        if self.budget is None:
            raise DeployError(f"{self.name}: egress.privacy: set budget, the file in which all that is told is counted")
        made = privacy.build()
        assert made.budget is not None
        assert made.delta is not None
        return Budget(self.budget, self.witness, made.budget, made.delta)

    def vault(self, plan: Plan, node: str, topology: Topology, key: Any = None) -> HomeVault:
        """Return where a node's secrets lie, with the key in whose name it signs."""
        place = self.place(node) if self.secrets is None else self.secrets / node
        members = siblings(plan, topology, node) if plan.secure is not None else None
        least = self.policy(node).least or 0
        if members and least > len(members):
            raise DeployError(f"{self.name}: egress.least is {least}, but {node} is in sums of {len(members)} at most")
        own = (members or {}).get(node)
        if own is not None and key is not None and keys.public_of(own) != key.public_key():
            raise DeployError(f"{self.name}: members.{holder(plan, node)} in {PLAN} is not the key in node.key")
        return HomeVault(place / f"{plan.id}.secrets", plan.id, key if members else None, members, least)

    def place(self, node: str) -> Path:
        """Return the folder of a node's state."""
        return self.folder if node == self.name else self.folder / "nodes" / node

    def build(self, plan: Plan, node: str = "") -> Federation:
        """Build the federation as a node of this organisation's sees it; without a name, its own as a participant."""
        self.check(plan)
        node = node or self.name
        policy = self.policy(node)
        privacy = {} if policy.privacy is None else {node: policy.privacy.build()}
        if plan.recipe is not None:
            return replace(plan.rehearsed(), privacy=privacy) if privacy else plan.rehearsed()
        own = Model(self._network, self.share, self.buffers)
        compute = Compute(device=self.device, threads=self.threads)
        kinds = policy.kinds
        egress = {} if kinds is None else {node: kinds}
        views = self._own_views() if node in plan.participants else self.nodes.get(node, HeldNode()).views(node)
        return plan.organisation(node, own, views, compute=compute, egress=egress, privacy=privacy)

    def _network(self) -> nn.Module:
        if self.model is None:
            raise DeployError(f"{self.name}: the method needs a network of one's own: set model")
        made = self.model()
        if not isinstance(made, nn.Module):
            raise DeployError(f"{self.name}: {self.model.call} gave a {type(made).__name__}, not a torch.nn.Module")
        return made

    def _own_views(self) -> dict[str, Data]:
        if self.data is None:
            raise DeployError(f"{self.name}: set data, a function that loads them")
        return views_of(self.data, self.name)
