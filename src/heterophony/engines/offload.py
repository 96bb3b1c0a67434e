"""Where idle nodes are, so that memory follows the cohort and not the population.

On a GPU they stay there while there is room; then whoever has been idle longest is moved to the host's memory, until
its next reaction. On a CPU whoever is built when there is no room has its models in a file (in TMPDIR), mapped: the
system keeps in memory what is in use. Neither changes a bit.

A node is also a few dozen Python objects, whatever the size of its models. Where idle nodes take more than `OBJECTS`
as such, whoever has been idle longest is `surplus`, and an engine makes a row of it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from heterophony.compute.memory import give_back_freed
from heterophony.compute.workers import models_into, room_for
from heterophony.data.table import Data
from heterophony.kernel.node import Node, away, moved

TRIM = 2**26
OBJECTS = 2**30  # bytes of the host's memory for idle nodes as objects
NODE, MODULE, TENSOR = 8_000, 2_200, 600  # bytes, about: a node with its mailbox, a module of it, a tensor's object
FILES = 512  # models of so many idle nodes may be in files of their own: a process cannot have many open


class Offload:
    """`share` is how much of the device's memory the models of idle nodes may take."""

    def __init__(self, device: str, share: float) -> None:
        self.device, self.room = device, share * _memory(device)
        self.sizes: dict[str, int] = {}  # bytes of the nodes that are on the device
        self.held = 0  # their sum
        self.idle: dict[str, Node] = {}  # those of them that do nothing, the one that has waited longest first
        self.moved_out: dict[str, list[str]] = {}  # the others, and which of their variables were on the device
        self.users: Counter[int] = Counter()  # of data, by identity: what many share stays
        self.objects: dict[str, int] = {}  # bytes of idle nodes as objects, the one that has waited longest first
        self.kept = 0  # their sum
        self.most = OBJECTS
        self.in_files: set[str] = set()
        self.mapped = 0  # bytes moved into files since the allocator was last asked to give memory back
        self.moving = False  # copies towards the host that may not be complete

    def built(self, node: Node) -> None:
        """Count a new node; on a CPU without room, put its models into a file."""
        self.users.update(id(view) for view in node.data.data.values())
        if self.device == "cpu" and self.held + _size(node) > self.room:
            with tempfile.TemporaryFile(prefix="heterophony-") as file:
                file.truncate(room_for(node))
                models_into(mmap.mmap(file.fileno(), 0), node)  # the file is gone when the models are
            self.in_files.add(node.id)
            self.mapped += room_for(node)
            if self.mapped > TRIM:
                self.mapped = 0
                give_back_freed()  # what models left behind, in pieces that the C library does not use again
        else:
            self._count(node)

    def wake(self, node: Node) -> None:
        """Bring the node's models to the device, before a reaction."""
        self.idle.pop(node.id, None)
        self.kept -= self.objects.pop(node.id, 0)
        if node.id not in self.moved_out:
            return
        paths = set(self.moved_out.pop(node.id))
        _move(node, lambda tensor: tensor.to(self.device, non_blocking=True))
        node.vars.data = moved(node.vars.data, paths, self.device)
        self._count(node)

    def rest(self, node: Node) -> None:
        """Let a node be moved out after a reaction, or make others move."""
        self.kept -= self.objects.pop(node.id, 0)
        self.objects[node.id] = self.most // FILES if node.id in self.in_files else _objects(node)
        self.kept += self.objects[node.id]
        if self.device == "cpu":
            return
        self._count(node)
        self.idle[node.id] = node
        while self.held > self.room and self.idle:
            name = next(iter(self.idle))
            self.held -= self.sizes.pop(name)
            self._move_out(self.idle.pop(name))

    def surplus(self) -> list[str]:
        """Return those for whom there is no room as objects. They are counted no more."""
        found = []
        while self.kept > self.most:
            name = next(iter(self.objects))
            self.kept -= self.objects.pop(name)
            found.append(name)
        return found

    def gone(self, node: Node) -> None:
        """Forget a node: it is another worker's from now on, or a row."""
        self.kept -= self.objects.pop(node.id, 0)
        self.in_files.discard(node.id)
        self.held -= self.sizes.pop(node.id, 0)
        self.idle.pop(node.id, None)
        self.moved_out.pop(node.id, None)
        self.users.subtract(key for key in map(id, node.data.data.values()) if self.users[key])

    def settle(self) -> None:
        """Wait for what is on its way, before somebody reads a node that was moved out."""
        if self.moving:
            torch.cuda.synchronize()
            self.moving = False

    def _count(self, node: Node) -> None:
        size = _size(node)
        self.held += size - self.sizes.get(node.id, 0)
        self.sizes[node.id] = size

    def _move_out(self, node: Node) -> None:
        self.moved_out[node.id] = away(dict(node.vars))
        _move(node, _to_host)
        node.vars.data = moved(node.vars.data, set(self.moved_out[node.id]), "cpu")
        for view in node.data.data.values():
            if isinstance(view, Data) and self.users[id(view)] <= 1:
                view.copies.clear()
        self.moving = True


def _memory(device: str) -> int:
    if device == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(torch.cuda.mem_get_info(device)[1])


def _objects(node: Node) -> int:
    """Return about how many bytes of the host's memory a node takes beside its numbers."""
    parts = sum(1 for slot in node.slots.values() for _ in slot.module.modules())
    tensors = sum(len(slot.tensors()) for slot in node.slots.values())
    return NODE + MODULE * parts + TENSOR * tensors


def _size(node: Node) -> int:
    models = sum(tensor.nbytes for slot in node.slots.values() for tensor in slot.tensors().values())
    moments = (part for named in node.optimisers.values() for state in named.values() for part in state.values())
    return models + sum(part.nbytes for part in moments if isinstance(part, Tensor))


def _move(node: Node, to: Callable[[Tensor], Tensor]) -> None:
    def moment(part: Any) -> Any:
        return to(part) if isinstance(part, Tensor) and part.dim() else part  # counters are torch's business

    for slot in node.slots.values():
        for tensor in slot.tensors().values():
            tensor.data = to(tensor.data)
    node.optimisers = {
        key: {name: {part: moment(value) for part, value in state.items()} for name, state in named.items()}
        for key, named in node.optimisers.items()
    }


def _to_host(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
