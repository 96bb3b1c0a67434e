"""What was sent in a run."""

from heterophony.engines import Network, local


def sent(federation, kind, rounds):
    """All messages of a kind, in the order in which they were sent."""
    seen = []

    class Watched(Network):
        def arrivals(self, message, *rest):
            seen.extend([message] if message.kind == kind else [])
            return super().arrivals(message, *rest)

    local(federation, network=Watched).run(rounds)
    return seen
