"""Parts of a network that nobody trains: they keep their values, do not travel, and stay in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from heterophony.base.wording import meant

_MARK = "frozen_part"  # of a module; a plain value, so that it is copied with the module and told apart by executors


def freeze(network: nn.Module, parts: str | Iterable[str]) -> nn.Module:
    """Freeze sub-modules of a network, as in `freeze(network, "body")`, and return the network.

    What is frozen must begin with the same values on all nodes, since it never travels.
    """
    for part in (parts,) if isinstance(parts, str) else parts:
        try:
            found = network.get_submodule(part) if part else None
        except AttributeError:
            found = None
        if found is None:
            known = [name for name, _ in network.named_modules() if name]
            has = ", ".join(name for name in known if name.count(".") <= part.count("."))
            raise ValueError(f"there is no part {part!r} to freeze{meant(part, known)}; there are {has or 'none'}")
        for inner in found.modules():
            setattr(inner, _MARK, True)
        found.requires_grad_(False)
    return network


def freeze_alone(module: nn.Module) -> None:
    """Freeze the tensors that a module has itself, and not those of its sub-modules."""
    setattr(module, _MARK, True)
    for parameter in module.parameters(recurse=False):
        parameter.requires_grad_(False)


def is_frozen(module: nn.Module) -> bool:
    """Return whether a module is in a frozen part."""
    return bool(module.__dict__.get(_MARK))


def frozen_names(network: nn.Module) -> set[str]:
    """Return the names of all parameters and buffers in frozen parts."""
    found = set()
    for name, module in network.named_modules():
        if is_frozen(module):
            before = f"{name}." if name else ""
            found |= {f"{before}{own}" for own in (*module._parameters, *module._buffers)}
    return found


def in_training(network: nn.Module) -> nn.Module:
    """Put a network in training mode but for its frozen parts, and return it."""
    network.train()
    for module in network.modules():
        if is_frozen(module):
            module.training = False
    return network
