"""Slices of networks: where they lie, what they compute, and the mean by coordinate."""

import math
from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from heterophony.kernel.capacity import Capacity, smallest
from heterophony.models import create
from heterophony.parts.aggregate import mean
from heterophony.parts.axes import Axes, CannotSlice, index
from heterophony.parts.slices import Narrow, mean_by_coordinate, narrowed, output_rows, places_of, rows_of, taken


def named(module):
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def seeded(build):
    torch.manual_seed(0)
    return build()


class Branches(nn.Module):
    """Somebody's own network: functions instead of modules, a residual sum, a flattened map."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 8, 3, padding=1), nn.Conv1d(8, 8, 3, padding=1)
        self.norm, self.out = nn.BatchNorm1d(8), nn.Linear(8 * 6, 5)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.out(torch.flatten(x + self.norm(self.second(x)), 1))


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(torch.cat([self.a(x), self.b(x)], 1))


NETWORKS = {
    **{name: (lambda name=name: create(name, in_channels=1, size=16, classes=4), (1, 16, 16))
       for name in ("mlp", "cnn1-3x3", "wrn-10-1", "resnet10", "mobilenetv2")},
    "own": (Branches, (2, 6)),
}  # fmt: skip


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_slice_is_the_whole_network_with_all_other_entries_zero(name, offset):
    build, row = NETWORKS[name]
    whole, small = seeded(build), narrowed(seeded(build), 0.5)
    places = places_of(whole, 0.5, offset)
    with torch.no_grad():
        for key, tensor in taken(named(whole), places).items():
            named(small)[key].copy_(tensor)
        for key, tensor in named(whole).items():
            if key in places and not key.endswith("running_var"):
                kept = torch.zeros_like(tensor)
                kept[index(places[key])] = tensor[index(places[key])]
                tensor.copy_(kept)
    x = torch.randn(3, *row)
    outputs = whole(x)  # by the batch's own statistics: at the start, running ones make all outputs alike
    assert torch.allclose(small(x), outputs, atol=1e-4)
    assert not torch.allclose(outputs, seeded(build)(x), atol=1e-2)


def test_a_slice_has_the_names_of_the_whole_and_all_outputs():
    whole = seeded(Branches)
    small = narrowed(seeded(Branches), 0.25)
    assert named(small).keys() == named(whole).keys()
    shapes = {name: tuple(t.shape) for name, t in small.named_parameters()}
    assert shapes["first.weight"] == (2, 2, 3)
    assert shapes["out.weight"] == (5, 2 * 6)
    assert output_rows(whole) == {"out.weight", "out.bias"}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (Joined, "cat"),
        (lambda: create("googlenet", in_channels=3, size=32, classes=4), "cat"),
        (lambda: create("lstm", shape=(6, 8), classes=4), "input_weight"),
        (lambda: create("vit-tiny", shape=(3, 32, 32), classes=4), "places"),
        (lambda: nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3, groups=2), nn.Flatten()), "depthwise"),
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(4, 8), nn.Linear(8, 2)), "GroupNorm"),
    ],
)
def test_what_cannot_be_narrowed_is_refused_in_one_line(build, words):
    with pytest.raises(CannotSlice, match=words) as told:
        narrowed(build(), 0.5)
    assert "\n" not in str(told.value)


def test_the_scaler_divides_inner_layers_in_training_and_in_evaluation():
    """All weights are one: hidden units are 2 / 0.5 = 4, three of six are left, and the output is 3 * 4 = 12."""
    net = nn.Sequential(nn.Linear(2, 6, bias=False), nn.ReLU(), nn.Linear(6, 1, bias=False))
    for parameter in net.parameters():
        nn.init.ones_(parameter)
    small = Narrow(scaler=True)(net, Capacity(0.5), Capacity())
    assert small.train()(torch.ones(1, 2)).item() == 12
    assert small.eval()(torch.ones(1, 2)).item() == 12
    assert type(small[2]) is nn.Linear
    assert deepcopy(small).eval()(torch.ones(1, 2)).item() == 12


def test_rolling_places_begin_one_unit_further_on_round_about():
    """Six units, half of them, from the fourth on: 4, 5, 0. What reads them has two entries of each."""
    net = nn.Sequential(nn.Conv1d(1, 6, 1), nn.Flatten(), nn.Linear(12, 2))
    places = Axes(net).places(0.5, offset=4)
    assert places["0.weight"][0].tolist() == [4, 5, 0]
    assert places["2.weight"][0] is None
    assert places["2.weight"][1].tolist() == [8, 9, 10, 11, 0, 1]


def test_golden_mean_by_coordinate():
    """Entries 1 and 2 of three are of both: (1 * 2 + 3 * 6) / 4 = 5 and (1 * 4 + 3 * 8) / 4 = 7. The first is of the
    larger alone, the last of nobody: it stays.
    """
    like = {"w": torch.tensor([9.0, 9.0, 9.0, 9.0])}
    one = {"w": torch.tensor([2.0, 4.0])}, {"w": (torch.tensor([1, 2]),)}
    other = {"w": torch.tensor([5.0, 6.0, 8.0])}, {"w": (torch.tensor([0, 1, 2]),)}
    found = mean_by_coordinate(like, [one, other], [1.0, 3.0])
    assert found["w"].tolist() == [5.0, 5.0, 7.0, 9.0]


@settings(max_examples=25, deadline=None)
@given(
    shares=st.lists(st.sampled_from([0.25, 0.4, 0.5, 0.75, 1.0]), min_size=1, max_size=4),
    counts=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    offset=st.integers(0, 9),
)
def test_the_mean_by_coordinate_is_a_loop_over_entries(shares, counts, offset):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    like = {name: tensor.detach() for name, tensor in net.named_parameters()}
    axes, slices = Axes(net), []
    for share in shares:
        places = axes.places(share, offset)
        slices.append(({n: torch.randn_like(t) for n, t in taken(like, places).items()}, places))
    own = [float(n) for n in counts[: len(shares)]]
    found = mean_by_coordinate(like, slices, own)
    own = own if any(own) else [1.0] * len(own)
    for name, tensor in like.items():
        for place in torch.cartesian_prod(*(torch.arange(size) for size in tensor.shape)).view(-1, tensor.dim()):
            total = weight = 0.0
            for (item, places), n in zip(slices, own, strict=True):
                at = []
                for entry, size, where in zip(place.tolist(), tensor.shape, places[name], strict=True):
                    held = list(range(size)) if where is None else where.tolist()
                    at.append(held.index(entry) if entry in held else None)
                if None not in at:
                    total, weight = total + n * item[name][tuple(at)].item(), weight + n
            expected = total / weight if weight else tensor[tuple(place)].item()
            assert math.isclose(found[name][tuple(place)].item(), expected, rel_tol=1e-4, abs_tol=1e-5)


def test_whole_tensors_are_averaged_as_by_any_mean_to_the_bit():
    items = [{"w": torch.randn(3, 2)} for _ in range(3)]
    places = {"w": (None, None)}
    found = mean_by_coordinate(items[0], [(item, places) for item in items], [3.0, 1.0, 2.0])
    assert torch.equal(found["w"], mean(items, [3.0, 1.0, 2.0])["w"])


def test_rows_of_labels_that_nobody_asked_for_do_not_count():
    item, places = {"w": torch.arange(6.0).view(3, 2)}, {"w": (None, torch.tensor([0, 2]))}
    some, lying = rows_of(item, places, {"w"}, torch.tensor([2, 0, 7, 2]))  # a liar may name any
    assert some["w"].tolist() == [[0, 1], [4, 5]]
    assert lying["w"][0].tolist() == [0, 2]


def test_capacities_are_checked_and_the_smallest_is_what_everyone_can_hold():
    with pytest.raises(ValueError, match=r"a width is a share in \(0, 1\], got 0"):
        Capacity(0)
    with pytest.raises(ValueError, match="a rank is a whole number >= 1, got 0"):
        Capacity(rank=0)
    assert smallest([Capacity(0.5, 3), Capacity(1.0, 2, 4), Capacity(rank=8)]) == Capacity(0.5, 2, 4)
