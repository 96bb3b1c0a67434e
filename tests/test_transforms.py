"""Gradient transforms: the projection's properties, the proximal pull by hand."""

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from heterophony.parts.transforms import Project, Proximal

vectors = st.lists(st.floats(-10, 10), min_size=3, max_size=3).map(
    lambda v: {"w": torch.tensor(v, dtype=torch.float64)}
)


@given(vectors, vectors)
def test_a_projected_gradient_never_conflicts(g, local):
    assume(float(local["w"] @ local["w"]) > 1e-6)
    once = Project()(g, {}, onto=local)
    assert float(once["w"] @ local["w"]) >= -1e-9
    twice = Project()(once, {}, onto=local)
    assert torch.allclose(once["w"], twice["w"])
    if float(g["w"] @ local["w"]) >= 0:
        assert torch.equal(once["w"], g["w"])


def test_projection_by_hand():
    """g = (1, -1), local = (0, 2): <g, local> = -2, v = 2 / 4, so g + v local = (1, 0)."""
    got = Project()({"w": torch.tensor([1.0, -1.0])}, {}, onto={"w": torch.tensor([0.0, 2.0])})
    assert got["w"].tolist() == [1.0, 0.0]


def test_proximal_by_hand():
    one = {"w": torch.tensor([1.0])}
    got = Proximal(0.5)(one, {"w": torch.tensor([3.0])}, anchor={"w": torch.tensor([1.0])})
    assert got["w"].tolist() == [2.0]
