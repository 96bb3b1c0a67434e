"""How peers mix their weights: Metropolis' matrix, and the mean with what was heard.

The models are summed in the order of their peers' names, one's own in its place. So peers that heard the same have the
same afterwards, to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from torch import Tensor

from heterophony.kernel.node import Node
from heterophony.kernel.work import Named, Note, Steps
from heterophony.parts.aggregate import mean
from heterophony.parts.node_optimiser import update_of
from heterophony.parts.updates import norm


def metropolis(degree: int, others: Sequence[float]) -> list[float]:
    """Return a peer's row of the mixing matrix: its own share, then that of each neighbour who was heard.

    A neighbour's share is one over one more than the larger of both degrees. So the matrix is symmetric. What is left
    is one's own. In a complete graph all shares are equal, to the bit.
    """
    shares = [Fraction(1, 1 + max(degree, int(other))) for other in others]
    return [float(1 - sum(shares)), *map(float, shares)]


def mixed(
    peer: Node, own: Named, heard: Mapping[str, Named], shares: Sequence[float] | None = None
) -> dict[str, Tensor]:
    """Return the mean of a peer's weights and of those that it heard, by sender.

    `shares` begin with its own; None: all alike.
    """
    senders, models = [peer.id, *heard], [own, *heard.values()]
    order = sorted(range(len(senders)), key=senders.__getitem__)
    return mean([models[i] for i in order], None if shares is None else [shares[i] for i in order])


def note_distance(peer: Node, own: Named, together: Named) -> Steps:
    """Note how far a peer's parameters are from what they are mixed to: its distance from consensus."""
    yield Note("consensus.distance", norm(update_of(peer, own, together)))
