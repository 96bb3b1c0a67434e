"""What only one organisation knows, in its own TOML file: its network, its data, and what may leave it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field
from torch import nn

from heterophony.data.table import Data
from heterophony.deploy.named_function import DeployError, NamedFunction
from heterophony.deploy.plan import Plan, parsed
from heterophony.federation import Federation
from heterophony.kernel.compute import Compute
from heterophony.kernel.networks import Model
from heterophony.settings.setting import Strict

FILE = "organisation.toml"
FigureSplit = Literal["test", "validation", "proxy", "private-test", "train", "note"]
SPLITS: tuple[FigureSplit, ...] = get_args(FigureSplit)


class Egress(Strict):
    """What may leave. `kinds` None: what the method declares. `metrics` are the splits whose figures the coordinator
    hears of: "test" (sets that everyone holds), "private-test", "train" (losses), "note" (what a method measures); all
    figures are in the organisation's own table in any case. `digest`: hashes of its models, to compare runs.
    `reactions`: how often it answers at all, as a coordinator could go through one round for ever; None: no limit."""

    kinds: tuple[str, ...] | None = None
    metrics: tuple[FigureSplit, ...] = ("test",)
    digest: bool = True
    reactions: int | None = Field(default=None, ge=1)


class Organisation(Strict):
    """`organisation.toml`."""

    name: str
    federation: str  # the id in federation.toml
    model: NamedFunction | None = None  # -> torch.nn.Module; None where all have the plan's network
    share: str | tuple[str, ...] = ""  # where the method averages a part of one's own model
    buffers: Literal["shared", "private"] = "shared"
    data: NamedFunction | None = None  # -> Data, or {"train": Data, "test": Data, ...}
    modules: tuple[str, ...] = ()  # installed ones whose functions the plan may name, beside those in this folder
    rehearsal: bool = False  # whether the plan may have a recipe, that brings networks and data of its own
    egress: Egress = Egress()
    folder: Path = Path("state")  # private state, beside this file unless absolute
    port: int = Field(default=9094, ge=1, le=65535)  # of the node's own programs, on this machine only
    device: str = "cpu"
    threads: int = Field(default=1, ge=1)

    @classmethod
    def load(cls, path: Path) -> Organisation:
        found: Organisation = parsed(cls, path)
        return found.model_copy(update={"folder": (path.parent / found.folder).resolve()})

    def build(self, plan: Plan) -> Federation:
        """Build this participant's side of the federation."""
        if self.federation != plan.id:
            raise DeployError(f"{self.name}: federation = {self.federation!r}, but federation.toml is {plan.id!r}")
        if plan.recipe is not None:
            return plan.rehearsed()
        own = Model(self._network, self.share, self.buffers)
        compute = Compute(device=self.device, threads=self.threads)
        egress = {} if self.egress.kinds is None else {self.name: self.egress.kinds}
        return plan.participant(self.name, own, self._views(), compute=compute, egress=egress)

    def _network(self) -> nn.Module:
        if self.model is None:
            raise DeployError(f"{self.name}: the method needs a network of one's own: set model")
        made = self.model()
        if not isinstance(made, nn.Module):
            raise DeployError(f"{self.name}: {self.model.call} gave a {type(made).__name__}, not a torch.nn.Module")
        return made

    def _views(self) -> dict[str, Data]:
        if self.data is None:
            raise DeployError(f"{self.name}: set data, a function that loads them")
        found = self.data()
        views = {"train": found} if isinstance(found, Data) else found
        if not isinstance(views, Mapping) or not all(isinstance(view, Data) for view in views.values()):
            raise DeployError(f"{self.name}: {self.data.call} must give Data, or Data by name such as train and test")
        return dict(views)
