"""Make docs/methods (a page for every method of the registry, and a list of them) and the page of all deviations.

python tools/make_method_pages.py

Everything comes from the code. What travels comes from the declared kinds, options and defaults from the fields,
equations from the file's first lines, deviations from the file's `DEVIATIONS`, figures from what was reproduced
(results/). What is said in words, and the maths, stand in docs/methods/words/NAME.md. In docs/explanation/deviations.md
only what follows the mark is made here: rows above it are about several methods, settings or data.
`tests/docs/test_method_pages.py` fails where a page is not what this makes.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heterophony import methods
from heterophony.catalogue import registry
from heterophony.catalogue.options import described
from heterophony.catalogue.registry import Entry
from heterophony.kernel.deviation import Deviation
from heterophony.kernel.fields import (
    Family,
    Features,
    Field,
    Logits,
    LowRank,
    Packed,
    Part,
    PerClass,
    Probabilities,
    Sliced,
    Weights,
)
from heterophony.kernel.message import Kind
from heterophony.kernel.needs import OneLabelSpace, PublicData, PublicLabels
from heterophony.kernel.networks import Architectures, Global, Own, Slice
from heterophony.kernel.reaction import Clock, Count, Each, Every, Reaction, Round
from heterophony.kernel.ready import reads
from heterophony.studies.experiments import Experiment, shipped

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "methods"
DEVIATIONS = ROOT / "docs" / "explanation" / "deviations.md"
MARK = "<!-- What follows is made by tools/make_method_pages.py from DEVIATIONS in the methods' files. -->"


def pages() -> dict[str, str]:
    """Return the text of each file by its name."""
    entries = {name: registry.ours(name) for name in methods.NAMES}
    made = {f"{name}.md": page(entry) for name, entry in entries.items()}
    rows = [f"| [{name}]({name}.md) | {entry.summary} | {_sends(entry)} |" for name, entry in entries.items()]
    head = ["# Methods", "", "Made by `tools/make_method_pages.py` from the methods themselves.", ""]
    made["README.md"] = "\n".join([*head, "| method | in one line | what travels |", "|---|---|---|", *rows]) + "\n"
    made["README.md"] += "\n" + "\n".join(matrix(entries)) + "\n"
    made["README.md"] += "\n" + "\n".join(guide(entries)) + "\n"
    words = PAGES / "words" / "README.md"  # what is said of methods that are not here
    made["README.md"] += "\n" + words.read_text() if words.exists() else ""
    return made


def matrix(entries: dict[str, Entry]) -> Iterator[str]:
    """Yield the lines of a table of properties: that of FedH2L's Table I, for all methods, from what they declare."""
    yield from (
        "## What each needs",
        "",
        "With options as they are by default. A message grows with what stands in the fourth column: the size of a",
        "network, the number of rows that it speaks of, or of classes. Classes are those of the participants' data.",
        "",
        "| method | participants' networks | server | what a message grows with | public data | classes |",
        "|---|---|---|---|---|---|",
    )
    for name, entry in entries.items():
        needs = {type(need) for need in entry.build({}).needs()}
        public = "with labels" if PublicLabels in needs else "rows" if PublicData in needs else "no"
        classes = "the same" if OneLabelSpace in needs else "may differ"
        cells = (_networks(entry), _hub(entry), _grows(entry), public, classes)
        yield f"| [{name}]({name}.md) | {' | '.join(cells)} |"


def guide(entries: dict[str, Entry]) -> Iterator[str]:
    """Yield the lines of a table that is read from the left: what one has, and the methods for it."""
    yield from (
        "## Which method for whom",
        "",
        "Find the row of what may differ, what may travel, and who is there. It is made of the table above and of",
        "methods' headline products: a participant gets one common model, or one of its own.",
        "",
        "| participants' networks | what travels | public data | who is between them | it gets | methods |",
        "|---|---|---|---|---|---|",
    )
    found: dict[tuple[str, ...], list[str]] = {}
    for name, entry in entries.items():
        found.setdefault(_case(entry), []).append(f"[{name}]({name}.md)")
    for case in sorted(found):
        yield f"| {' | '.join(case)} | {', '.join(found[case])} |"
    yield from (
        "",
        "What it costs a participant in a round, at most, as the kinds of messages declare it. Single numbers, and one",
        "number for each row or class, are left out. Some methods take fewer: see the pages.",
        "",
        "| methods | messages |",
        "|---|---|",
    )
    costs: dict[str, list[str]] = {}
    for name, entry in entries.items():
        costs.setdefault(_cost(entry), []).append(f"[{name}]({name}.md)")
    for cost in sorted(costs):
        yield f"| {', '.join(costs[cost])} | {cost} |"


