"""Fields of whole numbers and of bytes by node: what they take, and what they refuse."""

import pytest
import torch

from heterophony.kernel.fields import Octets, Refused, Words
from heterophony.kernel.message import Body, Kind

KIND = Kind("masked", to="parent", words=Words, shares=Octets((2, 4)))
WORDS = torch.tensor([1, -(2**63), 2**63 - 1])
SHARES = {"a": torch.tensor([1, 2], dtype=torch.uint8), "b": torch.zeros(4, dtype=torch.uint8)}


def test_they_are_taken_and_counted():
    send = KIND(words=WORDS, shares=SHARES)
    assert KIND.verdict(send.body) == ""
    assert KIND.payload(send.body) == 3 * 8 + 2 + 4
    assert KIND.payload({"words": WORDS.int(), "shares": {}}) == 3 * 4


@pytest.mark.parametrize("words", [torch.zeros(3), torch.zeros(2, 2, dtype=torch.int64), [1, 2], None])
def test_what_are_no_words_is_refused(words):
    assert "expected words" in KIND.verdict(Body({"words": words, "shares": SHARES}))


@pytest.mark.parametrize(
    "shares",
    [
        {"a": torch.zeros(3, dtype=torch.uint8)},
        {"a": torch.zeros(2)},
        {"a": b"xx"},
        {1: torch.zeros(2, dtype=torch.uint8)},
        [torch.zeros(2, dtype=torch.uint8)],
    ],
)
def test_what_are_no_bytes_by_node_is_refused(shares):
    assert "expected" in KIND.verdict(Body({"words": WORDS, "shares": shares}))


def test_a_checker_says_which_sizes_there_are():
    with pytest.raises(Refused, match="'a': expected 2 or 4 bytes"):
        Octets((2, 4)).sound({"a": torch.zeros(1, dtype=torch.uint8)})
