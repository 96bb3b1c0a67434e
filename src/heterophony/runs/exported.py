"""A trained model in a file of its own: weights and what is needed to build the network around them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import nn

from heterophony.base import imported
from heterophony.base.disk import Disk
from heterophony.base.wording import meant
from heterophony.data import ArrayLayout, DataError, to_tensor
from heterophony.data.moments import Moments
from heterophony.data.sources import npz
from heterophony.data.sources.files import late, reading
from heterophony.data.sources.readers import unlabelled
from heterophony.data.sources.stored import SUFFIXES
from heterophony.models.description import buildable, imports, reads, rebuild, shown
from heterophony.runs import portable
from heterophony.runs.folder import inside
from heterophony.runs.run import Run, RunError

FORMAT = "heterophony-model-3"
UNSUMMED = "heterophony-model-2"  # of before there were checksums


def save(
    folder: Path,
    node: str,
    to: Path,
    model: str | None = None,
    formats: Sequence[str] = (),
    trust: bool = False,
) -> list[Path]:
    """Write one of a node's models, as the run's last snapshot holds it, and return the files.

    `formats` are graphs that are written beside it and run without this library (`portable.FORMATS`). For these the
    network is built; one that is not ours is imported with `trust` only.
    """
    beside = _beside(to, formats)
    spec = Run.spec(folder)
    name = _chosen(spec, folder, node, model)
    if not to.parent.is_dir():
        raise RunError(f"{to}: there is no folder {to.parent}")
    with Run.reading(folder) as run:
        weights = run.node_state(node)["node"]["models"][name]
    about = _about(spec, node, name)
    tensors = {k: v.contiguous().clone() for k, v in weights.items()}
    text = json.dumps(about)
    data = safetensors.torch.save(tensors, {"heterophony": text, "sha256": _sum(text, tensors)})
    found = {to: data}
    if formats:  # all are made before the first is written
        module = _rebuilt(about, tensors, str(folder), trust)
        made = portable.written(module, about, tuple(formats))
        found |= {path: made[name] for name, path in beside.items()}
    for path, whole in found.items():
        Disk(private=inside(path)).replace(path, whole)
    return list(found)


def _chosen(spec: Mapping[str, Any], folder: Path, node: str, model: str | None) -> str:
    """Return the name of the model to export; without a name, the node's first. Raise where there is none."""
    if not spec.get("recipe"):
        raise RunError(f"{folder} was started from Python: its models are in Result.state(node)")
    if node not in spec["nodes"]:
        raise RunError(f"{folder} has no node {node!r}; it has {', '.join(spec['nodes'])}")
    networks = spec["recipe"]["networks"].get(node, {})
    name = model or next(iter(networks), None)
    if name is None or name not in networks:
        raise RunError(f"node {node} has no model {name!r}; it has {', '.join(networks) or 'none'}")
    buildable(networks[name])
    return str(name)


def _about(spec: Mapping[str, Any], node: str, name: str) -> dict[str, Any]:
    """Return what a file says of its model beside the weights: the network, and how rows become its inputs."""
    recipe = spec["recipe"]
    network = {"name": recipe["networks"][node][name], **recipe["shape"]}
    network["classes"] = recipe.get("classes", {}).get(node, network["classes"])
    pixels = {key: recipe["setting"]["data"].get(key, 0.5) for key in ("mean", "std")}
    known = recipe.get("labels", {})
    labels = known.get(spec["homes"].get(node), next(iter(known.values()), []))
    about = {"format": FORMAT, "network": network, "pixels": pixels, "labels": labels, "node": node, "model": name}
    about["run"] = recipe
    if arrays := recipe.get("arrays"):
        by = arrays["standardised"]
        if by and not by.keys() & {node, ""}:
            raise RunError(
                f"each participant's rows are standardised by its own, and {node} has none: export the model of one of "
                f"{', '.join(by)}"
            )
        about["arrays"] = {"layout": arrays["layout"], "standardised": by.get(node, by.get(""))}
    return about


def _beside(to: Path, formats: Sequence[str]) -> dict[str, Path]:
    """Return the files of these formats beside the one of weights, by format."""
    for name in formats:
        if name not in portable.FORMATS:
            raise RunError(f"there is no format {name!r}{meant(name, portable.FORMATS)}; there are pt2 and onnx")
    if to.suffix in (".pt2", ".onnx"):
        raise RunError(f"{to}: name the file of weights (.safetensors); --format {to.suffix[1:]} writes beside it")
    return {name: to.with_suffix(f".{name}") for name in formats}


