"""Where networks put test rows: features by their two main directions (FedH2L, Figure 1; FCCL, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from heterophony.base.amounts import counted
from heterophony.report.chapters import ArmRuns, Chapter, moment, some, with_and
from heterophony.report.figure import Dots, Figure, Panel
from heterophony.runs.features import FILE

RINGS = "Full shapes are of its own domain, hollow ones of the others."


def draw(chapter: Chapter) -> list[Figure]:
    found = [(arm, known) for arm in chapter.arms if (known := arm.first.extra(FILE))]
    if not found:
        return []
    who = next(iter(found[0][1]["participants"]))
    maps = [(arm, known["round"], own) for arm, known in found if (own := known["participants"].get(who))]
    panels, shares, labels, domains = [], [], set(), set()
    for arm, _, own in maps:
        panels.append(Panel(_dots(own, arm.first.homes[who]), arm.label, bare=True, square=True))
        shares.append(f"{arm.label} {100 * sum(own['shares']):.0f} %")
        labels |= set(own["labels"])
        domains |= set(own["domains"])
    first = chapter.arms[0].first
    slot = maps[0][2].get("model", "model")  # runs of before do not say
    everywhere = {name for name, split, _ in first.spec.get("tests", ()) if split == "test"}
    caption = (
        f"What the last layer of {who}'s network is given on test rows of {_domains(domains, everywhere)}, by its "
        f"two principal components; colours and shapes are classes.{' ' + RINGS if len(domains) > 1 else ''} "
        f"{who} is one of {counted(len(first.homes), 'participant')}; the network is its own {slot!r} as the run ends "
        f"({moment([(arm, last) for arm, last, _ in maps])}).{_elsewhere(who, [arm for arm, _, _ in maps])}"
    )
    alt = (
        f"Test rows as points, one map a method, by the network of {who}. The two directions bear of the variance: "
        f"{', '.join(shares)}."
    )
    legend = [(str(label), f"k{label % 10}") for label in sorted(labels)] if len(labels) <= 20 else []
    shapes = [("own domain", False), ("other domains", True)] if len(domains) > 1 else []
    width: Literal["small", "middle"] = "small" if len(panels) > 2 else "middle"
    return [Figure("features", "Features", caption, alt, panels, legend, shapes=shapes, width=width)]


def _domains(shown: set[str], everywhere: set[str]) -> str:
    return "all domains" if len(shown) >= len(everywhere) else some(len(shown), len(everywhere), "domain")


def _elsewhere(who: str, arms: Sequence[ArmRuns]) -> str:
    """Return a sentence on tables and curves of a model that is not this participant's."""
    found: dict[str, list[str]] = {}
    for arm in arms:
        holders = {row["node"] for row in arm.first.table if row["product"] == arm.first.headline}
        if holders and who not in holders:
            found.setdefault(arm.first.headline, []).append(arm.label)
    told = [f"of {with_and(labels)} are of {product!r}" for product, labels in found.items()]
    return (
        f" Tables and curves {with_and(told)}, another model: here is what {who} made of it in its last round."
        if told
        else ""
    )


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
                                  7.0, hover=hover, hollow=hollow))  # fmt: skip
    return marks
