"""What leaves follows from noise alone, whatever the private rows are: every method, at the door and in training.

Two worlds differ in all private rows of one participant. Clips are so short, and the noise so much longer, that what
passes the clip is lost in rounding. The noise is the same in both worlds. So every difference in what leaves came past
the clip: from training that is not private, or in a shape that follows from the rows.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("dp_accounting")

from heterophony import Data, Privacy, PrivateSteps
from heterophony.engines import local
from heterophony.engines.outward import Outward
from heterophony.kernel.accountant import PrivacyError
from heterophony.kernel.fields import Rows, Scalar
from heterophony.kernel.privacy import HEADCOUNT
from heterophony.methods import FedAvg, FedCurv, FedProto, PerFedAvg
from heterophony.parts import Training
from toys import federations, world

ROWS = {row.name: row for row in federations.METHODS}
QUICK = ("fedavg", "fd", "bhfl-async")
TINY, DEVIATION = 1e-9, 1e-3
# Nothing can be noised here, and it is refused when built; the tests below ask for the reason. Slices say which labels
# a client has.
SLICED = ("heterofl", "heterofl-normed", "fedrolex", "fjord", "depthfl", "scalefl")
REFUSED = ("cfd", "fedgkt", "fedkd", "fedkd-whole", *SLICED)
NEAR = 2**12  # units of a masked word, of 2^32 or 2^64


class Listening(Outward):
    """The door, with a record of all that passes it."""

    heard: list

    def out(self, node, send, mail):
        made = super().out(node, send, mail)
        if made.to and not made.withheld:
            self.heard.append((node.id, made.kind.name, tuple(made.to), made.round, dict(made.body)))
        return made


def participant(made):
    """The first node that has private rows."""
    return next(n for n, own in made.data.items() if "train" in own and not made.topology.static[n].children)


def at_the_door(made):
    clips = {
        name: TINY
        for kind in made.method.told
        for name, field in kind.fields.items()
        if not isinstance(field, Rows) and not (isinstance(field, Scalar) and name == HEADCOUNT)
    }
    privacy = Privacy(clip=clips, noise=DEVIATION / TINY, delta=1e-3, budget=1e12)
    return replace(made, privacy={participant(made): privacy})


def in_training(made):
    private = PrivateSteps(clip=TINY, noise=DEVIATION / TINY)
    return replace(made, method=replace(made.method, local=replace(made.method.local, private=private)))


def with_other_rows(made):
    """The same federation with other rows at one participant, as many as before."""
    name = participant(made)
    rows = made.data[name]["train"]
    if not isinstance(rows, Data):
        pytest.skip("its rows come as a stream")
    views = {**made.data[name], "train": world.points("something else", len(rows), shift=-1.0)}
    if "all" in views:
        views["all"] = lambda: world.joined(views["train"], views["public"])
    return replace(made, data={**made.data, name: views})


def unmixed():
    """The layers of the toys with BatchNorm, which private training refuses, without it and without chance."""
    return nn.Sequential(nn.Linear(8, 12), nn.Identity(), nn.ReLU(), nn.Identity(), nn.Linear(12, 4))


def plain():
    return nn.Sequential(nn.Linear(8, 12), nn.Identity(), nn.ReLU(), nn.Linear(12, 4))


def heard(made, monkeypatch, options):
    """What a participant sends in two rounds. Shares of secrets are drawn alike in both worlds."""
    Listening.heard = []
    if made.method.masked:
        monkeypatch.setattr("Crypto.Protocol.SecretSharing.rng", random.Random(0).randbytes)
    monkeypatch.setattr("heterophony.engines.local_host.Outward", Listening)
    local(made, **options).run(2)
    return [one for one in Listening.heard if one[0] == participant(made)]


def tensors(value):
    if isinstance(value, torch.Tensor):
        return {"": value}
    return value if hasattr(value, "items") else {"": torch.tensor(float(value))}


def alike(one, two):
    """Raise unless two bodies are equal but for what rounding makes of the clip."""
    assert one.keys() == two.keys()
    for name in one:
        here, there = tensors(one[name]), tensors(two[name])
        assert here.keys() == there.keys(), name
        for key in here:
            assert here[key].shape == there[key].shape, name
            if name == "words":
                assert apart(here[key], there[key]) < NEAR
            else:
                assert torch.allclose(here[key].double(), there[key].double(), atol=1e-5), name


def apart(one, two):
    """How far apart two masked messages are, round about."""
    unsigned = f"<u{one.element_size()}"
    here, there = (words.numpy().view(unsigned) for words in (one, two))
    return int(np.minimum(here - there, there - here).max())


def check(row, how, monkeypatch):
    made = how(row.build())
    here = heard(made, monkeypatch, row.options)
    there = heard(with_other_rows(made), monkeypatch, row.options)
    assert [one[:4] for one in here] == [one[:4] for one in there]
    for one, two in zip(here, there, strict=True):
        alike(one[4], two[4])


def names(quick):
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in ROWS]


@pytest.mark.parametrize("name", names(QUICK))
def test_what_passes_the_door_follows_from_noise_alone(name, monkeypatch):
    row, made = ROWS[name], ROWS[name].build()
    if not any(made.topology.static[participant(made)].group(kind.to) for kind in made.method.kinds):
        pytest.skip("nothing leaves a participant")
    if name in REFUSED:
        with pytest.raises(PrivacyError, match="nothing here knows noise for it"):
            at_the_door(made)
        return
    check(row, at_the_door, monkeypatch)


def _refusal(row):
    """Return why a method cannot train privately; nothing where it can."""
    try:
        in_training(row.build())
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", names(("fedavg", "ds-fl")))
def test_what_follows_from_private_training_follows_from_noise_alone(name, monkeypatch):
    """Methods that cannot keep this say so when they are built."""
    monkeypatch.setattr(federations, "normed", unmixed)
    monkeypatch.setattr(federations, "certain", plain)
    if not isinstance(getattr(ROWS[name].build().method, "local", None), Training):
        pytest.skip("it has no local training")
    if refusal := _refusal(ROWS[name]):  # before anything runs, in one line that says why
        assert "is made of rows without noise" in refusal or "does not use local.private" in refusal
        return
    check(ROWS[name], in_training, monkeypatch)


@pytest.mark.parametrize("name", ["fedavg", "secure-fedavg", "secure-fedavg-words"])
def test_a_difference_that_comes_past_the_clip_is_found(name, monkeypatch):
    with pytest.raises(AssertionError):
        check(ROWS[name], lambda made: replace(at_the_door(made), privacy={participant(made): OPEN}), monkeypatch)


OPEN = Privacy(kinds=("global",), clip=1.0, noise=1.0, delta=1e-3, budget=1e3)


@pytest.mark.parametrize("method", [FedCurv, PerFedAvg])
def test_training_that_would_not_be_private_is_refused(method):
    private = Training(private=PrivateSteps(clip=1.0, noise=1.0))
    with pytest.raises(ValueError, match=r"does not use local\.private"):
        method(local=private)


def test_factors_whose_number_of_columns_follows_from_rows_are_refused():
    with pytest.raises(PrivacyError, match="update of 'update' has no clip of its own"):
        at_the_door(ROWS["fedkd"].build())


def test_what_one_owner_protects_another_may_not():
    """Kinds that tell of raw rows are looked for at every node, not at the first of its role."""
    made = federations.headed_star(FedProto(local=Training(batch=16)))
    kinds = Privacy(clip=1.0, noise=8.0, delta=1e-3, budget=1e3)
    steps = FedProto(local=Training(batch=16, private=PrivateSteps(clip=1.0, noise=1.0)))
    replace(made, method=steps, privacy=dict.fromkeys(federations.CLIENTS, kinds))
    with pytest.raises(PrivacyError, match="means of 'prototypes' is made of rows without noise"):
        replace(made, method=steps, privacy={"c0": kinds})


def test_one_row_without_numbers_does_not_spoil_the_gradients_of_the_others():
    made = federations.spoiled()
    steps = FedAvg(local=Training(batch=16, private=PrivateSteps(clip=1.0, noise=0.1)))
    run = local(replace(made, method=steps)).run(1)
    assert all(torch.isfinite(t).all() for t in run.host.state("c1")["models"]["model"].values())
