"""An audit: whoever knows all data but one canary cannot tell it better than epsilon says; at half the noise, they can.

A lower bound of epsilon follows from how well the best test on what left tells two worlds apart: by the exact intervals
of Clopper and Pearson, on releases that did not choose the test.
"""

import math

import pytest
import torch

pytest.importorskip("dp_accounting")
pytest.importorskip("scipy")

from scipy import stats

from heterophony import Fit, Kind, Logits, Node, Privacy, PrivateSteps, Weights
from heterophony.base.noise import Seeded
from heterophony.compute.eager import fit
from heterophony.data.table import Data
from heterophony.engines.outward import mean, noised
from heterophony.kernel.accountant import composed, epsilon_of
from heterophony.kernel.mailbox import Inbox
from heterophony.kernel.message import Message
from heterophony.kernel.node import Slot
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.privacy import Charge

DELTA = 1e-2
UPDATE = Kind("update", to="parent", weights=Weights("model", change=True))
LOGITS = Kind("logits", to="parent", logits=Logits)


def lower_bound(without, with_):
    """Epsilon that the two worlds' scores prove, at 99 in 100: the first half of them chooses the threshold."""
    half = len(without) // 2
    best = max(
        (float(t) for t in with_[:half].quantile(torch.linspace(0.05, 0.95, 19, dtype=torch.float64))),
        key=lambda t: _proved(without[:half], with_[:half], t),
    )
    return _proved(without[half:], with_[half:], best)


def _proved(without, with_, threshold):
    right, wrong, n = int((with_ > threshold).sum()), int((without > threshold).sum()), len(with_)
    least = stats.beta.ppf(0.005, right, n - right + 1) if right else 0.0
    most = stats.beta.ppf(0.995, wrong + 1, n - wrong)
    return math.log((least - DELTA) / most) if least > DELTA else 0.0


def at_the_door(kind, value, noise, n):
    """How far each of n releases points the way of the canary."""
    privacy = Privacy(clip=1.0, noise=noise, delta=DELTA, budget=1e3)
    field = next(iter(kind.fields))
    source = Seeded("audit", kind.name, noise, value)
    scores = []
    for _ in range(n):
        canary = {"w": torch.full((1,), value * 50.0)} if kind is UPDATE else torch.full((1, 1), value * 50.0)
        made = noised(kind, kind(**{field: canary}).body, privacy, {}, source)[field]
        scores.append(float(made["w"] if kind is UPDATE else made))
    return torch.tensor(scores, dtype=torch.float64)


def at_a_trusted_server(kind, value, noise, n):
    privacy = Privacy(clip=1.0, noise=noise, delta=DELTA, budget=1e3, central=True)
    source, scores = Seeded("audit centre", noise, value), []
    still = UPDATE(weights={"w": torch.zeros(1)}).body
    for _ in range(n):
        body = UPDATE(weights={"w": torch.full((1,), value * 50.0)}).body
        mail = Inbox(Message("update", name, "s", 0, (1, 0), b) for name, b in (("a", still), ("b", body)))
        scores.append(float(mean(UPDATE, mail, privacy, {}, source)["weights"]["w"]))
    return torch.tensor(scores, dtype=torch.float64)


@pytest.mark.parametrize(
    ("released", "kind"), [(at_the_door, UPDATE), (at_the_door, LOGITS), (at_a_trusted_server, UPDATE)]
)
def test_what_leaves_tells_no_more_than_epsilon_and_half_the_noise_is_found_out(released, kind):
    declared = Privacy(clip=1.0, noise=2.0, delta=DELTA, budget=1e3)
    claimed = epsilon_of(composed([declared.charge(kind)]), DELTA)
    honest = lower_bound(released(kind, -1.0, 2.0, 1600), released(kind, 1.0, 2.0, 1600))
    assert 0.2 * claimed < honest < claimed  # and the audit is not blind
    assert lower_bound(released(kind, -1.0, 1.0, 1600), released(kind, 1.0, 1.0, 1600)) > claimed


def private_steps(canary, noise, n):
    """Gradients of n steps on three rows, or on four: the fourth has a large gradient along the one weight."""
    rows = torch.tensor([[0.0], [0.0], [0.0], [100.0]])[: 4 if canary else 3]
    data, scores = Data(x=rows, y=torch.zeros(len(rows))), []

    def loss(models, batch):
        return models["model"](batch.x).sum()  # its gradient does not depend on the weight

    def seen(gradients, _):
        scores.append(len(rows) * gradients["weight"].item())
        return gradients

    node = Node("a", "client", slots={"model": Slot(torch.nn.Linear(1, 1, bias=False))}, data={"train": data})
    private, source = PrivateSteps(clip=1.0, noise=noise), Seeded("audit steps", canary, noise)
    fit(node, Fit("model", loss, steps=n, optimiser=sgd(0.1), transform=seen, private=private, source=source))
    return torch.tensor(scores, dtype=torch.float64)


@pytest.mark.slow
def test_a_row_is_told_no_better_than_epsilon_says_and_half_the_noise_is_found_out():
    claimed = epsilon_of(composed([Charge("training", 1.0)]), DELTA)  # all rows are drawn: the worst case
    honest = lower_bound(private_steps(False, 1.0, 800), private_steps(True, 1.0, 800))
    assert 0.2 * claimed < honest < claimed
    assert lower_bound(private_steps(False, 0.5, 800), private_steps(True, 0.5, 800)) > claimed
