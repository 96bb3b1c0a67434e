"""Which method when: accuracy against bytes, for every method that can run, on three small settings of real digits.

The settings are the embedded digits with few rows and few rounds. Nothing is chosen for a method here: it has its
defaults, or what `rotated-mnist` and `rotated-mnist-mixed` say of it. A method that is meant for one round has that
round, and its own epochs. A run that diverges is repeated with half the rate.

python benchmarks/which_method.py [--seeds 1] [--only METHOD ...]     # runs what is missing, then draws
python benchmarks/which_method.py --draw                             # only draws results/which-method.json
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

STORE = Path("results/which-method.json")
IMAGES = Path("docs/images")
OWN_CLASSES = {
    "name": "own-classes",
    "rounds": 8,
    "evaluate": 8,
    "data": {
        "source": "digits-embedded",
        "clients": 6,
        "partition": {"kind": "dirichlet", "alpha": 0.3, "min_size": 16},
        "private_test": True,
        "test": 0.25,
        "public": {"fraction": 0.15},
    },
    "models": {"participants": "mlp"},
    "local": {"epochs": 1, "batch": 16, "lr": 0.05, "momentum": 0.9},
}
SMALLER = {"data.rows": 400, "data.test_rows": 100, "rounds": 8, "evaluate": 8}
# title, (shipped setting or values, changes), figure: what is asked of a model
SETTINGS: dict[str, tuple[str | dict[str, Any], dict[str, Any], str, str]] = {
    "own classes": (OWN_CLASSES, {}, "private", "six clients, each with its own mix of classes, one network"),
    "rotations": ("rotated-mnist", SMALLER, "acc", "four clients, four rotations, one network"),
    "rotations, other networks": ("rotated-mnist-mixed", SMALLER, "acc", "four rotations, four different networks"),
}
# Of the methods that are meant for one round: that round, with their own number of epochs.
ONE_ROUND = {"fedkt": {"rounds": 1, "evaluate": 1, "local.epochs": 20}}
HALVINGS = 3  # how often a run that diverges is repeated with half the rate
ASKED = {"private": "accuracy on a client's own classes", "acc": "accuracy on all rotations"}
# What travels: the marker, and the methods. A method that stands nowhere is counted to the last.
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "nothing": ("X", ("solo", "agg")),
    "outputs on public data": (
        "o",
        ("fedmd", "fedmd-global", "fedmd-nfdp", "fccl", "fccl-code", "fccl-plus", "ds-fl", "cfd", "kt-pfl", "cronus",
         "rcfl", "rhfl", "fedh2l", "fedh2l-async"),
    ),
    "means of classes or features": ("^", ("fd", "fedproto", "fedtgp", "fedgh", "fedre", "fedgkt")),
    "part of the weights": (
        "s",
        ("fedper", "fedrep", "fedbabu", "fedas", "gpfl", "fedbn", "lg-fedavg", "fedgen", "hetlora", "rbla", "flexlora",
         "ffa-lora", "fedsa-lora", "flora"),
    ),
    "a common network beside one's own": ("P", ("fml", "fedkd", "fedmrl")),
    "weights, up and down a tree": ("v", ("bhfl", "bhfl-async", "hierfavg")),
    "weights": ("D", ()),
}  # fmt: skip


def family(method: str) -> str:
    """Return what travels with a method."""
    return next((name for name, (_, methods) in FAMILIES.items() if method in methods), "weights")


def one(name: str, method: str, seed: int) -> dict[str, Any]:
    """Run a method on a setting; return its figure and bytes, or why it cannot run there."""
    from heterophony.engines import local
    from heterophony.settings import Setting, assemble

    base, changes, figure, _ = SETTINGS[name]
    setting = Setting.of(base) if isinstance(base, dict) else Setting.load(base)
    setting = setting.changed({**changes, **ONE_ROUND.get(method, {})})
    rounds, _ = setting.plan(method)
    rate = setting.local["lr"]
    began = time.perf_counter()
    found: dict[str, Any] = {}
    for halving in range(HALVINGS + 1):
        slower = {"local.lr": rate / 2**halving} if halving else {}
        try:
            result = local(assemble(method, setting, seed=seed, changes=slower)).run(rounds)
        except (ValueError, RuntimeError) as error:  # a method that this setting does not suit says so in one line
            return {"why": str(error).splitlines()[0][:160]}
        found = {"value": getattr(result.metrics(), figure), "rounds": rounds}
        found |= {"rate": slower["local.lr"]} if slower else {}
        found["bytes"] = sum(result.ledger.bytes().values())
        if found["value"] is not None:
            break
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def collect(seeds: int, only: Sequence[str]) -> dict[str, Any]:
    """Run what the file does not hold yet. It is written after each run."""
    import torch

    from heterophony.methods import NAMES

    torch.set_num_threads(1)
    held: dict[str, Any] = json.loads(STORE.read_text()) if STORE.exists() else {}
    found = held.setdefault("runs", {})
    for seed in range(seeds):
        for method in only or NAMES:
            for name in SETTINGS:
                key = f"{name} | {method} | {seed}"
                if key in found:
                    continue
                found[key] = one(name, method, seed)
                print(key, found[key], flush=True)
                held |= {"date": str(date.today()), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
                held |= {"torch": torch.__version__.split("+")[0], "command": "python benchmarks/which_method.py"}
                held["runs"] = found
                STORE.write_text(json.dumps(held, indent=1, sort_keys=True) + "\n")
    return held


def points(held: Mapping[str, Any], name: str) -> dict[str, tuple[float, float, int]]:
    """Return bytes, mean figure in per cent and number of seeds by method, where each seed has a figure."""
    found: dict[str, list[dict[str, Any]]] = {}
    for key, run in held["runs"].items():
        where, method, _ = key.split(" | ")
        if where == name:
            found.setdefault(method, []).append(run)
    made = {}
    for method, runs in found.items():
        if all(run.get("value") is not None for run in runs):
            values = [run["value"] for run in runs]
            sent = sum(run["bytes"] for run in runs) / len(runs)
            made[method] = (sent, 100 * sum(values) / len(values), len(runs))
    return made


def frontier(found: Mapping[str, tuple[float, float, int]]) -> list[str]:
    """Return the methods that no other beats with as few bytes, from few bytes to many."""
    best, kept = -math.inf, []
    for method in sorted(found, key=lambda name: (found[name][0], -found[name][1])):
        if found[method][1] > best:
            best = found[method][1]
            kept.append(method)
    return kept


CROWD = 12  # so many methods with about the same bytes are named in a list beside the panel
LINES = 34  # of such a list, in one column


def crowd(found: Mapping[str, tuple[float, float, int]]) -> list[str]:
    """Return the methods of the largest group with about the same bytes, the best first; none where it is small."""
    groups: dict[int, list[str]] = {}
    for method, (sent, _, _) in found.items():
        groups.setdefault(round(8 * math.log10(_place(sent))), []).append(method)
    largest = max(groups.values(), key=len)
    return sorted(largest, key=lambda method: -found[method][1]) if len(largest) > CROWD else []


def draw(held: Mapping[str, Any], theme: str) -> Path:
    """Draw accuracy against bytes, one panel a setting. Every method has its name beside its mark."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from heterophony.report import palette

    look = palette.PAGE[theme]
    made = Figure(figsize=(12, 16.5), layout="constrained", dpi=110, facecolor=look["paper"])
    canvas = FigureCanvasAgg(made)
    axes = made.subplots(len(SETTINGS), 1)
    for axis, (name, (_, _, figure, text)) in zip(axes, SETTINGS.items(), strict=True):
        found = points(held, name)
        _dress(axis, look, found)
        seeds = sorted({seeds for _, _, seeds in found.values()})
        axis.set_title(f"{text} ({len(found)} methods, {'one seed' if seeds == [1] else f'seeds: {seeds}'})",
                       loc="left", fontsize=11, color=look["ink"])  # fmt: skip
        axis.set_ylabel(f"{ASKED[figure]}, %", color=look["ink"])
        best = frontier(found)
        line = [(_place(found[method][0]), found[method][1]) for method in best]
        axis.step(*zip(*line, strict=True), where="post", color=look["faint"], lw=1, ls="--", zorder=1)
        for method, (sent, value, _) in found.items():
            names = list(FAMILIES)
            color = palette.color(str(names.index(family(method))), theme)
            marker = FAMILIES[family(method)][0]
            axis.plot(_place(sent), value, marker, color=color, ms=7, mec=look["paper"], mew=0.6, zorder=5)
        listed = crowd(found)
        _list(axis, found, listed, look)
        canvas.draw()
        _name(axis, found, best, [method for method in listed if method not in best], look)
    axes[-1].set_xlabel("bytes that all nodes sent in the whole run", color=look["ink"])
    handles = [
        Line2D([], [], ls="", marker=marker, ms=8, color=palette.color(str(place), theme), label=name)
        for place, (name, (marker, _)) in enumerate(FAMILIES.items())
    ]
    handles.append(Line2D([], [], ls="--", color=look["faint"], label="nobody is better with as few bytes (bold)"))
    legend = made.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_color(look["ink"])
    path = IMAGES / f"which-method-{theme}.png"
    made.savefig(path, dpi=110, facecolor=look["paper"])
    return path


