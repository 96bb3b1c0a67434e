"""Networks of torchvision, timm and transformers by name, split into body and head. Nothing is downloaded."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heterophony.models import weights as files

HINTS = {
    "torchvision": "pip install 'heterophony[vision]', with torchvision of the same build as torch",
    "timm": "pip install 'heterophony[vision]', with torchvision of the same build as torch",
    "transformers": "pip install 'heterophony[text]'",
}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}


class Backbone(nn.Module):
    """A network of another package that gives features: its own last layer is gone.

    Grey images are shown to it three times, as colours, where that is what its weights are for.
    """

    def __init__(self, inner: nn.Module, grey: bool, answers: bool) -> None:
        super().__init__()
        self.inner, self.grey, self.answers = inner, grey, answers

    def forward(self, x: Tensor) -> Tensor:
        x = x.expand(-1, 3, -1, -1) if self.grey else x
        features: Tensor = self.inner(pixel_values=x).logits if self.answers else self.inner(x)
        return features


class Joined(nn.Module):
    """A network in two parts that were made elsewhere: `body` gives features, `head` the outputs."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(x))
        return outputs


def build(name: str, row: tuple[int, ...], classes: int, weights: str | None = None) -> nn.Module:
    """Build the network `PACKAGE:NAME` for images (channels, height, width), with the weights of a file if given.

    A file has the names of the package's own state dict, or those of a network that was made here (`body.inner...`).
    """
    package, _, what = name.partition(":")
    if len(row) != 3:
        raise ValueError(f"network {name!r} reads images (channels, height, width); the rows here have the shape {row}")
    made = {"torchvision": _torchvision, "timm": _timm, "transformers": _transformers}[package]
    grey = row[0] == 1 and package == "torchvision"
    inner = made(name, what, (3, *row[1:]) if grey else row, classes)
    ours = weights is not None and all(key.startswith(("body.", "head.")) for key in files.read(weights))
    if weights is not None and not ours:
        inner = _renamed(inner, weights, name) if package == "transformers" else _filled(inner, weights, name)
    network = _split(inner, grey, package == "transformers", row, name)
    if weights is not None and ours:
        files.fill(network, weights, name)
    return network


def _filled(inner: nn.Module, weights: str, name: str) -> nn.Module:
    files.fill(inner, weights, name)
    return inner


