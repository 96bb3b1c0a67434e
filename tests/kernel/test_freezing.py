"""Frozen parts keep their values, do not travel, and take no part in training, with every method and executor."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from heterophony import freeze
from heterophony.base.seeds import seeded
from heterophony.compute.batched import Batched
from heterophony.compute.eager import Eager, Job
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.freezing import frozen_names
from heterophony.kernel.networks import model_of
from heterophony.kernel.node import Node, Slot
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.work import Fit
from heterophony.parts.losses import cross_entropy
from toys.federations import METHODS
from toys.world import certain, net, points

ROWS = {row.name: row for row in METHODS}


def stem(module: nn.Module) -> str:
    """Return the path of the first linear layer, which is as wide for all networks of one kind.

    Where a network holds a copy of the common one, it is that of the copy.
    """
    first = "common." if hasattr(module, "common") else ""
    linear = (name for name, part in module.named_modules() if isinstance(part, nn.Linear))
    return next(name for name in linear if name.startswith(first))


def with_frozen_stems(federation):
    """The same federation, in which first layers are drawn alike and frozen."""

    def built(model):
        def build():
            network = model.build()
            with seeded("stem"), torch.no_grad():
                for parameter in network.get_submodule(stem(network)).parameters():
                    parameter.copy_(torch.randn(parameter.shape) * 0.3)
            return freeze(network, stem(network))

        return replace(model, build=build)

    models = {
        who: {name: built(model_of(model)) for name, model in (own or {}).items()}
        for who, own in federation.models.items()
    }
    return replace(federation, models=models)


def frozen_values(result, federation):
    """All nodes' frozen tensors after a run, by node, model and name."""
    found = {}
    for node in federation.topology.roles:
        built = federation.node(node).models
        for name, tensors in result.state(node)["models"].items():
            found |= {(node, name, key): tensors[key] for key in frozen_names(built[name])}
    return found


def is_cut(row):
    """Whether a method cuts networks, or puts adapters on them, before anything here could freeze a part."""
    return bool(row.build().capacity)


def test_units_of_networks_with_frozen_parts_are_not_matched():
    with pytest.raises(ReactionError, match=r"0\.weight is frozen or does not travel: units can be matched in whole"):
        with_frozen_stems(ROWS["fedma"].build()).run(1)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if name != "fedma" and not is_cut(row)])
def test_every_method_leaves_frozen_parts_alone_and_sends_the_rest(name):
    row = ROWS[name]
    federation = with_frozen_stems(row.build())
    start = {
        (node, model, key): federation.node(node).slots[model].tensors()[key].clone()
        for node in federation.topology.roles
        for model, network in federation.node(node).models.items()
        for key in frozen_names(network)
    }
    result = federation.run(2)
    ended = frozen_values(result, federation)
    assert ended.keys() == start.keys()
    assert all(torch.equal(ended[key], start[key]) for key in start)


def test_what_is_frozen_is_not_sent_and_not_counted():
    federation = ROWS["fedavg"].build()
    whole, less = federation.run(1), with_frozen_stems(federation).run(1)
    # the stem of the toy network is Linear(8, 12): 4 bytes a number, to and from three clients
    sent = [sum(row["payload"] for row in result.ledger.rows) for result in (whole, less)]
    messages = len(whole.ledger.rows)
    assert sent[0] - sent[1] == messages * 4 * (8 * 12 + 12)


def job(place, network=certain, parts=("1",)):
    with seeded("frozen", place):
        made = freeze(network(), parts)
    node = Node(f"c{place}", "client", slots={"model": Slot(made)}, data={"train": points(f"c{place}", 48)})
    work = Fit(
        "model", cross_entropy, batch=16, optimiser=sgd(0.1, weight_decay=0.1), answer="displacement", refresh=True
    )
    return Job(node, work, "0")


@pytest.mark.parametrize("executor", ["branches", "stacked"])
def test_a_frozen_batchnorm_keeps_its_statistics_in_every_executor(executor):
    alone, together = ([job(place) for place in range(3)] for _ in range(2))
    answers = Eager()(alone), Batched(executor=executor)(together)
    for one, other, a, b in zip(alone, together, *answers, strict=True):
        assert a.displacement.keys() == b.displacement.keys() == {"0.weight", "0.bias", "3.weight", "3.bias"}
        own = one.node.slots["model"].tensors()
        for key, tensor in other.node.slots["model"].tensors().items():
            torch.testing.assert_close(own[key], tensor, rtol=0, atol=1e-6 if executor == "stacked" else 0)
        assert not own["1.running_mean"].any()
        assert torch.equal(own["1.running_var"], torch.ones(12))
        assert torch.equal(own["1.weight"], torch.ones(12))
        assert not own["1.num_batches_tracked"]


def test_a_frozen_batchnorm_uses_its_statistics_in_training_too():
    """One plain step by hand, with the network in evaluation mode: there is no other layer that has modes."""
    here = job(0)
    network, x, y = here.node.models["model"], here.node.data["train"].x, here.node.data["train"].y
    with seeded("frozen", 0):
        other = certain().eval()
    work = replace(here.work, batch=None, refresh=False, optimiser=sgd(0.1))
    Eager()([replace(here, work=work)])
    nn.functional.cross_entropy(other(x), y).backward()
    for name, parameter in other.named_parameters():
        expected = parameter if name.startswith("1.") else parameter - 0.1 * parameter.grad
        torch.testing.assert_close(dict(network.named_parameters())[name], expected, rtol=0, atol=1e-6)


def test_no_such_part_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"there is no part '4' to freeze.*; there are 0, 1, 2, 3"):
        freeze(certain(), "4")
    with pytest.raises(ValueError, match="there is no part ''"):
        freeze(certain(), "")


def test_a_network_of_which_nothing_is_left_to_send_is_refused():
    with pytest.raises(ValueError, match="all that would travel of the model is frozen"):
        Slot(freeze(net()(), ("0", "2"))).shared()
    with pytest.raises(ValueError, match="all that would travel of the model is frozen"):
        Slot(freeze(net()(), "0"), ("0",)).shared()


def test_a_fit_of_a_frozen_part_is_refused():
    with pytest.raises(Exception, match=r"only = \('0',\): all of it is frozen"):
        Eager()([replace(job(0, net(), "0"), work=Fit("model", cross_entropy, only=("0",)))])
