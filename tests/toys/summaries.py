"""Summaries by hand, of runs that never were."""

from heterophony.runs.summary import Summary
from heterophony.tables.metrics import Metrics


def summary(metrics: Metrics, **changes) -> Summary:
    """A finished run of three rounds that has sent ten bytes."""
    told = {"method": "m", "setting": "s", "seed": 0, "product": "x", "rounds": 3, "metrics": metrics, "best": None}
    told |= {"bytes": {"update": 10}, "incidents": 0, "digest": "d", "seconds": 2.0, "clock": 1.0, "finished": True}
    return Summary(**(told | changes))
