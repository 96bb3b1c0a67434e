"""A node's state in pieces, so that after a reaction only those are packed that it has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from heterophony.base import codec
from heterophony.engines.blob import INLINE

Path = tuple[str, ...]  # where a piece is in the state
REST: Path = ()  # the piece that has all that is small, and so is always packed
SECTIONS = ("models", "optimisers", "vars")  # of a state: by name, what may be large


def split(state: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the pieces of a state: each large model, optimiser and variable, and the rest."""
    pieces: dict[Path, Any] = {}
    rest = dict(state)
    for section in SECTIONS:
        large = {name: value for name, value in state[section].items() if codec.packed_size(value) > INLINE}
        pieces |= {(section, name): value for name, value in large.items()}
        rest[section] = {name: value for name, value in state[section].items() if name not in large}
    return {**pieces, REST: rest}


def joined(pieces: Mapping[Path, Any]) -> dict[str, Any]:
    """Return the state that was split into these pieces."""
    state = dict(pieces[REST])
    for section in SECTIONS:
        state[section] = dict(state[section])
    for path, value in pieces.items():
        if path != REST:
            section, name = path
            state[section][name] = value
    return state


def _on_cpu(value: Any) -> Any:
    """Return the value with its tensors on the CPU; those that are there already are not copied."""
    match value:
        case Tensor():
            return value.detach().cpu()
        case dict():
            return {key: _on_cpu(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_on_cpu(item) for item in value)
    return value


class Changes:
    """Remembers how nodes' large pieces stood when they were last packed, by a hash of each."""

    def __init__(self) -> None:
        self.known: dict[str, dict[Path, bytes]] = {}

    def packed(self, node: str, state: Mapping[str, Any]) -> dict[Path, bytes | None]:
        """Return the bytes of each piece of a node's state; None for a piece that is as it was last time."""
        before, now = self.known.get(node, {}), {}
        found: dict[Path, bytes | None] = {}
        for path, live in split(state).items():
            value = _on_cpu(live)  # once: it is read twice
            if path != REST:
                now[path] = codec.fingerprint(value)
            same = path != REST and before.get(path) == now[path]
            found[path] = None if same else codec.pack(value)
        self.known[node] = now
        return found

    def forget(self, node: str) -> None:
        """Take nothing for granted: all of the node's state is packed next time."""
        self.known.pop(node, None)
