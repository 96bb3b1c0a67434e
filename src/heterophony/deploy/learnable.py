"""What a coordinator could learn from what a node sends, in a line for each kind, with a figure that was measured."""

from __future__ import annotations

from heterophony.deploy.node_server import NodeServer
from heterophony.kernel.accountant import composed, epsilon_of
from heterophony.kernel.fields import Counts, Features, Logits, PerClass, Probabilities, Weights
from heterophony.kernel.message import Kind

IMAGES = "368 of 400"  # what crafted weights opened, undefended; `docs/explanation/leakage.md` has the table


def learnable(here: NodeServer) -> list[str]:
    """Return a line for each kind that may leave a node and says something."""
    allowed, links = here.egress.kinds, here.federation.topology.static[here.name]
    found = []
    for kind in here.federation.method.told:
        least = here.fewest(kind)
        leaves = allowed is None or kind.name in allowed or least is not None
        if kind.fields and links.group(kind.to) and leaves:
            of = repr(kind.name) if least is None else f"a sum of {kind.name!r} over at least {least}"
            private = here.federation.private(here.name) is not None
            what = _told(here, kind) if least is None or private else "what it tells of all, which was not measured"
            found.append(f"a coordinator could learn from {of}: {what}")
    return found


def _told(here: NodeServer, kind: Kind) -> str:
    privacy = here.federation.private(here.name)
    if privacy is not None and privacy.protects(kind.name) and not privacy.central:
        charge = privacy.charge(kind)
        if charge is None:
            return "nothing of private rows"
        assert privacy.delta is not None
        one = epsilon_of(composed([charge]), privacy.delta)
        return f"epsilon {one:.4g} of all rows with each, and {privacy.budget:g} with all that ever leave"
    found = dict.fromkeys(_raw(here, field) for field in kind.fields.values())
    return "; ".join(text for text in found if text) or "nothing of private rows"


def _raw(here: NodeServer, field: object) -> str:
    """Return what a field tells that leaves as it is."""
    if isinstance(field, Weights):
        steps = here.federation.step_charges(here.name)
        if steps:
            privacy = here.federation.private(here.name)
            most = "without a budget" if privacy is None else f"at most epsilon {privacy.budget:g} of each row"
            return f"what private training has told, {most}"
        return f"nearly the rows themselves: weights that it crafts opened {IMAGES} images in a measurement"
    if isinstance(field, Features):
        return "the rows as the network sees them, from which rows can be made again"
    if isinstance(field, PerClass):
        return "the mean of each class, which is a row where a class has one"
    if isinstance(field, Counts):
        return "how many rows each class has"
    if isinstance(field, Logits | Probabilities):
        return "whether a row was trained on, as what a network says of it differs"
    return ""
