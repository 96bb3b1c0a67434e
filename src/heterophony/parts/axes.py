"""Which units each dimension of each tensor of a network stands for: what has to be known to make it narrower.

Units are the outputs of a layer, or its channels. The network's graph is followed from its inputs to its outputs. What
is added up has the same units. Inputs and outputs of the network have none, so that they are never narrowed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd


class Units(NamedTuple):
    """A group of units, and how many entries of a tensor each of them has: a flattened map has several a channel."""

    group: str
    many: int
    entries: int = 1


Places = tuple[Tensor | None, ...]  # by dimension, the indices that a slice has; None: all
FIXED = None  # units that are never narrowed
# What a graph may do with values without mixing their units.
ALIKE = {
    *("relu", "relu_", "relu6", "gelu", "silu", "elu", "leaky_relu", "selu", "mish", "tanh", "sigmoid", "hardtanh"),
    *("hardswish", "hardsigmoid", "softplus", "clamp", "dropout", "dropout1d", "dropout2d", "max_pool1d", "max_pool2d"),
    *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d"),
    *("adaptive_max_pool2d", "interpolate", "pad", "flatten", "view", "reshape", "mean", "amax", "contiguous"),
    *("transpose", "permute", "squeeze", "unsqueeze", "float", "to", "clone", "boolean_dispatch", "fn", "_pad"),
    *("max_pool1d_with_indices", "max_pool2d_with_indices", "neg", "abs", "type_as", "movedim"),
}
JOINED = {"add", "add_", "iadd", "sub", "sub_", "isub", "mul", "mul_", "imul", "truediv", "div", "__add__", "__mul__"}
ABOUT = {"size", "dim", "getattr", "len", "ndimension"}  # these tell of a value's form
MIXING = (nn.PixelShuffle, nn.PixelUnshuffle, nn.Unflatten, nn.Unfold, nn.Fold, nn.ChannelShuffle, nn.GLU)


class CannotSlice(ValueError):
    """A network that cannot be narrowed; one line that says why."""


class Axes:
    """The units of a network's tensors."""

    def __init__(self, module: nn.Module) -> None:
        self.of: dict[str, list[Units | None]] = {}
        self.outputs: set[str] = set()  # tensors with a row for each output of the network
        self._same: dict[str, str | None] = {}  # a group that is another one; None: it is never narrowed
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if tensor.dim()}
        self._follow(module)
        if unknown := next((name for name in self.shapes if name not in self.of), None):
            raise CannotSlice(f"how to narrow {unknown} is not known")

    # -- the graph -------------------------------------------------------------------------------------------------
    def _follow(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | _ConvNd):  # a layer by itself has no graph
            self._end(self._through("", module, FIXED))
            return
        try:
            with _training(module):
                graph = _Tracer().trace(module)
        except Exception as error:  # whatever a network's code does when it is asked without a value
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise CannotSlice(f"its graph cannot be followed ({reason:.120})") from error
        known: dict[fx.Node, Units | None] = {}
        for node in graph.nodes:
            known[node] = self._after(module, node, known)

    def _after(self, module: nn.Module, node: fx.Node, known: Mapping[fx.Node, Units | None]) -> Units | None:
        """Return the units of what a node of the graph gives."""
        inputs = node.all_input_nodes
        if node.op == "placeholder":
            return FIXED
        if node.op == "call_module":
            path = str(node.target)
            return self._through(path, module.get_submodule(path), known[inputs[0]])
        if node.op == "output":
            for each in inputs:
                self._end(known[each])
            return FIXED
        if node.op == "get_attr":
            if str(node.target) in self.shapes:
                raise CannotSlice(f"how to narrow {node.target} is not known")
            return FIXED
        return self._called(node, [known[each] for each in inputs])

    def _called(self, node: fx.Node, units: Sequence[Units | None]) -> Units | None:
        """Return the units of what a function gives."""
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        if name in ABOUT or all(each is FIXED for each in units):
            return FIXED
        if name in ALIKE:
            return units[0]
        if name in JOINED:
            tensors = [known for each, known in zip(node.all_input_nodes, units, strict=True) if not _tells(each)]
            found = tensors[0]
            for other in tensors[1:]:
                found = self._join(found, other)
            return found
        raise CannotSlice(f"how to narrow what goes through {name} is not known")

    # -- layers ----------------------------------------------------------------------------------------------------
    def _through(self, path: str, layer: nn.Module, units: Units | None) -> Units | None:
        """Note the units of a layer's tensors, and return those of its outputs."""
        if isinstance(layer, nn.Linear | _ConvNd):
            return self._weighted(path, layer, units)
        if isinstance(layer, nn.Embedding):
            own = Units(path, layer.embedding_dim)
            self._note(path, layer, weight=[FIXED, own])
            return own
        if isinstance(layer, _NormBase | nn.LayerNorm | nn.GroupNorm):
            self._check_norm(path, layer, units)
            self._note(path, layer, **{name: [units] for name in ("weight", "bias", "running_mean", "running_var")})
            return units
        if any(True for _ in layer.parameters()) or isinstance(layer, MIXING):
            raise CannotSlice(f"how to narrow {path}, a {type(layer).__name__}, is not known")
        return units

    def _weighted(self, path: str, layer: nn.Linear | _ConvNd, units: Units | None) -> Units | None:
        weight, alone = layer.weight, isinstance(layer, _ConvNd) and layer.groups > 1
        if isinstance(layer, _ConvTransposeNd):
            raise CannotSlice(f"how to narrow {path}, a {type(layer).__name__}, is not known")
        if alone and (layer.groups != weight.shape[0] or weight.shape[1] != 1):
            raise CannotSlice(f"of grouped convolutions only depthwise ones can be narrowed, and {path} is none")
        read = FIXED if alone or units is FIXED else self._wide(path, units, weight.shape[1])
        own = units if alone else Units(path, weight.shape[0])
        if (name := f"{path}.weight".lstrip(".")) in self.of:  # a layer that is used twice
            self._join(self.of[name][1], read)
        self._note(path, layer, weight=[own, read, *[FIXED] * (weight.dim() - 2)], bias=[own])
        return own

    @staticmethod
    def _wide(path: str, units: Units, inputs: int) -> Units:
        if inputs % units.many:
            raise CannotSlice(f"{path} reads {inputs} values of {units.many} units")
        return units._replace(entries=inputs // units.many)

    @staticmethod
    def _check_norm(path: str, layer: nn.Module, units: Units | None) -> None:
        """Raise where a norm does not see each unit by itself, or all of them together."""
        if units is FIXED:
            return
        grouped = isinstance(layer, nn.GroupNorm) and layer.num_groups > 1
        wide = isinstance(layer, nn.LayerNorm) and layer.normalized_shape != (units.many,)
        if grouped or wide or units.entries > 1:
            raise CannotSlice(f"how to narrow {path}, a {type(layer).__name__} over parts of its inputs, is not known")

    def _note(self, path: str, layer: nn.Module, **units: list[Units | None]) -> None:
        for name, own in units.items():
            if f"{path}.{name}".lstrip(".") in self.shapes and getattr(layer, name, None) is not None:
                self.of[f"{path}.{name}".lstrip(".")] = own

    # -- groups of units -------------------------------------------------------------------------------------------
    def _root(self, group: str) -> str | None:
        found: str | None = group
        while found is not None and found in self._same:
            found = self._same[found]
        return found

    def _join(self, a: Units | None, b: Units | None) -> Units | None:
        """Make two groups of units one, as their values are added up."""
        first, second = (None if each is None else self._root(each.group) for each in (a, b))
        if first == second:
            return a
        if a is not None and b is not None and a.many != b.many:
            if 1 in (a.many, b.many):  # one value for all
                return b if a.many == 1 else a
            raise CannotSlice(f"{a.group} and {b.group} are added up and have {a.many} and {b.many} units")
        if first is not None:
            self._same[first] = second
        elif second is not None:
            self._same[second] = None
        return b

    def _end(self, units: Units | None) -> None:
        """Note that these are outputs of the network."""
        if units is None:
            return
        last = self._root(units.group)
        if last is not None:
            self.outputs |= {name for name, own in self.of.items() if own[0] and self._root(own[0].group) == last}
            self._same[last] = None

    # -- slices ----------------------------------------------------------------------------------------------------
    def narrow(self, name: str) -> bool:
        """Return whether the rows of a tensor are fewer in a slice."""
        first = self.of[name][0]
        return first is not None and self.cut(first)

    def cut(self, units: Units) -> bool:
        """Return whether a slice has fewer of these units."""
        return self._root(units.group) is not None

    def places(self, share: float, offset: int = 0) -> dict[str, Places]:
        """Return, by tensor and dimension, the indices of a slice: such a share of the units, from the offset on."""
        known: dict[tuple[int, int], Tensor] = {}

        def indices(units: Units | None) -> Tensor | None:
            if units is None or not self.cut(units) or share >= 1:
                return None
            key = units.many, units.entries
            if key not in known:
                kept = (torch.arange(math.ceil(share * units.many)) + offset) % units.many
                known[key] = (kept[:, None] * units.entries + torch.arange(units.entries)).flatten()
            return known[key]

        return {name: tuple(map(indices, own)) for name, own in self.of.items()}


@contextmanager
def _training(module: nn.Module) -> Iterator[None]:
    """Put a network in training mode for the block: then it shows all of its exits."""
    modes = [(part, part.training) for part in module.modules()]
    module.train()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


class _Tracer(fx.Tracer):
    """Follows a network's own code; layers of torch are taken as they are."""


def _tells(node: fx.Node) -> bool:
    """Return whether a node of a graph gives a number and no tensor."""
    return node.op in ("call_function", "call_method") and (
        node.target in (getattr, operator.getitem) or str(node.target) in ABOUT
    )


def index(places: Places) -> tuple[Any, ...]:
    """Return what a tensor is indexed with to get, or set, its slice."""
    cut = [place for place, indices in enumerate(places) if indices is not None]
    if not cut:
        return (...,)
    if cut == [0, 1]:
        rows, columns = places[0], places[1]
        assert rows is not None
        return rows[:, None], columns
    assert len(cut) == 1  # of units there are a layer's outputs and its inputs
    return (*[slice(None)] * cut[0], places[cut[0]])
