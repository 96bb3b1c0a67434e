"""The door of a node outward: what leaves is clipped and noised as its owner says, and charged before it leaves.

It stands where a message is put into an answer, so that every engine has it. Who keeps the account differs: in a
simulation the node itself does, at home a file of the organisation's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from heterophony.base.noise import NoiseSource, Seeded
from heterophony.federation import Federation
from heterophony.kernel.accountant import added, composed, epsilon_of, within
from heterophony.kernel.fields import Counts, PerClass, Probabilities, Scalar, Weights
from heterophony.kernel.mailbox import Inbox, Mail, messages
from heterophony.kernel.message import Body, Kind, Send
from heterophony.kernel.node import Node
from heterophony.kernel.privacy import Charge, Privacy, has_anchor
from heterophony.kernel.work import Fit
from heterophony.parts.own_value import own_value
from heterophony.tables.table import EPSILON

log = logging.getLogger("heterophony.privacy")


class Account(Protocol):
    """Who pays for what leaves, and where the noise comes from."""

    def spend(self, node: Node, charge: Charge, privacy: Privacy | None) -> bool:
        """Charge before anything leaves; return False, and charge nothing, where it would overdraw."""

    def source(self, node: Node, purpose: str) -> NoiseSource:
        """Return where the next noise of a node comes from."""

    def spent(self, node: Node, privacy: Privacy) -> float | None:
        """Return the epsilon that a node has spent; None where that is not for the run's tables."""


class InNode:
    """The account of a simulation: in the node's own state, so that a resumed run goes on from it."""

    def spend(self, node: Node, charge: Charge, privacy: Privacy | None) -> bool:
        charges = added((Charge(*one) for one in node.account.get("charges", ())), charge)
        if privacy is not None:
            assert privacy.budget is not None
            assert privacy.delta is not None
            if not within(composed(charges), privacy.budget, privacy.delta):
                return False
        node.account["charges"] = [list(one) for one in charges]
        return True

    def source(self, node: Node, purpose: str) -> NoiseSource:
        """Return noise that follows from the seed and the node's own counter: rounds are the coordinator's to say."""
        number = node.account.get("drawn", 0)
        node.account["drawn"] = number + 1
        return Seeded(node.seed, node.id, "noise", purpose, number)

    def spent(self, node: Node, privacy: Privacy) -> float | None:
        assert privacy.delta is not None
        return epsilon_of(composed(Charge(*one) for one in node.account.get("charges", ())), privacy.delta)


