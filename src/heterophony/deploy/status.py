"""What is going on in a federation, told from the files that its two ends keep, and from the SuperLink if it is up."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from heterophony.base.amounts import counted, size
from heterophony.deploy import coordinator
from heterophony.deploy.budget import Budget
from heterophony.deploy.holders import CoordinatorsOwn
from heterophony.deploy.named_function import DeployError, one_line
from heterophony.deploy.node_store import NodeStore
from heterophony.deploy.organisation import FILE as ORGANISATION
from heterophony.deploy.organisation import Organisation
from heterophony.deploy.plan import FILE as PLAN
from heterophony.deploy.plan import Plan, parsed
from heterophony.kernel.accountant import composed, epsilon_of
from heterophony.runs.summary import written


def of(folder: Path) -> dict[str, Any]:
    """Return what a coordinator's or a participant's folder tells, as one object."""
    plan = Plan.load(folder / PLAN)
    if (folder / ORGANISATION).exists():
        return _participant(folder, plan)
    if (folder / coordinator.FILE).exists():
        return _coordinator(folder, plan)
    raise DeployError(f"{folder} is neither a coordinator's folder nor a participant's")


def _participant(folder: Path, plan: Plan) -> dict[str, Any]:
    """Return an organisation's figures: of all its nodes together, and of each."""
    own = Organisation.load(folder / ORGANISATION)
    nodes = {node: _node(NodeStore(own.place(node), plan.id), plan, node) for node in plan.held_by(own.name)}
    left: Counter[str] = Counter()
    for found in nodes.values():
        left.update(found["left"])  # which keeps a kind that was only withheld
    incidents = sorted((row for found in nodes.values() for row in found["incidents"]), key=lambda row: str(row["at"]))
    return {
        "who": own.name,
        "federation": plan.id,
        "reactions": sum(found["reactions"] for found in nodes.values()),
        "left": dict(left),
        "incidents": incidents[-5:],
        "nodes": nodes,
        "budgets": {str(budget.file): _spent(budget) for budget in map(own.account, nodes) if budget is not None},
    }


def _spent(budget: Budget) -> dict[str, float]:
    """Return how much of a privacy budget is spent; several nodes may spend from one."""
    now = budget.look()
    return {"spent": epsilon_of(composed(now.charges), now.delta), "epsilon": now.epsilon, "delta": now.delta}


def _node(store: NodeStore, plan: Plan, node: str) -> dict[str, Any]:
    """Return the figures of one node that is held here."""
    sent: Counter[str] = Counter()
    for row in _rows(store, "ledger", "kind", "status", "payload"):
        sent[f"{row['kind']} {row['status']}"] += row["payload"] if row["status"] == "sent" else 0
    incidents = [{**row, "node": node} for row in _rows(store, "incidents", "at", "incident", "detail")]
    applied = store.peek().applied if store.file.exists() else 0
    inner = node not in plan.participants
    return {"inner": inner, "reactions": applied, "left": dict(sent), "incidents": incidents[-5:]}


def _rows(store: NodeStore, table: str, *names: str) -> list[dict[str, Any]]:
    """Return a node's own table, of which every row has these names."""
    found = store.rows(table)
    if not all(isinstance(row, dict) and row.keys() >= set(names) for row in found):
        raise DeployError(f"{store.table(table)}: a line of it is not as nodes write them; was it edited?")
    return found


def _coordinator(folder: Path, plan: Plan) -> dict[str, Any]:
    path = folder / coordinator.STATUS
    try:
        run = dict(json.loads(path.read_text()))
        run["age"] = round(time.time() - run.pop("at"), 1)
        if not run.keys() >= {"round", "rounds", "incidents", "waits_for", "trouble"}:
            raise ValueError
    except FileNotFoundError:
        run = {}
    except (ValueError, KeyError, TypeError):
        raise DeployError(f"{path} is damaged: remove it, a running `serve` writes another") from None
    done = written(folder / "run") if (folder / "run").exists() else None
    result = None
    if done is not None:
        whole = done.as_json()
        result = {key: whole[key] for key in ("rounds", "digest", "seconds", "bytes")}
    return {
        "who": "coordinator",
        "federation": plan.id,
        "nodes": _nodes(folder, plan),
        "holders": {node: name for name in plan.everyone for node in plan.held_by(name) if node != name},
        "run": run,
        "result": result,
    }


def _nodes(folder: Path, plan: Plan) -> dict[str, str]:
    """Return by node: online, offline, or not known; nothing if there is no SuperLink to ask."""
    from heterophony.deploy import flower

    listen = parsed(CoordinatorsOwn, folder / coordinator.FILE)
    control = flower.Control(listen.address, (folder / "ca.crt").read_bytes())
    try:
        if not control.reachable():
            return {}
        there = control.nodes()
    finally:
        control.close()
    known = coordinator.public_keys(folder, plan)
    states = {name: there.get(flower.key_bytes(key), "not registered") for name, key in known.items()}
    return {node: state for name, state in states.items() for node in plan.held_by(name)}


def lines(found: dict[str, Any]) -> list[str]:
    """Return lines for a person; some of it is what others have said."""
    return [one_line(line) for line in _lines(found)]


def _lines(found: dict[str, Any]) -> list[str]:
    title = f"{found['who']} of federation {found['federation']}"
    if found["who"] == "coordinator":
        return [title, *_nodes_at_coordinator(found), *_run_at_coordinator(found)]
    return [title, *_at_participant(found)]


def _at_participant(found: dict[str, Any]) -> list[str]:
    """Return what the nodes of an organisation have done, and what went wrong."""
    text = []
    for name, node in found["nodes"].items():
        before = f"inner node {name}: " if node["inner"] else ""
        text.append(f"{before}{counted(node['reactions'], 'reaction')} done")
        text += [f"{before}left: {what}, {size(n)}" for what, n in node["left"].items()]
    for file, budget in found.get("budgets", {}).items():
        text.append(f"privacy budget {file}: epsilon {budget['spent']:.4g} of {budget['epsilon']:g} spent")
    several = len(found["nodes"]) > 1
    for incident in found["incidents"]:
        where = f"{incident['node']}: " if several else ""
        text.append(f"{incident['at']} {where}{incident['incident']}: {incident['detail']}")
    return text


def _nodes_at_coordinator(found: dict[str, Any]) -> list[str]:
    """Return which nodes the SuperLink knows."""
    if not found["nodes"]:
        return ["no SuperLink is running here"]
    holders = found.get("holders", {})
    return [
        f"{node}{f' at {holders[node]}' if node in holders else ''}: {state}" for node, state in found["nodes"].items()
    ]


def _run_at_coordinator(found: dict[str, Any]) -> list[str]:
    """Return how far the run is, and what it has come to."""
    text = []
    if run := found["run"]:
        incidents = counted(run["incidents"], "incident")
        text.append(f"round {run['round']} of {run['rounds']}, {incidents}, as of {run['age']:g} s ago")
        if sent := run.get("sent"):
            text.append("sent so far: " + ", ".join(f"{kind} {size(n)}" for kind, n in sent.items()))
        if run["waits_for"]:
            text.append(f"waits for {', '.join(run['waits_for'])}")
        text += [f"{name}: {trouble}" for name, trouble in run["trouble"].items()]
        text += run.get("latest", [])
    done = found["result"]
    if done is not None and found["run"].get("finished", True):  # else it is that of fewer rounds
        rounds = counted(done["rounds"], "round")
        text.append(f"finished: {rounds}, sent {size(done['bytes']['total'])}, models {done['digest'][:12]}")
    return text
