"""What a method's options mean.

An option says it itself: `rate: Annotated[float, "how far a step goes"] = 0.1`. Where it does not, the comment beside
it in the source says it, or what is common to many methods.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, is_dataclass
from typing import Any, get_type_hints

from heterophony.catalogue.registry import Entry

# Where the method itself says nothing of them.
COMMON = {
    "epochs": "over the data, between two messages",
    "batch": "rows of a step",
    "lr": "learning rate",
    "steps": "so many batches instead of whole epochs",
    "sample": "public rows of a round; none: all",
    "half": "logits travel as float16",
    "average": "how logits are combined",
    "mu": "how strong the pull to the global model is",
    "rate": "of the node's optimiser: 1 takes over what comes, less keeps something of one's own",
    "beta1": "of momentum, Adam, Yogi",
    "beta2": "of Adam, Yogi",
    "tau": "of Adam, Yogi, Adagrad: keeps the step finite",
}
RAMP = "or { start = 0.9, stop = 0.5, over = 100 }, which changes over so many rounds"


@dataclass(frozen=True)
class Option:
    """One line of a table of options."""

    name: str
    default: Any
    note: str


def described(entry: Entry) -> list[Option]:
    """All options of a method, with what can be said of them."""
    own = {**notes(entry.base), **notes(entry.make)}
    found = []
    for name, (hint, default) in entry.options().items():
        note = own.get(name, "") or _part_note(entry, name) or COMMON.get(name.rpartition(".")[2], "")
        choices = list(dict.fromkeys(re.findall(r"'([^']*)'", str(hint)))) if "Literal" in str(hint) else []
        kind = f"one of {', '.join(choices)}" if choices else RAMP if "Ramp" in str(hint) else ""
        found.append(Option(name, default, "; ".join(filter(None, (note, kind)))))
    return found


def _part_note(entry: Entry, name: str) -> str:
    """What the part itself says of the option: `local.steps` is a field of `Training`."""
    outer, _, inner = name.partition(".")
    part = entry.parts().get(outer, (None, None))[1]
    return notes(type(part)).get(inner, "") if inner and is_dataclass(part) else ""


def notes(thing: Any) -> dict[str, str]:
    """Return what the fields of a class, or the parameters of a function, say of themselves."""
    try:
        hints = get_type_hints(thing, include_extras=True)
    except (NameError, TypeError):  # an object that can be called, or names that nothing stands for
        hints = {}
    said = {}
    for name, hint in hints.items():
        texts = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, str)]
        if texts:
            said[name] = texts[0]
    return {**_comments(thing), **said}


def _comments(thing: Any) -> dict[str, str]:
    """field -> the comment behind it."""
    if not inspect.isclass(thing):
        return {}
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):  # written in a notebook, say
        return {}
    found = {}
    for line in source.splitlines():
        if hit := re.match(r"\s+(\w+): .*?#\s*(.+)$", line):
            found[hit[1]] = hit[2].split("type: ignore")[0].strip()
    return found
