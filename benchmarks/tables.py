"""What the benchmark scripts share: runs that are kept in a JSON file, and a table of them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch

from heterophony.tables.interval import interval


def collect(
    store: Path, variants: Mapping[str, Any], seeds: int, job: Callable[[str, int], Any], arguments: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """job(name, seed) for all, by name; what the file holds is not run again.

    A run is what it was made with: its variant (a method and its changes), and the arguments that all have.
    """
    torch.set_num_threads(1)
    store.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = json.loads(store.read_text()) if store.exists() else {}
    keys = {name: json.dumps([name, variant, dict(arguments)], sort_keys=True) for name, variant in variants.items()}
    for name, key in keys.items():
        runs = found.setdefault(key, {})
        for seed in map(str, range(seeds)):
            if seed not in runs:
                runs[seed] = job(name, int(seed))
                store.write_text(json.dumps(found, indent=1) + "\n")
                print(name, seed, flush=True)
    return {name: [found[key][str(seed)] for seed in range(seeds)] for name, key in keys.items()}


def cell(values: Sequence[float | None], scale: float = 100.0, digits: int = 1) -> str:
    """Mean and half of its 95 % interval; a dash where one is undefined."""
    found = interval(values)
    return "-" if found is None else found.text(scale, digits)


def report(path: Path, command: str, seeds: int, note: str, lines: Sequence[str]) -> None:
    """Print the table and write it, with the command that made it."""
    head = [
        f"`{command}`, {date.today()}, {platform.machine()}, one thread a process on {os.cpu_count()} cores.",
        f"{note} Mean ± half of the 95 % interval over seeds 0..{seeds - 1}.",
        "",
    ]
    print("\n".join([*head, *lines]))
    path.write_text("\n".join([*head, *lines]) + "\n")
