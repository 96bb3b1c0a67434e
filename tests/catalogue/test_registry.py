"""Methods by name: ours and other packages', and their options from a command line or a file."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from typer.testing import CliRunner

from heterophony import Method, Own, methods, on
from heterophony.catalogue import registry
from heterophony.catalogue.options import described, meaning
from heterophony.catalogue.registry import Entry, OptionError, all_methods, lookup, parse
from heterophony.cli import app
from heterophony.kernel.reaction import Round
from heterophony.methods import FML, FedAvg, Solo
from heterophony.parts.training import Training


class Drift(Method):
    """Everyone goes astray, slowly.

    And here is more than one line can hold.
    """

    roles = ("peer",)
    models = {"peer": {"model": Own()}}
    headline = "local"

    speed: Annotated[float, "how far a round goes"] = 0.5
    label: str | None = None  # what the peers are called
    local: Training = Training(lr=0.2)

    @on(Round)
    def wander(self, peer) -> None:
        peer.round += 1


def quick(speed: float = 2.0, **drift: Any) -> Drift:
    """Drift, at once."""
    return Drift(speed=speed, **drift)


@dataclass
class Point:
    """What importlib.metadata gives for an entry point."""

    name: str
    target: Any
    value: str = "package:target"

    def load(self) -> Any:
        if isinstance(self.target, Exception):
            raise self.target
        return self.target


@pytest.fixture
def installed(monkeypatch):
    """Pretend that other packages register methods."""

    def install(**targets: Any) -> None:
        points = [Point(name, target) for name, target in targets.items()]
        monkeypatch.setattr(registry, "entry_points", lambda *, group: points if group == registry.GROUP else [])

    install()
    return install


# -- names ------------------------------------------------------------------------------------------------------
def test_built_in_methods_are_found(installed):
    assert lookup("fedavg").build({}) == FedAvg()
    assert {"solo", "agg", "fedavg", "fedprox", "fml"} <= set(all_methods())


@pytest.mark.parametrize("name", methods.NAMES)
def test_every_method_says_what_it_is(name):
    entry = lookup(name)
    assert entry.summary.endswith(".")
    assert issubclass(entry.base, Method)
    assert entry.base.headline
    assert isinstance(entry.build({}), entry.base)


@pytest.mark.parametrize(
    ("wrong", "right"), [("fedavgg", "'fedavg'"), ("FML", "heterophony methods"), ("", "heterophony methods")]
)
def test_an_unknown_method(installed, wrong, right):
    with pytest.raises(OptionError, match=f"no method '{wrong}'.*{right}"):
        lookup(wrong)


def test_methods_of_other_packages(installed):
    installed(drift=Drift, quick=quick)
    assert lookup("drift").build({"speed": 3}) == Drift(speed=3.0)
    assert lookup("quick").build({"lr": 0.1}) == Drift(speed=2.0, local=Training(lr=0.1))
    assert lookup("drift").summary == "Everyone goes astray, slowly."
    answer = CliRunner().invoke(app, ["methods"])
    assert answer.exit_code == 0
    assert "quick" in answer.stdout


def test_a_built_in_name_is_not_taken_by_others(installed):
    installed(fedavg=Drift)
    assert lookup("fedavg").base is FedAvg


@pytest.mark.parametrize("broken", [ImportError("no module named 'drift'"), AttributeError("Drift")])
def test_a_broken_package_does_not_spoil_the_others(installed, broken):
    installed(drift=broken, quick=quick)
    assert lookup("fedavg").base is FedAvg
    assert lookup("quick").base is Drift
    with pytest.raises(OptionError, match="drift"):
        lookup("drift")
    assert CliRunner().invoke(app, ["methods", "--json"]).exit_code == 0


def test_a_function_without_annotations(installed):
    def vague(speed=2.0, **drift):
        return Drift(speed=speed, **drift)

    installed(vague=vague)
    assert lookup("vague").base is Drift
    assert lookup("vague").build({"speed": 3.0, "lr": 0.1}) == Drift(speed=3.0, local=Training(lr=0.1))


def test_a_method_that_cannot_be_described_is_left_out_with_a_reason(installed):
    def failing():
        raise RuntimeError("out of order")

    installed(failing=failing, number=lambda: 3, fedavg=Drift, quick=quick)
    answer = CliRunner().invoke(app, ["methods"])
    assert answer.exit_code == 0
    assert "quick" in answer.stdout
    assert "failing of another package: method 'failing' cannot be made with its defaults" in answer.stderr
    assert "number of another package: method 'number' makes a int" in answer.stderr
    assert "the name is one of ours" in answer.stderr


@pytest.mark.parametrize("target", [int, 3, "Drift"])
def test_something_that_is_no_method(installed, target):
    installed(odd=target)
    with pytest.raises(OptionError, match="'odd'"):
        lookup("odd").options()


# -- options ----------------------------------------------------------------------------------------------------
def test_options_are_plain_values_with_parts_by_a_dot():
    options = Entry("drift", Drift).options()
    assert {"speed", "label", "local.lr", "local.batch"} <= set(options)
    assert options["speed"] == (float, 0.5)
    assert options["local.momentum"] == (float, 0.0)
    assert options["local.lr"][1] == 0.2
    assert "local" not in options


def test_functions_are_no_options():
    assert not {"loss", "transform"} & set(Entry("fedavg", FedAvg).options())


def test_options_of_a_function_are_its_own_and_those_of_the_class():
    options = Entry("quick", quick).options()
    assert options["speed"] == (float, 2.0)
    assert options["local.lr"][1] == 0.2
    assert "drift" not in options


def test_a_short_name_must_be_the_only_one():
    class Two(Method):
        """Two trainings."""

        roles = ("peer",)
        local: Training = Training()
        distil: Training = Training()
        rate: float = 0.0

        @on(Round)
        def go(self, peer) -> None:
            peer.round += 1

    entry = Entry("two", Two)
    assert entry.full_name("rate") == "rate"
    assert entry.full_name("local.lr") == "local.lr"
    with pytest.raises(OptionError, match=r"local\.lr, distil\.lr"):
        entry.full_name("lr")


def test_an_unknown_option_names_near_ones():
    with pytest.raises(
        OptionError, match=r"drift has no option 'sped', perhaps you meant 'speed'; it has speed, label"
    ):
        Entry("drift", Drift).full_name("sped")
    with pytest.raises(OptionError, match=r"it has speed, label, local\.epochs"):
        Entry("drift", Drift).full_name("zzz")


def test_build_keeps_what_is_not_named():
    made = Entry("fml", FML).build({"alpha": 0.3, "lr": 0.5, "local.epochs": 4})
    assert made == FML(alpha=0.3, local=Training(lr=0.5, epochs=4, momentum=0.9, weight_decay=5e-4))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("lr", "fast", r"local\.lr = 'fast'.*number"),
        ("epochs", 1.5, r"local\.epochs = 1\.5.*integer"),
        ("optimiser", "rmsprop", r"local\.optimiser = 'rmsprop'.*'sgd'"),
        ("speed", [1], r"speed = \[1\].*number"),
        ("speed", None, "speed = None.*number"),
        ("label", 3, "label = 3.*string"),
    ],
)
def test_values_are_checked_against_their_types(key, value, said):
    with pytest.raises(OptionError, match=f"^drift: {said}") as caught:
        Entry("drift", Drift).build({key: value})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [("label", None), ("label", "x"), ("batch", None), ("speed", 1)])
def test_values_that_fit(key, value):
    made = Entry("drift", Drift).build({key: value})
    holder = made.local if key == "batch" else made
    assert getattr(holder, key) == value


NAMES = list(methods.NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_listed_option_can_be_set(name):
    entry = lookup(name)
    for key, (_, default) in entry.options().items():
        assert entry.build({key: default}) == entry.build({}), key


def test_an_option_that_has_no_effect_is_not_taken():
    try:
        made = lookup("agg").build({"local.data": "train"})
    except OptionError:
        return
    assert isinstance(made, Solo)
    assert made.local.data == "train"


@pytest.mark.parametrize("name", NAMES)
def test_a_listed_default_is_what_is_built(name):
    """What `heterophony methods` prints is what a run without `--set` has."""
    entry = lookup(name)
    made = entry.build({})
    for key, (_, default) in entry.options().items():
        outer, _, inner = key.partition(".")
        held = getattr(made, outer, default)  # a function's own parameter may end up in a part
        assert (getattr(held, inner) if inner else held) == default, key


# -- key=value --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("lr=0.1", "lr", 0.1),
        ("lr=1e-3", "lr", 1e-3),
        ("epochs=3", "epochs", 3),
        ("weighted=false", "weighted", False),
        ("optimiser=adam", "optimiser", "adam"),
        ('optimiser="adam"', "optimiser", "adam"),
        ("models.participants=['mlp', 'lenet5']", "models.participants", ["mlp", "lenet5"]),
        ("data.partition={kind = 'iid'}", "data.partition", {"kind": "iid"}),
        (" lr = 0.1 ", "lr", 0.1),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
        ("models.participants=wrn-10-1", "models.participants", "wrn-10-1"),
    ],
)
def test_parse(text, key, value):
    assert parse(text) == (key, value)
    assert type(parse(text)[1]) is type(value)


@pytest.mark.parametrize("text", ["", "lr", "=1", "  =1"])
def test_what_is_no_key_and_value(text):
    with pytest.raises(OptionError, match="key=value"):
        parse(text)


@pytest.mark.parametrize("name", methods.NAMES)
def test_every_option_of_our_methods_says_what_it_means(name):
    entry = registry.ours(name)
    assert [option for option in entry.options() if not meaning(entry, option)] == []


def test_an_option_says_what_it_means_by_its_type_and_not_by_a_comment():
    said = {option.name: option.note for option in described(Entry("drift", Drift))}
    assert said["speed"] == "how far a round goes"
    assert said["label"] == ""
    assert said["local.optimiser"].endswith("one of sgd, adam, amsgrad, adamw")
