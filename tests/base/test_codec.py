"""Encoding: every value comes back to the bit, its size is known beforehand, and no bytes can do harm."""

import json
import math
import struct
import tracemalloc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony.base import codec

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    seed = draw(st.integers(0, 2**31))
    values = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(draw(st.sampled_from(DTYPES)))


leaves = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(), tensors())
keys = st.text().filter(lambda key: key != "$")
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@given(values)
def test_a_value_comes_back_to_the_bit(value):
    assert equal(codec.unpack(codec.pack(value)), value)


@given(values)
def test_the_size_is_known_without_encoding(value):
    assert codec.packed_size(value) == len(codec.pack(value))


def test_views_and_tied_weights_are_written_as_what_they_show():
    base = torch.arange(12.0).reshape(3, 4)
    value = {"view": base[1:, ::2], "same": base, "again": base, "turned": base.T}
    back = codec.unpack(codec.pack(value))
    assert all(torch.equal(back[key], value[key]) for key in value)
    assert codec.packed_size(value) == len(codec.pack(value))


@pytest.mark.parametrize("value", [{1: 2}, {"$": 1}, {1, 2}, object(), b"bytes", lambda: 0])
def test_only_plain_values_can_be_written(value):
    with pytest.raises(TypeError):
        codec.pack(value)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    with pytest.raises(codec.Malformed):
        codec.unpack(data)


@settings(max_examples=400)
@given(values, st.data())
def test_damaged_bytes_give_a_value_or_a_clear_refusal(value, data):
    """Flip, cut or repeat bytes anywhere: the decoder answers with a plain value or with Malformed, never otherwise."""
    packed = bytearray(codec.pack(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(packed) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "repeat"])):
            case "flip":
                packed[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del packed[at : at + data.draw(st.integers(1, 8))]
            case "repeat":
                packed[at:at] = packed[at : at + 8]
        if not packed:
            return
    try:
        back = codec.unpack(bytes(packed))
    except codec.Malformed:
        return
    codec.pack(back)


def header(text: str, block: bytes = b"") -> bytes:
    raw = text.encode()
    return struct.pack("<4sI", codec.MAGIC, len(raw)) + raw + block


def test_a_multitude_of_empty_tensors_is_refused_before_they_are_made():
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    text = json.dumps({str(i): entry for i in range(2000)}).encode()
    data = struct.pack("<4sI", codec.MAGIC, 2) + b"{}" + struct.pack("<Q", len(text)) + text
    with pytest.raises(codec.Malformed, match="2000 tensors that the header does not name"):
        codec.unpack(data, header_limit=len(text) // 8 + 1)
    with pytest.raises(codec.Malformed, match=r"a header of tensors of \d+ bytes, the limit is"):
        codec.unpack(data, header_limit=len(text) // 8 - 1)


def test_names_that_fit_the_header_fit_that_of_the_tensors():
    """The shortest names, the longest shapes: what we write within a limit, we read within it."""
    many = {f"{i:x}": torch.zeros(1, 1, 1, 1, 1, 1, 0, dtype=torch.bfloat16) for i in range(3000)}
    data = codec.pack(many)
    _, length = struct.unpack_from("<4sI", data)
    assert len(codec.unpack(data, header_limit=length)) == 3000


def test_nothing_beyond_the_limit_is_allocated():
    """A short message that claims to be huge, in its own header or in that of safetensors, is refused cheaply."""
    big = {"0": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    claim = json.dumps(big).encode()
    attacks = [
        struct.pack("<4sI", codec.MAGIC, 2**32 - 1) + b"{}",
        header('{"$":0}', struct.pack("<Q", len(claim)) + claim),
        header('{"$":0}', struct.pack("<Q", 2**60)),
        header("[" * 200_000 + "]" * 200_000),
        header('{"$":[{"$":0},{"$":0}]}', codec.pack(torch.zeros(4))[15:]),
    ]
    for attack in attacks:
        tracemalloc.start()
        with pytest.raises(codec.Malformed):
            codec.unpack(attack)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 64 * 2**20
    with pytest.raises(codec.Malformed, match="limit"):
        codec.unpack(codec.pack(torch.zeros(1000)), limit=100)


@pytest.mark.parametrize("value", [{0: torch.zeros(2)}, {"$": torch.zeros(2)}, {"a": {1: torch.zeros(1)}}])
def test_keys_are_checked_by_the_size_as_by_the_writing(value):
    for what in (codec.pack, codec.packed_size):
        with pytest.raises(TypeError, match="a key must be a string"):
            what(value)


def test_tensors_begin_where_torch_would_let_them_begin():
    """Products of what begins between two words round otherwise, so that a resumed run would be another one."""
    found = codec.unpack(codec.pack([torch.arange(float(n)) for n in range(1, 60)]))
    assert {tensor.data_ptr() % 64 for tensor in found} == {torch.empty(3).data_ptr() % 64} == {0}


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_one_tensor_are_written_as_they_are_and_not_copied_first(dtype, monkeypatch):
    """So are the weights of a message; only what stands in the same place twice needs a copy."""
    whole = (torch.randn(64) > 0).to(dtype) if dtype is torch.bool else (torch.randn(64) * 9).to(dtype)
    parts = {"a": whole[:8].view(2, 4), "b": whole[8:9].view(()), "c": whole[9:33].view(2, 3, 4), "none": whole[:0]}
    wanted = codec.pack({name: part.clone() for name, part in parts.items()})
    copies = []
    clone = torch.Tensor.clone
    monkeypatch.setattr(torch.Tensor, "clone", lambda part, **how: (copies.append(part), clone(part, **how))[1])
    assert codec.pack(parts) == wanted
    assert [len(part) for part in copies] == [0]
    tied = {"a": whole[:8], "again": whole[:8], "first": whole[:4], "turned": whole[:6].view(2, 3).t()}
    found = codec.unpack(codec.pack(tied))
    assert all(torch.equal(found[name], part) for name, part in tied.items())


def test_a_fingerprint_tells_all_that_bytes_tell():
    value = {"a": torch.arange(6.0), "b": [1, "x", (2.5, None)], "c": torch.zeros(0), "d": torch.tensor(3)}
    others = [
        {**value, "a": torch.arange(6.0).view(2, 3)},
        {**value, "a": torch.arange(6.0).double()},
        {**value, "a": -torch.arange(6.0)},  # its first is a zero, too
        {**value, "b": [1, "x", [2.5, None]]},
        {**value, "c": torch.zeros(0, 2)},
        {**value, "d": torch.tensor(4)},
        {**value, "e": 1},
    ]
    found = {codec.fingerprint(other) for other in [value, *others]}
    assert len(found) == 1 + len(others)
    whole = torch.stack([torch.arange(6.0), torch.zeros(6)], 1)
    assert codec.fingerprint({**value, "a": whole[:, 0]}) == codec.fingerprint(value)
