"""docs/reference/api.md says what the library says of itself."""

import importlib
import re
from pathlib import Path

import pytest

import heterophony

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch):
    if not (ROOT / "tools" / "make_api_page.py").exists():
        pytest.skip("not in a checkout")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("make_api_page")


def test_the_page_is_current(tool):
    assert tool.PAGE.read_text() == tool.page(), "python tools/make_api_page.py writes it anew"


def test_every_public_name_is_in_the_page_with_words_or_a_definition(tool):
    page = tool.page()
    for name in heterophony.__all__:
        section = re.split(r"^#+ ", page.partition(f"#### `{name}`\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        assert section.strip(), name
