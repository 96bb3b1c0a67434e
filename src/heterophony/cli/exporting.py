"""export, predict, tree: what was learned leaves its run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from heterophony.cli import terminal
from heterophony.cli.complaints import complaints
from heterophony.cli.options import Json, Trust

out = terminal.console()


def export(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    node: Annotated[str, typer.Option(help="Whose model.")],
    to: Annotated[Path, typer.Option(help="File to write (.safetensors).")],
    model: Annotated[str | None, typer.Option(help="Which of its models; the first if not given.")] = None,
    format: Annotated[
        list[str] | None,
        typer.Option(help="Write a graph beside it that runs without heterophony: pt2 (torch), onnx. Repeatable."),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a model, as it was after the last round, to a file, with what is needed to load it."""
    from heterophony.runs import exported

    with complaints():
        written = exported.save(folder, node, to, model, format or (), trust)
    for path in written:
        print(f"wrote {path}", file=sys.stderr)


def tree(
    folder: Annotated[Path, typer.Argument(help="A run folder of a method in which participants have models.")],
    clusters: Annotated[int, typer.Option(min=1, help="How many subtrees.")],
    by: Annotated[str, typer.Option(help="weights, or updates: their directions from the mean.")] = "updates",
) -> None:
    """Print a tree for a setting: participants whose models became alike are in one subtree."""
    from heterophony.runs import clustering

    with complaints():
        if by not in ("weights", "updates"):
            raise ValueError(f"--by is weights or updates, got {by!r}")
        found = clustering.clusters(folder, clusters, "weights" if by == "weights" else "updates")
    print(clustering.as_setting(found))


def predict(
    model: Annotated[Path, typer.Argument(help="A file that `heterophony export` wrote.")],
    images: Annotated[
        Path,
        typer.Argument(
            help="A .npz with images `x` (uint8, NHWC or NHW), an image, or arrays (a file, a folder) as in training."
        ),
    ],
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Classify images, or rows of arrays, with an exported model; of another task, print its outputs."""
    from heterophony.runs import exported

    with complaints():
        found = exported.predict(model, images, trust)
    if as_json:
        print(json.dumps(found))
    elif "values" in found:
        for place, values in enumerate(found["values"]):
            print(f"{place}: {json.dumps(values)}")
    else:
        for place, (name, sure) in enumerate(zip(found["names"], found["confidence"], strict=True)):
            out.print(f"{place}: {name} ({100 * sure:.1f} %)")
