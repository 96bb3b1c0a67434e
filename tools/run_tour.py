"""Execute docs/tour.ipynb and keep its outputs.

python tools/run_tour.py [NOTEBOOK [OUT]]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

TOUR = Path(__file__).parents[1] / "docs" / "tour.ipynb"


def execute(path: Path = TOUR) -> Any:
    """Return the notebook with the outputs of now. Raise an error of a cell."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=900, kernel_name="python3").execute()
    book.metadata = {key: book.metadata[key] for key in ("kernelspec", "language_info")}
    book.metadata["language_info"] = {"name": "python"}
    for cell in book.cells:
        cell.metadata = {}  # when and how long: not worth a difference
        # What is said on the side (progress, warnings of the kernel) is no result.
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr" and not _on_the_side(out)]
    return book


def _on_the_side(output: Any) -> bool:
    """Tell whether an output is a bar that shows the progress of a run."""
    return bool(output.get("metadata", {}).get("heterophony") == "progress")


def main() -> None:
    import nbformat

    path = Path(sys.argv[1]) if len(sys.argv) > 1 else TOUR
    nbformat.write(execute(path), Path(sys.argv[2]) if len(sys.argv) > 2 else path)


if __name__ == "__main__":
    main()
