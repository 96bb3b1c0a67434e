"""From names to a federation: a method, a setting, a seed, and what the user changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from heterophony.base import imported
from heterophony.base.seeds import seeded
from heterophony.base.wording import meant
from heterophony.catalogue import registry
from heterophony.data.root import folder
from heterophony.federation import Federation
from heterophony.kernel import by_level
from heterophony.kernel.compute import Compute
from heterophony.kernel.method import Method
from heterophony.kernel.needs import DataFacts
from heterophony.kernel.networks import Model, Offer, checked, choose
from heterophony.kernel.profile import Dropout, Profile
from heterophony.kernel.topology import Topology, complete, graph, random_pairs, ring, star
from heterophony.models import create
from heterophony.models.description import describe
from heterophony.parts.training import Training
from heterophony.settings import building, fitting, trees
from heterophony.settings import world as worlds
from heterophony.settings.setting import Setting, SettingError

# Keys of `--set` that change the setting; all others are options of the method.
PARTS = ("data", "models", "dropout", "profiles", "joins", "egress", "evaluate", "topology")


def assemble(
    method: str,
    setting: Setting | str,
    *,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    compute: Compute = Compute(),
) -> Federation:
    """The federation that `heterophony run METHOD --on SETTING --set ...` runs.

    `compute` says how its work is computed.
    """
    made, chosen = resolve(method, setting, changes, root)
    world = building.build(chosen.data, seed, root)
    _check(method, made, chosen, world)
    recipe = {
        "method": method,
        "setting": chosen.plain(),
        "seed": seed,
        "changes": _only(changes, _theirs(changes)),
        "compute": compute.deciding(),
    }
    topology = _topology(method, made, chosen, world, seed)
    models = _models(made, chosen, world, topology)
    # What `export` needs to name a network, and its classes, without the data at hand.
    shape = dict(zip(("in_channels", "size", "classes"), world.shape, strict=True))
    networks = {n: {slot: describe(model.build) for slot, model in own.items()} for n, own in models.items()}
    recipe |= {"shape": shape, "networks": networks}
    if world.reads == "sequences":
        recipe["sequences"] = True
    if world.tasks:
        recipe["classes"] = {name: world.classes[home] for name, home in world.homes.items()}
    if any(name != str(place) for names in world.labels.values() for place, name in enumerate(names)):
        recipe["labels"] = {domain: list(names) for domain, names in world.labels.items()}
    if "root" in made.roles:
        recipe["parents"] = {node: links.parent[0] for node, links in topology.static.items() if links.parent}
    federation = Federation(
        made,
        topology,
        models,
        {**world.views, **_servers(made, chosen, world, topology)},
        world.tests,
        private_tests=world.private_tests,
        seed=seed,
        evaluate=chosen.plan(method)[1],
        compute=compute,
        dropout=Dropout(chosen.dropout.rate, _always_out(chosen, world)),
        profiles={name: Profile(**profile.model_dump()) for name, profile in chosen.profiles.items()},
        joins=chosen.joins,
        egress=chosen.egress,
        homes=world.homes,
        tasks=world.tasks,
        recipe=recipe,
        leaks=tuple(str(overlap) for overlap in world.coverage.overlaps if overlap.first != overlap.second),
        untrained=world.coverage.untrained(),
    )
    _check_alike(method, federation, chosen)
    return federation


def resolve(
    method: str, setting: Setting | str, changes: Mapping[str, Any] | None = None, root: str | Path | None = None
) -> tuple[Method, Setting]:
    """The method with all of its options, and the setting as it is changed; no data are read."""
    entry = registry.lookup(method)
    chosen = Setting.load(setting) if isinstance(setting, str) else setting
    theirs = _theirs(changes)
    if "evaluate" in theirs and "evaluate" in chosen.methods.get(method, {}):
        theirs[f"methods.{method}.evaluate"] = theirs["evaluate"]
    # By absolute paths, so that the run can be repeated from wherever somebody stands.
    chosen = chosen.changed(theirs).located(Path.cwd(), folder(root))
    _check_tables(chosen)
    local = dict(chosen.local)
    if "lr" in local:  # a rate is that of an optimiser: what is not said of it is the same for all methods
        local = {key: getattr(Training(), key) for key in ("optimiser", "momentum", "weight_decay")} | local
    options = {f"local.{key}": value for key, value in local.items()}
    options = {key: value for key, value in options.items() if key in entry.options()}
    try:
        own = {key: value for key, value in chosen.methods.get(method, {}).items() if key not in ("rounds", "evaluate")}
        options |= {entry.full_name(key): value for key, value in flat(own, entry.options()).items()}
        entry.build(options)
        chosen.data.partition.build()
    except ValueError as error:
        raise SettingError(f"{chosen.name}.toml: {error}") from None
    for key, value in _only(changes, theirs).items():
        if key in ("rounds", "seed"):
            fits = isinstance(value, int) and (key == "seed" or value >= 1)
            wanted = value if fits else "N, a whole number" if key == "seed" else "N, a whole number of at least 1"
            raise SettingError(f"--set {key}={value}: use --{key} {wanted}")
        options[entry.full_name(key)] = value
    return entry.build(options), chosen


def reassemble(
    recipe: Mapping[str, Any], root: str | Path | None = None, *, trust: bool = False, where: str = "the recipe"
) -> Federation:
    """The federation that a run folder describes. What it names that is not ours is imported with `trust` only."""
    setting = Setting.of(dict(recipe["setting"]))
    own = [("method", recipe["method"])] if ":" in recipe["method"] else []
    imported.permit([*own, *setting.changed(_theirs(recipe["changes"])).imports()], where, trust)
    same = {"seed": recipe["seed"], "changes": recipe["changes"]}
    return assemble(recipe["method"], setting, root=root, compute=Compute.of(recipe["compute"]), **same)


def flat(options: Mapping[str, Any], known: Collection[str], before: str = "") -> dict[str, Any]:
    """`{"distil": {"epochs": 5}}`, as TOML reads `distil.epochs = 5`, by whole names; an option's table stays whole."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        inner = isinstance(value, Mapping) and before + key not in known
        found |= flat(value, known, f"{before}{key}.") if inner else {before + key: value}
    return found


