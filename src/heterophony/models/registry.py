"""Networks by name: the built-in ones, and any `module:callable` of the user's."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from heterophony.base import imported
from heterophony.kernel.freezing import freeze

# name: (module in this package, class, further arguments, summary); imported only when a network is made
_TABLE: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "linear": ("linear", "Linear", {}, "one linear layer: logistic or linear regression, for rows of any shape"),
    "mlp": ("mlp", "MLP", {}, "perceptron with two hidden layers of 200 (FedAvg, FML)"),
    "lenet5": ("lenet", "LeNet5", {}, "LeNet-5 with ReLU and max pooling (FML, FedH2L)"),
    "lenet-caffe": ("lenet", "LeNetCaffe", {}, "the LeNet of 431,080 parameters of Caffe's example (FedH2L, perhaps)"),
    "cnn1": ("cnn", "CNN1", {}, "two 5x5 convolutions of 6 and 16 channels (FML)"),
    "cnn1-3x3": ("cnn", "CNN1", {"kernel": 3}, "CNN1 with the 3x3 kernels that FML's text prints"),
    "cnn2": ("cnn", "CNN2", {}, "three 3x3 convolutions of 128 channels (FML)"),
    **{
        f"wrn-{depth}-1": (
            "wide_resnet",
            "WideResNet",
            {"depth": depth},
            f"wide ResNet of depth {depth} (FedMD+Global); any wrn-d-k, d = 6n + 4, and wrn-d-k-fan-out",
        )
        for depth in (10, 16, 22, 28, 34, 40)
    },
    **{
        f"resnet{depth}": ("resnet", "ResNet", {"depth": depth}, f"ResNet of depth {depth} ({papers})")
        for depth, papers in (
            (10, "FCCL"),
            (12, "FCCL"),
            (18, "FCCL, FedH2L"),
            (34, "FedH2L"),
            (50, "FedH2L"),
        )
    },
    **{
        f"resnet{depth}": ("resnet", "ResNet", {"depth": depth}, f"ResNet of depth {depth} (HtFLlib)")
        for depth in (4, 6, 8, 101, 152)
    },
    "fedavg-cnn": ("cnn", "FedAvgCNN", {}, "two 5x5 convolutions of 32 and 64 channels (FedAvg, HtFLlib)"),
    "moderate-cnn": ("cnn", "ModerateCNN", {}, "six 3x3 convolutions of 32 to 256 channels (FedMA, NVFlare)"),
    "mobilenetv2": ("mobilenet", "MobileNetV2", {}, "MobileNetV2 (FCCL)"),
    "efficientnet-b0": ("efficientnet", "EfficientNetB0", {}, "EfficientNet-B0 (FCCL)"),
    "googlenet": ("googlenet", "GoogLeNet", {}, "GoogLeNet with BatchNorm (FCCL)"),
    "alexnet": ("alexnet", "AlexNet", {}, "AlexNet with dropout (FedH2L)"),
    "vgg11": ("vgg", "VGG11", {}, "VGG11 with BatchNorm (FedH2L)"),
    "byte-lm": ("byte_lm", "ByteLM", {}, "causal convolutions over bytes: a small language model"),
    "byte-cnn": ("byte_cnn", "ByteCNN", {}, "convolutions over bytes: a small classifier of texts"),
    "cnn1d": ("series", "CNN1D", {}, "three convolutions over steps in time: windows of sensors, series"),
    "lstm": ("series", "Recurrent", {"cell": "lstm"}, "one LSTM layer over steps in time"),
    "gru": ("series", "Recurrent", {"cell": "gru"}, "one GRU layer over steps in time"),
    "vit-tiny": ("vit", "ViT", {}, "vision transformer of four blocks, 64 wide"),
    "vit-small": ("vit", "ViT", {"width": 128, "depth": 6}, "vision transformer of six blocks, 128 wide"),
    "unet": ("unet", "UNet", {}, "U-Net of four levels, for the task `segmentation`"),
}
_READS = {
    "cnn1d": "arrays",
    "lstm": "arrays",
    "gru": "arrays",
    "unet": "arrays",
    "byte-lm": "sequences",
    "byte-cnn": "texts",
    "transformers-lm": "sequences",
    "transformers-classifier": "texts",
    "torchvision": "images",
    "timm": "images",
    "transformers": "images",
    "transformers-pretrained-lm": "sequences",
    "transformers-pretrained-classifier": "texts",
}
OTHERS = [  # what can be named beside our own
    ("torchvision:NAME", "a network of torchvision, where it is installed"),
    ("timm:NAME", "a network of timm, where it is installed"),
    ("transformers:TYPE|PATH", "an image classifier of transformers (extra text): a small one, or a config's"),
    ("transformers-lm:TYPE|PATH", "a language model of transformers over bytes"),
    ("transformers-classifier:TYPE|PATH", "a classifier of texts of transformers, over bytes"),
    ("transformers-pretrained-lm:FOLDER", "the same with the weights of a local folder, as far as they fit bytes"),
    ("transformers-pretrained-classifier:FOLDER", "the same for a classifier of texts"),
]
PACKAGES = ("torchvision", "timm", "transformers")  # whose networks have names of their own: PACKAGE:NAME


def names() -> list[tuple[str, str]]:
    """Return the built-in networks, each with one line that says what it is."""
    return [(name, summary) for name, (_, _, _, summary) in _TABLE.items()]


def reads(name: str) -> str | None:
    """Return what a network reads: images, arrays, texts, or sequences (whose every next byte it predicts).

    None: it is not known.
    """
    known = _READS.get(_package(name))
    return known or (None if ":" in name else "images")


def imports(name: str) -> list[str]:
    """Return what `create` would import for this name that is not ours."""
    return [name] if ":" in name and _package(name) not in (*PACKAGES, *_READS) else []


def _package(name: str) -> str:
    """Return what stands before the colon."""
    return name.partition(":")[0]


def create(
    name: str,
    *,
    classes: int,
    in_channels: int = 0,
    size: int = 0,
    shape: Sequence[int] | None = None,
    task: str = "classification",
    weights: str | None = None,
    frozen: Sequence[str] = (),
) -> nn.Module:
    """Build a new network for square images: `create("wrn-16-1", in_channels=3, size=32, classes=10)`.

    Of texts, `size` is the number of bytes and there is one channel. For arrays give their `shape` instead. The
    perceptron and `linear` read every shape, `cnn1d`, `lstm` and `gru` read (channels, steps), `unet` and `vit-tiny`
    images of any sides, and the others arrays of the shape of square images. `task` is the kind of the task; `classes`
    are its outputs, which may be targets or labels.

    `name` is one of `names()`, a `wrn-d-k` (with `-fan-out` behind it, which begins as the network's authors have it),
    `torchvision:NAME`, `timm:NAME` or `transformers:NAME`, or `module:callable`, which is imported and called with
    those of these keyword arguments that it takes. Weights are drawn from torch's generator: seed it first. Those of
    a file (`weights`) take their place, but for a head of other shapes. Parts that are `frozen` are not trained.
    """
    told: dict[str, Any] = {"in_channels": in_channels, "size": size, "shape": shape, "classes": classes, "task": task}
    if _package(name) in PACKAGES:
        from heterophony.models import packages

        network = packages.build(name, tuple(shape or (in_channels, size, size)), classes, weights)
    else:
        network = _made(name, **told)
        if weights is not None:
            from heterophony.models.weights import fill

            fill(network, weights, name)
    try:
        return freeze(network, frozen)
    except ValueError as error:
        raise ValueError(f"network {name!r}: {error}") from None


def _made(name: str, *, classes: int, in_channels: int, size: int, shape: Sequence[int] | None, task: str) -> nn.Module:
    """Build a network that is ours, or somebody's own."""
    square: dict[str, Any] = {"in_channels": in_channels, "size": size}
    row = (in_channels, size, size) if shape is None else tuple(shape)
    if shape is not None:
        square = {"in_channels": row[0], "size": row[1]} if len(row) == 3 and row[1] == row[2] else {}
    if name.startswith("transformers-"):
        if shape is None:
            from heterophony.models.huggingface import build

            return build(name, **square, classes=classes)
        raise ValueError(f"network {name!r} reads {reads(name)}; the rows here are arrays of {row}")
    if ":" in name:
        return _own(name, shape, row, square, classes, task)
    return _ours(name, row, square, classes, task)


def _ours(name: str, row: tuple[int, ...], square: Mapping[str, int], classes: int, task: str) -> nn.Module:
    """Build one of our own networks."""
    factory, further = _factory(name)
    takes = inspect.signature(factory).parameters
    told: dict[str, Any] = {"task": task} if "task" in takes else {}
    if "shape" in takes:
        told["shape"] = row
    elif name == "mlp" and not square:
        told |= {"in_channels": math.prod(row), "size": 1}
    elif square and reads(name) != "arrays":
        told |= square
    else:
        raise ValueError(
            f"network {name!r} reads {reads(name)}; the rows here are arrays of {row}: take mlp (for series "
            "cnn1d or gru), or a function of your own, module:callable, which is told `shape` and `classes`"
        )
    network: nn.Module = factory(**told, classes=classes, **further)
    # A third faster on a CPU. Not done to users' modules: `view` after a convolution would fail.
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _factory(name: str) -> tuple[Callable[..., nn.Module], dict[str, Any]]:
    """Return the class of one of our own networks, and its further arguments."""
    if wrn := re.fullmatch(r"wrn-(\d+)-(\d+)(?:-(fan-out))?", name):
        further = {"depth": int(wrn[1]), "width": int(wrn[2]), "init": wrn[3] or "torch"}
        module, kind = "wide_resnet", "WideResNet"
    elif name in _TABLE:
        module, kind, further, _ = _TABLE[name]
    else:
        nearest = difflib.get_close_matches(name.lower(), _TABLE, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown network {name!r}, perhaps you meant {nearest!r}; `heterophony models` lists them all"
        )
    return getattr(importlib.import_module(f"heterophony.models.{module}"), kind), further


def _own(
    name: str,
    shape: Sequence[int] | None,
    row: tuple[int, ...],
    square: Mapping[str, int],
    classes: int,
    task: str,
) -> nn.Module:
    """Build a network by somebody's own function, which is told what it takes."""
    named, others = _arguments(name)
    if shape is None:
        told: dict[str, Any] = {**square, "classes": classes}
        if "shape" in named:
            told = {key: value for key, value in told.items() if key in named} | {"shape": row}
    else:
        if "shape" not in named and not others and not square:
            raise ValueError(f"network {name!r} must take `shape`, which is {row} here, and `classes`")
        told = {"shape": row, "classes": classes}
        if not others:
            told = {key: value for key, value in {**told, **square}.items() if key in named}
    return called(name, **told, **({"task": task} if "task" in named else {}))


def _arguments(name: str) -> tuple[list[str], bool]:
    """Return the names of the arguments of somebody's own function, and whether it takes others too."""
    try:
        found = inspect.signature(imported.function(name, "network")).parameters
    except TypeError:  # a callable that does not tell
        return [], True
    return list(found), any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found.values())


def called(name: str, **arguments: Any) -> nn.Module:
    """Return the network that `module:callable` gives."""
    network = imported.call(name, "network", **arguments)
    if not isinstance(network, nn.Module):
        raise ValueError(f"network {name!r}: the call gave a {type(network).__name__}, not a torch.nn.Module")
    return network
