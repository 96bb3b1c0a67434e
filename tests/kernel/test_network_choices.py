"""What each value of a method's `models` gives a node, of the networks that are offered."""

import re

import pytest
import torch
from torch import nn

from heterophony import Architectures, Built, Federation, Global, Model, Own, Same
from heterophony.kernel.networks import NotOffered, Offer, checked, choose
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, fedgen
from heterophony.parts.spliced import Spliced
from toys.world import certain, halves, net, private


def offered(**changes):
    models = {name: Model(net(), "body", "private") for name in ("own", "travelling", "same")}
    return Offer(**{**models, "architectures": {"a": Model(net()), "b": Model(net())}, **changes})


@pytest.mark.parametrize(
    ("choice", "field", "common"),
    [
        (Own(), "own", False),
        (Own(start="alike"), "own", True),
        (Global(), "travelling", False),
        (Same(), "same", False),
        (Same(start="alike"), "same", True),
    ],
)
def test_a_value_stands_for_a_network_that_is_offered(choice, field, common):
    offer = offered()
    found, of = choose({"model": choice}, offer)["model"], getattr(offer, field)
    assert (found.build, found.share, found.buffers) == (of.build, "body", "private")
    assert found.common is common


def test_norms_that_are_private_do_not_travel_by_the_value_or_by_the_network():
    found = choose({"model": Same(norms="private")}, offered(same=Model(certain)))["model"]
    assert found == Model(certain, norms="private")
    models = {role: {"model": found} for role in ("server", "client")}
    node = Federation(FedAvg(), star(["c0"]), models, private(["c0"])).node("c0")
    assert set(node.weights()) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert set(node.slots["model"].tensors()) > set(node.weights())


def test_each_architecture_is_a_model_of_its_name():
    offer = offered()
    assert choose({"*": Architectures()}, offer) == offer.architectures


@pytest.mark.parametrize(
    ("choice", "which"),
    [(Own(), "own"), (Global(), "travelling"), (Same(), "same"), (Architectures(), "architectures")],
)
def test_what_is_not_offered_is_named(choice, which):
    with pytest.raises(NotOffered) as caught:
        choose({"model": choice}, offered(**{which: None}))
    assert caught.value.which == which


def test_weights_are_averaged_of_networks_that_are_the_same_alone():
    choices = (Own(), Global(), Same(), Architectures(), Built(Spliced, {"small": Global(), "own": Own()}))
    assert [choice.averaged for choice in choices] == [False, False, True, False, False]


# -- networks built from others --------------------------------------------------------------------------------
def pair(small, own):
    return nn.ModuleDict({"small": small, "own": own})


def nothing(small, own):
    return None


PARTS = {"small": Global(), "own": Own()}


@pytest.mark.parametrize(
    ("share", "travels", "found"),
    [
        ("", "small", ("small",)),
        ("body", "small", ("small.body",)),
        (("body", "head"), "small", ("small.body", "small.head")),
        ("body", ("small", "projector"), ("small.body", "projector")),
        ("body", "", ("",)),
    ],
)
def test_what_travels_of_a_built_network_is_what_the_setting_shares_of_the_part_that_travels(share, travels, found):
    offer = offered(travelling=Model(halves(), share), own=Model(halves()))
    made = choose({"model": Built(Spliced, PARTS, travels)}, offer)["model"]
    assert (made.share, made.buffers, made.common) == (found, "shared", False)
    assert isinstance(made.build(), Spliced)


def test_a_built_network_may_be_built_of_a_built_one():
    inner = Built(pair, PARTS, travels="small")
    offer = offered(travelling=Model(net(3), "0"), own=Model(net(5)))
    made = choose({"model": Built(pair, {"small": inner, "own": Own()}, travels="small")}, offer)["model"]
    assert made.share == ("small.small.0",)
    assert [part[0].out_features for part in (made.build()["small"]["small"], made.build()["own"])] == [3, 5]


@pytest.mark.parametrize(
    ("travels", "buffers"), [("small", "shared"), ("own", "private"), (("small", "own"), "private"), ("", "private")]
)
def test_statistics_of_a_built_network_stay_private_where_those_of_a_part_that_travels_do(travels, buffers):
    offer = offered(travelling=Model(net()), own=Model(net(), buffers="private"))
    assert choose({"model": Built(pair, PARTS, travels)}, offer)["model"].buffers == buffers


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Own(start="same"), "Own: start is 'different' or 'alike', got 'same'"),
        (lambda: Same(start=True), "Same: start is 'different' or 'alike', got True"),
        (lambda: Built(lambda **parts: None, PARTS), "is no class or function at the top of a module"),
        (lambda: Built(pair, {}), "Built(pair): of names no networks"),
        (
            lambda: Built(pair, {"small": Architectures()}),
            "Built(pair): of.small = Architectures(); it is one of Own()",
        ),
        (lambda: Built(pair, {"small": "own"}), "Built(pair): of.small = 'own'; it is one of Own(), Global()"),
        (lambda: Built(pair, {"small": Own(start="alike")}), "Built(pair): of.small = Own(start='alike'); it is one"),
        (choose({"model": Built(nothing, PARTS)}, offered())["model"].build, "Built(nothing) gave a NoneType, not"),
        (
            lambda: checked({"client": {"model": "own"}}, ("client",)),
            "networks: client.model = 'own'; it is one of Own()",
        ),
        (lambda: checked({"peer": {}}, ("client",)), "networks: unknown role 'peer'; the roles are client"),
    ],
)
def test_a_mistake_is_one_line(make, text):
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        make()
    assert "\n" not in str(caught.value)


# -- what must be of one shape ---------------------------------------------------------------------------------
def test_what_must_be_of_one_shape_follows_from_the_options():
    """FedGen averages heads class by class, or whole networks."""
    models = {"server": {"model": halves(6, 5)}, "client": {"model": halves(8, 5)}}
    data = private(["c0", "c1"])
    assert Federation(fedgen(), star(["c0", "c1"]), models, data).unlike is None
    found = Federation(fedgen(whole=True), star(["c0", "c1"]), models, data).unlike
    assert found is not None


def test_networks_of_one_kind_are_told_apart_by_what_of_them_travels():
    models = {"server": {"model": Model(net(), "2")}, "client": {"model": Model(net())}}
    found = Federation(FedAvg(), star(["c0"]), models, private(["c0"])).unlike
    assert found is not None
    assert "missing at server" in found.line
    assert torch.is_tensor(Federation(FedAvg(), star(["c0"]), models, private(["c0"])).node("c0").weights()["0.weight"])
