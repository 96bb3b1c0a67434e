"""Every method has a page in docs/methods, and it says what the code says."""

import importlib.util
from pathlib import Path

import pytest

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


def test_pages_are_current(tool):
    made = tool.pages()
    there = {path.name: path.read_text() for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert sorted(there) == sorted(made), HINT
    assert [name for name, text in made.items() if there[name] != text] == [], HINT


def test_every_page_has_its_parts(tool):
    for name, text in tool.pages().items():
        if name != "README.md":
            for part in ("## What travels", "## Options", "## Deviations", "## Reproduced", "## Reference"):
                assert part in text, (name, part)


def test_words_belong_to_a_method(tool):
    names = set(tool.pages())
    assert {path.name for path in (ROOT / "docs" / "methods" / "words").glob("*.md")} <= names


def test_the_parts_of_a_files_first_lines(tool):
    doc = "One line.\n\nLeaves a node: much\nmore. \nEquations: Eq. 1. Deviations: none;\nx.\nReferences: A; B."
    assert tool.sections(doc) == {
        "Leaves": "Leaves a node: much more.",
        "Equations": "Eq. 1.",
        "Deviations": "none; x.",
        "Reference": "A; B.",
    }
