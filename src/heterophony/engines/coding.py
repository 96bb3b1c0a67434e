"""The coder at a node's door: weights that leave are put into few bits, and those that arrive become weights again.

It comes last on the way out and first on the way in, so that a method's reactions see weights as ever. What it
remembers from one message to the next is part of the node's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from heterophony.base.seeds import generator
from heterophony.federation import Federation
from heterophony.kernel.compression import Coded, Compression, flattened, partners, restored, sizes_of
from heterophony.kernel.fields import form_of
from heterophony.kernel.mailbox import Mail, messages, swapped
from heterophony.kernel.message import Body, Message, Send
from heterophony.kernel.node import Node


class Coder:
    """Codes and decodes the kinds of message that a federation compresses."""

    def __init__(self, federation: Federation) -> None:
        self.kinds = federation.kinds
        self.up: dict[str, set[str]] = {}  # by kind, the fields that are sent as differences
        self.down: dict[str, dict[str, list[str]]] = {}  # by kind and field, the kinds that are differences from it
        for name, how in federation.compress.items():
            kind = next(kind for kind in federation.method.kinds if kind.name == name)
            for field, bringing in partners(federation.method, kind).items() if how.delta else ():
                self.up.setdefault(name, set()).add(field)
                for bringer in bringing:
                    self.down.setdefault(bringer, {}).setdefault(field, []).append(name)

    # -- in --------------------------------------------------------------------------------------------------
    def begin(self, node: Node, mail: Mail) -> Mail:
        """Return the mail with weights in place of codes. Remember of it what a difference will be from."""
        mail = swapped(mail, lambda message: self._decoded(node, message))
        for message in messages(mail):
            for field, kinds in self.down.get(message.kind, {}).items():
                for kind in kinds:
                    node.coded[f"heard/{kind}/{field}"] = message.body[field]
        return mail

    def _decoded(self, node: Node, message: Message) -> Body:
        fields = _coded_fields(self.kinds[message.kind].fields)
        made = {}
        for name, part in fields.items():
            form = node.slots[part.whole.model or ""].form
            numbers = part.how.decoded(message.body[name], sum(sizes_of(form)))
            base = self._sent_to(node, message, name)
            made[name] = restored(numbers if base is None else flattened(base) + numbers, form, node.device)
        return Body({**message.body, **made}) if made else message.body

    def _sent_to(self, node: Node, message: Message, field: str) -> Mapping[str, Tensor] | None:
        """Return what a difference is from: what its sender was sent last. None: it is no difference."""
        if field not in self.up.get(message.kind, ()):
            return None
        sent = node.coded.get(f"sent/{message.kind}/{field}", {"to": {}})
        place = sent["to"].get(message.sender)
        found: Mapping[str, Tensor] | None = None if place is None else sent["bodies"][place]
        return found  # whoever was sent nothing answers with weights, as it has nothing to take them from

    # -- out -------------------------------------------------------------------------------------------------
    def out(self, node: Node, send: Send, number: int, index: int) -> Send:
        """Return a message as it travels. `number` is that of the node's reaction, `index` that of its message."""
        if send.withheld:
            return send
        kind, body = self.kinds.get(send.kind.name, send.kind), dict(send.body)
        seen = dict(send.body)  # as its receivers will see it
        for name, part in _coded_fields(kind.fields).items():
            draw = generator(node.seed, node.id, "bits", kind.name, name, number, index)
            form = form_of(body[name])
            sizes, numbers = sizes_of(form), flattened(body[name])
            if name in self.up.get(kind.name, ()):
                numbers = numbers - self._heard(node, kind.name, name, len(numbers))
            assert send.round is not None
            body[name] = self._coded(node, part.how, f"{kind.name}/{name}", numbers, sizes, send.round, draw)
            if kind.name in self.down:
                seen[name] = restored(part.how.decoded(body[name], sum(sizes)), form, node.device)
        self._remember(node, send, seen)
        return replace(send, kind=kind, body=Body(body)) if kind is not send.kind else send

    def _heard(self, node: Node, kind: str, field: str, length: int) -> Tensor:
        """Return what the node was sent, once: it is forgotten then."""
        found = node.coded.pop(f"heard/{kind}/{field}", None)
        if found is None:
            raise ValueError(f"compress: {kind!r} is to be a difference, but {node.id} was sent no {field!r} before it")
        base = flattened(found)
        if len(base) != length:
            raise ValueError(
                f"compress: {kind!r} of {node.id} has {length} numbers, and it was sent {len(base)}: leave delta out"
            )
        return base

    def _coded(
        self,
        node: Node,
        how: Compression,
        name: str,
        numbers: Tensor,
        sizes: list[int],
        round: int,
        draw: torch.Generator,
    ) -> dict[str, Tensor]:
        """Code a vector. With feedback, what was lost before goes in, and what is lost now is remembered."""
        if not how.feedback:
            return how.coded(numbers, sizes, round, draw)
        lost, speed = f"lost/{name}", f"speed/{name}"
        pushed = numbers
        if how.momentum:
            pushed = numbers + how.momentum * node.coded.get(speed, torch.zeros(()))
        wanted = pushed + node.coded.get(lost, torch.zeros(()))
        coded = how.coded(wanted, sizes, round, draw)
        rest = wanted - how.decoded(coded, len(wanted))
        node.coded[lost] = torch.where(rest.isfinite(), rest, torch.zeros(()))  # what has diverged is not kept
        if how.momentum:
            if how.sparse:  # momentum factor masking
                pushed = pushed.index_fill(0, coded["positions"].long(), 0.0)
            node.coded[speed] = torch.where(pushed.isfinite(), pushed, torch.zeros(()))
        return coded

    def _remember(self, node: Node, send: Send, seen: Mapping[str, Any]) -> None:
        """Remember what was sent to whom, as long as answers of that round may come."""
        for field, kinds in self.down.get(send.kind.name, {}).items():
            for kind in kinds:
                key = f"sent/{kind}/{field}"
                sent = node.coded.get(key)
                if sent is None or sent["round"] != send.round:
                    sent = {"round": send.round, "bodies": [], "to": {}}
                places = dict.fromkeys(send.to or (), len(sent["bodies"]))
                bodies = [*sent["bodies"], seen[field]]
                node.coded[key] = {"round": send.round, "bodies": bodies, "to": {**sent["to"], **places}}


def _coded_fields(fields: Mapping[str, Any]) -> dict[str, Coded]:
    return {name: part for name, part in fields.items() if isinstance(part, Coded)}
