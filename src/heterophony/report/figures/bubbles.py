"""Who holds what: training rows by class and participant, as bubbles (FedMD+Global, Figure 1)."""

from __future__ import annotations

import math
from typing import Any

from heterophony.base.amounts import counted
from heterophony.report.chapters import Chapter, some
from heterophony.report.figure import Dots, Figure, Panel, Place
from heterophony.runs.population import FILE, spread

WIDEST = 22.0  # pixels across
MOST = 40  # participants


def draw(chapter: Chapter) -> list[Figure]:
    """Return one figure, of the first seed; none of very many classes."""
    folder = chapter.arms[0].first
    found = folder.extra(FILE)
    if found is None:
        return []
    everyone = found["participants"]
    people = {who: everyone[who] for who in spread({who: own["domain"] for who, own in everyone.items()}, MOST)}
    classes = max(len(own["classes"]) for own in people.values())
    counts = [n for own in people.values() for n in own["classes"]]
    largest = max(counts, default=0)
    if classes > 40 or not largest:
        return []
    colors = _colors(people)
    who = some(len(people), len(folder.homes), "participant")
    caption = (
        f"Training rows of {who} by class, seed {folder.spec['seed']}; the area of a bubble is their number, {largest} "
        "at most."
    )
    alt = (
        f"{who}, {classes} classes, {sum(counts)} training rows; {counts.count(0)} of "
        f"{len(people) * classes} pairs of participant and class are empty."
    )
    dots = [_bubbles(home, color, people, largest) for home, color in colors.items()]
    panel = Panel(dots, "", "participant", "class", span=(-0.8, classes - 0.2), whole=classes <= 20)
    legend = list(colors.items()) if len(set(colors.values())) > 1 else []
    smallest = min(n for n in counts if n)
    scale = [(counted(n, "row"), _across(n, largest)) for n in _examples(smallest, largest)]
    return [Figure("bubbles", "Who holds what", caption, alt, [panel], legend, scale, width="wide")]


def _colors(people: dict[str, Any]) -> dict[str, str]:
    """Return a colour for each domain; one for all where colours would only say what the axis says."""
    homes = list(dict.fromkeys(own["domain"] for own in people.values()))
    shared = 1 < len(homes) < len(people)
    return {home: f"k{place % 10 if shared else 0}" for place, home in enumerate(homes)}


def _bubbles(home: str, color: str, people: dict[str, Any], largest: int) -> Dots:
    """Return the bubbles of one domain's participants."""
    names: list[Place] = []
    labels: list[Place] = []
    sizes, hover = [], []
    for name, own in people.items():
        for label, n in enumerate(own["classes"]):
            if own["domain"] == home and n:
                names.append(name)
                labels.append(float(label))
                sizes.append(_across(n, largest))
                hover.append(f"{name}: {n} of class {label}")
    return Dots(names, labels, home, color, sizes, hover=hover)


def _across(n: int, largest: int) -> float:
    """Return how many pixels a bubble of so many rows is across."""
    return max(2.0, WIDEST * math.sqrt(n / largest))


def _examples(smallest: int, largest: int) -> list[int]:
    """Return numbers to read bubbles by: the smallest, the largest, and a round one between if they are far apart."""
    rounded = [part * 10**power for power in range(9) for part in (1, 2, 5)]
    between = [n for n in rounded if 2 * smallest <= n <= largest / 2]
    return sorted({smallest, largest, *between[len(between) // 2 :][:1]})