def _case(entry: Entry) -> tuple[str, ...]:
    """Return for whom a method is: networks, what travels, public data, who is in the middle, what one gets."""
    needs = {type(need) for need in entry.build({}).needs()}
    public = "labelled" if PublicLabels in needs else "yes" if PublicData in needs else "no"
    gets = "a common one" if entry.base.headline == "global" else "its own"
    hub = {"yes": "a server", "no: peers": "nobody", "a tree of them": "a tree"}.get(_hub(entry), "nobody")
    return _networks(entry), _grows(entry).replace("-", "nothing"), public, hub, gets


def _cost(entry: Entry) -> str:
    """Return in words what a participant of a method sends and is sent in a round, as its kinds declare it."""
    ways = {"up": ("parent", "ancestors"), "down": ("children", "descendants"), "to peers": ("peers",)}
    said = []
    for way, links in ways.items():
        fields = [field for kind in entry.sends() if kind.to in links for field in kind.fields.values()]
        parts = [part for part in map(_size, fields) if part]
        counted = (f"{parts.count(part)} x {part}" for part in dict.fromkeys(parts))
        if parts:
            said.append(f"{way}: {', '.join(counted)}")
    return "; ".join(said) or "nothing"


def _size(field: Field) -> str:
    """Return in words how large a field is; empty for a few numbers."""
    sizes: dict[str, Any] = {
        "several networks": Family,
        "part of a network": Part,
        "network, compressed": LowRank,
        "network": Weights,
        "outputs by row": (Logits, Probabilities),
        "features": Features,
        "packed rows": Packed,
        "means by class": PerClass,
    }
    return next((name for name, kinds in sizes.items() if isinstance(field, kinds)), "")


def _networks(entry: Entry) -> str:
    """Return in words whether participants' networks may differ."""
    roles = entry.build({}).networks()
    hub, own = roles.get("server", {}), roles[entry.base.roles[-1]]
    fields = _fields(entry)
    if not any(isinstance(field, Weights) for field in fields):
        return "any"
    if any(isinstance(choice, Architectures) for choice in hub.values()):
        return "any; equal ones are averaged"
    if any(isinstance(choice, Slice) for choice in hub.values()):
        return "slices of one" if any(isinstance(field, Sliced) for field in fields) else "one"
    if any(isinstance(choice, Global) for choice in hub.values()):
        return "any, beside a common one"
    if all(isinstance(choice, Own) for choice in own.values()):
        return "any"
    return "alike in what travels" if any(isinstance(field, Part) for field in fields) else "alike"


def _hub(entry: Entry) -> str:
    """Return in words who is between the participants."""
    if not entry.sends():
        return "none: nothing is sent"
    if "root" in entry.base.roles:
        return "a tree of them"
    return "yes" if "server" in entry.base.roles else "no: peers"


def _grows(entry: Entry) -> str:
    """Return what the size of messages depends on, the largest first."""
    sizes = {"network": Weights, "rows": (Logits, Probabilities, Features, Packed), "classes": PerClass}
    fields = _fields(entry)
    fields = [field for field in fields if not (isinstance(field, Features) and not field.view and not field.rows)]
    found = [what for what, kinds in sizes.items() if any(isinstance(field, kinds) for field in fields)]
    return ", ".join(found) or "-"


def _fields(entry: Entry) -> list[Field]:
    """Return all fields that travel."""
    return [field for kind in entry.sends() for field in kind.fields.values()]


