"""What a run has to say: the object that `--json` prints, and the table that a person reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from heterophony.record.ledger import Ledger
from heterophony.record.metrics import best_round, measure
from heterophony.record.result import Result
from heterophony.record.run import Run
from heterophony.record.table import Table


def summary(spec: dict[str, Any], result: Result) -> dict[str, Any]:
    """A finished run as one JSON object."""
    about = _about(spec, result.table, result.ledger)
    return {
        **about,
        "rounds": result.rounds,
        "digest": result.digest,
        "seconds": round(result.seconds, 3),
        "finished": True,
    }


def _about(spec: dict[str, Any], table: Table, ledger: Ledger) -> dict[str, Any]:
    recipe = spec.get("recipe") or {}
    homes, product = spec["homes"], spec["headline"]
    best = best_round(table, homes, product)
    kinds = ledger.bytes()
    return {
        "method": recipe.get("method", spec["method"]),
        "setting": recipe.get("setting", {}).get("name"),
        "seed": spec["seed"],
        "product": product,
        "metrics": measure(table, homes, product).as_dict(),
        "best": None if best is None else {"round": best, **measure(table, homes, product, round=best).as_dict()},
        "bytes": {"total": sum(kinds.values()), **kinds},
        "incidents": len(ledger.incidents),
        "leaks": spec.get("leaks", []),
    }


def load(folder: Path) -> dict[str, Any]:
    """The object of a run folder: as it was written at the end, or what is known so far."""
    try:
        return dict(json.loads((folder / "result.json").read_text()))
    except FileNotFoundError:
        pass
    spec = Run.spec(folder)
    table, book = Table(_lines(folder / "metrics.jsonl")), Ledger(_lines(folder / "ledger.jsonl"))
    rounds = 1 + max((row["round"] for row in table if row["product"] == spec["headline"]), default=-1)
    return {**_about(spec, table, book), "rounds": rounds, "digest": None, "seconds": None, "finished": False}


def ledger(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A run's traffic by edge, kind and status, and its incidents."""
    Run.spec(folder)
    book = Ledger(_lines(folder / "ledger.jsonl"))
    edges: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in book.messages:
        key = (row["from"], row["to"], row["kind"], row["status"])
        names = dict(zip(("from", "to", "kind", "status"), key, strict=True))
        edge = edges.setdefault(key, {**names, "messages": 0, "bytes": 0, "wire": 0})
        edge["messages"] += 1
        edge["bytes"] += row["payload"] * row["hops"]
        edge["wire"] += row["wire"] * row["hops"]
    return list(edges.values()), book.incidents


def _lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines; the last one may be half written by a run that was killed."""
    if not path.exists():
        return []
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def table(summary: dict[str, Any]) -> Any:
    """A rich table of the figures, and of every participant."""
    from rich.table import Table as Grid

    grid = Grid(title=f"{summary['method']} on {summary['setting']}, seed {summary['seed']}", title_justify="left")
    for column in ("participant", "all domains", "own domain", "other domains"):
        grid.add_column(column, justify="left" if column == "participant" else "right")
    metrics = summary["metrics"]
    for name, own in metrics["participants"].items():
        grid.add_row(name, *(percent(own[key]) for key in ("acc", "wdp", "cdp")))
    grid.add_section()
    grid.add_row("mean", *(percent(metrics[key]) for key in ("acc", "wdp", "cdp")), style="bold")
    return grid


def lines(summary: dict[str, Any]) -> list[str]:
    """What goes below the table."""
    kinds = ", ".join(f"{kind} {size(n)}" for kind, n in summary["bytes"].items() if kind != "total") or "nothing"
    text = [f"round {summary['rounds']}, product {summary['product']!r}; worst participant on its own domain "
            f"{percent(summary['metrics']['worst'])}"]  # fmt: skip
    if summary["best"] is not None:
        text.append(
            f"best by validation: round {summary['best']['round'] + 1}, all domains {percent(summary['best']['acc'])}"
        )
    text.append(f"sent {size(summary['bytes']['total'])}: {kinds}; {summary['incidents']} incidents")
    text += [f"LEAKY: {leak}" for leak in summary["leaks"]]
    if summary["finished"]:
        text.append(f"{summary['seconds']:.1f} s, models {summary['digest'][:12]}")
    else:
        text.append("not finished: `heterophony resume` continues it")
    return text


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return ""
