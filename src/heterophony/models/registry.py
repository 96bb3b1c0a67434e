"""Networks by name: the built-in ones, and any `module:callable` of the user's."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from heterophony.base import imported

# name: (module in this package, class, further arguments, summary); imported only when a network is made
_TABLE: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "mlp": ("mlp", "MLP", {}, "perceptron with two hidden layers of 200 (FedAvg, FML)"),
    "lenet5": ("lenet", "LeNet5", {}, "LeNet-5 with ReLU and max pooling (FML, FedH2L)"),
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
    "mobilenetv2": ("mobilenet", "MobileNetV2", {}, "MobileNetV2 (FCCL)"),
    "efficientnet-b0": ("efficientnet", "EfficientNetB0", {}, "EfficientNet-B0 (FCCL)"),
    "googlenet": ("googlenet", "GoogLeNet", {}, "GoogLeNet with BatchNorm (FCCL)"),
    "alexnet": ("alexnet", "AlexNet", {}, "AlexNet with dropout (FedH2L)"),
    "vgg11": ("vgg", "VGG11", {}, "VGG11 with BatchNorm (FedH2L)"),
    "byte-lm": ("byte_lm", "ByteLM", {}, "causal convolutions over bytes: a small language model"),
    "byte-cnn": ("byte_cnn", "ByteCNN", {}, "convolutions over bytes: a small classifier of texts"),
}
_TEXT = {
    "byte-lm": "sequences",
    "byte-cnn": "texts",
    "transformers-lm": "sequences",
    "transformers-classifier": "texts",
}


def names() -> list[tuple[str, str]]:
    """Return the built-in networks, each with one line that says what it is."""
    return [(name, summary) for name, (_, _, _, summary) in _TABLE.items()]


def reads(name: str) -> str | None:
    """Return what a network reads: images, texts, or sequences (whose every next byte it predicts); None: not known."""
    known = _TEXT.get(name.partition(":")[0])
    return known or (None if ":" in name else "images")


def imports(name: str) -> list[str]:
    """Return what `create` would import for this name that is not ours."""
    return [name] if ":" in name and not name.startswith("transformers-") else []


def create(
    name: str, *, classes: int, in_channels: int = 0, size: int = 0, shape: Sequence[int] | None = None
) -> nn.Module:
    """Build a new network for square images: `create("wrn-16-1", in_channels=3, size=32, classes=10)`.

    Of texts, `size` is the number of bytes and there is one channel. For arrays give their `shape` instead. Among our
    own networks the perceptron reads every shape, the others read arrays of the shape of square images.

    `name` is one of `names()`, a `wrn-d-k` (with `-fan-out` behind it, which begins as the network's authors have it),
    or `module:callable`, which is imported and called with the same three keyword arguments. Weights are drawn from
    torch's generator: seed it first.
    """
    if shape is not None:
        return _for_arrays(name, tuple(shape), classes)
    if name.startswith("transformers-"):
        from heterophony.models.huggingface import build

        return build(name, in_channels=in_channels, size=size, classes=classes)
    if ":" in name:
        told = {"in_channels": in_channels, "size": size, "classes": classes}
        named, _ = _arguments(name)
        if "shape" in named:
            told = {key: value for key, value in told.items() if key in named}
            return called(name, **told, shape=(in_channels, size, size))
        return called(name, **told)
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
    factory = getattr(importlib.import_module(f"heterophony.models.{module}"), kind)
    network: nn.Module = factory(in_channels=in_channels, size=size, classes=classes, **further)
    # A third faster on a CPU. Not done to users' modules: `view` after a convolution would fail.
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _for_arrays(name: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a network for arrays of a shape."""
    is_square = len(shape) == 3 and shape[1] == shape[2]
    square: dict[str, Any] = {"in_channels": shape[0], "size": shape[1]} if is_square else {}
    if name == "mlp":
        return create(name, in_channels=math.prod(shape), size=1, classes=classes)
    if ":" in name and not name.startswith("transformers-"):
        named, others = _arguments(name)
        if "shape" not in named and not others and not square:
            raise ValueError(f"network {name!r} must take `shape`, which is {shape} here, and `classes`")
        told = {"shape": shape, "classes": classes}
        if not others:
            told = {key: value for key, value in {**told, **square}.items() if key in named}
        return called(name, **told)
    if reads(name) == "images" and square:
        return create(name, classes=classes, **square)
    raise ValueError(
        f"network {name!r} reads {reads(name)}; the rows here are arrays of {shape}: take mlp, or a function of your "
        "own, module:callable, which is told `shape` and `classes`"
    )


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
