"""What a test draws follows from its name: not from the order of tests, the file it stands in, or the day."""

import random
import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def drawn_by_a_fixture():
    return torch.initial_seed()


def of(name):
    return zlib.crc32(name.encode())


@pytest.mark.parametrize("case", [1, 2])
def test_torch_is_seeded_by_the_name_of_the_test_or_fixture(case, drawn_by_a_fixture):
    assert torch.initial_seed() == of("test_torch_is_seeded_by_the_name_of_the_test_or_fixture")
    assert drawn_by_a_fixture == of("drawn_by_a_fixture")


def collected():
    found = []

    @settings(max_examples=20)
    @given(st.integers())
    def collect(number):
        found.append(number)

    collect()
    return found


def test_hypothesis_draws_the_same_examples_each_time():
    first = collected()
    random.seed()  # otherwise than before
    assert len(first) > 1
    assert collected() == first
