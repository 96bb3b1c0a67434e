"""Whether the networks that a setting names go with its data, and what travels of them with the method."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heterophony.base import fault
from heterophony.base.seeds import seeded
from heterophony.kernel.freezing import frozen_names
from heterophony.kernel.node import Slot
from heterophony.models.registry import reads
from heterophony.settings.networks import ChosenNetworks, called, factory
from heterophony.settings.participants import Network
from heterophony.settings.setting import Setting, SettingError
from heterophony.settings.world import World

_ANSWERS = {  # which of our networks give more than one answer a row
    "segmentation": ": for masks take unet, or a network of your own",
    "sequence": ": for an answer a step take lstm or gru, or a network of your own",
}


def check_reads(network: Network, setting: Setting, world: World) -> None:
    """Raise where a network reads something else than the setting's data are, texts instead of images, say."""
    wanted = reads(network) if isinstance(network, str) else None
    if wanted == "images" and world.reads == "arrays":  # which may have the shape of images: `create` looks at it
        return
    if wanted is not None and wanted != world.reads:
        raise SettingError(f"models: {network} reads {wanted}; {setting.name} has {world.reads}")


def check_built(network: Network, setting: Setting, world: World) -> None:
    """Raise where a network cannot be built for the setting's data, or does not fit them."""
    _shared(setting, world, network)
    if setting.models.start(called(network)).get("frozen"):
        _check_alike(setting, world, network)


def _check_alike(setting: Setting, world: World, network: Network) -> None:
    """Raise where frozen parts begin differently on each node: they never travel, so that they would stay so."""
    made = []
    for draw in range(2):
        with seeded("only to see what is drawn", draw):
            made.append(factory(network, world.told, world.outputs, setting.models.start(called(network)))())
    states = [module.state_dict() for module in made]
    for name in sorted(frozen_names(made[0])):
        if name in states[0] and not torch.equal(states[0][name], states[1][name]):
            raise SettingError(
                f"models.frozen: {name} of {called(network)} is drawn anew on each node, and nobody would train it: "
                "give its values with models.weights, or freeze less"
            )


def _shared(setting: Setting, world: World, network: Network, more: int = 0) -> dict[str, torch.Size]:
    """Return the shapes of what travels of a network; raise if it cannot be built.

    `more` is how many classes it has beyond those that there are.
    """
    classes = world.outputs
    share = setting.models.share
    with seeded("only to see that it can be built"):
        module = _module(network, factory(network, world.told, classes + more, setting.models.start(called(network))))
    own = not isinstance(network, str) or (":" in network and world.reads in ("images", "arrays"))
    if own or world.reads == "arrays":  # somebody's own, or one that may be for another task
        _check_outputs(called(network), module, _blank(world), world, classes + more)
    shared = Slot(module, (share,) if isinstance(share, str) else share).shared()
    return {name: tensor.shape for name, tensor in shared.items()}


def _module(network: Network, build: Callable[[], nn.Module]) -> nn.Module:
    """Return what a factory makes; raise where it makes something else, or cannot be called."""
    if isinstance(network, str):
        return build()
    try:
        made = build()
    except Exception as error:
        raise SettingError(f"network {called(network)!r} cannot be built: {fault.in_one_line(error)}") from error
    if not isinstance(made, nn.Module):
        raise SettingError(f"network {called(network)!r} gives a {type(made).__name__}, not a torch.nn.Module")
    return made


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
        hint = _ANSWERS.get(world.task.kind, "")
        raise SettingError(
            f"network {name!r} gives {tuple(given)} for 2 {what}; with {outputs} {many} it is {wanted}{hint}"
        )


def check_whole(name: str, setting: Setting, world: World) -> None:
    """Raise where a part of the server's model, which is the method's result, would never be learnt."""
    share = setting.models.share
    everything = setting.model_copy(update={"models": setting.models.model_copy(update={"share": ""})})
    chosen = ChosenNetworks.of(setting, world)
    network = chosen.same or chosen.travelling
    if _shared(setting, world, network).keys() != _shared(everything, world, network).keys():
        raise SettingError(
            f"{name}: models.share = {share!r} leaves the rest of the server's model, which is its result, as it was "
            "at the start: share the whole, or take a method with models of one's own (fml, ditto)"
        )


def check_adaptors(name: str, setting: Setting, world: World) -> None:
    """Raise where what travels between different tasks depends on how many classes there are."""
    network = ChosenNetworks.of(setting, world).travelling
    if _shared(setting, world, network) != _shared(setting, world, network, more=1):
        part = (
            f"{setting.models.share!r} of {called(network)}"
            if setting.models.share
            else f"the whole of {called(network)}"
        )
        raise SettingError(
            f"{name}: {part} cannot be shared, as {world.label_spaces}: set models.share to a part without the "
            'outputs, such as "body"'
        )
