"""An experiment's table, written down: as Markdown, CSV and JSON, with what a reader must know of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from heterophony.base.disk import Disk
from heterophony.studies.comparison import markdown, p_text
from heterophony.studies.experiments.rows import Row

HEAD = ["arm", "figure", "ours", "paper", "ours - paper", "seeds", "verdict"]


def columns(rows: Sequence[Row]) -> list[int]:
    """Return the places of those columns of `HEAD` that are not empty in the whole table."""
    every = cells(rows)
    return [j for j in range(len(HEAD)) if any(row[j] != "-" for row in every)]


def head(rows: Sequence[Row]) -> list[str]:
    """Return the heads of the columns that the table has."""
    return [HEAD[j] for j in columns(rows)]


def block(rows: Sequence[Row], group: str) -> list[list[str]]:
    """Return the cells of a group, in the columns that the table has."""
    shown = columns(rows)
    own = [row for row in rows if row.group == group]
    return [[row[j] for j in shown] for row in cells(own)]


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return the cells of all columns of `HEAD`."""
    return [
        [
            row.arm,
            row.column,
            _ours(row),
            "-" if row.paper is None else f"{row.paper:.2f}",
            "-" if row.difference is None else f"{row.difference:+.2f}",
            str(len(row.seeds)) if row.seeds else "-",
            row.verdict or "-",
        ]
        for row in rows
    ]


def _ours(row: Row) -> str:
    if row.note:
        return f"not here: {row.note}"
    if row.ours is None:
        return "-"
    return f"{row.ours:.2f}" + ("" if row.half is None else f" ± {row.half:.2f}")


def heading(facts: Mapping[str, Any], group: str) -> str:
    """Return a group's heading, with what the quick version does otherwise."""
    said = facts.get("quick", {}).get(group)
    return f"{group} (quick: {said})" if said else group


def text(facts: Mapping[str, Any], rows: Sequence[Row], said: Sequence[Mapping[str, Any]]) -> str:
    """Write the table as Markdown."""
    which = facts["version"][0].upper() + facts["version"][1:]
    out = [f"# {facts['title']}", "", f"{facts['paper']}. **{which}.**", ""]
    out += [f"`{facts['command']}`, {facts['date']}, {facts['machine']}, heterophony {facts['heterophony']}.", ""]
    unit = facts.get("unit", "per cent").capitalize()
    out += [f"{unit}, {facts['kept']}; mean and half of the 95 % interval over seeds. {tally(rows, said)}.", ""]
    for group in dict.fromkeys(row.group for row in rows):
        out += [f"## {heading(facts, group)}", ""] if group else []
        out += [*markdown(head(rows), block(rows, group)), ""]
    if said:
        out += ["## What the paper claims", "", *markdown(CLAIMS, [claim_cells(entry) for entry in said]), ""]
        if any(entry["p"] is not None for entry in said):
            out += ["p: paired t test by seed, with Holm's correction for all claims of this table.", ""]
    if facts["notes"]:
        out += ["## How this differs from the paper", "", *(f"- {note}" for note in facts["notes"]), ""]
    return "\n".join(out)


CLAIMS = ["claim", "where", "difference", "seeds", "p", "verdict"]


def claim_cells(entry: Mapping[str, Any]) -> list[str]:
    """Return the cells of one claim, in the columns `CLAIMS`."""
    sign = ">" if entry.get("margin") is None else f"within {entry['margin']:g} of"
    what = f"{entry['more']} {sign} {entry['less']}"
    if entry["of"] != "columns" and entry["column"]:
        what = f"{entry['column']}: {what}"
    half = "" if entry["half"] is None else f" ± {entry['half']:.2f}"
    where = ", ".join(part for part in (entry["group"], entry["by"]) if part)
    p = "-" if entry["p"] is None else p_text(entry["p"])
    return [what, where or "-", f"{entry['difference']:+.2f}{half}", str(entry["n"]), p, str(entry["verdict"])]


def tally(rows: Sequence[Row], said: Sequence[Mapping[str, Any]]) -> str:
    """Count how often each verdict was reached.

    Printed figures are counted once each; further rows beside the same figures are counted apart, and so are claims.
    """
    parts = {
        "Printed figures": [row.verdict for row in rows if not row.again],
        "Beside the same figures again": [row.verdict for row in rows if row.again],
        "Claims": [entry["verdict"] for entry in said],
    }
    counted = {what: _counts([each for each in found if each]) for what, found in parts.items()}
    return ". ".join(f"{what}: {found}" for what, found in counted.items() if found) or "No verdicts"


def _counts(said: Sequence[str]) -> str:
    kinds = [each.partition(":")[0] for each in said]  # without the arms that it names
    return "; ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def write(folder: Path, facts: Mapping[str, Any], rows: Sequence[Row], said: Sequence[Mapping[str, Any]]) -> Path:
    """Write NAME.md, NAME.csv and NAME.json into the folder, and return the path of the first."""
    disk, name = Disk(private=False), facts["experiment"]
    folder.mkdir(parents=True, exist_ok=True)
    whole = {**facts, "rows": [asdict(row) for row in rows], "claims": list(said)}
    disk.replace(folder / f"{name}.md", text(facts, rows, said).encode())
    disk.replace(folder / f"{name}.csv", _csv(rows).encode())
    disk.replace(folder / f"{name}.json", (json.dumps(whole, indent=1) + "\n").encode())
    return folder / f"{name}.md"


def _csv(rows: Sequence[Row]) -> str:
    """Return the rows as lines of values by commas."""
    fields = [name for name in Row.__dataclass_fields__ if name != "by_seed"]
    fields.insert(fields.index("seeds") + 1, "seed list")
    sheet = io.StringIO()
    writer = csv.DictWriter(sheet, fields, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow({**asdict(row), "seeds": len(row.seeds), "seed list": " ".join(map(str, row.seeds))})
    return sheet.getvalue()
