"""What a run has to say: the object that `--json` prints, and the table that a person reads."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean
from typing import Any

from heterophony.base.disk import Disk
from heterophony.base.machine import machine
from heterophony.base.seal import sealed
from heterophony.data.stream import Drift
from heterophony.runs.run import Run, RunError
from heterophony.tables import clients
from heterophony.tables.drift import over_time
from heterophony.tables.ledger import Ledger
from heterophony.tables.levels import COLUMNS, levels, perplexities
from heterophony.tables.metrics import best_round, conflicts, diverged, measure
from heterophony.tables.result import Result
from heterophony.tables.table import Table
from heterophony.tables.unseen import newcomers, unseen

FILE = "result.json"


def summary(spec: dict[str, Any], result: Result) -> dict[str, Any]:
    """A finished run as one JSON object."""
    about = _about(spec, result.table, result.ledger)
    return {
        **about,
        "rounds": result.rounds,
        "digest": result.digest,
        "seconds": round(result.seconds, 3),
        "clock": result.clock,
        "machine": machine(spec["device"]),
        "finished": True,
    }


def finish(spec: dict[str, Any], result: Result, folder: Path | None) -> dict[str, Any]:
    """The object of a run that has come to its end, written into its folder unless it was there already."""
    made = summary(spec, result)
    if folder is None:
        return made
    known = written(folder)
    if known is not None and known["rounds"] == made["rounds"]:  # nothing was left to do
        return known
    Disk().replace(folder / FILE, sealed({**made, "tables": Run(folder).sums_of_tables()}, indent=1))
    return made


def _about(spec: dict[str, Any], table: Table, ledger: Ledger) -> dict[str, Any]:
    recipe = spec.get("recipe") or {}
    homes, product = spec["homes"], spec["headline"]
    kinds = ledger.bytes()
    parents = recipe.get("parents")
    return {
        "method": recipe.get("method", spec["method"]),
        "setting": recipe.get("setting", {}).get("name"),
        "seed": spec["seed"],
        "product": product,
        "metrics": measure(table, homes, product).as_dict(),
        "best": _best(spec, table, ledger),
        **({} if parents is None else {"levels": levels(table, parents, homes)}),
        **_clients(table, homes, product),
        **_drift(table, recipe, homes, product),
        **({"unseen": found} if (found := unseen(table)) else {}),
        **({"newcomers": newcomers(table, spec["joins"], homes, product)} if spec.get("joins") else {}),
        **(_language(table, parents, homes, product) if recipe.get("sequences") else {}),
        "bytes": {"total": sum(kinds.values()), **kinds},
        **({"diverged": lost} if (lost := diverged(table, product)) else {}),
        **_unmarked(table, product),
        "incidents": len(troubles := [row for row in ledger.incidents if row["incident"] != "joined"]),
        **_refused(troubles),
        **({"skipped": skipped} if (skipped := sum(row["incident"] == "skipped" for row in troubles)) else {}),
        "leaks": spec.get("leaks", []),
        **({"untrained": spec["untrained"]} if "untrained" in spec else {}),
        **({"conflicts": fought} if (fought := conflicts(table)) else {}),
    }


def _refused(troubles: list[dict[str, Any]]) -> dict[str, Any]:
    """How many messages were refused, and what the first refusal said."""
    found = [row for row in troubles if row["incident"] == "refused"]
    first = f"{found[0]['node']} refused {found[0]['detail']}" if found else ""
    return {"refused": {"messages": len(found), "first": first}} if found else {}


def _unmarked(table: Table, product: str) -> dict[str, Any]:
    """What was marked, where the product that a method says is its headline never was."""
    marked = list(dict.fromkeys(row["product"] for row in table if row["quantity"] == "accuracy"))
    return {"marked": marked} if marked and product not in marked else {}


def _clients(table: Table, homes: dict[str, str], product: str) -> dict[str, Any]:
    """Where participants have models of their own beside a global one: who gains by them."""
    common = clients.own(table, homes, "global") if product != "global" else {}
    if not any(value is not None for value in common.values()):
        return {}
    return {"clients": {"against": "the global model", **clients.gains(clients.own(table, homes, product), common)}}


def _drift(table: Table, recipe: dict[str, Any], homes: dict[str, str], product: str) -> dict[str, Any]:
    """Where data are streams: what was known of the present and of the past, by round."""
    part = recipe.get("setting", {}).get("data", {}).get("stream")
    if part is None:
        return {}
    drift = Drift(part.get("drift", "sudden"), len(part.get("concepts", [{}])), part.get("every", 10))
    return {"drift": over_time(table, homes, product, drift.shares)}


def _language(table: Table, parents: dict[str, str] | None, homes: dict[str, str], product: str) -> dict[str, Any]:
    """Of language models: every participant's perplexity on its own data, and in a tree that of every level."""
    losses = clients.own(table, homes, product, "loss")
    own = {name: None if loss is None else math.exp(min(loss, 700.0)) for name, loss in losses.items()}
    return {"perplexity": own} | ({} if parents is None else {"perplexities": perplexities(table, parents, homes)})


