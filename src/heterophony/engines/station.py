"""A place where nodes react whose state is kept elsewhere: a child process, a Ray worker, an organisation's machine.

Whoever keeps the states puts them in, asks, and takes out answers and new states. All three are plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heterophony.engines.host import Activation
from heterophony.engines.local_host import LocalHost
from heterophony.engines.outward import Account
from heterophony.engines.question import Answer, Question
from heterophony.federation import Federation
from heterophony.kernel.fields import Shape
from heterophony.kernel.vault import Vault


class Station:
    """Nodes as a `LocalHost` has them, without a clock and without mail."""

    def __init__(self, federation: Federation, account: Account | None = None, vault: Vault | None = None) -> None:
        self.host = LocalHost(federation, account=account, vault=vault)

    def restore(self, node: str, state: Mapping[str, Any] | None) -> None:
        """Put a node into a state; without one it stays as it was built."""
        if state is not None:
            self.host.restore(node, dict(state))

    def begin(self, question: Question) -> Activation:
        """Run the reaction's code up to its first work, or to its end."""
        activation = Activation(question)
        self.host.begin(activation)
        return activation

    def finish(self, activations: Sequence[Activation]) -> None:
        """Compute all that these reactions ask for, together, until each has its answer."""
        while waiting := [activation for activation in activations if activation.answer is None]:
            self.host.step(waiting)

    def react(self, question: Question) -> Answer:
        """Answer a question, which changes the node's state."""
        activation = self.begin(question)
        self.finish([activation])
        assert activation.answer is not None
        return activation.answer

    def state(self, node: str) -> dict[str, Any]:
        """Return a node's state between two reactions, as plain values."""
        return self.host.state(node)

    def shape(self, node: str) -> Shape:
        """Return what mail to the node is checked against."""
        return self.host.shape(node)

    def digest(self, node: str) -> bytes:
        """Return a hash of the node's models."""
        return self.host.digest(node)
