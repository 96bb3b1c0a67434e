"""Whether the networks that a setting names go with its data, and what travels of them with the method."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heterophony.base.seeds import seeded
from heterophony.kernel.freezing import frozen_names
from heterophony.kernel.node import Slot
from heterophony.models import create
from heterophony.models.registry import reads
from heterophony.settings.setting import Setting, SettingError
from heterophony.settings.world import World


def check_reads(network: str, setting: Setting, world: World) -> None:
    """Raise where a network reads something else than the setting's data are, texts instead of images, say."""
    wanted = reads(network)
    if wanted == "images" and world.reads == "arrays":  # which may have the shape of images: `create` looks at it
        return
    if wanted is not None and wanted != world.reads:
        raise SettingError(f"models: {network} reads {wanted}; {setting.name} has {world.reads}")


def check_built(network: str, setting: Setting, world: World) -> None:
    """Raise where a network cannot be built for the setting's data, or does not fit them."""
    _shared(setting, world, network)
    if setting.models.start(network).get("frozen"):
        _check_alike(setting, world, network)


def _check_alike(setting: Setting, world: World, network: str) -> None:
    """Raise where frozen parts begin differently on each node: they never travel, so that they would stay so."""
    made = []
    for draw in range(2):
        with seeded("only to see what is drawn", draw):
            made.append(create(network, **world.told, classes=world.outputs, **setting.models.start(network)))
    states = [module.state_dict() for module in made]
    for name in sorted(frozen_names(made[0])):
        if name in states[0] and not torch.equal(states[0][name], states[1][name]):
            raise SettingError(
                f"models.frozen: {name} of {network} is drawn anew on each node, and nobody would train it: give its "
                "values with models.weights, or freeze less"
            )


def _shared(setting: Setting, world: World, network: str, more: int = 0) -> dict[str, torch.Size]:
    """Return the shapes of what travels of a network; raise if it cannot be built.

    `more` is how many classes it has beyond those that there are.
    """
    classes = world.outputs
    share = setting.models.share
    with seeded("only to see that it can be built"):
        module = create(network, **world.told, classes=classes + more, **setting.models.start(network))
    own = ":" in network and world.reads in ("images", "arrays")
    if own or world.reads == "arrays":  # somebody's own, or one that may be for another task
        _check_outputs(network, module, _blank(world), world, classes + more)
    shared = Slot(module, (share,) if isinstance(share, str) else share).shared()
    return {name: tensor.shape for name, tensor in shared.items()}


def _blank(world: World) -> Tensor:
    """Return two rows of zeros that look like the data."""
    first = next(iter(next(iter(world.tests.values())).values()))
    return torch.zeros(2, *first.columns["x"].shape[1:], dtype=first.columns["x"].dtype)


def _check_outputs(name: str, module: nn.Module, rows: Tensor, world: World, outputs: int) -> None:
    """Raise where somebody's own network does not fit: it would train without a word, or have every message refused."""
    what, size = world.reads, " x ".join(map(str, rows.shape[1:]))
    wanted = (2, outputs, *world.task.shape(tuple(rows.shape[1:]))[1:])
    try:
        with torch.no_grad():
            given = module.eval()(rows).shape
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise SettingError(f"network {name!r} cannot read {what} of {size} ({reason:.200})") from None
    if tuple(given) != wanted:
        many = "classes" if world.task.classes else "targets" if world.task.kind == "regression" else "labels"
        raise SettingError(f"network {name!r} gives {tuple(given)} for 2 {what}; with {outputs} {many} it is {wanted}")


def check_whole(name: str, setting: Setting, world: World) -> None:
    """Raise where a part of the server's model, which is the method's result, would never be learnt."""
    share = setting.models.share
    everything = setting.model_copy(update={"models": setting.models.model_copy(update={"share": ""})})
    network = setting.models.same or setting.models.travelling
    if _shared(setting, world, network).keys() != _shared(everything, world, network).keys():
        raise SettingError(
            f"{name}: models.share = {share!r} leaves the rest of the server's model, which is its result, as it was "
            "at the start: share the whole, or take a method with models of one's own (fml, ditto)"
        )


def check_adaptors(name: str, setting: Setting, world: World) -> None:
    """Raise where what travels between different tasks depends on how many classes there are."""
    network = setting.models.travelling
    if _shared(setting, world, network) != _shared(setting, world, network, more=1):
        part = f"{setting.models.share!r} of {network}" if setting.models.share else f"the whole of {network}"
        raise SettingError(
            f"{name}: {part} cannot be shared, as {world.label_spaces}: set models.share to a part without the "
            'outputs, such as "body"'
        )
