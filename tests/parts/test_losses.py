"""Losses against plain loops in float64; a teacher gets no gradient."""

import math

import pytest
import torch

from heterophony import Data
from heterophony.base.seeds import generator
from heterophony.parts.losses import cross_entropy, kl


def softmax(row):
    top = max(row)
    parts = [math.exp(value - top) for value in row]
    return [part / sum(parts) for part in parts]


def test_kl_is_summed_over_classes_and_averaged_over_the_batch():
    z = torch.randn(2, 5, 3, dtype=torch.float64, generator=generator("kl"))
    expected = 0.0
    for teacher, student in zip(z[0].tolist(), z[1].tolist(), strict=True):
        p, q = softmax(teacher), softmax(student)
        expected += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)) / 5
    assert float(kl(z[0], z[1])) == pytest.approx(expected, rel=1e-12)


def test_the_teacher_is_a_constant():
    teacher, student = torch.randn(2, 4, 3, generator=generator("teacher")).unbind()
    teacher.requires_grad_(), student.requires_grad_()
    kl(teacher, student).backward()
    assert teacher.grad is None
    assert student.grad is not None


def test_cross_entropy():
    z = torch.randn(6, 4, dtype=torch.float64, generator=generator("ce"))
    batch = Data(x=z, y=torch.tensor([0, 1, 2, 3, 1, 1]))
    got = cross_entropy({"model": lambda x: x}, batch)["model"]["ce"]
    expected = -sum(math.log(softmax(row)[y]) for row, y in zip(z.tolist(), batch.y.tolist(), strict=True)) / 6
    assert float(got) == pytest.approx(expected, rel=1e-12)