def page(entry: Entry) -> str:
    """Return the page of a method."""
    doc = sections(inspect.getdoc(inspect.getmodule(entry.make)) or "")
    out = [f"# {entry.name}", "", f"{entry.summary} {_file(entry)}", ""]
    words = PAGES / "words" / f"{entry.name}.md"
    if words.exists():
        out += [words.read_text().strip(), ""]
    out += ["## What travels", ""]
    if "Leaves" in doc:
        out += [doc["Leaves"], ""]
    if entry.sends():
        out += ["| message | to | carries |", "|---|---|---|"]
        out += [f"| `{kind.name}` | {kind.to} | {_carries(kind)} |" for kind in entry.sends()]
    else:
        out += ["No message is declared, so that nothing can leave a node."]
    out += ["", "## Who does what, and when", "", "| role | reaction | when |", "|---|---|---|"]
    for reaction in entry.base.reactions:
        out.append(f"| {', '.join(reaction.roles)} | `{reaction.name}` | {_when(reaction)} |")
    out += ["", f"Headline product: `{entry.base.headline}`.{_needs(entry)}", "", _views(entry), ""]
    if "Equations" in doc:
        out += ["## Equations", "", doc["Equations"], ""]
    out += ["## Options", "", *_options(entry), ""]
    out += ["## Deviations", ""]
    if text := doc.get("Deviations", ""):
        out += [text[0].upper() + text[1:], ""]
    out += [*_deviations(entry)]
    out += ["## Reproduced", "", *_reproduced(entry.name), ""]
    if "Reference" in doc:
        out += ["## Reference", "", doc["Reference"], ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).rstrip() + "\n"


def sections(doc: str) -> dict[str, str]:
    """Return the parts of a file's first lines: "Leaves" (what travels), "Equations", "Deviations", "Reference"."""
    titles = {"Leaves": "Leaves", "Sent": "Leaves", "Paper": "Reference", "References": "Reference"}
    found: dict[str, str] = {}
    key = ""
    for line in doc.splitlines()[1:]:
        start = re.match(r"(Leaves|Sent|Equations|Deviations|References?|Papers?)\b:?\s*", line)
        if start:
            key = titles.get(start[1].removesuffix("s"), titles.get(start[1], start[1]))
            line = line if key == "Leaves" else line[start.end() :]
        if key:
            found[key] = f"{found.get(key, '')} {line.strip()}".strip()
    equations = found.get("Equations", "")
    if " Deviations: " in equations:  # a short file says both on one line
        found["Equations"], _, found["Deviations"] = equations.partition(" Deviations: ")
    return found


def deviations() -> str:
    """Return the page of all deviations: its rows above the mark as they stand, then those of the methods' files."""
    above, mark, _ = DEVIATIONS.read_text().partition(MARK)
    assert mark, f"{DEVIATIONS} has lost the line {MARK}"
    rows = []
    for names, listed in _by_file():
        rows += [f"| {', '.join(names)} | {_cells(deviation)} |" for deviation in listed]
    head = ["## Of one method", "", "| method | where | what we do | why |", "|---|---|---|---|"]
    return "\n".join([above.rstrip(), "", MARK, "", *head, *rows]) + "\n"


def _by_file() -> Iterator[tuple[list[str], tuple[Deviation, ...]]]:
    """Yield the names of the methods of each file, and the deviations that the file lists."""
    files: dict[str, list[str]] = {}
    entries = {name: registry.ours(name) for name in methods.NAMES}
    for name, entry in entries.items():
        files.setdefault(entry.make.__module__, []).append(name)
    for names in files.values():
        yield names, entries[names[0]].deviations


def _cells(deviation: Deviation) -> str:
    """Return the cells of a deviation's row."""
    return " | ".join(text.replace("|", "\\|") for text in (deviation.where, deviation.ours, deviation.why))


def _file(entry: Entry) -> str:
    """Return a link to the method's file."""
    module = inspect.getmodule(entry.make)
    assert module is not None
    name = module.__name__.rpartition(".")[2]
    return f"([`methods/{name}.py`](../../src/heterophony/methods/{name}.py))"


def _sends(entry: Entry) -> str:
    """Return the names of all fields that travel."""
    return ", ".join(dict.fromkeys(name for kind in entry.sends() for name in kind.fields)) or "nothing"


def _carries(kind: Kind) -> str:
    """Return the fields of a kind, with their types where the names do not say them."""
    kinds = {name: type(field).__name__.lower() for name, field in kind.fields.items()}
    named = (name if name == kinds[name] else f"{name} ({kinds[name]})" for name in kinds)
    return ", ".join(named) or "nothing: it only asks"


def _when(reaction: Reaction) -> str:
    """Return in words what wakes a reaction."""
    trigger = reaction.trigger
    if isinstance(trigger, Round):
        return "its round begins" + ("; it hears what has come since" if trigger.also else "")
    if isinstance(trigger, Each):
        return f"each `{trigger.kind.name}`"
    if isinstance(trigger, Count):
        return f"any {trigger.n} of `{trigger.kind.name}`"
    if isinstance(trigger, Clock):
        return f"its own clock strikes, if `{trigger.every}` says when; it sends nothing then"
    assert isinstance(trigger, Every)
    late = "; late ones are taken along" if trigger.late == "accept" else ""
    return f"one `{trigger.kind.name}` from each of its {trigger.of}, or quorum and deadline{late}"


