"""From names to a federation: a method, a setting, a seed, and what the user changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from heterophony.base import imported
from heterophony.base.seeds import seeded
from heterophony.base.wording import meant
from heterophony.catalogue import registry
from heterophony.data import ArrayLayout
from heterophony.data.root import folder
from heterophony.data.views import View
from heterophony.federation import Federation
from heterophony.kernel.attack import Attack
from heterophony.kernel.compute import Compute
from heterophony.kernel.method import Method
from heterophony.kernel.needs import DataFacts
from heterophony.kernel.networks import Model, Offer, Slice, checked, choose
from heterophony.kernel.profile import Dropout
from heterophony.kernel.topology import Topology, form_of_roles
from heterophony.models.description import describe
from heterophony.parts.training import Training
from heterophony.settings import building, fitting, topologies
from heterophony.settings import world as worlds
from heterophony.settings.capacities import capacities
from heterophony.settings.networks import ChosenNetworks, called, factory
from heterophony.settings.participants import Network
from heterophony.settings.setting import Setting, SettingError
from heterophony.tasks.score import Score
from heterophony.tasks.task import Task, described

# Keys of `--set` that change the setting; all others are options of the method.
WORLD = ("data", "models", "topology", "evaluate", "dropout", "profiles", "joins")
PARTS = (*WORLD, "egress", "privacy", "compress", "secure", "attack", "bound", "expel")
PLAN = ("rounds", "evaluate")  # of [methods.NAME]; what else stands there are the method's options


def assemble(
    method: str,
    setting: Setting | str,
    *,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    compute: Compute = Compute(),
) -> Federation:
    """Return the federation that `heterophony run METHOD --on SETTING --set ...` runs.

    `compute` says how its work is computed.
    """
    made, chosen = resolve(method, setting, changes, root)
    made = _secured(made, chosen)
    _check_frozen(method, made, chosen)
    world = building.build(chosen.data, seed, root)
    _check(method, made, chosen, world)
    topology = topologies.build(method, made, chosen, world, seed)
    models = _models(made, chosen, world, topology)
    capacity = capacities(chosen, {name: topology.roles[name] for name in world.homes})
    profiles = {name: profile.build() for name, profile in chosen.profiles.items()}
    recipe = {
        "method": method,
        "setting": chosen.plain(),
        "seed": seed,
        "changes": _of_method(changes),
        "compute": compute.deciding(),
        **_described(made, world, topology, models),
        **_arrays(chosen, world),
    }
    federation = Federation(
        made,
        topology,
        models,
        {**world.views, **_servers(made, chosen, world, topology)},
        world.tests,
        private_tests=world.private_tests,
        seed=seed,
        evaluate=chosen.plan(method)[1],
        capacity=capacity,
        compute=compute,
        dropout=Dropout(chosen.dropout.rate, _always_out(chosen, world)),
        profiles={**world.profiles, **profiles},
        joins=chosen.joins,
        egress=chosen.egress,
        privacy={name: part.build() for name, part in chosen.privacy.items()},
        compress={name: part.build() for name, part in chosen.compress.items()},
        bound=chosen.bound,
        expel=chosen.expel,
        attack=_attack(chosen, world, seed),
        homes=world.homes,
        tasks=world.tasks,
        recipe=recipe,
        leaks=tuple(str(overlap) for overlap in world.coverage.overlaps if overlap.first != overlap.second),
        untrained=world.coverage.untrained(),
    )
    _check_alike(method, federation, chosen, world)
    if federation.slicing.slots:  # of which an exported model has to say how they were cut
        federation = replace(federation, recipe={**recipe, "networks": _networks(federation.models)})
    return federation


def _check_frozen(name: str, method: Method, setting: Setting) -> None:
    """Raise where slices would be cut of a network that has frozen parts: they never travel, and slices move."""
    needed = checked(method.networks(), method.roles).values()
    if setting.models.frozen and any(isinstance(choice, Slice) for slots in needed for choice in slots.values()):
        raise SettingError(f"models.frozen: {name} cuts slices of networks, and these have no frozen parts")


def _secured(method: Method, setting: Setting) -> Method:
    """Return the method, whose servers see sums only where the setting says so."""
    if setting.secure is None:
        return method
    try:
        from heterophony.masking.transform import secure

        return secure(method, setting.secure.build())
    except ValueError as error:
        raise SettingError(f"{setting.name}.toml: {error}") from None


def _described(
    method: Method, world: worlds.World, topology: Topology, models: Mapping[str, Mapping[str, Model]]
) -> dict[str, Any]:
    """Return what `export` and reports need to know of a federation without its data at hand."""
    found: dict[str, Any] = {
        "shape": {**_plain(world.told), "classes": world.outputs},
        "networks": _networks(models),
    }
    if world.reads == "sequences":
        found["sequences"] = True
    found |= described(world.task)
    if world.tasks:
        found["classes"] = {name: world.classes[home] for name, home in world.homes.items()}
    if any(_named(names) for names in world.labels.values()):
        found["labels"] = {domain: list(names) for domain, names in world.labels.items()}
    if form_of_roles(method.roles) == "tree":
        found["parents"] = {node: links.parent[0] for node, links in topology.static.items() if links.parent}
    return found


def _networks(models: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return how each node's networks can be built again."""
    return {node: {slot: describe(model.build) for slot, model in own.items()} for node, own in models.items()}


