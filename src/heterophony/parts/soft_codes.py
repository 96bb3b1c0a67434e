"""Soft labels in few bits, as the differences from those that were sent before, in as few bytes as deflate makes them.

With b bits, each probability is a whole number of steps of 1 / (2^b - 1), and those of a row still sum to one. One bit
leaves the most likely class. Both ends remember the last labels of each row, so that only what has changed costs much.

A node's variable "own" has the labels that it told last, and "heard" those that others told it, each with their round.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from heterophony.kernel.node import Node
from heterophony.parts.public import PublicRows

PLAIN, DELTA = 0, 1  # the first byte
NEVER = -1  # the round of labels that nobody told
NOTHING: Mapping[str, Any] = {"round": NEVER}


def quantised(probabilities: Tensor, bits: int) -> Tensor:
    """Return the nearest levels (uint8) that sum to 2^bits - 1 in each row.

    All are rounded down. The steps that are missing go to those that lost the most by it.
    """
    steps = 2**bits - 1
    exact = probabilities.double() * steps
    levels: Tensor = exact.floor()
    missing = (steps - levels.sum(-1)).round().long()
    place = (levels - exact).argsort(dim=-1, stable=True).argsort(dim=-1)  # who lost the most comes first
    levels += place < missing.unsqueeze(-1)
    return levels.to(torch.uint8)


def packed(levels: Tensor, bits: int, before: Tensor | None = None) -> Tensor:
    """Return the bytes of these levels, as differences from those `before` where that is shorter."""
    whole = _deflated(PLAIN, _symbols(levels, bits))
    if before is not None:
        base = _base(levels.shape[1], bits)
        delta = _deflated(DELTA, (_symbols(levels, bits) - _symbols(before, bits)) % base)
        whole = min(delta, whole, key=len)
    return torch.tensor(list(whole), dtype=torch.uint8)


def unpacked(code: Tensor, rows: int, classes: int, bits: int, before: Tensor | None = None) -> Tensor | None:
    """Return the levels of so many rows, or None where the bytes are no such labels: a sender may send anything."""
    symbols = _inflated(bytes(code.tolist()), rows * (1 if bits == 1 else classes), classes > 256 and bits == 1)
    if symbols is None or (code[0] == DELTA and before is None):
        return None
    base = _base(classes, bits)
    if code[0] == DELTA and before is not None:
        symbols = (symbols + _symbols(before, bits)) % base
    if bits == 1:
        if rows and int(symbols.max()) >= classes:
            return None
        return torch.nn.functional.one_hot(symbols, classes).to(torch.uint8)
    levels = symbols.view(rows, classes)
    sound = bool((levels.sum(-1) == 2**bits - 1).all())
    return levels.to(torch.uint8) if sound else None


# -- what both ends know -----------------------------------------------------------------------------------------
def last(node: Node) -> int:
    """Return the round of the labels that a node told last."""
    return int(node.vars.get("own", NOTHING)["round"])


def known(node: Node, sender: str) -> int:
    """Return from which round a node knows the labels of a sender."""
    return int(node.vars.get("heard", {}).get(sender, NOTHING)["round"])


def encoded(node: Node, rows: PublicRows, levels: Tensor, bits: int, known: float) -> Tensor:
    """Keep a node's labels of the round's rows, and return their bytes for those who know its labels of that round."""
    before = node.vars.get("own", NOTHING)
    code = packed(levels, bits, _of_rows(node, rows, before) if known == before["round"] else None)
    node.vars["own"] = _renewed(node, rows, before, levels)
    return code


def decoded(node: Node, rows: PublicRows, sender: str, code: Tensor, bits: int) -> Tensor | None:
    """Return the soft labels that these bytes stand for, and keep them; None where they stand for none."""
    heard, public, chosen = node.vars.get("heard", {}), node.data["public"], rows.of(node)
    before = heard.get(sender, NOTHING)
    count = len(public) if chosen is None else len(chosen)
    levels = unpacked(code, count, int(public.classes or 0), bits, _of_rows(node, rows, before))
    if levels is None:
        return None
    node.vars["heard"] = {**heard, sender: _renewed(node, rows, before, levels)}
    labels: Tensor = levels.float() / (2**bits - 1)
    return labels


def _of_rows(node: Node, rows: PublicRows, before: Mapping[str, Any]) -> Tensor | None:
    """Return what was told of the round's rows; None: nothing of any."""
    every: Tensor | None = before.get("levels")
    chosen = rows.of(node)
    if every is None or chosen is None:
        return every
    return every[chosen]


def _renewed(node: Node, rows: PublicRows, before: Mapping[str, Any], levels: Tensor) -> dict[str, Any]:
    """Return what was told of all public rows, with the labels of this round's rows in their places."""
    chosen = rows.of(node)
    if chosen is not None:
        shape = len(node.data["public"]), levels.shape[1]
        every = before["levels"].clone() if "levels" in before else torch.zeros(shape, dtype=torch.uint8)
        every[chosen] = levels
        levels = every
    return {"round": node.round, "levels": levels}


def _symbols(levels: Tensor, bits: int) -> Tensor:
    """Return what is coded: with one bit the class of each row, otherwise each level."""
    return levels.long().argmax(-1) if bits == 1 else levels.long().flatten()


def _base(classes: int, bits: int) -> int:
    """Return how many symbols there are."""
    return classes if bits == 1 else 2**bits


def _deflated(how: int, symbols: Tensor) -> bytes:
    """Return a byte that says how it is coded, and the symbols; symbols of more than a byte, the low bytes first."""
    planes = [symbols % 256, symbols // 256] if len(symbols) and int(symbols.max()) > 255 else [symbols]
    raw = b"".join(plane.to(torch.uint8).numpy().tobytes() for plane in planes)
    return bytes([how]) + zlib.compress(raw, 9)


def _inflated(code: bytes, count: int, wide: bool) -> Tensor | None:
    """Return so many symbols, or None where the bytes hold anything else. No more is inflated than is expected."""
    if not code or code[0] not in (PLAIN, DELTA):
        return None
    most, reader = count * (2 if wide else 1), zlib.decompressobj()
    try:
        raw = reader.decompress(code[1:], most + 1)
    except zlib.error:
        return None
    if len(raw) not in (count, most) or not reader.eof:
        return None
    symbols = torch.tensor(list(raw), dtype=torch.int64)
    return symbols if len(raw) == count else symbols[:count] + 256 * symbols[count:]