def against(folder: Path, other: Path) -> dict[str, Any]:
    """Two runs, participant by participant, on its own data, which must be the same."""
    specs = [Run.spec(place) for place in (folder, other)]
    data = [(spec.get("recipe") or {}).get("setting", {}).get("data") for spec in specs]
    for what, mine, theirs in (
        ("participants", *(sorted(spec["homes"].items()) for spec in specs)),
        ("seed", *(spec["seed"] for spec in specs)),
        ("data", *data),
    ):
        if mine != theirs:
            named = f": {mine} and {theirs}" if what == "seed" else ""
            raise RunError(f"{folder} and {other} cannot be compared, they differ in their {what}{named}")

    def figures(place: Path, spec: dict[str, Any]) -> clients.Figures:
        return clients.own(Table(Run(place).rows("metrics")), spec["homes"], spec["headline"])

    found = clients.gains(figures(folder, specs[0]), figures(other, specs[1]))
    rounds = [load(place)["rounds"] for place in (folder, other)]
    after = "" if rounds[0] == rounds[1] else f" (after {counted(rounds[1], 'round')})"
    return {"against": f"{other}{after}", **found}


def load(folder: Path) -> dict[str, Any]:
    """The object of a run folder: as it was written at the end, or what is known so far."""
    spec = Run.spec(folder)
    Run(folder).check()
    unchecked = {} if Run.checked(folder) else {"unchecked": True}
    known = written(folder)
    if known is not None and known["rounds"] >= Run(folder).goal:
        return {**known, **unchecked}
    table, book = Table(Run(folder).rows("metrics")), Ledger(Run(folder).rows("ledger"))
    rounds = 1 + max((row["round"] for row in table if row["product"] == spec["headline"]), default=-1)
    return {
        **_about(spec, table, book),
        "rounds": rounds,
        "digest": None,
        "seconds": None,
        "clock": None,
        "machine": None,
        "finished": False,
        **unchecked,
    }


def written(folder: Path) -> dict[str, Any] | None:
    """What a finished run wrote down at its end; None where it has not ended, or its tables have grown since."""
    found = Run.part(folder, FILE)
    if found is None:
        return None
    if not {"method", "rounds", "metrics", "bytes", "digest", "seconds"} <= found.keys():
        raise RunError(f"{folder / FILE} is damaged: it lacks a part")
    tables = found.pop("tables", None)
    return found if tables in (None, Run(folder).sums_of_tables()) else None


