"""Pretrained weights from a local file: safetensors, or a state dict that torch saved. No code of a file is run."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")


class WeightsError(ValueError):
    """A file of weights that cannot be read, or that does not fit a network."""


def read(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a file, by name."""
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"weights {path}: there is no such file")
    if path.suffix not in SUFFIXES:
        raise WeightsError(f"weights {path}: a file {', '.join(SUFFIXES)} is needed")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise WeightsError(
            f"weights {path}: holds Python objects, which are not read: save `network.state_dict()` there"
        ) from None
    except (OSError, EOFError, RuntimeError, ValueError, safetensors.SafetensorError) as error:
        raise WeightsError(f"weights {path}: cannot be read ({' '.join(str(error).split())[:120]})") from None
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise WeightsError(f"weights {path}: is no state dict: save `network.state_dict()` there")
    return dict(found)


def fill(network: nn.Module, path: str | Path, name: str) -> None:
    """Give a network the weights of a file. Its head keeps its own where that of the file has other shapes, or none."""
    given, own = read(path), network.state_dict()
    head = f"{head_of(network)}."
    of_head = [key for key in own if key.startswith(head)]
    if any(key not in given or given[key].shape != own[key].shape for key in of_head):
        given = {key: tensor for key, tensor in given.items() if not key.startswith(head)}
        own = {key: tensor for key, tensor in own.items() if not key.startswith(head)}
    for key, tensor in own.items():
        if key not in given:
            if tensor.is_floating_point():  # old files lack BatchNorm's counters
                raise WeightsError(f"weights {path}: has no tensor {key!r}, which network {name!r} needs")
        elif given[key].shape != tensor.shape:
            raise WeightsError(misfit(path, key, given[key].shape, tensor.shape, name))
    for key in given:
        if key not in own:
            raise WeightsError(f"weights {path}: has a tensor {key!r}, which network {name!r} does not have")
    network.load_state_dict(given, strict=False)


def misfit(path: str | Path, key: str, there: Iterable[int], here: Iterable[int], name: str) -> str:
    """Say that a tensor of a file has another shape than in the network."""
    of_file, own = (" x ".join(map(str, shape)) or "one number" for shape in (there, here))
    return f"weights {path}: tensor {key!r} is {of_file}, in network {name!r} it is {own}"


def head_of(network: nn.Module) -> str:
    """Return the path of what gives the outputs: `head`, else the last linear layer, if it is the last with weights."""
    if isinstance(getattr(network, "head", None), nn.Linear | nn.Conv1d | nn.Conv2d):
        return "head"
    last = ""
    for name, part in network.named_modules():
        if name and list(part.parameters(recurse=False)):
            last = name
    return last if last and isinstance(network.get_submodule(last), nn.Linear) else "head"
