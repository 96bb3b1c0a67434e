"""docs/reference/results.md and the queue in results/README.md are what their tool makes of results/*.json."""

import importlib
from pathlib import Path

import pytest

from heterophony.studies.experiments import shipped

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch):
    if not (ROOT / "tools" / "make_results_page.py").exists():
        pytest.skip("the repository's tools are not here")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("make_results_page")


def test_the_page_is_current(tool):
    assert tool.PAGE.read_text() == tool.page(), "python tools/make_results_page.py writes it anew"


def test_the_queue_is_current(tool):
    text = tool.LIST.read_text()
    assert text == tool.list_with_queue(text), "python tools/make_results_page.py writes it anew"


def test_every_figure_of_every_table_stands_on_the_page(tool):
    made = [*tool.tables(tool.RESULTS), *tool.tables(tool.RESULTS / "quick")]
    lines = [line for line in tool.page().splitlines() if line.count("|") == 9]
    assert len(lines) == sum(len(each["rows"]) + 2 for each in made)  # with a head and a rule each


def test_every_experiment_is_done_or_stands_in_the_queue(tool):
    queue = tool.queue()
    done = {name for name, *_ in tool._done()}
    assert all(name in done or f"| {name} |" in queue for name in shipped())