def _theirs(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Those changes that are of the setting."""
    return {key: value for key, value in (changes or {}).items() if key.split(".")[0] in PARTS}


def _only(changes: Mapping[str, Any] | None, theirs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (changes or {}).items() if key not in theirs}


def _check(name: str, method: Method, setting: Setting, world: worlds.World) -> None:
    """Raise where the setting lacks what the method needs, or names networks that do not go with it."""
    facts = DataFacts(
        name=setting.name,
        public=world.public is not None,
        labelled=world.labelled,
        validation=bool(setting.data.validation),
        stream=setting.data.stream is not None,
        sequences=world.reads == "sequences",
        label_spaces=world.label_spaces if world.tasks else "",
    )
    for need in method.needs():
        if lacking := need.lacks(facts):
            raise SettingError(f"{name} {lacking}")
    networks = fitting.networks(setting)
    for network in networks:
        fitting.check_reads(network, setting, world)
    for network in networks:
        fitting.check_built(network, setting, world)
    if world.tasks and method.kinds:
        fitting.check_adaptors(name, setting, world)
    elif method.headline == "global" and setting.models.share:
        fitting.check_whole(name, setting, world)


def _check_alike(name: str, federation: Federation, setting: Setting) -> None:
    """What is averaged must have one shape; where that is a part, the rest of the networks may differ."""
    if (found := federation.unlike) is None:
        return
    different, one = ", ".join(sorted(set(setting.models.names))), "set models.same or models.participants to one"
    if found.width:
        raise SettingError(
            f"{name} averages heads of one shape; {setting.name} has {different}, and {found.line}: set width to at "
            f"most {found.width}, or {one} of them"
        )
    raise SettingError(
        f"{name} averages parameters, so that all must have the same network; {setting.name} has {different}: {one} "
        "of them, or use a method for different networks"
    )


def _always_out(setting: Setting, world: worlds.World) -> tuple[str, ...]:
    """Those who never make it: by name, and the participants with the smallest networks."""
    out = setting.dropout.always
    if not setting.dropout.weakest:
        return out
    channels, side, _ = world.shape
    names, sizes = setting.models.names, {}
    for place, (participant, home) in enumerate(world.homes.items()):
        with seeded("only to be counted"):
            made = create(names[place % len(names)], in_channels=channels, size=side, classes=world.classes[home])
        sizes[participant] = sum(parameter.numel() for parameter in made.parameters())
    weak = sorted(sizes, key=sizes.__getitem__)[: round(setting.dropout.weakest * len(sizes))]  # sorting keeps ties
    return tuple(dict.fromkeys((*out, *weak)))


def _check_tables(setting: Setting) -> None:
    """A misspelt name must not be passed over in silence."""
    known = [field.name for field in fields(Training)]
    for key in setting.local:
        if key not in known:
            raise SettingError(f"{setting.name}: [local] has no {key!r}{meant(key, known)}; it has {', '.join(known)}")
    for name in setting.methods:
        if ":" not in name and name not in (methods := registry.all_methods()):
            hint = f"{meant(name, methods)}; `heterophony methods` lists them"
            raise SettingError(f"{setting.name}: [methods.{name}]: there is no such method{hint}")


def _topology(name: str, method: Method, setting: Setting, world: worlds.World, seed: int) -> Topology:
    participants, part = list(world.homes), setting.topology
    if part.kind is not None and (part.kind == "tree") != ("root" in method.roles):
        needs = "tree" if "root" in method.roles else "star" if "server" in method.roles else "graph of peers"
        raise SettingError(f"topology.kind = {part.kind!r} does not go with {name}, which needs a {needs}")
    if "root" in method.roles:
        topology = trees.grow(setting.topology, world, seed)
        depth = max(len(topology.path(node)) - 1 for node in participants)
        by_level.check_known(method, topology.roles, method.roles, depth)
        return topology
    if "server" in method.roles:
        if part.kind is not None:
            raise SettingError(f"topology.kind = {part.kind!r} is for methods without a server; {name} has one")
        return star(participants)
    if method.roles == ("peer",):
        if part.kind != "edges":
            return {"ring": ring, "pairs": random_pairs}.get(part.kind or "", complete)(participants)
        if odd := sorted({end for edge in part.edges for end in edge} ^ set(participants)):
            what = "is on no edge" if odd[0] in participants else "is no participant"
            raise SettingError(f"topology.edges: {odd[0]} {what}; the participants are {', '.join(participants)}")
        return graph(part.edges)
    raise SettingError(f"{type(method).__name__} needs a topology of its own (roles {', '.join(method.roles)})")


def _models(method: Method, setting: Setting, world: worlds.World, topology: Topology) -> dict[str, dict[str, Model]]:
    """Give each node the networks that its role needs, of those that the setting names."""
    needed = checked(method.networks(), method.roles)
    if not any(needed.values()):
        raise SettingError(
            f'{type(method).__name__} does not say which networks it needs: models = {{"client": {{"model": Own()}}}}'
        )
    names, first = setting.models.names, world.shape[2]
    places = {participant: place for place, participant in enumerate(world.homes)}
    found = {}
    for node in [*places, *(node for node in topology.roles if node not in places)]:
        own = names[places.get(node, 0) % len(names)]
        classes = world.classes[world.homes[node]] if node in places else first
        found[node] = choose(needed.get(topology.roles[node], {}), _offer(setting, world, own, classes))
    return found


def _offer(setting: Setting, world: worlds.World, own: str, classes: int) -> Offer:
    """Return the networks that a setting has for a node whose own is this one, with so many classes."""
    part, (channels, side, _) = setting.models, world.shape

    def model(network: str) -> Model:
        build = partial(create, network, in_channels=channels, size=side, classes=classes)
        return Model(build, part.share, part.buffers)

    architectures = {network: model(network) for network in dict.fromkeys(part.names)}
    return Offer(model(own), model(part.travelling), model(part.same or own), architectures)


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