NOTHING = 1e3  # where those stand who send nothing: a logarithm has no nought


def _place(sent: float) -> float:
    return max(sent, NOTHING)


def _dress(axis: Any, look: Mapping[str, str], found: Mapping[str, tuple[float, float, int]]) -> None:
    """Set the axes: logarithmic bytes, with the column of those who send nothing at the left."""
    axis.set_xscale("log")
    axis.set_facecolor(look["paper"])
    axis.grid(True, color=look["rule"], lw=0.6)
    axis.tick_params(colors=look["ink"], which="both", labelsize=9)
    for side, spine in axis.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(look["faint"])
    values = [value for _, value, _ in found.values()]
    ends = [_place(sent) for sent, _, _ in found.values()]
    axis.set_ylim(min(values) - 3, max(values) + 4)
    axis.set_xlim(NOTHING / 2, max(ends) * 6)
    ticks = [10**power for power in range(3, 10) if 10**power < max(ends) * 6]
    axis.set_xticks(ticks, ["nothing" if tick == NOTHING else _bytes(tick) for tick in ticks])


def _bytes(n: float) -> str:
    return f"{n / 1e6:g} MB" if n >= 1e6 else f"{n / 1e3:g} kB"


def _list(
    axis: Any, found: Mapping[str, tuple[float, float, int]], listed: Sequence[str], look: Mapping[str, str]
) -> None:
    """Write names and figures of a crowd beside the panel, in columns of which one begins where the last ends."""
    if not listed:
        return
    said = [f"{found[method][1]:5.1f}  {method}" for method in listed]
    about = sorted(found[method][0] for method in listed)[len(listed) // 2]
    axis.text(1.02, 1.0, f"at about {_bytes(float(f'{about:.2g}'))}:", transform=axis.transAxes, fontsize=8, va="top",
              color=look["ink"], fontweight="bold")  # fmt: skip
    for column, begin in enumerate(range(0, len(said), LINES)):
        axis.text(1.02 + 0.2 * column, 0.965, "\n".join(said[begin : begin + LINES]), transform=axis.transAxes,
                  fontsize=7.5, va="top", color=look["ink"], family="monospace", linespacing=1.25)  # fmt: skip


def _name(
    axis: Any,
    found: Mapping[str, tuple[float, float, int]],
    best: Sequence[str],
    elsewhere: Sequence[str],
    look: Mapping[str, str],
) -> None:
    """Write each name beside its mark, unless it stands elsewhere. Names that would lie on each other move."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2, foreground=look["paper"])]
    to_pixels, to_data = axis.transData.transform, axis.transData.inverted().transform
    marks = [to_pixels((_place(sent), value)) for sent, value, _ in found.values()]
    taken = [(float(x) - 6, float(x) + 6, float(y)) for x, y in marks]  # left, right, middle
    ends = axis.transAxes.transform((1, 1))[1], axis.transAxes.transform((0, 0))[1]
    for method in sorted(found, key=lambda name: (name not in best, -found[name][1])):
        if method in elsewhere:
            continue
        x, y = to_pixels((_place(found[method][0]), found[method][1]))
        left, wide = x + 8, 7.2 * len(method)
        offsets = [step * sign * 4 for step in range(60) for sign in (1, -1)]
        free = next(
            (off for off in offsets
             if ends[1] < y + off < ends[0]
             and all(left + wide < a or left > b or abs(y + off - at) > 11.5 for a, b, at in taken)),
            0,
        )  # fmt: skip
        taken.append((left, left + wide, y + free))
        place = to_data((left + (6 if free else 0), y + free))
        if abs(free) > 4:
            axis.plot(*zip(to_data((x, y)), place, strict=True), color=look["faint"], lw=0.5, zorder=2)
        axis.text(*place, method, fontsize=7.5, va="center", color=look["ink"], zorder=4,
                  fontweight="bold" if method in best else "normal", path_effects=halo)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--draw", action="store_true")
    args = parser.parse_args()
    held = json.loads(STORE.read_text()) if args.draw else collect(args.seeds, args.only)

    for theme in ("light", "dark"):
        print(draw(held, theme))


if __name__ == "__main__":
    main()
