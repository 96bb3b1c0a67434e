"""Options that change with the round, against plain loops and torch's own schedulers; how a setting tells them."""

import math

import pytest
import torch

from heterophony.catalogue.registry import OptionError, lookup
from heterophony.parts import schedules
from heterophony.parts.schedules import Ramp, Stairs, Warmup

ROUNDS = 12


def steps_of(start, change):
    """The values of all rounds, each made from the one before."""
    found = [start]
    for round in range(1, ROUNDS):
        found.append(change(round, found[-1]))
    return found


def rated(made, start=0.8):
    """The rates that one of torch's schedulers gives, an epoch for a round."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=start)
    scheduler, found = made(optimiser), []
    for _ in range(ROUNDS):
        found.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return found


TORCHS = torch.optim.lr_scheduler
CASES = {
    "a number": (0.8, [0.8] * ROUNDS),
    "a ramp": (Ramp(0.8, 0.2, 6), steps_of(0.8, lambda round, last: last - 0.1 if round <= 6 else last)),
    "a ramp upwards": (Ramp(0.8, 2.0, 6), steps_of(0.8, lambda round, last: last + 0.2 if round <= 6 else last)),
    "a cosine": (
        Ramp(0.8, 0.2, 6, "cosine"),
        [0.2 + 0.3 * (1 + math.cos(math.pi * min(round, 6) / 6)) for round in range(ROUNDS)],
    ),
    "a cosine to nothing, of torch": (
        Ramp(0.8, 0.0, ROUNDS, "cosine"),
        rated(lambda optimiser: TORCHS.CosineAnnealingLR(optimiser, ROUNDS)),
    ),
    "a tenth each third": (Stairs(0.8, 0.1, every=4), [0.8] * 4 + [0.08] * 4 + [0.008] * 4),
    "stairs of torch": (Stairs(0.8, 0.5, every=5), rated(lambda optimiser: TORCHS.StepLR(optimiser, 5, 0.5))),
    "listed steps": (
        Stairs(0.8, 0.5, at=(2, 3, 9)),
        steps_of(0.8, lambda r, last: last / 2 if r in (2, 3, 9) else last),
    ),
    "listed steps, of torch": (
        Stairs(0.8, 0.5, at=(3, 7)),
        rated(lambda optimiser: TORCHS.MultiStepLR(optimiser, [3, 7], 0.5)),
    ),
    "a warm-up": (Warmup(3, 0.8), [0.2, 0.4, 0.6] + [0.8] * (ROUNDS - 3)),
    "a warm-up before stairs": (Warmup(1, Stairs(0.8, 0.5, every=4)), [0.4] + [0.8] * 4 + [0.4] * 4 + [0.2] * 3),
    "a warm-up before a ramp": (Warmup(2, Ramp(0.9, 0.5, 2)), [0.3, 0.6, 0.9, 0.7] + [0.5] * (ROUNDS - 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_is_its_rule(name):
    schedule, expected = CASES[name]
    assert [schedules.at(schedule, round) for round in range(ROUNDS)] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_stays_between_its_ends(name):
    schedule, _ = CASES[name]
    least, most = min(schedules.ends(schedule)), max(schedules.ends(schedule))
    assert all(least - 1e-12 <= schedules.at(schedule, round) <= most + 1e-12 for round in range(100))


def test_stairs_without_an_end_go_to_nothing_or_beyond_all_bounds():
    assert schedules.ends(Stairs(0.5, 0.1, every=2)) == (0.5, 0.0)
    assert schedules.ends(Stairs(0.5, 1.0, every=2)) == (0.5,)
    assert schedules.ends(Stairs(0.5, 2.0, every=2)) == (0.5, math.inf)


TOLD = [
    ({"start": 0.9, "stop": 0.5, "over": 10}, Ramp(0.9, 0.5, 10)),
    ({"start": 1, "stop": 0, "over": 4, "kind": "cosine"}, Ramp(1, 0, 4, "cosine")),
    ({"start": 0.1, "factor": 0.1, "every": 10}, Stairs(0.1, 0.1, every=10)),
    ({"start": 0.1, "factor": 0.1, "at": [10, 20]}, Stairs(0.1, 0.1, at=(10, 20))),
    ({"warmup": 5, "then": 0.1}, Warmup(5, 0.1)),
    ({"warmup": 5, "then": {"start": 1.0, "factor": 0.5, "every": 2}}, Warmup(5, Stairs(1.0, 0.5, every=2))),
]


@pytest.mark.parametrize(("table", "schedule"), TOLD)
def test_a_table_is_read_as_the_schedule_that_its_keys_name(table, schedule):
    method = lookup("fedavg").build({"lr": table, "rate": table})
    assert method.local.lr == method.server.rate == schedule
    of_nodes = {"c0": table, "leaf": 0.5, "*": {"start": 0.2, "stop": 0.1, "over": 3}}
    assert lookup("fedavg").build({"lr": of_nodes}).local.lr == {"c0": schedule, "leaf": 0.5, "*": Ramp(0.2, 0.1, 3)}
    assert lookup("fml").build({"alpha": {"start": 0.9, "factor": 0.5, "every": 2}}).alpha == Stairs(0.9, 0.5, every=2)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"start": 0.1, "stop": 0.2}, "a ramp has start, stop, over, kind; over is missing"),
        ({"start": 0.1, "stop": 0.2, "over": 3, "every": 2}, "stairs have start, factor, every, at; factor is missing"),
        ({"start": 0.1, "factor": 0.5, "every": 2, "stop": 0}, "stairs have start, factor, every, at; got stop"),
        ({"warmup": 3}, "a warm-up has warmup, then; then is missing"),
        ({"start": 0.1, "stop": 0.2, "over": 0}, "a ramp goes over at least one round, got 0"),
        ({"start": 0.1, "stop": 0.2, "over": 2.5}, "a ramp goes over at least one round, got 2.5"),
        ({"start": 0.1, "stop": 0.2, "over": 2, "kind": "sine"}, "a ramp's kind is linear or cosine, got sine"),
        ({"start": "x", "stop": 0.2, "over": 2}, "a ramp's start is a number, got x"),
        ({"start": math.nan, "stop": 0.2, "over": 2}, "a ramp's start is a number, got nan"),
        ({"start": 0.1, "factor": -1, "every": 2}, "the factor of stairs is at least 0, got -1"),
        ({"start": 0.1, "factor": 0.5}, "stairs have either every"),
        ({"start": 0.1, "factor": 0.5, "every": 2, "at": [3]}, "stairs have either every"),
        ({"start": 0.1, "factor": 0.5, "every": 0}, "stairs step after at least one round, got 0"),
        ({"start": 0.1, "factor": 0.5, "at": [3, -1]}, "stairs step after at least one round, got -1"),
        ({"warmup": 0, "then": 0.1}, "a warm-up takes at least one round, got 0"),
        ({"warmup": 2, "then": "soon"}, "what comes after a warm-up is a number, got soon"),
        ({"warmup": 2, "then": {"warmup": 2, "then": 0.1}}, "what comes after a warm-up is a number"),
        ("soon", "must be a number, or a table such as"),
        ([0.1, 0.2], "must be a number, or a table such as"),
        ({}, "must be a number, or a table such as"),
    ],
)
@pytest.mark.parametrize("option", ["local.lr", "server.rate"])
def test_a_schedule_that_cannot_be_is_refused_in_one_line(option, table, text):
    with pytest.raises(OptionError, match=r"^fedavg: ") as error:
        lookup("fedavg").build({option: table})
    assert option in str(error.value)
    assert text in str(error.value)
    assert "\n" not in str(error.value)
