"""Where reactions run. Every engine drives the same clock, triggers and mailboxes; they differ in their host."""

from heterophony.engines.engine import Engine, Stalled
from heterophony.engines.local import local
from heterophony.engines.network import Network
from heterophony.engines.process import process

__all__ = ["Engine", "Network", "Stalled", "local", "process"]
