"""Fixtures of these tests: no data but the embedded ones, and small runs that several tests read."""

from toys.compared import _no_data, runs, small

__all__ = ["_no_data", "runs", "small"]
