"""From names to a federation: a method, a setting, a seed, and what the user changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from heterophony import registry
from heterophony.federation import Federation, Model
from heterophony.method import Method
from heterophony.models import create
from heterophony.node import Slot
from heterophony.parts import levels
from heterophony.parts.training import Training
from heterophony.profile import Dropout, Profile
from heterophony.seeds import seeded
from heterophony.settings import trees
from heterophony.settings import world as worlds
from heterophony.settings.setting import Setting, SettingError
from heterophony.topology import Topology, complete, star

# Keys of `--set` that change the setting; all others are options of the method.
PARTS = ("data", "models", "topology", "dropout", "profiles", "joins", "egress", "evaluate")


def assemble(
    method: str,
    setting: Setting | str,
    *,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    device: str = "cpu",
) -> Federation:
    """The federation that `heterophony run METHOD --on SETTING --set ...` runs."""
    entry = registry.lookup(method)
    chosen = Setting.load(setting) if isinstance(setting, str) else setting
    theirs = {key: value for key, value in (changes or {}).items() if key.split(".")[0] in PARTS}
    chosen = chosen.changed(theirs)
    _check_tables(chosen)
    options = {f"local.{key}": value for key, value in chosen.local.items()}
    options = {key: value for key, value in options.items() if key in entry.options()}
    try:
        options |= {
            entry.full_name(key): value for key, value in _flat(chosen.methods.get(method, {}), entry.options()).items()
        }
        entry.build(options)
        chosen.data.partition.build()
    except ValueError as error:
        raise SettingError(f"{chosen.name}.toml: {error}") from None
    for key, value in _only(changes, theirs).items():
        if key in ("rounds", "seed"):
            raise SettingError(f"--set {key}={value}: use --{key} {value}")
        options[entry.full_name(key)] = value
    made = entry.build(options)
    world = worlds.build(chosen.data, seed, root)
    _check(method, made, chosen, world)
    recipe = {
        "method": method,
        "setting": chosen.plain(),
        "seed": seed,
        "changes": _only(changes, theirs),
        "device": device,
    }
    topology = _topology(made, chosen, world)
    models = _models(made, chosen, world, topology)
    # What `export` needs to name a network without the data at hand.
    shape = dict(zip(("in_channels", "size", "classes"), world.shape, strict=True))
    networks = {n: {slot: model.build.args[0] for slot, model in own.items()} for n, own in models.items()}  # type: ignore[attr-defined]
    recipe |= {"shape": shape, "networks": networks}
    if "root" in made.roles:
        recipe["parents"] = {node: links.parent[0] for node, links in topology.static.items() if links.parent}
    return Federation(
        made,
        topology,
        models,
        {**world.views, **_servers(made, chosen, world, topology)},
        world.tests,
        private_tests=world.private_tests,
        seed=seed,
        evaluate=chosen.evaluate,
        device=device,
        dropout=Dropout(chosen.dropout.rate, chosen.dropout.always),
        profiles={name: Profile(**profile.model_dump()) for name, profile in chosen.profiles.items()},
        joins=chosen.joins,
        egress=chosen.egress,
        homes=world.homes,
        recipe=recipe,
        leaks=tuple(str(overlap) for overlap in world.report.overlaps if overlap.first != overlap.second),
    )


def reassemble(recipe: Mapping[str, Any], root: str | Path | None = None) -> Federation:
    """The federation that a run folder describes."""
    setting = Setting.of(dict(recipe["setting"]))
    same = {"seed": recipe["seed"], "changes": recipe["changes"], "device": recipe["device"]}
    return assemble(recipe["method"], setting, root=root, **same)


def _flat(options: Mapping[str, Any], known: Collection[str], before: str = "") -> dict[str, Any]:
    """`{"distil": {"epochs": 5}}`, as TOML reads `distil.epochs = 5`, by whole names; an option's table stays whole."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        inner = isinstance(value, Mapping) and before + key not in known
        found |= _flat(value, known, f"{before}{key}.") if inner else {before + key: value}
    return found


