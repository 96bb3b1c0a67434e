"""A trained model that runs without this library: a graph of torch (`.pt2`) or of ONNX, with what is done to inputs.

Its input `x` are rows as they lie in files: images (rows, height, width, channels) of bytes, arrays as they are stored
but as float32, texts as bytes. Its output are probabilities, or values where the task is regression. The number of
rows is free.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from heterophony.data import ArrayLayout, DataError
from heterophony.models.description import reads, shown
from heterophony.runs.run import RunError

FORMATS = ("pt2", "onnx")


class Images(nn.Module):
    """Images of bytes (rows, height, width, channels), as networks read them."""

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x: Tensor) -> Tensor:
        return (x.permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std


class Stored(nn.Module):
    """Arrays as they are stored, scaled, with their axes in the order of networks, and standardised."""

    def __init__(self, layout: ArrayLayout, moments: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.scale, self.offset, self.axes = _number("scale", layout), _number("offset", layout), layout.axes
        self.as_float = layout.dtype == "float32"
        self.standardised = moments is not None
        for name, values in (moments or {}).items():
            self.register_buffer(name, torch.tensor(values, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        if self.scale != 1.0 or self.offset != 0.0:
            x = (x.double() * self.scale + self.offset).float()
        elif self.as_float:
            x = x.float()
        x = x.permute(self.axes) if self.axes else x
        if self.standardised:
            one_each = [1, -1] + [1] * (x.dim() - 2)
            mean, deviation = self.get_buffer("mean"), self.get_buffer("deviation")
            x = ((x.double() - mean.view(one_each)) / deviation.view(one_each)).float()
        return x


class Answering(nn.Module):
    """Inputs as they are stored to probabilities, or to values."""

    def __init__(self, before: nn.Module, network: nn.Module, kind: str) -> None:
        super().__init__()
        self.before, self.network, self.kind = before, network, kind

    def forward(self, x: Tensor) -> Tensor:
        return answer(self.kind, self.network(self.before(x)))


def answer(kind: str, outputs: Tensor) -> Tensor:
    """Return what a network's outputs say for a kind of task: probabilities, or the values themselves."""
    if kind == "regression":
        return outputs
    return outputs.sigmoid() if kind == "multilabel" else outputs.softmax(1)


def kind_of(about: Mapping[str, Any]) -> str:
    """Return the kind of the task that an exported model is for."""
    kind: str = about.get("run", {}).get("task", {}).get("kind", "classification")
    return kind


def answering(network: nn.Module, about: Mapping[str, Any]) -> Answering:
    """Return a trained network with what is done to its inputs and outputs; `about` is what an export says of it."""
    kind = kind_of(about)
    if "shape" not in about["network"]:
        images = reads(about["network"]["name"]) in (None, "images")
        return Answering(Images(**about["pixels"]) if images else nn.Identity(), network, kind).eval()
    layout = ArrayLayout.of(about["arrays"]["layout"])
    return Answering(Stored(layout, about["arrays"]["standardised"]), network, kind).eval()


def _number(name: str, layout: ArrayLayout) -> float:
    """Return a scale or offset; raise where it is not known here."""
    given: float | str = getattr(layout, name)
    if isinstance(given, str):
        raise RunError(f"data.arrays.{name} = {given!r} is in the files of data, and no part of a model: give a number")
    return given


def example(about: Mapping[str, Any], rows: int = 3) -> Tensor:
    """Return rows like those that the model is for, drawn by a fixed seed."""
    draw, network = torch.Generator().manual_seed(0), about["network"]
    if "shape" not in network:
        if reads(network["name"]) in (None, "images"):
            side = network["size"]
            return torch.randint(256, (rows, side, side, network["in_channels"]), generator=draw).to(torch.uint8)
        return torch.randint(256, (rows, network["size"]), generator=draw)
    layout = ArrayLayout.of(about["arrays"]["layout"])
    shape = (rows, *network["shape"])
    if layout.axes:
        stored = [0] * len(shape)
        for place, axis in enumerate(layout.axes):
            stored[axis] = shape[place]
        shape = tuple(stored)
    if layout.dtype == "int64":
        return torch.zeros(shape, dtype=torch.int64)
    return torch.randn(shape, generator=draw)


def written(network: nn.Module, about: Mapping[str, Any], formats: tuple[str, ...]) -> dict[str, bytes]:
    """Return the files of these formats, by format. Raise where the network cannot be written so."""
    module, x, name = answering(network, about), example(about), shown(about["network"]["name"])
    with torch.no_grad():
        expected = module(x)
    program = _quietly(f"network {name!r} cannot be exported by torch.export", lambda: _program(module, x))
    with torch.no_grad():
        given = program.module()(x)
    if not torch.allclose(given, expected, rtol=1e-4, atol=1e-5):
        raise RunError(f"network {name!r} cannot be exported: the graph gives other outputs than the network")
    found: dict[str, bytes] = {}
    if "pt2" in formats:
        file = io.BytesIO()
        torch.export.save(program, file)
        found["pt2"] = file.getvalue()
    if "onnx" in formats:
        output = "values" if module.kind == "regression" else "probabilities"
        found["onnx"] = _quietly(f"network {name!r} cannot be written as ONNX", lambda: _onnx(program, output))
    return found


def _program(module: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=1)
    return torch.export.export(module, (x,), dynamic_shapes={"x": {0: rows}}, strict=False)


def _onnx(program: torch.export.ExportedProgram, output: str) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise RunError("ONNX needs onnx and onnxscript: pip install 'heterophony[onnx]'") from None
    rows = {"x": {0: "rows"}}
    made = torch.onnx.export(
        program, input_names=["x"], output_names=[output], dynamo=True, dynamic_shapes=rows, verbose=False
    )
    assert made is not None
    data: bytes = made.model_proto.SerializeToString()
    return data


def _quietly(what: str, make: Callable[[], Any]) -> Any:
    """Return what is made, without torch's own warnings; an error is told in one line."""
    log = logging.getLogger("torch.onnx")  # which says that torchvision is missing
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()
    except (RunError, DataError):
        raise
    except Exception as error:  # whatever a network does that no graph can hold
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
        raise RunError(f"{what}: {type(error).__name__}: {lines[0]:.200}") from None
    finally:
        log.setLevel(level)
