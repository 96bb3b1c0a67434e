"""Stored images to tensors, and rotation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony.data import DataError, load, rotate, to_data, to_tensor
from heterophony.data import images as images_module

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 28, 28, 1), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)


def test_the_default_is_minus_one_to_one():
    x = to_tensor(np.array([0, 255, 51], dtype=np.uint8).reshape(1, 1, 3, 1))
    assert x.dtype == torch.float32
    assert torch.equal(x, torch.tensor([-1.0, 1.0, -0.6]).reshape(1, 1, 1, 3))


def test_channels_go_in_front():
    x = to_tensor(COLOUR, mean=0.0, std=1.0)
    assert x.shape == (5, 3, 32, 32)
    assert torch.equal(x, torch.from_numpy(COLOUR).permute(0, 3, 1, 2).float() / 255)


def test_data_has_labels_and_classes():
    data = to_data(GREY, np.arange(5, dtype=np.int32), classes=10)
    assert data.y.dtype == torch.int64
    assert data.classes == 10
    assert len(data) == 5


def test_grey_to_colour_and_back():
    grey = to_tensor(GREY)
    colour = to_tensor(GREY, channels=3)
    assert colour.shape == (5, 3, 28, 28)
    assert all(torch.equal(colour[:, i : i + 1], grey) for i in range(3))
    same = np.repeat(GREY, 3, axis=3)
    assert torch.allclose(to_tensor(same, channels=1), grey, atol=1e-6)
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    by_hand = (torch.from_numpy(COLOUR).permute(0, 3, 1, 2) / 255 * weights).sum(1, keepdim=True)
    assert torch.allclose(to_tensor(COLOUR, channels=1, mean=0, std=1), by_hand, atol=1e-6)


def test_constants_by_channel():
    x = to_tensor(COLOUR, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    raw = to_tensor(COLOUR, mean=0.0, std=1.0)
    assert torch.allclose(x[:, 2], (raw[:, 2] - 0.3) / 4)


def test_resizing():
    assert to_tensor(GREY, side=32, channels=3).shape == (5, 3, 32, 32)
    assert torch.equal(to_tensor(GREY, side=28), to_tensor(GREY))
    flat = np.full((2, 28, 28, 1), 77, np.uint8)
    assert torch.allclose(to_tensor(flat, side=32, mean=0, std=1), torch.tensor(77 / 255), atol=1e-6)
    # Halving averages: the sum of the picture is kept but for its border.
    half = to_tensor(COLOUR, side=16, mean=0, std=1)
    assert abs(half.mean() - to_tensor(COLOUR, mean=0, std=1).mean()) < 0.01


def test_blocks_do_not_show(monkeypatch):
    options = {"side": 16, "channels": 3, "degrees": 33.0}
    whole = to_tensor(GREY, **options)
    monkeypatch.setattr(images_module, "_BLOCK", 2)
    assert torch.equal(to_tensor(GREY, **options), whole)


def test_no_images_are_no_problem():
    assert to_tensor(GREY[:0], side=32, channels=3, degrees=20).shape == (0, 3, 32, 32)


@pytest.mark.parametrize(
    ("images", "options", "text"),
    [
        (GREY.astype(np.float32), {}, "must be uint8"),
        (GREY[..., 0], {}, "must be uint8 of shape"),
        (GREY, {"channels": 2}, "1 or 3 channels"),
        (GREY, {"side": 0}, "positive side"),
        (GREY, {"std": 0.0}, "std must be positive"),
        (GREY, {"mean": (0.1, 0.2)}, "mean must be one number"),
        (GREY, {"degrees": float("nan")}, "finite"),
    ],
)
def test_wrong_calls_are_refused(images, options, text):
    with pytest.raises(DataError, match=text):
        to_tensor(images, **options)


@pytest.mark.parametrize("degrees", [0, 0.0, 360, -360, 720])
def test_no_turn_is_exactly_the_identity(degrees):
    x = torch.rand(3, 1, 28, 28)
    assert torch.equal(rotate(x, degrees), x)
    assert torch.equal(to_tensor(GREY, degrees=degrees), to_tensor(GREY))


@pytest.mark.parametrize("side", [1, 2, 27, 28, 64])
@pytest.mark.parametrize("quarters", [1, 2, 3, -1, 5])
def test_quarter_turns_are_clockwise(side, quarters):
    x = torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(side))
    clockwise = torch.rot90(x, -quarters, dims=(2, 3))
    assert torch.allclose(rotate(x, 90.0 * quarters), clockwise, atol=1e-5)


def test_a_quarter_turn_by_hand():
    x = torch.zeros(1, 1, 3, 3)
    x[0, 0, 0, 1] = 1  # twelve o'clock
    assert rotate(x, 90)[0, 0, 1, 2] == pytest.approx(1, abs=1e-5)  # three o'clock


def test_small_turns_are_clockwise_too():
    x = torch.zeros(1, 1, 29, 29)
    x[0, 0, 2, 14] = 1
    turned = rotate(x, 20)[0, 0]
    row, column = divmod(int(turned.argmax()), 29)
    assert (row, column) == (14 - round(12 * np.cos(np.radians(20))), 14 + round(12 * np.sin(np.radians(20))))


def test_an_oblong_picture_is_not_sheared():
    # A disc in a wide picture stays a disc.
    rows, columns = np.mgrid[:40, :80]
    disc = torch.from_numpy(np.clip(10.5 - np.hypot(rows - 19.5, columns - 39.5), 0, 1)).float()[None, None]
    assert torch.allclose(rotate(disc, 37), disc, atol=0.35)
    assert float(rotate(disc, 37).sum()) == pytest.approx(float(disc.sum()), rel=0.01)


def test_corners_are_black_after_normalisation():
    white = np.full((1, 28, 28, 1), 255, np.uint8)
    assert to_tensor(white, degrees=45)[0, 0, 0, 0] == -1


@settings(deadline=None, max_examples=30)
@given(degrees=st.floats(-720, 720))
def test_turning_keeps_the_range_and_turning_back_keeps_the_middle(degrees):
    x = torch.from_numpy(load("digits-embedded").train.x[:4]).permute(0, 3, 1, 2).float() / 255
    turned = rotate(x, degrees)
    assert turned.min() >= 0
    assert turned.max() <= 1 + 1e-5
    back = rotate(turned, -degrees)[:, :, 9:19, 9:19]
    assert (back - x[:, :, 9:19, 9:19]).abs().mean() < 0.1


def test_integers_are_not_turned():
    with pytest.raises(DataError, match="float images"):
        rotate(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), 20)
