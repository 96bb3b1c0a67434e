"""Against forgetting: local training after which a persistent model still knows what it knew.

`lwof` is learning without forgetting (Shi et al. 2022, Eq. 4). It adds the soft cross-entropy, at temperature `rho`,
with the model's own prediction before the update. That prediction is of images as they are, also where training
augments them. `ewc` is elastic weight consolidation (see `ewc.py`), `packnet` is packing (see `packing.py`). What they
need is kept in the variable "retained", which the method declares. With all off, this is plain training to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from heterophony.data.table import Data
from heterophony.kernel.needs import Need, Serves
from heterophony.kernel.node import Node, copy_into
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.terms import named_terms, sum_of
from heterophony.kernel.work import Fit, Loss, Predict, Steps
from heterophony.parts.ewc import Ewc, faded, fisher
from heterophony.parts.losses import Nets, soft_cross_entropy
from heterophony.parts.packing import Packing, begin_training, end_training
from heterophony.parts.training import Training
from heterophony.parts.transforms import Chain


@dataclass(frozen=True)
class Retention:
    """How a model is held to what it knew: by its outputs, by what mattered, or by weights that stay."""

    lwof: Annotated[float, "weight of learning without forgetting; 0: off"] = 0.0
    rho: Annotated[float, "temperature of learning without forgetting"] = 2.0
    ewc: Annotated[float, "strength of elastic weight consolidation; 0: off"] = 0.0
    decay: Annotated[float, "share of the Fisher information that is kept from one round to the next"] = 0.9
    batches: Annotated[int, "batches over which the Fisher information is taken"] = 4
    packnet: Annotated[float, "share of the free weights that are fixed at the end of a task; 0: off"] = 0.0
    task: Annotated[int, "trainings that make a task of `packnet`; the last is of what will be fixed"] = 5

    def __post_init__(self) -> None:
        if not 0 <= self.packnet <= 1 or self.task < 2:
            given = f"packnet = {self.packnet} and task = {self.task}"
            raise ValueError(f"packnet is a share in [0, 1], and a task has 2 trainings or more, got {given}")
        if min(self.lwof, self.ewc, self.decay) < 0 or self.rho <= 0 or self.batches < 1:
            raise ValueError(f"retention needs weights and decay >= 0, rho > 0 and batches >= 1, got {self}")

    def needs(self, name: str) -> list[Need]:
        """Return what it needs of the data. Learning without forgetting softens predictions of classes."""
        return [Serves(("classification", "sequence", "segmentation"))] if self.lwof else []

    def train(
        self,
        node: Node,
        how: Training,
        models: str | tuple[str, ...],
        loss: Loss,
        matters: Loss | None = None,
        **more: Any,
    ) -> Steps:
        """Train as `how.fit(models, loss, **more)` does, so that the model "model" forgets less.

        The Fisher information is that of the loss. Where the loss asks for more than rows and labels, give another one
        as `matters`.
        """
        plain = matters or loss
        if self.lwof:
            before = yield Predict("model", how.data)
            more["extra"] = {**more.get("extra", {}), "kept": before}
            loss = Remembering(loss, self.lwof, self.rho)
        known = {key: node.vars.get("retained", {}).get(key) for key in ("fisher", "centre")}
        if self.ewc and known["fisher"] is not None:
            more |= _with(Ewc(self.ewc), known, more)
        if self.packnet:
            packed, free = begin_training(node, node.vars.get("retained", {}), self.packnet, self.task)
            more |= _with(Packing(), {"free": free}, more)
        answer = yield how.fit(models, loss, **more)
        if self.packnet:
            node.vars["retained"] = end_training(node, packed, free)
        if self.ewc:
            yield from self.consolidate(node, how, plain)
        return answer

    def consolidate(self, node: Node, how: Training, loss: Loss) -> Steps:
        """Keep what matters now for the next round."""
        new = yield from information(node, how, loss, self.batches)
        if new is None:
            return
        known = node.vars.get("retained", {})
        old = known.get("fisher")
        named = node.models["model"].named_parameters()
        centre = {name: parameter.detach().clone() for name, parameter in named}
        node.vars["retained"] = {**known, "fisher": faded(old, new, self.decay), "centre": centre}


def information(node: Node, how: Training, loss: Loss, count: int) -> Steps:
    """Return the diagonal of the Fisher information of the model "model", from so many batches; None without rows.

    Looking changes nothing: neither statistics nor orders.
    """
    rows, size = len(node.data[how.data]), how.at(node).batch
    epochs, module = dict(node.epochs), node.models["model"]
    buffers = [buffer.clone() for buffer in module.buffers()]
    gradients, sizes = [], []
    for number in range(count):
        some = torch.randperm(rows, generator=node.rng(f"fisher {number}"))[:size]
        look = Fit("model", Watched(loss), how.data, rows=some, optimiser=sgd(0.0), answer="gradient")
        gradients.append((yield look).gradient)
        sizes.append(len(some))
    node.epochs = epochs
    copy_into(module.buffers(), buffers)
    return fisher(gradients, sizes) if rows else None


def _with(part: Ewc | Packing, known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return the order's transform and aux with a part added, behind the transform that the model may have."""
    given = more.get("transform") or {}
    transforms = dict(given) if isinstance(given, dict) else {"model": given}
    if "model" not in transforms:
        return {"transform": {**transforms, "model": part}, "aux": {**more.get("aux", {}), **known}}
    both = Chain(transforms["model"], part)
    return {"transform": {**transforms, "model": both}, "aux": {"first": more.get("aux", {}), "then": known}}


@dataclass(frozen=True)
class Remembering:
    """A loss that adds, for the model "model", LwoF with the column `kept` (its logits before the update)."""

    loss: Loss
    weight: float
    rho: float

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        said: dict[str, Tensor] = {}

        def heard(x: Tensor) -> Tensor:  # so that one forward pass serves both terms
            said["logits"] = nets["model"](x)
            return said["logits"]

        terms = named_terms(self.loss({**nets, "model": heard}, batch), "model")
        old = self.weight * soft_cross_entropy(batch.kept, said["logits"], self.rho)
        return {**terms, "model": {**terms["model"], "lwof": old}}


@dataclass(frozen=True)
class Watched:
    """A loss under another name, so that looking at gradients is not taken for training."""

    loss: Loss

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        terms = named_terms(self.loss(nets, batch), "model")
        return {"model": {"fisher": sum_of({"model": terms["model"]})}}
