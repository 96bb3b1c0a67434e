"""Random crops and flips: against a plain loop over images."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from heterophony import Data
from heterophony.base.seeds import generator
from heterophony.data.augment import CropFlip


def by_loop(x, params, pad, fill):
    """As an image library does it: pad, crop, flip, one image at a time."""
    height, width = x.shape[2:]
    out = []
    for image, (down, right, turned) in zip(x, params.tolist(), strict=True):
        crop = F.pad(image, (pad,) * 4, value=fill)[:, down : down + height, right : right + width]
        out.append(crop.flip(-1) if turned else crop)
    return torch.stack(out)


@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 7), st.integers(1, 7)),
    pad=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_the_loop_over_images(shape, pad, flip, seed):
    x = torch.rand(shape, generator=generator("images", seed))
    made = CropFlip(pad, flip)
    params = made.draw(len(x), generator("draw", seed))
    assert params.shape == (len(x), 3)
    assert params.dtype == torch.int64
    assert params.min() >= 0
    assert params[:, :2].max() <= 2 * pad
    assert params[:, 2].max() <= int(flip)
    assert torch.equal(made.apply(x, params), by_loop(x, params, pad, -1.0))


def test_all_places_and_both_sides_occur():
    params = CropFlip(pad=1).draw(4000, generator("many"))
    found, counts = params.unique(dim=0, return_counts=True)
    assert len(found) == 3 * 3 * 2
    assert counts.min() > 4000 / 18 * 0.7
    assert CropFlip(flip=False).draw(500, generator("many"))[:, 2].max() == 0


def test_the_middle_is_the_image_itself():
    x = torch.rand(2, 3, 8, 8, generator=generator("middle"))
    assert torch.equal(CropFlip(pad=4).apply(x, torch.tensor([[4, 4, 0]] * 2)), x)
    assert torch.equal(CropFlip(pad=4).apply(x, torch.tensor([[4, 4, 1]] * 2)), x.flip(-1))


def test_a_data_set_keeps_its_augmentation():
    data = Data(x=torch.zeros(3, 1, 4, 4)).augmented(CropFlip())
    assert data.take(torch.tensor([1])).augment == data.with_columns(k=torch.ones(3)).augment == CropFlip()
    assert data.to("cpu").augment == CropFlip()
    assert Data(x=torch.zeros(2)).augment is None
