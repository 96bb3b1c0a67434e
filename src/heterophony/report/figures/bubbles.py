"""Who holds what: training rows by class and participant, as bubbles (FedMD+Global, Figure 1)."""

from __future__ import annotations

import math

from heterophony.base.amounts import counted
from heterophony.report.chapters import Chapter, some
from heterophony.report.figure import Dots, Figure, Panel
from heterophony.runs.population import FILE, spread

WIDEST = 22.0  # pixels across
MOST = 40  # participants


def draw(chapter: Chapter) -> list[Figure]:
    folder = chapter.arms[0].first
    found = folder.extra(FILE)
    if found is None:
        return []
    everyone = found["participants"]
    people = {who: everyone[who] for who in spread({who: own["domain"] for who, own in everyone.items()}, MOST)}
    counts = {name: own["classes"] for name, own in people.items()}
    classes = max(len(own) for own in counts.values())
    present = [n for own in counts.values() for n in own if n]
    largest = max(present, default=0)
    if classes > 40 or not largest:
        return []
    homes = list(dict.fromkeys(own["domain"] for own in people.values()))
    shared = 1 < len(homes) < len(people)  # else colours would say what the axis says
    marks = []
    for place, home in enumerate(homes):
        here = [(name, label, n) for name, own in counts.items() if people[name]["domain"] == home
                for label, n in enumerate(own) if n]  # fmt: skip
        sizes = [_across(n, largest) for _, _, n in here]
        hover = [f"{name}: {n} of class {label}" for name, label, n in here]
        marks.append(Dots([name for name, _, _ in here], [float(label) for _, label, _ in here], home,
                          f"k{place % 10 if shared else 0}", sizes, hover=hover))  # fmt: skip
    missing = sum(1 for own in counts.values() for n in own if not n)
    who = some(len(people), len(folder.homes), "participant")
    caption = (
        f"Training rows of {who} by class, seed {folder.spec['seed']}; the area of a bubble is their number, {largest} "
        "at most."
    )
    alt = (
        f"{who}, {classes} classes, {sum(map(sum, counts.values()))} training rows; {missing} of "
        f"{len(people) * classes} pairs of participant and class are empty."
    )
    panel = Panel(marks, "", "participant", "class", span=(-0.8, classes - 0.2), whole=classes <= 20)
    legend = [(home, f"k{place % 10}") for place, home in enumerate(homes)] if shared else []
    scale = [(counted(n, "row"), _across(n, largest)) for n in _examples(min(present), largest)]
    return [Figure("bubbles", "Who holds what", caption, alt, [panel], legend, scale, width="wide")]


def _across(n: int, largest: int) -> float:
    return max(2.0, WIDEST * math.sqrt(n / largest))


def _examples(smallest: int, largest: int) -> list[int]:
    """Numbers to read bubbles by: the smallest, the largest, and a round one between where they are far apart."""
    between = [n for k in range(9) for part in (1, 2, 5) if 2 * smallest <= (n := part * 10**k) <= largest / 2]
    return sorted({smallest, largest, *between[len(between) // 2 :][:1]})
