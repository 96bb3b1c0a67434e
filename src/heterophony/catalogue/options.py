"""What a method's options mean: the comments beside them in the source, or what is common to many methods."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, is_dataclass
from typing import Any

from heterophony.catalogue.registry import Entry

# Where the method itself says nothing of them.
COMMON = {
    "fraction": "share of the clients that a round asks",
    "quorum": "answers that are enough when the deadline has come: a count, or a share",
    "deadline": "virtual seconds that a window stays open; none: until all have answered",
    "weighted": "the mean counts a client by its examples",
    "epochs": "over the data, between two messages",
    "batch": "rows of a step",
    "lr": "learning rate",
    "momentum": "of SGD",
    "weight_decay": "L2 penalty",
    "data": "what is seen: private rows, those and the own domain's public ones, or those and all public ones",
    "refresh": "BatchNorm's running statistics are taken anew from the rows after training",
    "steps": "so many batches instead of whole epochs",
    "sample": "public rows of a round; none: all",
    "fresh": "other public rows in each round",
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
    notes = {**_comments(entry.base), **_comments(entry.make)}
    found = []
    for name, (hint, default) in entry.options().items():
        note = notes.get(name, "") or _part_note(entry, name) or COMMON.get(name.rpartition(".")[2], "")
        choices = list(dict.fromkeys(re.findall(r"'([^']*)'", str(hint)))) if "Literal" in str(hint) else []
        kind = f"one of {', '.join(choices)}" if choices else RAMP if "Ramp" in str(hint) else ""
        found.append(Option(name, default, "; ".join(filter(None, (note, kind)))))
    return found


def _part_note(entry: Entry, name: str) -> str:
    """What the part itself says of the option: `local.steps` is a field of `Training`."""
    outer, _, inner = name.partition(".")
    part = entry.parts().get(outer, (None, None))[1]
    return _comments(type(part)).get(inner, "") if inner and is_dataclass(part) else ""


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
