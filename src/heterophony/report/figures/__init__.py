"""One file a figure: each takes a chapter and gives figures, or none where it has nothing to show."""

from __future__ import annotations

from dataclasses import replace

from heterophony.base.wording import slug
from heterophony.report.chapters import Chapter
from heterophony.report.figure import Figure
from heterophony.report.figures import (
    bubbles,
    conflicts,
    correlation,
    cost,
    curves,
    domains,
    features,
    losses,
    products,
    spread,
    tree,
    updates,
)

ALL = (curves, cost, spread, domains, bubbles, features, correlation, conflicts, tree, updates, products, losses)


def draw(chapter: Chapter) -> list[Figure]:
    """Return all figures of a chapter, in the order of a report."""
    drawn = [figure for module in ALL for figure in module.draw(chapter)]
    return [replace(figure, name=slug(figure.name)) for figure in drawn]  # a label may have what a file's name may not
