"""Toys of four organisations: what they would name in their TOML files, and the same federations in one process."""

import os
import time
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from heterophony import Data, Federation, Model
from heterophony.deploy.named_function import NamedFunction
from heterophony.deploy.organisation import Organisation
from heterophony.deploy.plan import Plan
from heterophony.kernel.topology import complete, star, tree
from heterophony.methods import BHFL, FCCL, FML, FedAvg, FedH2L, fedmd_global, hierfavg
from heterophony.parts.node_optimiser import NodeOptimiser
from heterophony.parts.public import PublicRows
from heterophony.parts.training import Training
from toys import world

NAMES = ("north", "south", "east", "west")
HIDDEN = dict(zip(NAMES, (8, 12, 16, 10), strict=True))
TREE = {"root": {"coast": ["north", "south"], "inland": ["east", "west"]}}
B16 = Training(batch=16)
STEPS = Training(batch=16, lr=0.01, data="own", steps=3)


# -- what organisations' files name ------------------------------------------------------------------------------
def network(hidden: int = 12, pause: float = 0.0) -> nn.Module:
    """With a pause before every pass, for tests that kill it in the middle: of this network, or of this process."""
    made = world.net(hidden)()
    pause = pause or float(os.environ.get("TOY_PAUSE", "0"))
    if pause:
        made.register_forward_pre_hook(lambda *_: time.sleep(pause))
    return made


def rows(name: str) -> dict[str, Data]:
    own = world.private(list(NAMES))[name]
    return {"train": own["train"], "mine": own["mine"], "test": world.points(f"test {name}", 24)}


def proxy(name: str) -> Data:
    """What an inner node, or the root, trains on."""
    return world.points(f"proxy {name}", 32, shift=0.1)


def public() -> Data:
    return world.PUBLIC


def tests() -> dict[str, Data]:
    return world.TESTS


# -- the cases ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    """A method between four organisations: its plan, and the same in one process, written out by hand."""

    name: str
    options: dict[str, Any]
    reference: Any
    rounds: int = 2
    public: bool = False
    common: int | None = None
    links: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = NAMES
    held: dict[str, tuple[str, ...]] = field(default_factory=dict)  # inner nodes, by who holds them
    own: dict[str, Any] = field(default_factory=dict)  # what stands in coordinator.toml

    def plan(self, **changes: Any) -> Plan:
        plain: dict[str, Any] = {"id": f"toy-of-{self.name}", "method": self.name, "rounds": self.rounds, "seed": 3}
        plain |= {"address": "127.0.0.1:8000", "participants": self.names, "options": self.options}
        plain |= {"tests": "toys.deployed:tests", "homes": dict.fromkeys(self.names, "here"), "pace": {"poll": 0.3}}
        if self.public:
            plain["public"] = "toys.deployed:public"
        if self.common is not None:
            plain["networks"] = {"common": network_call(self.common)}
        plain |= {"links": self.links, "organisations": self.held}
        return Plan.model_validate({**plain, **changes})

    def organisation(self, name: str, **changes: Any) -> Organisation:
        plain: dict[str, Any] = {"name": name, "federation": f"toy-of-{self.name}", "modules": ["toys.deployed"]}
        if name in self.names:
            plain |= {"data": data_call("rows", name), "model": network_call(HIDDEN[name])}
        trained = [node for node in self.held.get(name, ()) if node in self.links["proxy"]]
        plain["nodes"] = {node: {"data": data_call("proxy", node)} for node in trained}
        return Organisation.model_validate({**plain, **changes})

    def holder(self, node: str) -> str:
        """Who holds a node of an organisation."""
        return next((name for name, nodes in self.held.items() if node in nodes), node)

    def federation(self) -> Federation:
        """The same federation in one process."""
        return self.reference(tests=world.TESTS, seed=3)


def network_call(hidden: int, **more: Any) -> dict[str, Any]:
    return NamedFunction(call="toys.deployed:network", arguments={"hidden": hidden, **more}).model_dump()


def data_call(function: str, name: str) -> dict[str, Any]:
    return NamedFunction(call=f"toys.deployed:{function}", arguments={"name": name}).model_dump()


def _views(public: bool) -> dict[str, dict[str, Any]]:
    own = world.private(list(NAMES))
    for views in own.values():
        train, mine = views["train"], world.PUBLIC.take(views["mine"].row)
        views["own"] = world.joined(train, mine)
    return {n: views if public else {"train": views["train"]} for n, views in own.items()}


def _star(
    method: Any, clients: dict[str, Any], server: dict[str, Any], public: bool = False, **options: Any
) -> Federation:
    data = {**_views(public), **({"server": {"public": world.PUBLIC}} if public else {})}
    return Federation(method, star(NAMES), {**clients, "server": server}, data, **options)


