"""The notebook: executed as it stands, with the outputs it was committed with."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOUR = ROOT / "docs" / "tour.ipynb"
HINT = "python tools/run_tour.py executes it anew"


@pytest.fixture(scope="module")
def book():
    nbformat = pytest.importorskip("nbformat")
    if not TOUR.exists():
        pytest.skip("not in a checkout")
    return nbformat.read(TOUR, as_version=4)


def _text(cell) -> str:
    return "".join(out.get("text", "") for out in cell.outputs)


def test_every_cell_was_executed_and_none_failed(book):
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), HINT
    assert all(out.output_type != "error" for cell in cells for out in cell.outputs)
    assert "the same again: True" in "".join(map(_text, cells))
    assert "the same bits: True" in "".join(map(_text, cells))


@pytest.mark.slow
def test_the_tour_runs_as_it_stands(book):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    spec = importlib.util.spec_from_file_location("run_tour", ROOT / "tools" / "run_tour.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    again = tool.execute(TOUR)
    for before, now in zip(book.cells, again.cells, strict=True):
        if before.cell_type == "code":
            # Where a figure depends on the machine's arithmetic it may differ; what was found true stays true.
            facts = [line for line in _text(before).splitlines() if line.endswith(("True", "False"))]
            assert [line for line in _text(now).splitlines() if line.endswith(("True", "False"))] == facts
            assert [out.output_type for out in now.outputs if out.output_type != "stream"] == [
                out.output_type for out in before.outputs if out.output_type != "stream"
            ]
