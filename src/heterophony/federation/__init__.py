"""What a user builds: a method, a topology, models and data, and what the world around them is like."""

from heterophony.federation.federation import Federation
from heterophony.federation.identity import options_of

__all__ = ["Federation", "options_of"]
