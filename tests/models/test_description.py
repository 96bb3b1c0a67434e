"""Networks that stand in files as plain values, and are built again from them."""

import json
from functools import partial

import pytest
import torch
from torch import nn

from heterophony import Built, Global, Model, Own
from heterophony.kernel.networks import Offer, choose
from heterophony.models import create
from heterophony.models.description import describe, imports, reads, rebuild, shown
from heterophony.parts.spliced import Spliced

SHAPE = {"in_channels": 1, "size": 28, "classes": 10}
BUILT = {"make": "heterophony.parts.spliced:Spliced", "of": {"small": "mlp", "own": "lenet5"}}


def pair(small, own):
    return nn.ModuleDict({"small": small, "own": own})


THEIRS = {"make": f"{__name__}:pair", "of": {"small": "evil:net", "own": BUILT}}


def test_what_is_described_is_built_again():
    offer = Offer(own=Model(partial(create, "lenet5", **SHAPE)), travelling=Model(partial(create, "mlp", **SHAPE)))
    inner = Built(Spliced, {"small": Global(), "own": Own()})
    for choice, found in (
        (Own(), "lenet5"),
        (inner, BUILT),
        (Built(pair, {"small": Own(), "own": inner}), {**THEIRS, "of": {"small": "lenet5", "own": BUILT}}),
    ):
        build = choose({"model": choice}, offer)["model"].build
        assert json.loads(json.dumps(describe(build))) == found
        torch.manual_seed(1)
        one = build().state_dict()
        torch.manual_seed(1)
        other = rebuild(describe(build), **SHAPE).state_dict()
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def linear(width=2):
    return nn.Linear(width, 1)


def test_a_factory_at_the_top_of_a_module_is_described_by_its_name_and_plain_arguments():
    for build, told in ((linear, {}), (partial(linear, width=5), {"width": 5})):
        found = describe(build)
        assert json.loads(json.dumps(found)) == {"make": f"{__name__}:linear", "of": {}, "with": told}
        assert (imports(found), reads(found), shown(found)) == ([f"{__name__}:linear"], None, "linear")
        assert rebuild(found, **SHAPE).in_features == told.get("width", 2)


def test_what_has_no_name_cannot_be_built_again():
    for build in (lambda: nn.Linear(1, 1), partial(linear, width=torch.tensor(3))):
        found = describe(build)
        assert shown(found) in ("<lambda>", "linear")
        with pytest.raises(ValueError, match="has no name by which it can be built again"):
            rebuild(found, **SHAPE)


def test_what_a_description_says():
    assert [imports(each) for each in ("mlp", "mine:net", BUILT, THEIRS)] == [
        [],
        ["mine:net"],
        [],
        [f"{__name__}:pair", "evil:net"],
    ]
    texts = {**BUILT, "of": {"small": "byte-cnn", "own": "byte-cnn"}}
    assert [reads(each) for each in ("mlp", texts, BUILT, THEIRS)] == ["images", "texts", "images", None]
    assert [shown(each) for each in ("mlp", BUILT)] == ["mlp", "Spliced(mlp, lenet5)"]
    assert shown(THEIRS) == "pair(evil:net, Spliced(mlp, lenet5))"


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        ["mlp"],
        {},
        {"make": BUILT["make"]},
        {**BUILT, "of": {}},
        {**BUILT, "of": "mlp"},
        {**BUILT, "make": 3},
        {**BUILT, "more": 1},
        {**BUILT, "of": {"small": {"make": 1}}},
        {**BUILT, "of": {"small": 4}},
    ],
)
def test_what_describes_no_network_is_refused(wrong):
    for function in (imports, partial(rebuild, **SHAPE)):
        with pytest.raises(ValueError, match="describes no network"):
            function(wrong)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        ("heterophony.models.registry:create", "is no torch.nn.Module"),
        ("heterophony.models.registry:importlib", "is not callable"),
        ("heterophony.parts.spliced:nothing", "does not exist"),
        ("heterophony.models.lenet:LeNet5", "the call failed (TypeError"),
    ],
)
def test_of_ours_a_file_may_name_networks_only(make, text):
    with pytest.raises(ValueError, match=r"^network 'heterophony\.") as caught:
        rebuild({**BUILT, "make": make}, **SHAPE)
    assert text in str(caught.value)


def test_a_function_that_gives_no_network_is_named():
    with pytest.raises(ValueError, match=r"the call gave a dict, not a torch.nn.Module"):
        rebuild({"make": "builtins:dict", "of": {"small": "mlp"}}, **SHAPE)


def test_two_networks_are_no_name():
    with pytest.raises(ValueError, match="unknown network 'mlp \\+ lenet5'"):
        create("mlp + lenet5", **SHAPE)
