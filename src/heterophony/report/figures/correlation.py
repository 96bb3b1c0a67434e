"""How participants' outputs correlate, class by class, on public and on private data (FCCL, Figure 5)."""

from __future__ import annotations

from heterophony.report.chapters import Chapter, moment, some
from heterophony.report.figure import Figure, Heat, Panel
from heterophony.runs.correlations import FILE
from heterophony.runs.population import spread

MOST = 4  # participants


def draw(chapter: Chapter) -> list[Figure]:
    found = []
    for arm in chapter.arms:
        known = arm.first.extra(FILE)
        if not known or not known["participants"]:
            continue
        everyone, homes = known["participants"], arm.first.homes
        shown = spread({who: homes.get(who, who) for who in everyone}, MOST)
        panels, diagonals = [], []
        for who in shown:
            for kind, cells in everyone[who].items():
                names = [str(i) for i in range(len(cells))]
                panels.append(Panel([Heat(cells, names, names, "diverging", -1, 1)], f"{who}, {kind}", square=True))
                mean = sum(row[i] for i, row in enumerate(cells)) / len(cells)
                diagonals.append(f"{who} {mean:.2f} on {kind} data")
        of = some(len(shown), len(everyone), "participant")
        caption = (
            f"Correlation of a participant's logits (rows, by class) with the mean of the others' (columns), from -1 "
            f"(brown) to 1 (blue); on the diagonal the same class. The models are the participants' own "
            f"'model' as the run ends, on public data and on the participant's own training rows; {arm.label}, "
            f"{moment([(arm, known['round'])])}; {of}."
        )
        alt = f"Mean correlation of the same class, {of}: {', '.join(diagonals)}."
        title = "Cross-correlation" + (f", {arm.label}" if len(chapter.arms) > 1 else "")
        found.append(Figure(f"correlation-{arm.label}", title, caption, alt, panels, width="small"))
    return found