def _arrays(setting: Setting, world: worlds.World) -> dict[str, Any]:
    """Return how files of arrays are read, which `predict` needs to know."""
    if world.reads != "arrays":
        return {}
    by = {name: {key: value.tolist() for key, value in vars(own).items()} for name, own in world.moments.items()}
    return {"arrays": {"layout": asdict(setting.data.layout or ArrayLayout()), "standardised": by}}


def _plain(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what networks are told as a file can hold it."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in told.items()}


def _named(classes: Sequence[str]) -> bool:
    """Return whether classes have other names than their numbers."""
    return any(name != str(place) for place, name in enumerate(classes))


def resolve(
    method: str, setting: Setting | str, changes: Mapping[str, Any] | None = None, root: str | Path | None = None
) -> tuple[Method, Setting]:
    """Return the method with all of its options, and the setting as it is changed. No data are read."""
    entry = registry.lookup(method)
    chosen = _changed(method, Setting.load(setting) if isinstance(setting, str) else setting, changes, root)
    _check_tables(chosen)
    try:
        options = _options(entry, chosen)
        entry.build(options)
        chosen.data.partition.build()
    except ValueError as error:
        raise SettingError(f"{chosen.name}.toml: {error}") from None
    for key, value in _of_method(changes).items():
        _check_option(key, value)
        options[entry.full_name(key)] = value
    return entry.build(options), chosen


def task_of(setting: Setting) -> Task:
    """Return the task of a setting, for two classes, labels or targets; where Python gives the data, as they are."""
    spec = setting.data
    return spec.task.build(2) if spec.world is None else building.build(spec, seed=0).task


def score_of(setting: Setting, name: str = "") -> Score:
    """Return the score by which the task judges models, or another of its scores by name."""
    found = {score.name: score for score in task_of(setting).scores}
    if name and name not in found:
        raise SettingError(f"there is no score {name!r}; it is all, own or one of {', '.join(list(found)[1:])}")
    return found[name] if name else next(iter(found.values()))


def _changed(method: str, setting: Setting, changes: Mapping[str, Any] | None, root: str | Path | None) -> Setting:
    """Return the setting with the changes that are of it, and with absolute paths.

    With these the run can be repeated from any folder.
    """
    theirs = _of_setting(changes)
    if "evaluate" in theirs and "evaluate" in setting.methods.get(method, {}):
        theirs[f"methods.{method}.evaluate"] = theirs["evaluate"]
    return setting.changed(theirs).located(Path.cwd(), folder(root))


def _options(entry: registry.Entry, setting: Setting) -> dict[str, Any]:
    """Return the options that a setting has for a method: its local training, and what it says of the method itself."""
    known = entry.options()
    local = dict(setting.local)
    if "lr" in local:  # a rate is that of an optimiser: what is not said of it is the same for all methods
        usual = ("optimiser", "momentum", "nesterov", "weight_decay", "clip")
        local = {key: getattr(Training(), key) for key in usual} | local
    options = {f"local.{key}": value for key, value in local.items() if f"local.{key}" in known}
    own = {key: value for key, value in setting.methods.get(entry.name, {}).items() if key not in PLAN}
    return options | {entry.full_name(key): value for key, value in flat(own, known).items()}


def _check_option(key: str, value: Any) -> None:
    """Raise where `--set` names what has a flag of its own."""
    if key not in ("rounds", "seed"):
        return
    least = 1 if key == "rounds" else None
    if isinstance(value, int) and (least is None or value >= least):
        wanted = str(value)
    else:
        wanted = "N, a whole number" + (f" of at least {least}" if least else "")
    raise SettingError(f"--set {key}={value}: use --{key} {wanted}")


def reassemble(
    recipe: Mapping[str, Any], root: str | Path | None = None, *, trust: bool = False, where: str = "the recipe"
) -> Federation:
    """Return the federation that a run folder describes.

    What it names that is not ours is imported with `trust` only. `where` says in errors what describes it.
    """
    setting = Setting.of(dict(recipe["setting"]))
    own = [("method", recipe["method"])] if ":" in recipe["method"] else []
    imported.permit([*own, *setting.changed(_of_setting(recipe["changes"])).imports()], where, trust)
    same = {"seed": recipe["seed"], "changes": recipe["changes"]}
    return assemble(recipe["method"], setting, root=root, compute=Compute.of(recipe["compute"]), **same)


def flat(options: Mapping[str, Any], known: Collection[str], before: str = "") -> dict[str, Any]:
    """Return options by their whole names: `{"distil": {"epochs": 5}}` becomes `{"distil.epochs": 5}`.

    TOML reads `distil.epochs = 5` as such tables. Other tables are the values of an option, such as a schedule, also
    where it is called by its last name.
    """
    found: dict[str, Any] = {}
    for key, value in options.items():
        inner = isinstance(value, Mapping) and any(name.startswith(f"{before}{key}.") for name in known)
        found |= flat(value, known, f"{before}{key}.") if inner else {before + key: value}
    return found


def _of_setting(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return those changes that are of the setting."""
    return {key: value for key, value in (changes or {}).items() if key.split(".")[0] in PARTS}


def _of_method(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return those changes that are options of the method."""
    return {key: value for key, value in (changes or {}).items() if key.split(".")[0] not in PARTS}


def _check(name: str, method: Method, setting: Setting, world: worlds.World) -> None:
    """Raise where the setting lacks what the method needs, or names networks that do not go with it."""
    facts = DataFacts(
        name=setting.name,
        public=world.public is not None,
        labelled=world.labelled,
        validation=world.validation,
        stream=setting.data.stream is not None,
        task=world.task.kind,
        label_spaces=world.label_spaces if world.tasks else "",
    )
    for need in method.needs():
        if lacking := need.lacks(facts):
            raise SettingError(f"{name} {lacking}")
    networks = ChosenNetworks.of(setting, world).all
    for network in networks:
        fitting.check_reads(network, setting, world)
    for network in networks:
        fitting.check_built(network, setting, world)
    if world.tasks and method.kinds:
        fitting.check_adaptors(name, setting, world)
    elif method.headline == "global" and setting.models.share:
        fitting.check_whole(name, setting, world)


def _check_alike(name: str, federation: Federation, setting: Setting, world: worlds.World) -> None:
    """Raise where what is averaged is not of one shape. Where that is a part, the rest of the networks may differ."""
    if (found := federation.unlike) is None:
        return
    different = ", ".join(sorted(set(map(called, ChosenNetworks.of(setting, world).own))))
    one = "set models.same or models.participants to one"
    if found.width:
        raise SettingError(
            f"{name} averages heads of one shape; {setting.name} has {different}, and {found.line}: set width to at "
            f"most {found.width}, or {one} of them"
        )
    raise SettingError(
        f"{name} averages parameters, so that all must have the same network; {setting.name} has {different}, and "
        f"{found.line}: {one} of them, or use a method for different networks"
    )


def _attack(setting: Setting, world: worlds.World, seed: int) -> Attack | None:
    """Return who lies, and how."""
    if setting.attack is None:
        return None
    try:
        return setting.attack.build(list(world.homes), seed)
    except ValueError as error:
        raise SettingError(f"{setting.name}.toml: {error}") from None


def _always_out(setting: Setting, world: worlds.World) -> tuple[str, ...]:
    """Return those who never make it: by name, and the participants with the smallest networks."""
    out = setting.dropout.always
    if not setting.dropout.weakest:
        return out
    own, sizes = ChosenNetworks.of(setting, world).own, {}
    for place, (participant, home) in enumerate(world.homes.items()):
        with seeded("only to be counted"):
            made = factory(own[place % len(own)], world.told, world.classes[home])()
        sizes[participant] = sum(parameter.numel() for parameter in made.parameters())
    weak = sorted(sizes, key=sizes.__getitem__)[: round(setting.dropout.weakest * len(sizes))]  # sorting keeps ties
    return tuple(dict.fromkeys((*out, *weak)))


def _check_tables(setting: Setting) -> None:
    """Raise where a name is misspelt: it must not be passed over in silence."""
    known = [field.name for field in fields(Training)]
    for key in setting.local:
        if key not in known:
            raise SettingError(f"{setting.name}: [local] has no {key!r}{meant(key, known)}; it has {', '.join(known)}")
    for name in setting.methods:
        if ":" not in name and name not in (methods := registry.all_methods()):
            hint = f"{meant(name, methods)}; `heterophony methods` lists them"
            raise SettingError(f"{setting.name}: [methods.{name}]: there is no such method{hint}")


def _models(method: Method, setting: Setting, world: worlds.World, topology: Topology) -> dict[str, dict[str, Model]]:
    """Give each node the networks that its role needs, of those that the setting names."""
    needed = checked(method.networks(), method.roles)
    if not any(needed.values()):
        raise SettingError(
            f'{type(method).__name__} does not say which networks it needs: models = {{"client": {{"model": Own()}}}}'
        )
    networks, first = ChosenNetworks.of(setting, world), world.outputs
    places = {participant: place for place, participant in enumerate(world.homes)}
    found = {}
    for node in [*places, *(node for node in topology.roles if node not in places)]:
        own = networks.own[places.get(node, 0) % len(networks.own)]
        classes = world.classes[world.homes[node]] if node in places else first
        found[node] = choose(needed.get(topology.roles[node], {}), _offer(setting, world, networks, own, classes))
    return found


def _offer(setting: Setting, world: worlds.World, networks: ChosenNetworks, own: Network, classes: int) -> Offer:
    """Return the networks that there are for a node whose own is this one, with so many classes."""

    def model(network: Network) -> Model:
        part = setting.models
        build = factory(network, world.told, classes, part.start(called(network)))
        return Model(build, part.share, part.buffers)

    architectures = {called(network): model(network) for network in networks.own}
    return Offer(model(own), model(networks.travelling), model(networks.same or own), architectures)


def _servers(method: Method, setting: Setting, world: worlds.World, topology: Topology) -> dict[str, dict[str, View]]:
    """Return what nodes hold that are no participants: the public data, and in a tree the right to train on them."""
    if world.public is None:
        return {}
    form = form_of_roles(method.roles)
    held: dict[str, dict[str, View]] = {"server": {"public": world.public}} if form == "star" else {}
    if form == "tree" and world.labelled:
        for name in setting.topology.proxy:
            nodes = [n for n, role in topology.roles.items() if name in (n, role) and n not in world.homes]
            if not nodes:
                raise SettingError(f"{setting.name}: topology.proxy: no internal node or role is called {name!r}")
            held |= {node: {"train": world.public} for node in nodes}
    return held
