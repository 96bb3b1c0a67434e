"""The version is the same wherever it stands."""

import re
from pathlib import Path

import pytest

import heterophony

ROOT = Path(__file__).parents[2]


def test_the_newest_section_of_the_changelog_is_the_package_and_what_is_cited():
    if not (ROOT / "CHANGELOG.md").exists():
        pytest.skip("not in a checkout")
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] == "Unreleased"
    version, date = re.fullmatch(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)", sections[1]).groups()
    cited = dict(re.findall(r"^([\w-]+): (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert (cited["version"], cited["date-released"]) == (version, date)
    assert heterophony.__version__ == version
