"""Gradient transforms: projections against a solver and by their properties, the proximal pull by hand."""

import random

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from heterophony.base.seeds import generator
from heterophony.parts.transforms import Gem, PCGrad, Project, Proximal

# Zero, or large enough that its square does not vanish.
numbers = st.floats(-10, 10).map(lambda x: x if abs(x) > 1e-6 else 0.0)
vectors = st.lists(numbers, min_size=3, max_size=3).map(lambda v: {"w": torch.tensor(v, dtype=torch.float64)})


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


# -- projections against a solver ------------------------------------------------------------------------------
def pairs(count=40):
    """Random gradients g_pub and g_loc of several sizes, in two named parts."""
    draw = generator("projection")
    for i in range(count):
        n = 2 + i % 9
        yield tuple(
            {
                "a": torch.randn(n, dtype=torch.float64, generator=draw) * 10 ** (i % 3 - 1),
                "b": torch.randn(2, 2, dtype=torch.float64, generator=draw),
            }
            for _ in range(2)
        )


def flat(named):
    return torch.cat([named["a"], named["b"].flatten()]).numpy()


def test_the_closed_form_is_the_solution_of_the_quadratic_program():
    """Eq. 8: the nearest z to g_pub with <z, g_loc> >= 0, found by a solver that knows nothing of the dual."""
    conflicts = 0
    for g, onto in pairs():
        size, a, b = np.linalg.norm(flat(g)), flat(g), flat(onto)
        a, b = a / size, b / np.linalg.norm(b)  # a solver wants numbers near 1
        found = minimize(
            lambda z, a=a: 0.5 * ((z - a) ** 2).sum(),
            np.zeros_like(a),
            jac=lambda z, a=a: z - a,
            constraints={"type": "ineq", "fun": lambda z, b=b: z @ b, "jac": lambda z, b=b: b},
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        assert found.success
        conflicts += a @ b < 0
        assert np.allclose(flat(Project()(g, {}, onto=onto)) / size, found.x, atol=1e-5)
    assert 10 < conflicts < 30


@pytest.mark.parametrize("margin", [0.0, 0.5, 3.0])
def test_gem_solves_its_dual_with_a_margin(margin):
    """GEM's code: where <g_pub, g_loc> < 0, min v^2 (|g_loc|^2 + eps) / 2 + v <g_pub, g_loc> with v >= margin."""
    for g, onto in pairs():
        a, b = flat(g), flat(onto)
        expected = a
        if a @ b < 0:
            found = minimize(
                lambda v, a=a, b=b: 0.5 * v[0] ** 2 * (b @ b + 1e-3) + v[0] * (a @ b),
                [margin + 1.0],
                jac=lambda v, a=a, b=b: np.array([v[0] * (b @ b + 1e-3) + a @ b]),
                bounds=[(margin, None)],
                options={"ftol": 1e-15, "gtol": 1e-12},
            )
            expected = a + found.x[0] * b
        assert np.allclose(flat(Gem(margin, 1e-3)(g, {}, onto=onto)), expected, atol=1e-5)


def test_pcgrad_is_the_papers_loop():
    """Algorithm 1 of PCGrad on the two gradients, in random order, averaged."""
    draw = random.Random(0)
    for g, onto in pairs():
        originals = [flat(g), flat(onto)]
        changed = []
        for i in draw.sample(range(2), 2):
            mine = originals[i].copy()
            for j in draw.sample([k for k in range(2) if k != i], 1):
                if mine @ originals[j] < 0:
                    mine -= (mine @ originals[j]) / (originals[j] @ originals[j]) * originals[j]
            changed.append(mine)
        assert np.allclose(flat(PCGrad()(g, {}, onto=onto)), sum(changed) / 2)


@given(vectors, vectors)
def test_no_projection_goes_against_the_local_gradient(g, local):
    scale = float(local["w"].norm() * (g["w"].norm() + local["w"].norm()))
    for transform in (Project(), PCGrad(), Gem(0.0, 0.0), Gem(0.5, 0.0)):
        assert float(transform(g, {}, onto=local)["w"] @ local["w"]) >= -1e-12 * scale


@given(vectors, vectors)
def test_closed_and_gem_leave_alone_what_does_not_conflict(g, local):
    assume(float(g["w"] @ local["w"]) >= 0)
    for transform in (Project(), Gem()):
        assert torch.equal(transform(g, {}, onto=local)["w"], g["w"])


@pytest.mark.parametrize("tiny", [0.0, 1e-30, 1e-22, 1e-10])
def test_a_vanishing_local_gradient_does_no_harm(tiny):
    g = {"w": torch.tensor([1.0, -1.0])}
    for transform in (Project(), PCGrad(), Gem()):
        got = transform(g, {}, onto={"w": torch.tensor([0.0, tiny])})["w"]
        assert torch.isfinite(got).all()
        assert got.norm() <= g["w"].norm() * (1 + 1e-6)


@pytest.mark.parametrize("transform", [Project(), Gem(), PCGrad()], ids=lambda t: type(t).__name__)
def test_projections_have_no_branches_on_values(transform):
    """`vmap` refuses any: so they can run inside a captured graph."""
    draw = generator("branches")
    g, onto = (torch.randn(16, 5, generator=draw) for _ in range(2))
    together = torch.vmap(lambda a, b: transform({"w": a}, {}, onto={"w": b})["w"])(g, onto)
    one_by_one = torch.stack([transform({"w": a}, {}, onto={"w": b})["w"] for a, b in zip(g, onto, strict=True)])
    assert torch.allclose(together, one_by_one, atol=1e-6)
