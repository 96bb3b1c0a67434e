"""Where networks put test images: features by their two main directions (FedH2L, Figure 1; FCCL, Figure 4)."""

from __future__ import annotations

from typing import Any

from heterophony.features import FILE
from heterophony.report.figure import Dots, Figure, Panel
from heterophony.report.story import Chapter


def draw(chapter: Chapter) -> list[Figure]:
    maps = {arm.label: found for arm in chapter.arms if (found := arm.first.extra(FILE))}
    if not maps:
        return []
    who = next(iter(next(iter(maps.values()))["participants"]))
    panels, shares, labels = [], [], set()
    for label, found in maps.items():
        own = found["participants"].get(who)
        if own:
            panels.append(Panel(_dots(own, chapter.arms[0].first.homes[who]), label, bare=True, square=True))
            shares.append(f"{label} {100 * sum(own['shares']):.0f} %")
            labels |= set(own["labels"])
    if not panels:
        return []
    domains = len({name for found in maps.values() for name in found["participants"].get(who, {}).get("domains", ())})
    rings = " Dots are of its own domain, rings of the others." if domains > 1 else ""
    caption = (
        f"What the last layer of {who}'s network is given on test images of all domains, by its two principal "
        f"components; colours are classes.{rings}"
    )
    alt = (
        f"Test images as points, one map a method, by the network of {who}. The two directions bear of the variance: "
        f"{', '.join(shares)}."
    )
    legend = [(str(label), f"k{label % 10}") for label in sorted(labels)] if len(labels) <= 20 else []
    return [
        Figure("features", "Features", caption, alt, panels, legend, width="small" if len(panels) > 2 else "middle")
    ]


def _dots(own: dict[str, Any], home: str) -> list[Dots]:
    marks = []
    for label in sorted(set(own["labels"])):
        for hollow in (True, False):
            at = [i for i, (k, domain) in enumerate(zip(own["labels"], own["domains"], strict=True))
                  if k == label and (domain != home) == hollow]  # fmt: skip
            if at:
                points = [own["points"][i] for i in at]
                hover = [f"class {label}, {own['domains'][i]}" for i in at]
                marks.append(Dots([x for x, _ in points], [y for _, y in points], str(label), f"k{label % 10}",
                                  5.0, hover=hover, hollow=hollow))  # fmt: skip
    return marks
