"""Clients that advise each other on unlabelled rows (FedMatch): what is learnt from helpers, and who they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from heterophony.data.augment import CropFlip
from heterophony.data.table import Data
from heterophony.kernel.work import Named
from heterophony.parts.losses import Nets


@dataclass(frozen=True)
class InterClientConsistency:
    """The loss on unlabelled rows: a network should say what its helpers say, and the same of a changed row."""

    helpers: tuple[str, ...]
    confidence: float
    consistency: float
    agreement: float
    crop: CropFlip | None

    def __call__(self, nets: Nets, batch: Data) -> dict[str, dict[str, Tensor]]:
        own = nets["model"](batch.x).log_softmax(-1)
        advice = [nets[name](batch.x).log_softmax(-1) for name in self.helpers]
        # Only rows whose likeliest class has enough confidence count: the loss is their mean.
        sure = (own.detach().amax(-1).exp() >= self.confidence).to(own)
        share = sure / sure.sum().clamp_min(1)

        votes = voted(own.detach())
        for helper in advice:
            votes = votes + voted(helper)
        x = batch.x if self.crop is None else self.crop.apply(batch.x, batch.crop)
        changed = nets["model"](x).log_softmax(-1)
        log_likelihood = (voted(votes) * changed).sum(-1)
        terms = {"agreement": -self.agreement * (share * log_likelihood).sum()}

        if advice:
            apart = torch.zeros_like(share)
            for helper in advice:
                apart = apart + (helper.exp() * (helper - own)).sum(-1)
            terms["consistency"] = self.consistency * (share * (apart / len(advice))).sum()
        return {"model": terms}


def voted(scores: Tensor) -> Tensor:
    """Return one for the class with the highest score, the first of equals, and zero for the others."""
    return (scores.argmax(-1, keepdim=True) == torch.arange(scores.shape[-1], device=scores.device)).to(scores)


def nearest(known: Mapping[str, tuple[Named, Tensor]], client: str, count: int) -> list[str]:
    """Return the other clients whose answers to the probe are nearest to a client's; none for one that is not known."""
    if client not in known:
        return []
    own = known[client][1]
    gaps = {}
    for name, (_, answer) in known.items():
        if name != client:
            gap = float((answer - own).norm())
            gaps[name] = gap if math.isfinite(gap) else math.inf  # of a network that diverged: last
    return sorted(gaps, key=lambda name: (gaps[name], name))[:count]
