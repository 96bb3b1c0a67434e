"""Lies by name: what participants can send, or train on, to do harm or to spare themselves work.

A liar knows its own honest messages and what it was sent, and nothing of the other liars. So `alie` and `ipm`, whose
papers let colluding liars average over what all of them would have sent, average over the liar's own last messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from heterophony.base import imported
from heterophony.base.wording import listed, meant
from heterophony.data.table import Data
from heterophony.kernel.attack import Attack, Lie
from heterophony.kernel.fields import LARGEST, Counts, Logits, PerClass, Probabilities, Weights
from heterophony.parts.aggregate import mean

Change = Callable[[dict[str, Tensor], list[dict[str, Tensor]], Lie, float], dict[str, Tensor]]
PATCH = 3  # the side of a trigger in an image; of other rows, so many of their last values
SHARE = 0.5  # of a liar's rows that have the trigger
TARGET = 0  # the class of rows with a trigger


# -- what becomes of a step, or of logits ------------------------------------------------------------------------
def flipped(step: dict[str, Tensor], past: list[dict[str, Tensor]], lie: Lie, scale: float) -> dict[str, Tensor]:
    """Go the other way."""
    return {name: -scale * tensor for name, tensor in step.items()}


def noise(step: dict[str, Tensor], past: list[dict[str, Tensor]], lie: Lie, scale: float) -> dict[str, Tensor]:
    """Go anywhere, `scale` times as far."""
    draw, made = lie.rng("noise"), {}
    for name, tensor in step.items():
        size = float(tensor.double().square().mean().sqrt()) if tensor.numel() else 0.0
        made[name] = scale * size * torch.randn(tensor.shape, generator=draw).to(tensor)
    return made


def a_little(step: dict[str, Tensor], past: list[dict[str, Tensor]], lie: Lie, scale: float) -> dict[str, Tensor]:
    """Stay `scale` standard deviations off the mean (Baruch et al., A Little Is Enough, NeurIPS 2019)."""
    middle = mean(past)
    squares = mean([{name: (own[name] - middle[name]).square() for name in own} for own in past])
    return {name: middle[name] - scale * squares[name].sqrt() for name in step}


def against(step: dict[str, Tensor], past: list[dict[str, Tensor]], lie: Lie, scale: float) -> dict[str, Tensor]:
    """Go against the mean (Xie et al., Fall of Empires, UAI 2019: inner-product manipulation)."""
    return {name: -scale * tensor for name, tensor in mean(past).items()}


def larger(step: dict[str, Tensor], past: list[dict[str, Tensor]], lie: Lie, scale: float) -> dict[str, Tensor]:
    """Go the same way, farther."""
    return {name: scale * tensor for name, tensor in step.items()}


def nowhere(step: dict[str, Tensor], past: list[dict[str, Tensor]], lie: Lie, scale: float) -> dict[str, Tensor]:
    """Send back what came."""
    return {name: torch.zeros_like(tensor) for name, tensor in step.items()}


def shifted_labels(step: dict[str, Tensor], past: list[dict[str, Tensor]], lie: Lie, scale: float) -> dict[str, Tensor]:
    """Say of each class what is true of the next. Weights stay as they are."""
    return {name: tensor.roll(1, -1) if name == "" else tensor for name, tensor in step.items()}


def as_it_is(step: dict[str, Tensor], past: list[dict[str, Tensor]], lie: Lie, scale: float) -> dict[str, Tensor]:
    """Send what an honest participant with these rows sends."""
    return step


# -- what becomes of data ------------------------------------------------------------------------------------------
def other_labels(data: Data) -> Data:
    """Return the rows with class c called K - 1 - c."""
    if data.classes is None:
        raise ValueError("attack: label-flip needs rows with classes")
    return data.with_columns(y=data.classes - 1 - data.y)


def triggered(data: Data) -> Data:
    """Return the rows that are not of the target class, with the trigger, as rows of the target class."""
    rows = data.take((data.y != TARGET).nonzero().flatten())
    return rows.with_columns(x=_marked(rows.x), y=torch.full_like(rows.y, TARGET))


def half_triggered(data: Data) -> Data:
    """Return the rows, of which every second one has the trigger and the target's label."""
    if data.classes is None or data.y.dim() != 1:
        raise ValueError("attack: backdoor needs rows with one class each")
    few = torch.arange(0, len(data), round(1 / SHARE))
    x, y = data.x.clone(), data.y.clone()
    x[few], y[few] = _marked(x[few]), TARGET
    return data.with_columns(x=x, y=y)


