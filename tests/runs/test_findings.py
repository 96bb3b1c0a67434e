"""What only some runs have to say: when it is said, in which words, and that nothing of it is lost on the disk."""

import json
from pathlib import Path

import pytest

from heterophony.runs import findings, show
from heterophony.runs.findings.diverged import Diverged
from heterophony.runs.findings.drift import OverTime
from heterophony.runs.findings.finding import Evidence
from heterophony.runs.findings.leaks import Leaks
from heterophony.runs.findings.refusals import RefusedMessages
from heterophony.runs.findings.skipped import Skipped
from heterophony.runs.findings.unmarked import Unmarked
from heterophony.runs.findings.untrained import Untrained
from heterophony.runs.summary import Best, Summary
from heterophony.tables.ledger import Ledger
from heterophony.tables.metrics import Metrics
from heterophony.tables.table import Table
from toys.summaries import summary

CORE = {"method", "setting", "seed", "product", "metrics", "best", "bytes", "incidents", "rounds", "digest", "seconds"}
CORE |= {"clock", "machine", "finished"}


def evidence(rows=(), ledger=(), **spec):
    return Evidence({"homes": {"a": "A", "b": "B"}, "headline": "global", **spec}, Table(rows), Ledger(ledger))


def row(node, right, n=10, **changes):
    made = {"round": 0, "time": 1.0, "product": "global", "node": node, "set": "A", "split": "test"}
    return made | {"quantity": "accuracy", "sum": right, "n": n} | changes


def incident(what, node="server", detail=""):
    return {"time": 0.0, "node": node, "incident": what, "detail": detail}


def test_a_run_without_anything_special_finds_nothing_but_that_nothing_leaks():
    found = [kind.of(evidence([row("server", 5)])) for kind in findings.ALL]
    assert [finding for finding in found if finding is not None] == [Leaks([])]


def test_each_finding_has_a_file_a_name_and_a_sentence_of_its_own():
    folder = Path(findings.__file__).parent
    assert len({kind.__module__ for kind in findings.ALL}) == len(findings.ALL)
    assert {path.stem for path in folder.glob("*.py")} - {"__init__", "finding"} == {
        kind.__module__.rpartition(".")[2] for kind in findings.ALL
    }
    keys = [kind.key for kind in findings.ALL]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & CORE


def test_refusals_and_skipped_merges_are_counted_and_a_join_is_no_incident():
    seen = evidence(ledger=[incident("joined"), incident("refused", detail="'x'"), incident("skipped")])
    assert len(seen.incidents) == 2
    told = summary(Metrics(), incidents=2).having(RefusedMessages.of(seen)).having(Skipped.of(seen))
    text = show.lines(told)
    assert "sent 10 B: update 10 B; 2 incidents, among them 1 skipped merge (too few answers)" in "\n".join(text)
    assert "REFUSED: 1 message; server refused 'x'" in text
    twice = RefusedMessages.of(evidence(ledger=[incident("refused", detail="'x'")] * 2))
    assert twice.lines(told) == ["REFUSED: 2 messages; the first: server refused 'x'"]


def test_a_headline_that_was_never_marked_is_said_when_the_run_has_rounds():
    rows = [row("a", 5, product="local"), row("b", 5, product="best"), row("a", 0.1, product="x", quantity="loss")]
    found = Unmarked.of(evidence(rows))
    assert found.value == ["local", "best"]
    said = "the method's headline 'global' was never marked; marked were local, best"
    assert found.lines(summary(Metrics(), product="global")) == [said]
    assert found.lines(summary(Metrics(), product="global", rounds=0)) == []
    assert Unmarked.of(evidence([*rows, row("server", 5)])) is None


def test_of_many_that_diverged_the_first_are_named():
    found = Diverged.of(evidence([row(f"c{i}", None) for i in range(7)]))
    (said,) = found.lines(summary(Metrics()))
    assert said.startswith("DIVERGED: the outputs of c0, c1, c2, c3, c4 and 2 more are no numbers any more")


def test_leaks_and_classes_without_training_are_named_one_by_one():
    seen = evidence(leaks=["one", "two"], untrained=["three"])
    told = summary(Metrics()).having(Leaks.of(seen)).having(Untrained.of(seen))
    assert show.lines(told)[-4:-1] == ["LEAKY: one", "LEAKY: two", "UNTRAINED: three"]


def test_a_stream_whose_models_diverge_is_told_as_any_other():
    """Its figures over time are undefined from then on."""
    stream = {"recipe": {"setting": {"data": {"stream": {"concepts": [{}, {}], "every": 1}}}}}
    rows = [row("server", 5, split=f"concept-{concept}") for concept in (0, 1)]
    rows += [row("server", None, split=f"concept-{concept}", round=1) for concept in (0, 1)]
    found = OverTime.of(evidence(rows, **stream, joins={}))
    (said,) = found.lines(summary(Metrics()))
    assert said == "after round 2 of the stream: present -, past -, forgotten -; mean over time: present -"


def test_a_finding_takes_the_place_of_another_of_its_kind():
    told = summary(Metrics()).having(Skipped(1)).having(Leaks([])).having(Skipped(2))
    assert told.found(Skipped).value == 2
    assert len(told.findings) == 2
    assert told.found(Diverged) is None


@pytest.mark.parametrize("training", [None, 4])
def test_a_summary_comes_back_from_its_json(training):
    metrics = Metrics(acc=0.5, participants={"a": {"acc": 0.5, "wdp": None}})
    told = summary(metrics, best=Best(2, metrics, training), machine="here")
    told = told.having(Leaks(["x"])).having(Skipped(3))
    value = json.loads(json.dumps(told.as_json()))
    assert Summary.from_json(value).as_json() == value
    assert set(value) == CORE | {"leaks", "skipped"}
    assert value["bytes"] == {"total": 10, "update": 10}
    assert ("training" in value["best"]) == (training is not None)
    older = {key: value[key] for key in ("method", "rounds", "metrics", "bytes", "digest", "seconds")}
    assert Summary.from_json(older).rounds == told.rounds