def ledger(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A run's traffic by edge, kind and status, and its incidents."""
    Run.spec(folder)
    book = Ledger(Run(folder).rows("ledger"))
    edges: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in book.messages:
        key = (row["from"], row["to"], row["kind"], row["status"])
        names = dict(zip(("from", "to", "kind", "status"), key, strict=True))
        edge = edges.setdefault(key, {**names, "messages": 0, "bytes": 0, "wire": 0})
        edge["messages"] += 1
        edge["bytes"] += row["payload"] * row["hops"]
        edge["wire"] += row["wire"] * row["hops"]
    return list(edges.values()), book.incidents


def table(summary: dict[str, Any]) -> Any:
    """A rich table of the figures, and of every participant."""
    from rich.table import Table as Grid

    on = "" if summary["setting"] is None else f" on {summary['setting']}"
    grid = Grid(title=f"{summary['method']}{on}, seed {summary['seed']}", title_justify="left")
    metrics = summary["metrics"]
    columns = _columns([metrics, *metrics["participants"].values()])
    grid.add_column("participant")
    for column in columns.values():
        grid.add_column(column, justify="right")
    for name, own in metrics["participants"].items():
        grid.add_row(name, *(percent(own[key]) for key in columns))
    grid.add_section()
    grid.add_row("mean", *(percent(metrics[key]) for key in columns), style="bold")
    return grid


def _columns(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Of the figures those that say something, and their titles: one domain is the own and all there is."""
    titles = {"acc": "all domains", "wdp": "own domain", "cdp": "other domains", "private": "private test"}
    known = {
        key: title for key, title in titles.items() if key == "acc" or any(row.get(key) is not None for row in rows)
    }
    if "cdp" not in known and all(row["wdp"] == row["acc"] for row in rows):
        known = {"acc": "accuracy"} | {key: known[key] for key in known if key == "private"}
    return known


def _best(spec: dict[str, Any], table: Table, ledger: Ledger) -> dict[str, Any] | None:
    """The best round by validation. Leaves of a tree count their trainings: then it is the root's round at that time,
    and `training` is theirs."""
    homes, product = spec["homes"], spec["headline"]
    if (best := best_round(table, homes, product)) is None:
        return None
    found = {"round": best, **measure(table, homes, product, round=best).as_dict()}
    chosen = [row for row in table if (row["product"], row["split"], row["round"]) == (product, "validation", best)]
    root, end = next((n for n, role in spec["nodes"].items() if role == "root"), None), max(r["time"] for r in chosen)
    if root is None or any(row["node"] == root for row in chosen):
        return found
    begun = [row["round"] for row in ledger.messages if row["from"] == root and row["time"] < end]
    return found | {"round": max(begun), "training": best} if begun else found


def lines(summary: dict[str, Any], kept: bool = True) -> list[str]:
    """What goes below the table. Of a run that is not `kept` in a folder, no other command can tell more."""
    kinds = ", ".join(f"{kind} {size(n)}" for kind, n in summary["bytes"].items() if kind != "total") or "nothing"
    resume = "Federation.resume" if summary["setting"] is None else "heterophony resume"
    refused = [_refusals(found)] if (found := summary.get("refused")) else []
    if not summary["rounds"]:
        return [f"no round is finished yet: `{resume}` continues it", *refused]
    text = [f"after {counted(summary['rounds'], 'round')}, product {summary['product']!r}; "
            f"worst participant on its own domain {percent(summary['metrics']['worst'])}"]  # fmt: skip
    if (best := summary["best"]) is not None:
        whose = "the root's " if "training" in best else ""
        text.append(f"best by validation: {whose}round {best['round'] + 1}, all domains {percent(best['acc'])}")
    if found := summary.get("levels"):
        text.append("models of each level, mean over leaves: " + ", ".join(COLUMNS))
        text += [f"  {row['level']:8s}" + "".join(f"{percent(row[name]):>9s}" for name in COLUMNS) for row in found]
    if found := summary.get("perplexities"):
        text.append("perplexity of each level's models, geometric mean over leaves")
        text += [f"  {row['level']:8s}" + "".join(f"{number(row[name]):>9s}" for name in COLUMNS) for row in found]
    if known := [value for value in summary.get("perplexity", {}).values() if value is not None]:
        text.append(
            f"perplexity on their own data: from {min(known):.2f} to {max(known):.2f}, "
            f"geometric mean {math.exp(math.fsum(map(math.log, known)) / len(known)):.2f}"
        )
    if found := summary.get("drift"):
        text.append(f"after round {found[-1]['round'] + 1} of the stream: present {percent(found[-1]['present'])}, "
                    f"past {percent(found[-1]['past'])}, forgotten {percent(found[-1]['forgotten'])}; mean over time: "
                    f"present {percent(mean(row['present'] for row in found))}")  # fmt: skip
    for kind, sets in summary.get("unseen", {}).items():
        told = ", ".join(f"{name} {percent(rates['mean'])}" for name, rates in sets.items())
        text.append(f"on who took no part, {kind!r}: {told}")
    for name, seen in summary.get("newcomers", {}).items():
        steps = ", ".join(percent(at["own"]) for at in seen["since"][:4]) or "not evaluated yet"
        text.append(f"{name} joined at {seen['joined']:g} s: own data before {percent(seen['before'])}, then {steps}")
    if found := summary.get("clients"):
        text.append(clients.line(found, found["against"]))
    if found := summary.get("marked"):
        text.append(f"the method's headline {summary['product']!r} was never marked; marked were {', '.join(found)}")
    if found := summary.get("diverged"):
        who = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        text.append(f"DIVERGED: the outputs of {who} are no numbers any more; a lower learning rate (lr) may help")
    troubles = counted(summary["incidents"], "incident")
    if skipped := summary.get("skipped"):
        troubles += f", among them {counted(skipped, 'skipped merge')} (too few answers)"
    if summary["incidents"]:
        troubles += ": see `heterophony ledger`" if kept else ": with --out, `heterophony ledger` lists them"
    text.append(f"sent {size(summary['bytes']['total'])}: {kinds}; {troubles}")
    if fought := summary.get("conflicts"):
        share, cosine = (sum(own[key] for own in fought.values()) / len(fought) for key in ("share", "cosine"))
        text.append(
            f"what others teach went against local gradients in {percent(share)} of rounds, cosine {cosine:.2f}"
        )
    text += refused
    text += [f"LEAKY: {leak}" for leak in summary["leaks"]]
    text += [f"UNTRAINED: {gap}" for gap in summary.get("untrained", [])]
    if summary.get("unchecked"):
        text.append("UNCHECKED: begun before run folders had checksums, so that a changed figure may go unnoticed")
    if summary["finished"]:
        text.append(f"{summary['seconds']:.1f} s, models {summary['digest'][:12]}")
    else:
        text.append(f"not finished: `{resume}` continues it")
    return text


def _refusals(found: dict[str, Any]) -> str:
    first = "the first: " if found["messages"] > 1 else ""
    return f"REFUSED: {counted(found['messages'], 'message')}; {first}{found['first']}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def counted(n: int, what: str) -> str:
    """1 round, 2 rounds."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return ""