def load(path: Path, trust: bool = False) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network with its weights, in evaluation mode, and what the file says about it.

    A network that is not ours is imported with `trust` only: whoever wrote the file names the module.
    """
    try:
        about, weights = _read(path)
        imports(about["network"]["name"])
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except DataError:
        raise
    except (KeyError, ValueError, TypeError, RuntimeError, OSError, safetensors.SafetensorError):
        raise DataError(f"{path} is no model that `heterophony export` wrote") from None
    return _rebuilt(about, weights, str(path), trust), about


def _rebuilt(about: Mapping[str, Any], weights: Mapping[str, torch.Tensor], path: str, trust: bool) -> nn.Module:
    """Return the network that is described, with these weights, in evaluation mode. `path` is the file in errors."""
    network = dict(about["network"])
    name = network.pop("name")
    imported.permit([("network", each) for each in imports(name)], path, trust)
    try:
        module = rebuild(name, **network)
        module.load_state_dict(weights)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: {error}") from None
    except RuntimeError as error:
        line = next((line.strip() for line in str(error).splitlines()[1:]), str(error))
        raise DataError(f"{path}: the network {shown(name)!r} is not the one that was exported: {line}") from None
    return module.eval()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return what a file says and its tensors; raise where they are not as they were written."""
    with safetensors.safe_open(str(path), framework="pt") as file:
        said = file.metadata() or {}
        about = json.loads(said["heterophony"])
        if about["format"] not in (FORMAT, UNSUMMED):
            raise DataError(f"{path} was written by another version; export it again")
        weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    known = said.get("sha256")
    if (known is None and about["format"] == FORMAT) or known not in (None, _sum(said["heterophony"], weights)):
        raise DataError(f"{path} is damaged (its checksum differs): export it again")
    return about, weights


def _sum(text: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return a checksum of what is said of a model, and of its weights."""
    whole = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        whole.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        whole.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def predict(path: Path, images: Path, trust: bool = False) -> dict[str, Any]:
    """Return labels, their names and confidences for the images, or arrays, in a file.

    For tasks other than classification these are `values`: numbers, or the probabilities of labels, pixels or places.
    """
    module, about = load(path, trust)
    network = about["network"]
    if (wanted := reads(network["name"])) not in (None, "images") and "shape" not in network:
        raise DataError(f"{path}: {shown(network['name'])} reads {wanted}; `predict` reads images")
    if "shape" in network:
        x = _rows(images, tuple(network["shape"]), about["arrays"])
    else:
        x = to_tensor(_images(images), side=network["size"], channels=network["in_channels"], **about["pixels"])
    with torch.no_grad():
        outputs = torch.cat([module(part) for part in torch.split(x, 256)])
    kind = portable.kind_of(about)
    probabilities = portable.answer(kind, outputs)
    if kind != "classification":
        return {"values": probabilities.tolist()}
    sure, labels = probabilities.max(-1)
    known = dict(enumerate(about["labels"]))  # public classes of a joint head have no name here
    return {
        "labels": labels.tolist(),
        "names": [known.get(label, str(label)) for label in labels.tolist()],
        "confidence": [round(value, 6) for value in sure.tolist()],
    }


def _rows(path: Path, shape: tuple[int, ...], about: Mapping[str, Any]) -> torch.Tensor:
    """Read the arrays of a file as those were read that the network was trained on."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    if path.is_file() and path.suffix not in SUFFIXES:
        raise DataError(f"{path}: the network reads arrays of {shape}: give a file {', '.join(SUFFIXES)}")
    x = unlabelled(path, ArrayLayout.of(about["layout"]))
    if x.shape[1:] != shape:
        raise DataError(f"{path}: rows have the shape {x.shape[1:]}, the network reads {shape}")
    if about["standardised"] is not None:
        x = Moments(**{key: np.array(value) for key, value in about["standardised"].items()}).applied(x)
    return torch.from_numpy(x)


def _images(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Read the images of a file, in the order N, height, width, channels."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    if path.suffix == ".npz":
        with npz.opened(path) as file:
            arrays = {key: file[key] for key in ("x", "test_x") if key in file}
        if not arrays:
            raise DataError(f"{path}: there is no array `x` in it")
        found: np.ndarray[Any, np.dtype[np.uint8]] = next(iter(arrays.values()))
        return found[..., None] if found.ndim == 3 else found
    pillow = late("PIL.Image", "pillow", f"{path}: reading image files")
    with reading(path), pillow.open(path) as picture:
        array = np.asarray(picture.convert("L" if picture.mode in ("1", "L", "I;16") else "RGB"))
    return array[None, ..., None] if array.ndim == 2 else array[None]
