"""Every test that the threat model names is there."""

import re
from pathlib import Path

HERE = Path(__file__).parents[1]
PAGE = HERE.parent / "docs" / "explanation" / "threat-model.md"


def written():
    """Names of all tests, and of the files that hold them."""
    found = {path: path.read_text() for path in HERE.rglob("test_*.py")}
    return {name for text in found.values() for name in re.findall(r"^\s*def (test_\w+)", text, re.MULTILINE)}


def test_the_tests_that_the_threat_model_names_are_there():
    page, known = PAGE.read_text(), written()
    named = re.findall(r"`(test_\w+?)(_?\.\.\.)?`", page)
    assert len(named) > 40
    for name, cut in named:
        wanted = name if not cut else name.rstrip("_")
        assert (wanted in known) or (cut and any(one.startswith(wanted) for one in known)), name
    for file in re.findall(r"`(tests/\S+?\.py)`", page):
        assert (HERE.parent / file).is_file(), file
