"""Convolutions and pooling written out compute what torch's own do, forwards and backwards."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from heterophony.compute.products import Largest, Product, written_out

NETWORKS = {
    "plain": lambda: nn.Conv2d(3, 5, 3),
    "padded, strided": lambda: nn.Conv2d(3, 5, 3, padding=1, stride=2),
    "dilated, oblong, no bias": lambda: nn.Conv2d(3, 5, (3, 2), dilation=2, padding=(2, 1), bias=False),
    "one by one": lambda: nn.Conv2d(3, 5, 1),
    "pooled": lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 3)),
    "pooled by three": lambda: nn.MaxPool2d(3),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_values_and_gradients_are_those_of_the_original(name):
    torch.manual_seed(0)
    net = NETWORKS[name]().double()
    x = torch.randn(4, 3, 13, 11, dtype=torch.double)
    x[0] = x[0].round()  # with ties
    x.requires_grad_()
    other = written_out(deepcopy(net))
    assert [n for n, _ in other.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert any(isinstance(part, Product | Largest) for part in other.modules())
    a, b = net(x), other(x)
    torch.testing.assert_close(a, b)
    weights = torch.randn_like(a)
    wanted = torch.autograd.grad(a, [x, *net.parameters()], weights)
    found = torch.autograd.grad(b, [x, *other.parameters()], weights)
    for one, two in zip(wanted, found, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(3, 4, 3, padding="same"), nn.Conv2d(1, 4, 3), nn.MaxPool2d(3, 2)],
)
def test_what_cannot_be_written_out_stays(layer):
    assert written_out(layer) is layer
