"""TOML: what is written is read back as it was, and a file that is none is refused in one line."""

import math
import tomllib

import pytest

from heterophony.base import toml


def test_values_are_written_as_toml_reads_them():
    values = {"a.b": 0.1, "turns": {"leaf": 2, "*": 1}, "words": ['q"', "ä"], "on": True, "n": 1e-7}
    values |= {"lines": "a\nb\t\x7f\x01\\", "é": 1, "far": [math.inf, -math.inf], "face": "😀", "": {}, "none": []}
    assert tomllib.loads(f"v = {toml.value(values)}")["v"] == values
    assert tomllib.loads(toml.written(values)) == values
    assert tomllib.loads(f"v = {toml.value(math.nan)}")["v"] != 0


def test_tables_within_tables_and_comments():
    values = {"a": {"b.c": {"x": 1}, "d": {}}, "n": 2, "gone": None}
    text = toml.written(values, {"n": "why"})
    assert "n = 2  # why" in text
    assert tomllib.loads(text) == {"a": {"b.c": {"x": 1}, "d": {}}, "n": 2}
    with pytest.raises(ValueError, match="cannot be written as TOML"):
        toml.value(object())


@pytest.mark.parametrize(
    ("data", "why"), [(None, "no such file"), (b"\xff\xfe", "not a text file in UTF-8"), (b"a = ", "not TOML")]
)
def test_a_file_that_is_none_is_one_line(data, why, tmp_path):
    path = tmp_path / "some.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(LookupError, match=rf"some\.toml: {why}") as caught:
        toml.parsed(toml.text(path, Odd), path, Odd)
    assert "\n" not in str(caught.value)


class Odd(LookupError, ValueError):
    pass
