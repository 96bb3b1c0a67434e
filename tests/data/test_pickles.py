"""The unpickler that runs nothing."""

import collections
import pickle
import struct

import numpy as np
import pytest

from heterophony.data import DataError
from heterophony.data.sources.pickles import loads


def test_plain_containers_and_byte_arrays_pass():
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for protocol in (0, 1, 2):
        content = loads(pickle.dumps({"data": array, "labels": [1, 2], "name": "x", "raw": b"\xff"}, protocol))
        assert np.array_equal(content["data"], array)
        assert content["labels"] == [1, 2]
        assert content["raw"] == b"\xff"


class Calls:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "content",
    [
        {"data": Calls(eval, "1 + 1")},
        {"data": Calls(open, "/dev/null")},
        {"data": Calls(getattr, "text", "format")},
        {"data": Calls(np.frombuffer, b"abc")},
        {"data": collections.OrderedDict()},
        {"data": np.arange(3)},
        {"data": np.array([object()])},
        {"data": np.asfortranarray(np.zeros((2, 2), np.uint8))},
        [1, 2],
    ],
)
def test_everything_else_is_refused(content):
    with pytest.raises(DataError):
        loads(pickle.dumps(content, protocol=2))


@pytest.mark.parametrize(
    "data",
    [
        # GLOBAL, then the same through STACK_GLOBAL, INST and an extension code.
        b"cposix\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
        b"(S'true'\niposix\nsystem\n.",
        b"Psomething\n.",
        b"cbuiltins\ngetattr\n.",
    ],
)
def test_hand_written_attacks_are_refused(data):
    with pytest.raises(DataError, match="do not trust this file"):
        loads(data)


def test_an_array_that_lies_about_its_shape_is_refused():
    good = pickle.dumps({"data": np.zeros((2, 3), np.uint8)}, protocol=2)
    assert good.count(b"K\x02K\x03\x86") == 1
    with pytest.raises(DataError, match="with 6 bytes"):
        loads(good.replace(b"K\x02K\x03\x86", b"K\x09K\x03\x86"))


def test_stand_ins_cannot_be_turned_into_something_else():
    # BUILD on the stand-in class itself, with a state that tries to replace its methods.
    attack = b"\x80\x02}U\x04datacnumpy\nndarray\nN}U\x0c__setstate__c_codecs\nencode\ns\x86bs."
    with pytest.raises((DataError, TypeError)):
        loads(attack)
    assert np.array_equal(loads(pickle.dumps({"a": np.ones(2, np.uint8)}, 2))["a"], [1, 1])


def test_a_cut_file_is_an_ordinary_error():
    data = pickle.dumps({"data": np.zeros(4, np.uint8)}, protocol=2)
    for end in range(len(data)):
        with pytest.raises((DataError, EOFError, pickle.UnpicklingError, struct.error, ValueError, IndexError)):
            loads(data[:end])
