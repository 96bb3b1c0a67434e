"""A deployment's figures for a monitoring system: what `deploy status` tells, in the form of OpenMetrics.

The figures are read from the files of the folder each time somebody asks. So they are served by a process of its own,
which can neither hold up a round nor end one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heterophony.deploy import status
from heterophony.deploy.named_function import DeployError

ABOUT = {
    "round": "Rounds that the leading node has finished.",
    "rounds": "Rounds that the plan has.",
    "finished": "1 when all rounds are done.",
    "incidents": "What was refused, late or absent so far.",
    "age_seconds": "How old the coordinator's figures are.",
    "online": "1 if the node is connected.",
    "awaited": "1 if the run waits for the node.",
    "troubled": "1 if the node was refused or failed.",
    "sent_bytes": "Bytes sent so far, by kind of message.",
    "reactions": "Reactions that a node has done.",
    "left_bytes": "Bytes that left a node, by kind of message and what became of it.",
    "epsilon_spent": "How much of a privacy budget is spent.",
    "epsilon": "How much may be spent of a privacy budget.",
}
Sample = tuple[str, dict[str, str], float]  # its name, its labels, its value


def samples(found: dict[str, Any]) -> Iterator[Sample]:
    """Yield all figures of what `status.of` has found."""
    yield from _coordinators(found) if found["who"] == "coordinator" else _participants(found)


def _coordinators(found: dict[str, Any]) -> Iterator[Sample]:
    run = found["run"]
    if run:
        yield "round", {}, run["round"]
        yield "rounds", {}, run["rounds"]
        yield "finished", {}, float(run.get("finished", False))
        yield "incidents", {}, run["incidents"]
        yield "age_seconds", {}, run["age"]
        for kind, sent in run.get("sent", {}).items():
            if kind != "total":
                yield "sent_bytes", {"kind": kind}, sent
    for node, state in found["nodes"].items():
        yield "online", {"node": node}, float(state == "online")
        yield "awaited", {"node": node}, float(node in run.get("waits_for", ()))
        yield "troubled", {"node": node}, float(node in run.get("trouble", ()))


def _participants(found: dict[str, Any]) -> Iterator[Sample]:
    for node, own in found["nodes"].items():
        yield "reactions", {"node": node}, own["reactions"]
        for what, size in own["left"].items():
            kind, _, status = what.partition(" ")
            yield "left_bytes", {"node": node, "kind": kind, "status": status}, size
    for file, budget in found["budgets"].items():
        yield "epsilon_spent", {"budget": file}, budget["spent"]
        yield "epsilon", {"budget": file}, budget["epsilon"]


class Collector:
    """Makes the figures of a folder anew whenever it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def collect(self) -> Iterator[Any]:
        """Yield the figures in the library's form. A folder that cannot be read now has `up` 0, and no others."""
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, Any] = {}
        up = GaugeMetricFamily("heterophony_up", "1 if the folder could be read.")
        try:
            for name, labels, value in samples(status.of(self.folder)):
                if name not in families:
                    families[name] = GaugeMetricFamily(f"heterophony_{name}", ABOUT[name], labels=list(labels))
                families[name].add_metric(list(labels.values()), value)
            up.add_metric([], 1)
        except (DeployError, OSError):
            families = {}
            up.add_metric([], 0)
        yield up
        yield from families.values()


def serve(folder: Path, host: str, port: int) -> Any:
    """Serve the figures at `http://HOST:PORT/metrics`, and return the server and its thread."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise DeployError("metrics need a library: pip install 'heterophony[metrics]'") from None
    status.of(folder)  # a folder that is none is said at once
    registry = CollectorRegistry()
    registry.register(Collector(folder))
    try:
        return start_http_server(port, host, registry)
    except OSError as error:
        raise DeployError(f"{host}:{port}: {(error.strerror or str(error)).lower()}") from None