def _needs(entry: Entry) -> str:
    """Return in words what a method asks of data and networks."""
    base = entry.base
    texts = [" Needs public data."] if base.public else []
    texts += [" Participants may have different classes."] if base.tasks else []
    alike = any(choice.averaged for role in base.models.values() for choice in role.values())
    averaged = [
        field for kind in entry.sends() for field in kind.fields.values() if isinstance(field, Weights) and field.model
    ]
    if any(isinstance(choice, Slice) for role in base.models.values() for choice in role.values()):
        texts += [" Participants hold slices of one network."]
    elif alike and averaged:
        part = all(isinstance(field, Part) for field in averaged)
        texts += [" What travels of the networks must be alike." if part else " One network for all."]
    return "".join(texts)


def _views(entry: Entry) -> str:
    """Return in words which views of data the roles read, with options as they are by default."""
    texts = []
    for role, wanted in reads(entry.build({})).items():
        needed = [f"`{view}`" for view in wanted if view != "mine"]
        if needed:
            texts.append(f"a {role} reads {' and '.join(needed)}")
    if not texts:
        return "No data are read."
    text = f"Data: {'; '.join(texts)}."
    if any("mine" in wanted for wanted in reads(entry.build({})).values()):
        text += " With a view `mine`, these are the public rows of its own domain; without it, all."
    return f"{text} [Which views follow from others](../how-to/python.md#views)."


def _options(entry: Entry) -> Iterator[str]:
    """Yield the lines of a table of options."""
    yield "| option | default | |"
    yield "|---|---|---|"
    for option in described(entry):
        yield f"| `{option.name}` | {_shown(option.default)} | {option.note} |"


def _shown(value: Any) -> str:
    """Return a default as TOML would have it."""
    return "-" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _deviations(entry: Entry) -> Iterator[str]:
    """Yield a table of the method's deviations: those of its file, and the shared rows that name it."""
    own = [f"| {_cells(deviation)} |" for deviation in entry.deviations]
    above, _, _ = DEVIATIONS.read_text().partition(MARK)
    for row in above.splitlines():
        if not row.startswith("| "):
            continue
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if entry.name in [part.strip() for part in cells[0].split(",")]:
            own.append(f"| {' | '.join(cells[1:])} |")
    if own:
        yield from ("| where | what we do | why |", "|---|---|---|", *own, "")


def _reproduced(name: str) -> Iterator[str]:
    """Yield the experiments with this method, and what came of those whose results are committed."""
    found = [e for e in map(Experiment.load, shipped()) if name in {arm.method for arm in e.arms}]
    if not found:
        yield "No table of a paper that we reproduce has this method. `heterophony compare` sets it beside others."
        return
    yield from ("| experiment | what | verdicts on figures of this method |", "|---|---|---|")
    for experiment in found:
        yield f"| `heterophony reproduce {experiment.name}` | {experiment.title} | {_verdicts(experiment, name)} |"


def _verdicts(experiment: Experiment, method: str) -> str:
    """Return the verdicts of each committed table with figures of the method, the full ones first."""
    arms, said = {arm.label for arm in experiment.arms if arm.method == method}, []
    for path in sorted((ROOT / "results").glob("**/*.json"), key=lambda path: (len(path.parts), path)):
        known = json.loads(path.read_text())
        if isinstance(known, dict) and known.get("experiment") == experiment.name:
            own = [row for row in known["rows"] if row["arm"] in arms]
            page = path.relative_to(ROOT).with_suffix(".md")
            first, more = (_counts([row for row in own if row["again"] is again]) for again in (False, True))
            again = f" (beside the same figures again: {more})" if more else ""
            if own:
                said.append(f"{first or 'claims only'}{again}: [{page}](../../{page})")
    return "; ".join(said) or "not run yet"


def _counts(rows: list[dict[str, Any]]) -> str:
    """Return how often each verdict was reached, without the arms that it names."""
    said = [row["verdict"].partition(":")[0] for row in rows if row["verdict"]]
    return "; ".join(f"{said.count(verdict)} {verdict}" for verdict in dict.fromkeys(said))


def main() -> None:
    made = pages()
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in PAGES.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (PAGES / name).write_text(text)
    DEVIATIONS.write_text(deviations())
    print(f"{len(made)} pages in {PAGES}", file=sys.stderr)


if __name__ == "__main__":
    main()
