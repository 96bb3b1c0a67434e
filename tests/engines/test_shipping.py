"""A federation on its way to workers: data shared rather than copied, and whatever a user may have put into it."""

import pickle
from dataclasses import field, replace
from functools import cache, partial

import numpy as np
import pytest
import torch

from heterophony import Data, Each, Every, Federation, Fit, Kind, Method, Round, Weights, on
from heterophony.engines import local
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg
from heterophony.parts.aggregate import mean
from heterophony.parts.losses import cross_entropy
from toys.federations import B16, weights_star
from toys.world import PUBLIC, TESTS, net, points, private

pytest.importorskip("ray", reason="pip install 'heterophony[ray]'")
from heterophony.engines import shipping


def travelled(federation):
    """As a worker gets it: with arrays that are marked as not to be written to."""
    pickled, arrays, path = shipping.pack(federation)
    arrays = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    return shipping.unpack((pickled, arrays, path)), arrays


def packed(array):
    """As an object store has small arrays: one behind another, eight bytes apart from where others would begin."""
    place = np.empty(len(array) + 32, np.uint8)
    start = -place.ctypes.data % 16 + 8
    place[start : start + len(array)] = array
    return place[start : start + len(array)]


def shared(tensor, arrays):
    return any(np.shares_memory(tensor.numpy(), array) for array in arrays)


def test_where_small_arrays_lie_is_no_matter():
    """A product rounds otherwise where its rows begin between two words."""
    federation = weights_star(FedAvg(local=B16))
    pickled, arrays, path = shipping.pack(federation)
    found = shipping.unpack((pickled, [packed(array) for array in arrays], path))
    for node, views in federation.data.items():
        x, there = views["public"].x, found.data[node]["public"].x
        assert there.data_ptr() % shipping.ALIGNED == 0
        network = federation.node(node).models["model"]
        assert torch.equal(network(x), network(there))


def test_data_are_where_the_arrays_are_and_what_is_shared_stays_shared():
    federation = weights_star(FedAvg(local=B16))
    found, arrays = travelled(federation)
    for node, views in federation.data.items():
        for name in ("train", "public"):
            assert torch.equal(found.data[node][name].x, views[name].x)
            assert found.data[node][name].classes == views[name].classes
            assert shared(found.data[node][name].x, arrays)
    assert found.data["c0"]["public"] is found.data["c1"]["public"]
    assert sum(array.nbytes == PUBLIC.x.nbytes for array in arrays) == 1
    assert torch.equal(found.data["c0"]["all"]().x, federation.data["c0"]["all"]().x)


def test_layout_and_odd_types_are_kept():
    images = torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    views = {"last": images, "turned": torch.randn(6, 4).t(), "part": torch.randn(4, 9)[:, ::2]}
    views |= {"half": torch.randn(4, 2).bfloat16(), "none": torch.empty(4, 0), "flag": torch.ones(4, dtype=torch.bool)}
    data = Data(**views, classes=7)
    found, arrays = travelled(replace(weights_star(FedAvg()), tests={"odd": data}))
    for name, column in views.items():
        back = found.tests["odd"].columns[name]
        assert back.dtype == column.dtype
        assert back.stride() == column.stride()
        assert torch.equal(back, column)
    assert shared(found.tests["odd"].last, arrays)
    assert found.tests["odd"].classes == 7


def test_a_cached_factory_is_one_for_all_who_share_it():
    calls = []

    def make(name):
        calls.append(name)
        return points(name)

    view = cache(partial(make, "one"))
    with pytest.raises(AttributeError):
        pickle.dumps(view)  # this is why it needs help
    federation = weights_star(FedAvg())
    found, _ = travelled(replace(federation, data={"c0": {"train": view}, "c1": {"train": view}}))
    a, b = (found.data[node]["train"] for node in ("c0", "c1"))
    assert a is b
    assert a() is b()
    assert torch.equal(a().x, points("one").x)


def homemade():
    """A method that no module has: written in a notebook, or a script."""
    GLOBAL = Kind("global", to="children", weights=Weights("model"))
    UPDATE = Kind("update", to="parent", weights=Weights("model"))

    class Homemade(Method):
        roles = ("server", "client")
        kinds = (GLOBAL, UPDATE)
        rates: dict = field(default_factory=lambda: {"lr": 0.1})
        batch: int = 16

        @on(Round, role="server")
        def begin(self, server):
            return GLOBAL(server.cohort(), weights=server.weights())

        @on(Each(GLOBAL), role="client")
        def train(self, client, mail):
            client.round = mail.round
            client.load(mail.weights)
            yield Fit("model", cross_entropy, batch=self.batch, optimiser=sgd(self.rates["lr"]))
            return UPDATE(weights=client.weights())

        @on(Every(UPDATE, of="cohort"), role="server")
        def merge(self, server, mail):
            server.load(mean([m.weights for m in mail], [1] * len(mail)))
            server.round += 1

    names = ["c0", "c1"]
    models = {role: {"model": net()} for role in ("server", "client")}
    return Federation(Homemade(batch=8), star(names), models, private(names), TESTS)


def test_a_method_that_no_module_has():
    federation = homemade()
    found, _ = travelled(federation)
    assert found.method == type(found.method)(batch=8)
    assert local(found).run(2).digest == local(federation).run(2).digest
