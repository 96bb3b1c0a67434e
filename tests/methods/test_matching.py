"""FedMA: units that do the same are found; limits, a golden toy, and what cannot be matched."""

from itertools import permutations

import pytest
import torch
from torch import nn

from heterophony import Model
from heterophony.base.seeds import generator
from heterophony.engines import local
from heterophony.engines.local_host import ReactionError
from heterophony.methods import FedAvg, FedMA
from heterophony.models import create
from heterophony.parts.matching import chain, orders, reordered, units
from heterophony.parts.training import Training
from toys.by_hand import equal, server
from toys.federations import B16, weights_star
from toys.world import certain, net


def shuffled(module, purpose):
    """Return a network's weights with the units of all hidden layers in another order, and its layers."""
    weights = {name: tensor for name, tensor in module.state_dict().items() if tensor.dim()}
    known = chain(module, list(weights))
    for number, layer in enumerate(known[:-1]):
        order = torch.randperm(len(weights[layer.weight]), generator=generator("order", purpose, str(number)))
        weights = reordered(weights, known, number, order)
    return weights, known


@pytest.mark.parametrize("name", ["lenet5", "cnn1", "mlp"])
def test_a_network_whose_units_change_places_says_the_same(name):
    module = create(name, in_channels=1, size=28, classes=10).eval()
    x = torch.randn(3, 1, 28, 28, generator=generator("matching"))
    with torch.no_grad():
        before = module(x)
        weights, _ = shuffled(module, name)
        assert any(not torch.equal(weights[n], module.state_dict()[n]) for n in weights)
        module.load_state_dict(weights, strict=False)
        assert torch.allclose(module(x), before, atol=1e-5)


def test_copies_in_other_orders_average_to_the_network_itself():
    """The plain mean of three copies whose units stand in other orders is another network. The matched one is not."""
    module = certain().eval()
    models, x = [], torch.randn(5, 8, generator=generator("copies"))
    for i in range(3):
        weights, known = shuffled(module, str(i))
        models.append(weights)
    found = models
    for number in range(len(known) - 1):
        to = orders([units(weights, known[number]) for weights in found], [3, 2, 1], sweeps=0)
        found = [reordered(weights, known, number, order) for weights, order in zip(found, to, strict=True)]
    with torch.no_grad():
        before = module(x)
        for weights in found:
            assert equal(weights, found[0])
        module.load_state_dict(found[0], strict=False)
        assert torch.allclose(module(x), before, atol=1e-5)


def test_golden_order():
    """Units at 0, 10 and 20; the other has them as 19, 1 and 11, so that its second stands first, then the third."""
    tables = [torch.tensor([[0.0], [10.0], [20.0]]), torch.tensor([[19.0], [1.0], [11.0]])]
    assert [order.tolist() for order in orders([t.double() for t in tables], [2, 1], 1)] == [[0, 1, 2], [1, 2, 0]]


def test_no_other_order_is_nearer():
    """Of two tables, by looking at all orders of five units."""
    one, other = (torch.randn(5, 3, generator=generator("all", i), dtype=torch.float64) for i in "ab")
    found = orders([one, other], [1, 1], 0)[1]
    least = min(float((one - other[list(p)]).square().sum()) for p in permutations(range(5)))
    assert float((one - other[found]).square().sum()) == pytest.approx(least, rel=1e-12)


def test_fedma_of_one_layer_is_fedavg():
    flat = Model(lambda: nn.Linear(8, 4), common=True)
    found, plain = (local(weights_star(m, flat)).run(3) for m in (FedMA(local=B16), FedAvg(local=B16)))
    assert equal(server(found), server(plain))


def test_layers_that_are_done_stay_and_are_the_same_everywhere():
    """In the second round the first layer is common, and no client has trained it."""
    found = local(weights_star(FedMA(local=Training(batch=16, momentum=0.9)))).run(2)
    first = {name: server(found)[name] for name in ("0.weight", "0.bias")}
    for client in ("c0", "c1", "c2"):
        own = server(found, client)
        assert all(torch.allclose(own[name], tensor, atol=1e-6) for name, tensor in first.items())
        assert not torch.equal(own["2.weight"], server(found)["2.weight"])


class Crossed(nn.Module):
    """What goes round a layer: its units cannot change places."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.one(x)
        return self.out(x + self.two(x).relu())


def test_networks_that_are_no_chain_are_refused():
    with pytest.raises(ReactionError, match="layers that follow one another"):
        local(weights_star(FedMA(local=B16), Crossed)).run(1)
    with pytest.raises(ValueError, match="sweeps"):
        FedMA(sweeps=-1)
    grouped = nn.Sequential(nn.Conv1d(4, 4, 1, groups=4))
    with pytest.raises(ValueError, match="groups"):
        chain(grouped, list(grouped.state_dict()))


def test_clients_with_starts_of_their_own_agree_better_when_units_are_matched():
    """After one round from different starts, the matched mean is nearer to the clients than the plain one."""
    found = local(weights_star(FedMA(local=B16), net())).run(1)
    clients = [server(found, c) for c in ("c0", "c1", "c2")]
    layer = chain(net()(), list(clients[0]))[0]
    tables = [units(weights, layer) for weights in clients]
    order = orders(tables, [1, 1, 1], 1)
    placed = torch.stack([t[o] for t, o in zip(tables, order, strict=True)])
    assert float(placed.var(0).sum()) < 0.8 * float(torch.stack(tables).var(0).sum())
