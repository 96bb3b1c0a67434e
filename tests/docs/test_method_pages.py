"""Every method has a page in docs/methods, and it says what the code says."""

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heterophony.cli import app

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "make_method_pages.py"
HINT = "python tools/make_method_pages.py writes them anew"


@pytest.fixture(scope="module")
def tool():
    if not TOOL.exists():
        pytest.skip("not in a checkout")
    spec = importlib.util.spec_from_file_location("make_method_pages", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tool):
    return tool.pages()


def test_pages_are_current(made):
    there = {path.name: path.read_text() for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert sorted(there) == sorted(made), HINT
    assert [name for name, text in made.items() if there[name] != text] == [], HINT


def test_the_page_of_deviations_is_current(tool):
    assert tool.DEVIATIONS.read_text() == tool.deviations(), HINT


def test_a_deviation_stands_in_one_place_and_is_shown_in_both_pages(tool, made):
    above, _, below = tool.DEVIATIONS.read_text().partition(tool.MARK)
    (names, listed) = next((names, listed) for names, listed in tool._by_file() if listed)
    for deviation in listed:
        assert deviation.ours not in above
        assert deviation.ours in below
        assert all(deviation.ours in made[f"{name}.md"] for name in names)


def test_the_command_line_says_them_too():
    shown = CliRunner().invoke(app, ["methods", "scaffold"])
    assert shown.exit_code == 0
    assert "Deviation (momentum): " in shown.stdout


def test_every_page_has_its_parts(made):
    for name, text in made.items():
        if name != "README.md":
            for part in ("## What travels", "## Options", "## Deviations", "## Reproduced", "## Reference"):
                assert part in text, (name, part)


def test_the_table_of_properties_says_what_fedh2ls_table_1_says_of_the_methods_in_both(made):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in made["README.md"].splitlines()]
    said = {row[0].partition("]")[0].strip("["): row[1:] for row in rows if len(row) == 6}
    assert said["fedavg"][:3] == said["fedprox"][:3] == ["alike", "yes", "network"]
    assert said["fml"][:3] == ["any, beside a common one", "yes", "network"]
    assert said["fedmd"][:3] == ["any", "yes", "rows"]
    assert said["fedproto"][:3] == ["any", "yes", "classes"]
    assert said["fedper"][0] == said["fedrep"][0] == "alike in what travels"
    assert said["fedh2l"] == ["any", "no: peers", "rows", "rows", "the same"]
    assert said["fedgkt"][:4] == ["any", "yes", "rows", "no"]
    assert said["agg"][1:4] == ["none: nothing is sent", "-", "with labels"]


def test_words_belong_to_a_method(made):
    names = set(made)
    assert {path.name for path in (ROOT / "docs" / "methods" / "words").glob("*.md")} <= names


def test_the_parts_of_a_files_first_lines(tool):
    doc = "One line.\n\nLeaves a node: much\nmore. \nEquations: Eq. 1. Deviations: none;\nx.\nReferences: A; B."
    assert tool.sections(doc) == {
        "Leaves": "Leaves a node: much more.",
        "Equations": "Eq. 1.",
        "Deviations": "none; x.",
        "Reference": "A; B.",
    }


def test_first_lines_may_name_the_paper_and_what_each_side_sends(tool):
    doc = "One line.\n\nSent by a client: means.\nSent by the server: their\naverage.\n\nPaper: A et al. Eq. 3."
    assert tool.sections(doc) == {
        "Leaves": "Sent by a client: means. Sent by the server: their average.",
        "Reference": "A et al. Eq. 3.",
    }


def test_the_guide_has_every_method_once_for_whom_and_once_for_its_cost(made):
    guide = made["README.md"].partition("## Which method for whom")[2].partition("\n## ")[0]
    whom, _, cost = guide.partition("What it costs")
    for table in (whom, cost):
        for name in made:
            assert table.count(f"({name})") == (name != "README.md"), name
    lines = cost.splitlines()
    assert next(line for line in lines if "(fedavg.md)" in line).endswith("| up: 1 x network; down: 1 x network |")
    assert next(line for line in lines if "(scaffold.md)" in line).endswith("| up: 2 x network; down: 2 x network |")
    assert next(line for line in lines if "(d-psgd.md)" in line).endswith("| to peers: 1 x network |")
