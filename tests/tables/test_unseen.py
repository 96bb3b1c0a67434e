"""Those who took no part and those who came later: from rows by hand, and from settings to the table."""

import json

import pytest
import torch

from heterophony.data import DataError, LeakageError
from heterophony.runs import show
from heterophony.runs.findings.newcomers import Newcomers
from heterophony.runs.findings.unseen import Unseen
from heterophony.runs.summary import Summary
from heterophony.settings import Setting, assemble
from heterophony.settings.building import build
from heterophony.tables.unseen import newcomers, unseen
from toys.by_hand import row

SMALL = """
[data]
source = "digits-embedded"
clients = 3
test = 0.2
rows = 120
[models]
participants = "mlp"
"""
DOMAINS = """
[data]
test = 0.2
public = { fraction = 0.1 }
clients = 2
domains.a = { source = "digits-embedded", rows = 60 }
domains.b = { source = "digits-embedded", rows = 60, degrees = 40 }
domains.far = { source = "digits-embedded", rows = 60, degrees = 180 }
[models]
participants = "mlp"
"""


def setting(text=SMALL, **changes):
    return Setting.read(text, "small", "small.toml").changed(changes)


def told(federation, rounds):
    result = federation.run(rounds)
    return result, Summary.of(json.loads(json.dumps(federation.identity())), result)


def test_unseen_by_hand():
    rows = [row("a", "X", 4, split="unseen"), row("b", "X", 8, split="unseen"), row("a", "A", 9)]
    rows += [row("a", "X", 6, split="unseen", round=1), row("a", "X", 1.0, split="unseen", quantity="loss")]
    assert unseen(rows) == {"x": {"X": {"mean": 0.7, "best": 0.8, "worst": 0.6, "models": 2}}}
    assert unseen([]) == {}
    lost = unseen([*rows, row("a", "X", None, split="unseen", round=2)])  # its older figures are not what it is now
    assert lost == {"x": {"X": {"mean": None, "best": 0.8, "worst": None, "models": 2}}}


def test_newcomers_by_hand():
    """`row` sets the time to the round. One's own model has nothing before it joined; a shared one has."""
    rows = [row("late", "A", right, round=r) for r, right in ((2, 3), (3, 5))] + [row("late", "B", 0, round=2)]
    homes = {"early": "A", "late": "A"}
    alone = newcomers([*rows, row("early", "A", 9)], {"late": 1.5}, homes, "x")["late"]
    assert (alone["before"], [at["own"] for at in alone["since"]]) == (None, [0.3, 0.5])
    shared = [row("server", "A", right, round=r) for r, right in enumerate((1, 2, 6))]
    found = newcomers(shared, {"late": 1.5}, homes, "x")["late"]
    assert (found["joined"], found["before"]) == (1.5, 0.2)
    assert found["since"] == [{"round": 2, "time": 2.0, "own": 0.6}]
    private = [row("server", "late", 1, 4, "private-test", round=2)]
    assert newcomers(shared + private, {"late": 0.0}, homes, "x")["late"]["since"][0]["own"] == 0.25


def test_a_participant_that_takes_no_part_is_evaluated_on_and_nothing_else():
    whole, without = (build(setting(**{"data.unseen": names}).data, 0) for names in ([], ["c1"]))
    assert list(without.homes) == ["c0", "c2"]
    assert set(without.views) == {"c0", "c2"}
    for name in ("c0", "c2"):  # the others have what they would have had
        assert torch.equal(without.views[name]["train"]().x, whole.views[name]["train"]().x)
    assert torch.equal(without.tests["c1"]["unseen"].x, whole.views["c1"]["train"]().x)
    assert without.coverage.images["train"] < whole.coverage.images["train"]
    result, made = told(assemble("fedavg", setting(**{"data.unseen": ["c1"]})), 2)
    assert set(made.found(Unseen).value) == {"global"}
    (last,) = result.table.select(set="c1", split="unseen", quantity="accuracy").last().rows
    assert made.found(Unseen).value["global"]["c1"]["mean"] == last["sum"] / last["n"]
    assert last["n"] == len(whole.views["c1"]["train"]())
    assert "on who took no part, 'global': c1" in "\n".join(show.lines(made))


def test_a_domain_that_takes_no_part_gives_neither_clients_nor_public_data():
    made = build(setting(DOMAINS, **{"data.unseen": ["far"]}).data, 0)
    whole = build(setting(DOMAINS).data, 0)
    assert list(made.homes) == ["a.0", "a.1", "b.0", "b.1"]
    assert set(made.tests["far"]) == {"unseen"}
    assert torch.equal(made.tests["far"]["unseen"].x, whole.tests["far"]["test"].x)
    assert set(made.public().domain.tolist()) == {0, 1}
    assert len(made.public()) < len(whole.public())
    federation = assemble("ditto", setting(DOMAINS, **{"data.unseen": ["far"]}))
    _, said = told(federation, 1)
    assert said.found(Unseen).value["personalised"]["far"]["models"] == 4
    assert said.found(Unseen).value["global"]["far"]["models"] == 1
    assert "far" not in federation.homes.values()


def test_what_cannot_be_unseen():
    for names, text in ((["c7"], "no domain or participant is called 'c7'"), (["digits-embedded"], "nobody is left")):
        with pytest.raises(DataError, match=text):
            build(setting(**{"data.unseen": names}).data, 0)
    with pytest.raises(LeakageError, match="are in train"):  # its digits, turned, are others' training data
        build(setting(DOMAINS, **{"data.unseen": ["a.0"]}).data, 0)


def test_a_newcomer_is_followed_from_the_moment_it_joins():
    late = setting(**{"joins": {"c2": 0.1}, "data.private_test": True})
    _, made = told(assemble("finetune", late), 5)
    found = made.found(Newcomers).value["c2"]
    assert found["before"] is None
    assert found["since"]
    assert all(at["time"] > 0.1 for at in found["since"])
    assert "c2 joined at 0.1 s" in "\n".join(show.lines(made))
    _, shared = told(assemble("fedavg", late), 5)
    assert shared.found(Newcomers).value["c2"]["before"] is not None
