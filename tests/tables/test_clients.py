"""Who gains and who loses, from rows that can be added up by hand."""

import json

import pytest
from typer.testing import CliRunner

from heterophony.cli import app
from heterophony.tables.clients import gains, line, own
from toys.by_hand import row

HOMES = {"a": "A", "b": "B"}


def marked(product, *rows):
    return [{**each, "product": product} for each in rows]


def test_own_figures_are_of_the_private_test_or_else_of_the_domain():
    rows = marked("mine", row("a", "A", 5), row("a", "B", 1), row("b", "B", 6), row("a", "A", 8, round=1))
    assert own(rows, HOMES, "mine") == {"a": 0.8, "b": 0.6}
    private = marked("mine", row("a", "a", 3, 4, split="private-test"))
    assert own(rows + private, HOMES, "mine") == {"a": 0.75, "b": 0.6}
    assert own(rows, HOMES, "other") == {}
    assert own(marked("mine", row("a", "A", None)), HOMES, "mine")["a"] is None


def test_all_use_a_servers_model():
    rows = marked("global", row("server", "A", 7), row("server", "B", 4), row("server", "b", 1, 1, "private-test"))
    assert own(rows, HOMES, "global") == {"a": 0.7, "b": 1.0}
    twice = rows + marked("global", row("other", "A", 1))
    assert own(twice, HOMES, "global") == {}


def test_gains_by_hand():
    found = gains({"a": 0.9, "b": 0.4, "c": 0.5, "d": None}, {"a": 0.8, "b": 0.7, "c": 0.5, "d": 0.1})
    assert (found["gain"], found["lose"], found["diverged"]) == (["a"], ["b", "d"], ["d"])
    assert found["mean"] == pytest.approx((0.1 - 0.3) / 3)
    assert found["worst"] == {"participant": "d", "own": None}  # nobody is worse off than without any figure
    assert line(found, "solo") == (
        "against solo: 1 of 4 gain, 2 lose, mean -6.7 points, b -30.0; worst of all is d with no figure; diverged: d"
    )
    losses = gains({"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.0}, higher=False)
    assert (losses["gain"], losses["lose"], losses["worst"]["participant"]) == (["a"], ["b"], "b")
    assert line(gains({}, {}), "x") == "against x: nothing to compare"


def test_show_compares_two_runs(tmp_path):
    setting = tmp_path / "small.toml"
    setting.write_text(
        '[data]\nsource = "digits-embedded"\nrotations = [0, 40]\nrows = 40\ntest = 0.1\ntest_rows = 20\nside = 16\n'
        '[models]\nparticipants = "mlp"\n'
    )
    runner = CliRunner()
    for method in ("solo", "ditto"):
        made = runner.invoke(
            app, ["run", method, "--on", str(setting), "--rounds", "1", "--out", str(tmp_path / method)]
        )
        assert made.exit_code == 0, made.output
    answer = runner.invoke(app, ["show", str(tmp_path / "ditto"), "--against", str(tmp_path / "solo"), "--json"])
    found = json.loads(answer.stdout)["clients"]
    assert set(found["participants"]) == {"M0", "M40"}
    assert found["against"].endswith("solo")
    alone = json.loads(runner.invoke(app, ["show", str(tmp_path / "ditto"), "--json"]).stdout)["clients"]
    assert alone["against"] == "the global model"
    missing = runner.invoke(app, ["show", str(tmp_path / "ditto"), "--against", str(tmp_path / "nothing")])
    assert missing.exit_code == 2