def _renamed(inner: Any, weights: str, name: str) -> nn.Module:
    """Return a network of transformers with the weights of a file, in which tensors may have older names."""
    head = f"{files.head_of(inner)}."
    with _quiet(_imported(name, "transformers")):
        network, found = type(inner).from_pretrained(
            None,
            config=inner.config,
            state_dict=files.read(weights),
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    misfits = [(key, there, here) for key, there, here in found["mismatched_keys"] if not key.startswith(head)]
    for key, there, here in sorted(misfits):
        raise files.WeightsError(files.misfit(weights, key, there, here, name))
    for key in sorted(key for key in found["missing_keys"] if not key.startswith(head)):
        raise files.WeightsError(f"weights {weights}: has no tensor {key!r}, which network {name!r} needs")
    for key in sorted(found["unexpected_keys"]):
        raise files.WeightsError(f"weights {weights}: has a tensor {key!r}, which network {name!r} does not have")
    made: nn.Module = network.train()
    return made


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Let transformers print no bars and tables in the block: what does not fit is said here."""
    log = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _split(inner: nn.Module, grey: bool, answers: bool, row: tuple[int, ...], name: str) -> nn.Module:
    """Take the last linear layer off as the head. Raise where it is not what gives the outputs."""
    path = files.head_of(inner)
    whole = Backbone(inner, grey, answers)
    rows = torch.randn(2, *row, generator=torch.Generator().manual_seed(0))
    expected = _asked(whole, rows, name)
    try:
        head = inner.get_submodule(path)
    except AttributeError:
        head = None
    if isinstance(head, nn.Linear):
        inner.set_submodule(path, nn.Identity())
        network = Joined(whole, head)
        if torch.equal(_asked(network, rows, name), expected):
            return network
    raise ValueError(
        f"network {name!r}: its last layer must be linear, to be its head, and is not: take another network"
    )


def _asked(network: nn.Module, rows: Tensor, name: str) -> Tensor:
    """Return what a network gives for rows in evaluation mode; it is left in training mode, as new ones are."""
    try:
        with torch.no_grad():
            given = network.eval()(rows)
    except Exception as error:  # whatever the package raises for images of this size
        size = " x ".join(map(str, rows.shape[1:]))
        raise ValueError(f"network {name!r} cannot read images of {size} ({_line(error)})") from None
    network.train()
    if not isinstance(given, Tensor):
        raise ValueError(f"network {name!r} gives a {type(given).__name__}, not a tensor of outputs")
    return given


def _torchvision(name: str, what: str, row: tuple[int, ...], classes: int) -> nn.Module:
    found = _imported(name, "torchvision.models")
    _known(name, what, found.list_models(module=found))
    make = _calls(found.get_model, what, weights=None, num_classes=classes)
    further: dict[str, Any] = {"aux_logits": False} if what in ("googlenet", "inception_v3") else {}
    network = _tried(name, make, further, {"image_size": row[1]})
    return network if row[0] == 3 else _with_channels(network, row[0])


def _timm(name: str, what: str, row: tuple[int, ...], classes: int) -> nn.Module:
    found = _imported(name, "timm")
    if not found.is_model(what):  # which also keeps names out that would be downloaded
        _known(name, what, found.list_models())
    make = _calls(found.create_model, what, pretrained=False, num_classes=classes, in_chans=row[0])
    return _tried(name, make, {}, {"img_size": tuple(row[1:])})


def _transformers(name: str, what: str, row: tuple[int, ...], classes: int) -> nn.Module:
    found = _imported(name, "transformers")
    fixed = {"num_labels": classes, "num_channels": row[0], "image_size": row[1]}
    try:
        if Path(what).exists():
            local = {"local_files_only": True, "trust_remote_code": False}
            config = found.AutoConfig.from_pretrained(what, **local, **fixed)
        else:
            config = found.AutoConfig.for_model(what, **{**SMALL, "patch_size": max(1, row[1] // 8), **fixed})
        network: nn.Module = found.AutoModelForImageClassification.from_config(config)
    except (ValueError, KeyError, OSError, TypeError) as error:
        raise ValueError(f"network {name!r}: {_line(error)}") from None
    return network


def _calls(make: Callable[..., Any], what: str, **fixed: Any) -> Callable[..., Any]:
    return lambda **more: make(what, **fixed, **more)


def _tried(name: str, make: Callable[..., Any], further: dict[str, Any], sized: dict[str, Any]) -> nn.Module:
    """Build a network that is told the images' size, or, where it takes any, one that is not."""
    try:
        try:
            network: nn.Module = make(**further, **sized)
        except TypeError:
            network = make(**further)
    except Exception as error:  # whatever the package raises for such images
        raise ValueError(f"network {name!r}: {_line(error)}") from None
    return network


def _with_channels(network: nn.Module, channels: int) -> nn.Module:
    """Let the first convolution read so many channels, with new weights."""
    for path, part in network.named_modules():
        if isinstance(part, nn.Conv2d):
            new = nn.Conv2d(
                channels,
                part.out_channels,
                part.kernel_size,  # type: ignore[arg-type]
                part.stride,  # type: ignore[arg-type]
                part.padding,  # type: ignore[arg-type]
                bias=part.bias is not None,
            )
            network.set_submodule(path, new)
            break
    return network


def _known(name: str, what: str, known: Iterable[str]) -> None:
    """Raise if a package has no such network, with the nearest name."""
    listed = list(known)
    if what not in listed:
        nearest = difflib.get_close_matches(what.lower(), listed, n=1, cutoff=0.0)
        package = name.partition(":")[0]
        meant = f", perhaps you meant {package + ':' + nearest[0]!r}" if nearest else ""
        raise ValueError(f"unknown network {name!r}{meant}")


def _imported(name: str, module: str) -> Any:
    """Return a module of another package; raise with a hint if it cannot be imported."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (package, module):
            raise ValueError(f"network {name!r}: importing {package} raised {_line(error)}") from None
        raise ValueError(f"network {name!r} needs {package}: {HINTS[package]}") from None
    except Exception as error:  # torchvision of another build than torch's raises a RuntimeError
        raise ValueError(
            f"network {name!r}: {package} is there, but importing it raised {_line(error)}: {HINTS[package]}"
        ) from None


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
