"""What is printed fits a narrow terminal, a line for each thing, and is whole where there is room."""

import json

import pytest
from typer.testing import CliRunner

from heterophony import cli
from heterophony.base.amounts import counted
from heterophony.cli import listing, terminal
from heterophony.runs import show
from heterophony.tables.metrics import Metrics
from toys.summaries import summary


@pytest.fixture(autouse=True)
def _no_data(monkeypatch, tmp_path):
    monkeypatch.delenv("HETEROPHONY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def printed(*words, columns=None):
    answer = CliRunner().invoke(cli.app, list(words), env={"COLUMNS": None if columns is None else str(columns)})
    assert answer.exit_code == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("command", ["methods", "settings", "data", "reproduce"])
def test_a_list_has_one_line_for_each_thing(command):
    everything = json.loads(printed(command, "--json"))
    narrow, whole = printed(command, columns=80), printed(command)
    lines = [line for line in narrow.splitlines() if not line.startswith("looked in")]  # a path may be long
    assert max(map(len, lines)) <= 80
    assert len(lines) <= len(everything) + 6
    assert "cut to 80 columns" in narrow
    assert "cut to" not in whole
    for row in everything:
        if "/" not in row["name"]:
            assert [line.split()[0] for line in lines].count(row["name"]) == 1
            assert row.get("summary", row.get("title")) in whole


def test_what_methods_send_is_told_where_there_is_room():
    assert "consensus" in printed("methods", columns=200)
    assert "consensus" not in printed("methods", columns=80)


def test_data_sets_that_differ_by_a_word_are_one_row():
    text = printed("data")
    assert "text in … from Universal Dependencies, as bytes, for language models" in text
    assert text.count("Universal Dependencies") == 1
    assert "ud/…: en, de, fr, es" in text
    assert len(json.loads(printed("data", "--json"))) > 40  # machines are told all of them


def test_a_family_is_one_row_only_of_those_that_are_alike():
    rows = [{"name": f"f/{name}", "summary": f"of {name}", "found": name == "b", "problem": None} for name in "abc"]
    listed, members = listing.families(rows)
    assert [row["name"] for row in listed] == ["f/…", "f/b"]
    assert members == {"f/…": ["a", "c"]}
    assert listing.counted(["x", "f/a", "f/b", "f/c", "g/a"]) == ["x", "f/… (3)", "g/a"]


def test_spare_columns_go_first_and_texts_are_cut_last():
    head, rows = ["name", "text", "more"], [["a", "one two three four five six", "x" * 10]]
    assert terminal.fitting(head, rows, ["more"], 60) == [0, 1, 2]
    assert terminal.fitting(head, rows, ["more"], 40) == [0, 1]
    assert terminal.cut(["name", "text"], [row[:2] for row in rows], 26) == [["a", "one two three four…"]]
    assert terminal.cut(["name", "text"], [["a", "x" * 30]], 26) == [["a", "x" * 19 + "…"]]


def test_brackets_are_printed_as_they_are(capsys):
    terminal.show(["name [/x]"], [["[bold]a[/bold] :smile:"]], title="[/title]")
    listing.tell([{"name": "[/x] :smile:"}], False, ("name",))
    said = capsys.readouterr().out
    assert all(text in said for text in ("name [/x]", "[bold]a[/bold] :smile:", "[/title]", "[/x] :smile:"))


def test_one_is_not_many():
    assert [counted(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def test_one_domain_is_said_once():
    one = {"acc": 0.5, "wdp": 0.5, "cdp": None, "private": None}
    made = summary(Metrics(**one, participants={"a": one, "b": one}))
    assert [column.header for column in show.table(made).columns] == ["participant", "accuracy"]
    two = {**one, "acc": 0.4, "cdp": 0.3}
    made = summary(Metrics(**two, participants={"a": two}))
    assert [column.header for column in show.table(made).columns][1:] == [
        "all domains",
        "own domain",
        "other domains",
    ]