class Outward:
    """Clips, noises and charges what nodes send, as the federation says for each."""

    def __init__(self, federation: Federation, account: Account | None = None) -> None:
        self.federation, self.account = federation, account or InNode()
        self.told: set[str] = set()  # nodes of which it was said that their budget is spent
        self.charged: set[str] = set()  # nodes that have been charged in their present reaction

    def privacy(self, node: Node) -> Privacy | None:
        return self.federation.private(node.id)

    def out(self, node: Node, send: Send, mail: Mail) -> Send:
        """Return a message as it may leave: clipped and noised, or withheld where it would overdraw the budget."""
        privacy = self.privacy(node)
        if node.account.get("muted"):  # its training was not paid for
            return self._withheld(send)
        allowed = self.federation.egress.get(node.id)
        stays = allowed is not None and send.kind.name not in allowed and send.kind in self.federation.method.kinds
        if privacy is None or privacy.central or stays or not send.to or not privacy.protects(send.kind.name):
            return send
        if send.withheld or send.kind not in self.federation.method.told:  # a protocol's: it holds nothing in the open
            return send
        charge = privacy.charge(send.kind)
        if charge is None:
            return send if not send.kind.fields else replace(send, body=noised(send.kind, send.body, privacy))
        if not self._spend(node, charge, privacy):
            return self._withheld(send)
        source = self.account.source(node, send.kind.name)
        body = noised(send.kind, send.body, privacy, anchors(send.kind, mail), source)
        return replace(send, body=body)

    def begin(self, node: Node, mail: Mail) -> Mail:
        """Begin a reaction. A trusted node reads the noised mean of what its children sent in place of each."""
        node.account.pop("muted", None)
        privacy = self.privacy(node)
        if privacy is None or not privacy.central or not isinstance(mail, Inbox) or not mail:
            return mail
        kind = self._kind(mail[0].kind)
        if not privacy.protects(kind.name):
            return mail
        charge = privacy.charge(kind)
        if charge is not None and not self._spend(node, charge, privacy):
            return Inbox()
        body = mean(kind, mail, privacy, self._own(node, kind), self.account.source(node, kind.name))
        return Inbox(replace(message, body=body) for message in mail)

    def fit(self, node: Node, work: Fit) -> Fit:
        """Return private training with the noise that it takes; without a step, where it would overdraw the budget.

        Nothing that the same reaction then sends leaves.
        """
        if work.private is None:
            return work
        steps = len(work.sizes(node))
        rows = len(node.data[work.data]) if work.rows is None else len(work.rows)
        if not steps:
            return work
        assert work.private.noise is not None
        noise = own_value(work.private.noise, node)  # a table by node is asked here
        if noise is None:
            raise ValueError(f"private.noise has no value for {node.id}: give one, or one for '*'")
        charge = Charge("training", noise, min(1.0, (work.batch or rows) / rows), steps)
        if not self._spend(node, charge, self.privacy(node)):
            node.account["muted"] = True
            return replace(work, steps=0, private=None)
        own = replace(work.private, noise=noise)
        return replace(work, private=own, source=self.account.source(node, "training"))

    def end(self, node: Node, time: float) -> list[dict[str, Any]]:
        """End a reaction. Return a row for the run's table where something was charged."""
        node.account.pop("muted", None)
        privacy = self.privacy(node)
        if node.id not in self.charged or privacy is None:
            return []
        self.charged.discard(node.id)
        spent = self.account.spent(node, privacy)
        if spent is None:
            return []
        place = {"round": node.round, "time": time, "product": "note", "node": node.id, "set": "", "split": ""}
        return [{**place, "quantity": EPSILON, "sum": spent, "n": 1}]

    def _spend(self, node: Node, charge: Charge, privacy: Privacy | None) -> bool:
        paid = self.account.spend(node, charge, privacy)
        if paid:
            self.charged.add(node.id)
        else:
            self._say(node)
        return paid

    def _kind(self, name: str) -> Kind:
        return next(kind for kind in self.federation.method.told if kind.name == name)

    def _own(self, node: Node, kind: Kind) -> dict[str, Mapping[str, Tensor]]:
        """Return the node's own weights, from which its children's differ: it makes them of noised means alone."""
        found: dict[str, Mapping[str, Tensor]] = {}
        for name, field in kind.fields.items():
            if has_anchor(field) and isinstance(field, Weights) and (field.model or "") in node.slots:
                found[name] = node.weights(field.model or "")
        return found

    def _withheld(self, send: Send) -> Send:
        return replace(send, body=Body({}), withheld=True)

    def _say(self, node: Node) -> None:
        if node.id not in self.told:
            self.told.add(node.id)
            log.warning("%s: the privacy budget is spent: what would overdraw it is withheld from now on", node.id)


def anchors(kind: Kind, mail: Mail) -> dict[str, Mapping[str, Tensor]]:
    """Return what was received under the names of a kind's weights: differences from it are clipped.

    Whoever gets the difference knows it, so that taking it away tells nothing.
    """
    found: dict[str, Mapping[str, Tensor]] = {}
    for message in messages(mail):
        for name, field in kind.fields.items():
            value = message.body.get(name)
            if has_anchor(field) and isinstance(value, Mapping) and name not in found:
                found[name] = value
    return found


def noised(
    kind: Kind,
    body: Mapping[str, Any],
    privacy: Privacy,
    received: Mapping[str, Mapping[str, Tensor]] | None = None,
    source: NoiseSource | None = None,
) -> Body:
    """Return a body whose fields are clipped and have noise. A head count without a clip is one."""
    clips = privacy.noised(kind)
    made: dict[str, Any] = {}
    for name, field in kind.fields.items():
        if name in clips:
            assert source is not None
            assert privacy.noise is not None
            differs = _clipped(body[name], clips[name], (received or {}).get(name))
            made[name] = _settled(field, _with_noise(differs, privacy.noise * clips[name], source))
        else:
            made[name] = 1.0 if isinstance(field, Scalar) else body[name]
    return _consistent(kind, made)