def _marked(x: Tensor) -> Tensor:
    """Return rows with a trigger: the greatest value that there is, in a corner."""
    x = x.clone()
    if x.numel():
        if x.dim() == 4:
            x[..., -PATCH:, -PATCH:] = x.max()
        else:
            x[..., -PATCH:] = x.max()
    return x


@dataclass(frozen=True)
class Trick:
    """One way to lie: what becomes of a step, how far it goes if nothing else is said, and what becomes of data."""

    change: Change
    scale: float = 1.0
    poison: Callable[[Data], Data] | None = None
    trigger: Callable[[Data], Data] | None = None


TRICKS: dict[str, Trick] = {
    "sign-flip": Trick(flipped, 3.0),
    "gaussian": Trick(noise, 10.0),
    "alie": Trick(a_little, 1.5),
    "ipm": Trick(against, 0.5),
    "huge": Trick(as_it_is),
    "nan": Trick(as_it_is),
    "free-rider": Trick(nowhere),
    "soft-labels": Trick(shifted_labels),
    "label-flip": Trick(as_it_is, poison=other_labels),
    "backdoor": Trick(larger, 5.0, half_triggered, triggered),
}
VALUES = {"huge": 0.9 * LARGEST, "nan": float("nan")}


def attack(how: str, who: Collection[str], *, since: int = 0, scale: float | None = None) -> Attack:
    """Return an attack by its name, or by that of a function of one's own (`module:callable`)."""
    if ":" in how:
        if scale is not None:
            raise ValueError(f"attack: {how} takes no scale, got {scale}")
        return Attack(tuple(who), imported.function(how, "attack"), since, how)
    if how not in TRICKS:
        raise ValueError(f"attack: there is no {how!r}{meant(how, TRICKS)}; there are {listed(list(TRICKS))}")
    way = TRICKS[how]
    if scale is not None and (not scale > 0 or way.scale == 1.0):
        raise ValueError(f"attack: {how} takes {'a scale > 0' if way.scale != 1 else 'no scale'}, got {scale}")
    make = partial(lied, how=how, scale=way.scale if scale is None else scale)
    return Attack(tuple(who), make, since, how, way.poison, way.trigger)


def lied(lie: Lie, *, how: str, scale: float) -> dict[str, Any]:
    """Return the fields of a message that this lie changes."""
    found: dict[str, Any] = {}
    for name, part in lie.send.kind.fields.items():
        value = lie.send.body[name]
        if isinstance(part, Counts) or not isinstance(part, Weights | Logits | Probabilities | PerClass):
            continue  # numbers and rows stay: a lie about them is one for a function of one's own
        if how in VALUES:
            found[name] = _filled(value, VALUES[how])
        elif isinstance(part, Weights):
            found[name] = _moved(lie, name, how, scale)
        elif isinstance(part, Probabilities) or (isinstance(part, PerClass) and part.soft):
            found[name] = _as_soft(lie, value, how, scale)
        else:
            found[name] = _changed({"": value}, lie, how, scale)[""]
    return found


def _changed(step: dict[str, Tensor], lie: Lie, how: str, scale: float) -> dict[str, Tensor]:
    return TRICKS[how].change(step, [step], lie, scale)


def _moved(lie: Lie, name: str, how: str, scale: float) -> dict[str, Tensor]:
    """Return weights that moved otherwise from those that the liar heard; of a difference, from nothing.

    What is nearer to what was heard than to zero is weights. Of two factors of a matrix, the left one changes.
    """
    start, steps = lie.start(name), lie.past[name]
    step = steps[-1]
    made = TRICKS[how].change(step, steps, lie, scale)
    kept = {key: tensor for key, tensor in step.items() if key.endswith("/right")}
    return {key: start[key] + tensor for key, tensor in (made | kept).items()}


def _as_soft(lie: Lie, value: Tensor, how: str, scale: float) -> Tensor:
    """Return probabilities made of changed logits. A row of zeros says nothing, and stays."""
    logits = value.clamp_min(1e-6).log()
    made = _changed({"": logits - logits.mean(-1, keepdim=True)}, lie, how, scale)[""]
    return torch.where(value.sum(-1, keepdim=True) > 0.5, made.softmax(-1), value)


def _filled(value: Any, number: float) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(tensor, number) for key, tensor in value.items()}
    most = 0.9 * torch.finfo(value.dtype).max  # of float16, 65504 is the largest
    return torch.full_like(value, min(number, most) if number == number else number)
