"""What a method and its parts need of the data is asked when a setting is put together, before anything runs."""

from dataclasses import dataclass

import pytest

from heterophony import Mark, Method, Need, NoStream, Round, on
from heterophony.data.sources import load
from heterophony.kernel.needs import DataFacts
from heterophony.methods import Cronus, FedAvg, FedMD, Solo
from heterophony.parts.training import Training
from heterophony.settings import SettingError, assemble
from heterophony.settings.building import build
from heterophony.settings.setting import DataPart

STREAM = {"arrivals": 4, "concepts": [{}]}
UNLABELLED = {"fraction": 0.1, "labelled": False}


def lacking(method, **facts):
    """Return what a method says of a setting called `here`."""
    said = (need.lacks(DataFacts("here", **facts)) for need in method.needs())
    return [line for line in said if line]


@dataclass(frozen=True)
class Patient:
    """A part of somebody's own that cannot do with streams."""

    def needs(self, name: str) -> list[Need]:
        return [NoStream(f"waits ({name})", instead=f"{name}=none")]


class Waiting(Method):
    """A method with such a part."""

    roles = ("peer",)
    models = {"peer": {}}
    tasks = True

    how: Patient = Patient()

    @on(Round)
    def wait(self, peer):
        yield Mark("local")
        peer.round += 1


def test_a_method_needs_what_its_parts_need_by_their_names():
    assert lacking(Waiting(), stream=True) == ["waits (how), but here has a stream: set how=none"]
    assert lacking(Waiting()) == []


def test_one_label_space_is_needed_by_all_that_do_not_say_otherwise():
    words = "a has 3 classes (x to z), b has 2 classes (x to y)"
    assert lacking(FedAvg(), label_spaces=words) == [f"needs domains of one label space, but {words}"]
    assert lacking(Solo(), label_spaces=words) == []


@pytest.mark.parametrize(
    ("local", "facts", "line"),
    [
        (Training(), {}, None),
        (Training(data="own"), {}, "trains on public data here; here has none: set data.public"),
        (Training(data="own"), {"public": True}, None),
        (Training(data="all"), {"public": True}, "set local.data=own or data.public.labelled=true"),
        (Training(data="all"), {"public": True, "labelled": True}, None),
        (Training(data="all"), {"public": True, "labelled": True, "stream": True}, "set local.data=train"),
    ],
)
def test_training_needs_the_rows_that_it_is_to_see(local, facts, line):
    found = lacking(Solo(local=local), **facts)
    assert (not found) if line is None else found[0].endswith(line)


def test_a_hint_names_the_option_that_asks_for_it():
    facts = {"public": True, "labelled": False}
    (line,) = lacking(FedMD(initial_public=1), **facts)
    assert line.endswith("set initial_public=0 or data.public.labelled=true")
    assert lacking(FedMD(), **facts) == []
    assert lacking(Cronus(), public=True, stream=True) == [
        "trains on private and public rows together, but here has a stream"
    ]


@pytest.mark.parametrize(
    ("method", "changes", "line"),
    [
        ("cronus", {"data.stream": STREAM}, "cronus trains on private and public rows together, but rotated-mnist"),
        ("fedmd", {"data.public": UNLABELLED, "initial_public": 1}, "set initial_public=0"),
        ("fedmd", {"data.public": None}, "fedmd needs public data; rotated-mnist has none: set data.public"),
        ("rcfl", {"confidence": "validation", "data.validation": 0}, "needs validation data: set data.validation"),
    ],
)
def test_a_setting_that_lacks_something_is_refused_before_anything_runs(method, changes, line):
    with pytest.raises(SettingError, match=line):
        assemble(method, "rotated-mnist", changes=changes)


@pytest.mark.parametrize(
    ("public", "labelled"),
    [
        (None, False),
        ({"fraction": 0.1}, True),
        (UNLABELLED, False),
        ({"source": "usps", "rows": 20}, True),
        ({"source": "usps", "rows": 20, "labelled": False}, False),
        ({"source": "five", "rows": 20}, False),  # of another label space
        ({"source": "five", "rows": 20, "joint": "fine"}, True),
    ],
)
def test_a_world_knows_whether_public_rows_have_labels_without_making_them(store, public, labelled):
    names = load("digits-embedded").classes
    store("usps", names=names)
    root = store("five", classes=5, names=[f"kind {i}" for i in range(5)])
    if public is not None and public.get("source") == "five":
        public = {**public, "source": str(root / "five.npz")}
    spec = DataPart.model_validate({"source": "digits-embedded", "test": 0.15, "public": public})
    made = build(spec, 0, root)
    assert made.labelled is labelled
    assert (made.public is not None and "y" in made.public().columns) is labelled