def mean(
    kind: Kind, mail: Inbox, privacy: Privacy, own: Mapping[str, Mapping[str, Tensor]], source: NoiseSource
) -> Body:
    """Return the plain mean of clipped bodies, with the noise of one of them divided by how many they are."""
    clips = privacy.noised(kind)
    made: dict[str, Any] = {}
    for name, field in kind.fields.items():
        if name not in clips:
            made[name] = 1.0 if isinstance(field, Scalar) else mail[0].body[name]
            continue
        assert privacy.noise is not None
        total: _Values | None = None  # added up one by one: all of a large cohort would not fit into memory
        for message in mail:
            value = _clipped(message.body[name], clips[name], own.get(name))
            if total is not None:
                value.numbers += total.numbers.to(value.numbers.device)
            total = value
        assert total is not None
        middle = _Values(total.numbers / len(mail), total.like, total.anchor)
        made[name] = _settled(field, _with_noise(middle, privacy.noise * clips[name] / len(mail), source))
    return _consistent(kind, made)


class _Values:
    """The numbers of one field as one vector of doubles, where the field is, and what they are put back into."""

    def __init__(self, numbers: Tensor, like: Any, anchor: Mapping[str, Tensor] | None) -> None:
        self.numbers, self.like, self.anchor = numbers, like, anchor


def _clipped(value: Any, clip: float, anchor: Mapping[str, Tensor] | None) -> _Values:
    """Return a field's numbers, made shorter where together they are longer than the clip."""
    if isinstance(value, Mapping):
        known = anchor if anchor is not None and _alike(value, anchor) else None
        numbers = _flat(value.values())
        if known is not None:
            numbers = numbers - _flat(known[name] for name in value).to(numbers.device)
        anchor = known
    elif isinstance(value, Tensor):
        numbers, anchor = value.detach().double().flatten(), None
    else:
        numbers, anchor = torch.tensor([float(value)], dtype=torch.float64), None
    numbers = torch.nan_to_num(numbers)  # a network that has diverged must not tell it through its noise
    length = float(torch.linalg.vector_norm(numbers))
    if length > clip:
        numbers = numbers * (clip / length)
    return _Values(numbers, value, anchor)


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    """Return tensors as one vector of doubles, where they are."""
    parts = [tensor.detach().double().flatten() for tensor in tensors]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)


def _alike(value: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return value.keys() == other.keys() and all(value[name].shape == other[name].shape for name in value)


def _with_noise(values: _Values, deviation: float, source: NoiseSource) -> Any:
    """Return a field's value with noise, in its own form."""
    noise = deviation * source.normal(values.numbers.numel())  # drawn on the CPU, so that it is the same everywhere
    numbers = values.numbers + noise.to(values.numbers.device)
    like = values.like
    if isinstance(like, Tensor):
        return numbers.view(like.shape).to(like.dtype)
    if not isinstance(like, Mapping):
        return float(numbers)
    made, at = {}, 0
    for name, tensor in like.items():
        part = numbers[at : at + tensor.numel()].view(tensor.shape)
        if values.anchor is not None:
            part = part + values.anchor[name].detach().to(part.device, torch.float64)
        made[name] = part.to(tensor.dtype).to(tensor.device)
        at += tensor.numel()
    return made


def _settled(field: Any, value: Any) -> Any:
    """Return a noised value as its field declares it. What is done here reads nothing but the noised value."""
    if isinstance(field, Scalar):
        return min(max(value, field.low), field.high)
    if isinstance(field, Counts):
        return value.round().clamp(min=0)
    if isinstance(field, Probabilities):
        return _shares(value)
    if isinstance(field, PerClass) and field.soft and value.numel():
        return _shares(value)
    return value


def _shares(value: Tensor) -> Tensor:
    """Return rows that are probabilities: what is below zero is zero, and each row adds up to one."""
    kept = value.clamp(min=0)
    total = kept.sum(-1, keepdim=True)
    even = torch.full_like(kept, 1 / max(1, kept.shape[-1]))
    return torch.where(total > 0, kept / total.clamp(min=torch.finfo(kept.dtype).tiny), even)


def _consistent(kind: Kind, made: dict[str, Any]) -> Body:
    """Return the body. A mean of no examples, by the noised counts, is a row of zeros."""
    for name, field in kind.fields.items():
        if isinstance(field, PerClass) and field.rows is not None and len(made[name]) == len(made[field.rows]):
            held = made[field.rows] > 0
            made[name] = made[name] * held.to(made[name].dtype).unsqueeze(-1)
    return Body({name: kind.fields[name].freeze(value) for name, value in made.items()})