def fedavg(**options: Any) -> Federation:
    models = {n: {"model": world.net(12)} for n in NAMES}
    return _star(FedAvg(local=B16), models, {"model": world.net(12)}, **options)


def fml(**options: Any) -> Federation:
    models = {n: {"model": world.net(HIDDEN[n]), "meme": world.net(12)} for n in NAMES}
    return _star(FML(local=B16), models, {"model": world.net(12)}, **options)


def fedmd(**options: Any) -> Federation:
    models = {n: {"model": world.net(HIDDEN[n])} for n in NAMES}
    method = fedmd_global(local=B16, distil=B16, rows=PublicRows(sample=20))
    return _star(method, models, {"model": world.net(12)}, public=True, **options)


def fccl(**options: Any) -> Federation:
    models = {n: dict.fromkeys(("model", "previous", "pretrained"), world.net(HIDDEN[n])) for n in NAMES}
    return _star(FCCL(local=B16, collaborate=B16, pretrain=B16), models, {}, public=True, **options)


def fedh2l(**options: Any) -> Federation:
    models = {n: {"model": world.net(HIDDEN[n])} for n in NAMES}
    return Federation(FedH2L(local=STEPS, sample=8), complete(NAMES), models, _views(True), **options)


def hierarchy(**options: Any) -> Federation:
    models = {role: {"model": Model(world.net(12), common=True)} for role in ("root", "inner", "leaf")}
    method = hierfavg(turns=1, local=B16)
    return Federation(method, tree(TREE), models, _views(False), **options)


# Figure 1 of B-HFL: a central server with proxy data, an intermediary that only merges, edge servers with residual
# links to the central one, persistent models and two optimisers with a state at every node. Beyond the figure, one edge
# server has proxy data too, and the other does not wait: it has one client, so that real time decides nothing.
FIGURE_TREE = {"root": {"region": {"coast": ["north", "south"], "inland": ["east"]}}}
RESIDUALS = [("root", "coast"), ("root", "inland")]
MOMENTUM, SLOWLY = {"kind": "momentum", "beta1": 0.5}, {"kind": "momentum", "beta1": 0.5, "rate": 0.5}
FIGURE_OPTIONS = {
    "up": MOMENTUM,
    "down": SLOWLY,
    "far_up": SLOWLY,
    "far_down": SLOWLY,
    **{part: {"batch": 16, "lr": 0.05} for part in ("local", "proxy")},
    "buffer": {"inland": 1, "*": 0},
}


def figure(**options: Any) -> Federation:
    models = {role: {"model": Model(world.net(12), common=True)} for role in ("root", "inner", "leaf")}
    fast, slowly = NodeOptimiser("momentum", beta1=0.5), NodeOptimiser("momentum", rate=0.5, beta1=0.5)
    train = Training(batch=16, lr=0.05)
    method = BHFL(
        up=fast, down=slowly, far_up=slowly, far_down=slowly, local=train, proxy=train, buffer={"inland": 1, "*": 0}
    )
    leaves = _views(False)
    data = {**{n: leaves[n] for n in NAMES[:3]}, **{n: {"train": proxy(n)} for n in ("root", "coast")}}
    return Federation(method, tree(FIGURE_TREE, RESIDUALS), models, data, **options)


BATCH = {"local": {"batch": 16}}
CASES = {
    case.name: case
    for case in (
        Case("fedavg", BATCH, fedavg, common=12),
        Case("fml", {"local": {"batch": 16, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}}, fml, common=12),
        Case(
            "fedmd-global",
            {**BATCH, "distil": {"batch": 16}, "sample": 20},
            fedmd,
            public=True,
            common=12,
        ),
        Case(
            "fccl",
            {
                part: {"batch": 16, "lr": 0.1, "optimiser": "sgd", "epochs": 1}
                for part in ("local", "collaborate", "pretrain")
            },
            fccl,
            public=True,
        ),
        Case(
            "fedh2l",
            {
                "local": {"batch": 16, "lr": 0.01, "data": "own", "steps": 3, "optimiser": "sgd", "weight_decay": 0.0},
                "sample": 8,
            },
            fedh2l,
            public=True,
        ),
        Case("hierfavg", {**BATCH, "turns": 1}, hierarchy, common=12, links={"tree": TREE}),
    )
}
FIGURE = Case(
    "bhfl",
    FIGURE_OPTIONS,
    figure,
    common=12,
    links={"tree": FIGURE_TREE, "residuals": RESIDUALS, "proxy": ["root", "coast"]},
    names=NAMES[:3],
    held={"authority": ("region",), "harbour": ("coast",), "east": ("inland",)},
    own={"nodes": {"root": {"data": data_call("proxy", "root")}}},
)