def _only(changes: Mapping[str, Any] | None, theirs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (changes or {}).items() if key not in theirs}


def _check(name: str, method: Method, setting: Setting, world: worlds.World) -> None:
    slots = {slot for role in method.models.values() for slot in role.values()}
    different = sorted(set(setting.models.names))
    if slots & {"same", "alike"} and len(different) > 1:
        raise SettingError(
            f"{name} averages parameters, so that all must have the same network; {setting.name} has "
            f"{', '.join(different)}: set models.participants to one of them, or use a method for different networks"
        )
    if method.public and world.public is None:
        raise SettingError(f"{name} needs public data; {setting.name} has none: set data.public")
    asked = getattr(getattr(method, "local", None), "data", "train")
    if (asked != "train" or getattr(method, "initial_public", 0)) and not world.labelled:
        raise SettingError(
            f"{name} trains on public data here, which needs labels; {setting.name} has none: set data.public"
        )
    channels, side, classes = world.shape
    for network in dict.fromkeys((*setting.models.names, setting.models.travelling)):
        with seeded("only to see that it can be built"):
            module = create(network, in_channels=channels, size=side, classes=classes)
        share = setting.models.share
        Slot(module, (share,) if isinstance(share, str) else share).shared()


def _check_tables(setting: Setting) -> None:
    """A misspelt name must not be passed over in silence."""
    known = [field.name for field in fields(Training)]
    for key in setting.local:
        if key not in known:
            raise SettingError(f"{setting.name}: [local] has no {key!r}; it has {', '.join(known)}")
    for name in setting.methods:
        if name not in registry.all_methods():
            raise SettingError(f"{setting.name}: [methods.{name}]: there is no such method")


def _topology(method: Method, setting: Setting, world: worlds.World) -> Topology:
    participants = list(world.homes)
    if "root" in method.roles:
        topology = trees.grow(setting.topology, world)
        depth = max(len(topology.path(node)) - 1 for node in participants)
        levels.check_known(method, topology.roles, method.roles, depth)
        return topology
    if "server" in method.roles:
        return star(participants)
    if method.roles == ("peer",):
        return complete(participants)
    raise SettingError(f"{type(method).__name__} needs a topology of its own (roles {', '.join(method.roles)})")


def _models(method: Method, setting: Setting, world: worlds.World, topology: Topology) -> dict[str, dict[str, Model]]:
    channels, side, classes = world.shape

    def model(network: str, common: bool = False) -> Model:
        build = partial(create, network, in_channels=channels, size=side, classes=classes)
        return Model(build, setting.models.share, setting.models.buffers, common)

    def slots(role: str, own: str) -> dict[str, Model]:
        made: dict[str, Model] = {}
        for name, kind in method.models.get(role, {}).items():
            if kind == "each":
                made |= {network: model(network) for network in dict.fromkeys(setting.models.names)}
            else:
                made[name] = model(setting.models.travelling if kind == "global" else own, kind in ("kin", "alike"))
        return made

    names = setting.models.names
    found = {}
    for place, participant in enumerate(world.homes):
        found[participant] = slots(topology.roles[participant], names[place % len(names)])
    return found | {node: slots(role, names[0]) for node, role in topology.roles.items() if node not in found}


def _servers(
    method: Method, setting: Setting, world: worlds.World, topology: Topology
) -> dict[str, dict[str, worlds.View]]:
    """What nodes that are no participants hold: the public data, and in a tree the right to train on them."""
    if world.public is None:
        return {}
    held: dict[str, dict[str, worlds.View]] = {"server": {"public": world.public}} if "server" in method.roles else {}
    if "root" in method.roles and world.labelled:
        for name in setting.topology.proxy:
            nodes = [n for n, role in topology.roles.items() if name in (n, role) and n not in world.homes]
            if not nodes:
                raise SettingError(f"{setting.name}: topology.proxy: no internal node or role is called {name!r}")
            held |= {node: {"train": world.public} for node in nodes}
    return held
