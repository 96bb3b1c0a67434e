"""Which slice of a common network each node holds, by its capacity; what may travel of it, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from heterophony.base.seeds import seeded
from heterophony.kernel.capacity import Capacity, Cutting
from heterophony.kernel.fields import Sliceable, form_of
from heterophony.kernel.networks import Model, Models, Slice, checked, model_of, uncut
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.statistics import statistics
from heterophony.kernel.work import Fit, Predict, Work

if TYPE_CHECKING:
    from heterophony.federation.federation import Federation


class Slicing:
    """The slices of a federation's networks. `slots` says by role and slot where nodes hold slices; often nowhere."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.slots: dict[str, dict[str, Slice]] = {}
        self.sliceable: dict[tuple[str, str, Capacity], Sliceable] = {}
        method = federation.method
        for role, needed in checked(method.networks(), method.roles).items():
            own = {slot: choice for slot, choice in needed.items() if isinstance(choice, Slice)}
            if own:
                self.slots[role] = own

    @property
    def needed(self) -> bool:
        """Return whether the method slices networks, or another method has sliced those that are here."""
        return bool(self.slots) or any(_is_cut(models) for models in self.federation.models.values())

    def models(self) -> dict[str, Models]:
        """Return the models of each node, with slices in the place of the networks that the method slices.

        What another method has cut is whole again.
        """
        federation, whole = self.federation, self._whole()
        known: dict[tuple[int, str, Capacity], dict[str, Model]] = {}  # equal nodes have one table
        models: dict[str, Models] = {}
        for node, role in federation.topology.roles.items():
            given: Models | None = federation.of(federation.models, node)
            if given is None:
                continue
            own = federation.capacity_of(node)
            key = id(given), role, own
            if key not in known:
                known[key] = self._cut(given, role, own, whole)
            models[node] = known[key]
        return models

    def _cut(self, given: Models, role: str, own: Capacity, whole: Capacity) -> dict[str, Model]:
        """Return the models of a node with slices among them."""
        slices = self.slots.get(role, {})
        made = {slot: uncut(model_of(model)) for slot, model in given.items()}
        return {slot: slices[slot].of(model, own, whole) if slot in slices else model for slot, model in made.items()}

    def _whole(self) -> Capacity:
        """Return the capacity of the first node of the role that leads."""
        federation = self.federation
        leading = federation.method.roles[0]
        return federation.capacity_of(next((n for n, role in federation.topology.roles.items() if role == leading), ""))

    def held(self, receiver: str, sender: str, slot: str) -> Sliceable | None:
        """Return what may travel of the slice that a sender holds of a receiver's model; None: there are no slices."""
        federation = self.federation
        model = (federation.of(federation.models, receiver) or {}).get(slot)
        if model is None or not isinstance(model.build, Cutting):
            return None
        key = receiver, slot, federation.capacity_of(sender)
        if key not in self.sliceable:
            build = replace(model.build, own=key[-1])
            with seeded("only to see what travels"):
                own = Slot(build(), model.parts, model.buffers, model.norms)
            self.sliceable[key] = Sliceable(own.form, form_of(statistics(own.module)))
        return self.sliceable[key]

    def cost(self, node: Node, work: Work) -> float:
        """Return what work on a node's slices costs, as a share of what it costs on the whole network."""
        if not self.slots or not isinstance(work, Fit | Predict):
            return 1.0
        names = work.names if isinstance(work, Fit) else (work.model.partition(".")[0],)
        models = self.federation.of(self.federation.models, node.id) or {}
        rows = node.data[work.data]
        builds = [getattr(models.get(name), "build", None) for name in names]
        if not len(rows) or not any(isinstance(build, Cutting) for build in builds):
            return 1.0
        row = rows.take(torch.zeros(1, dtype=torch.int64)).x
        costs = [build.cost(row) if isinstance(build, Cutting) else 1.0 for build in builds]
        return sum(costs) / len(costs)


def _is_cut(models: Models) -> bool:
    """Return whether some of these are slices of networks."""
    return any(isinstance(model_of(model).build, Cutting) for model in models.values())
