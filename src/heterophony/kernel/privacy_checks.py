"""What is refused of privacy before anything runs: noise that a kind cannot take, a budget that one message spends."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from heterophony.kernel.accountant import PrivacyError, composed, epsilon_of, within
from heterophony.kernel.message import INVERSE, Kind
from heterophony.kernel.method import Method
from heterophony.kernel.privacy import Charge, Privacy, PrivateSteps, told_raw
from heterophony.kernel.reaction import Every
from heterophony.kernel.statistics import norms
from heterophony.kernel.topology import Links


def check_door(method: Method, node: str, role: str, links: Links, privacy: Privacy) -> None:
    """Raise where a node's messages cannot be protected as its owner says."""
    known = {kind.name: kind for kind in method.told}
    if unknown := set(privacy.kinds or ()) - known.keys():
        raise PrivacyError(
            f"privacy of {node}: {type(method).__name__} has no kind {min(unknown)!r}; it has {', '.join(known)}"
        )
    for kind in _crossing(method, links, privacy):
        try:
            charge = privacy.charge(kind)
        except ValueError as error:
            raise PrivacyError(f"{error} (node {node})") from None
        if charge is None:
            continue
        check_affordable(node, charge, privacy)
    if privacy.central:
        _check_central(method, node, role, links, privacy)


def _check_past(method: Method, node: str, links: Links, privacy: Privacy) -> None:
    """Raise where residual links bring a trusted node single messages, past the mean of its children's."""
    if not links.descendants:
        return
    for kind in method.told:
        if kind.fields and INVERSE[kind.to] == "descendants" and privacy.protects(kind.name):
            raise PrivacyError(
                f"privacy of {node}: residual links bring {kind.name!r} past the mean that central noise is added to: "
                "leave the links out, or the kind out of kinds"
            )


def check_affordable(node: str, charge: Charge, privacy: Privacy) -> None:
    """Raise where the budget does not pay for one message, or one step of training."""
    assert privacy.budget is not None
    assert privacy.delta is not None
    if not within(composed([charge]), privacy.budget, privacy.delta):
        cost = epsilon_of(composed([charge]), privacy.delta)
        what = "step of training" if charge.label == "training" else repr(charge.label)
        raise PrivacyError(
            f"privacy of {node}: one {what} costs epsilon {cost:.4g}, and the budget is {privacy.budget:g}: "
            "raise noise, or the budget"
        )


def _crossing(method: Method, links: Links, privacy: Privacy) -> list[Kind]:
    """Return the protected kinds that pass the door: those sent; at a trusted node, those that children send."""
    protected = [kind for kind in method.told if privacy.protects(kind.name)]
    if privacy.central:
        return [kind for kind in protected if INVERSE[kind.to] == "children" and links.children]
    return [kind for kind in protected if links.group(kind.to)]


def _check_central(method: Method, node: str, role: str, links: Links, privacy: Privacy) -> None:
    """Raise where children's mail is not read as windows: there is no mean of a single message."""
    read = {kind.name for kind in _crossing(method, links, privacy)}
    if not read:
        raise PrivacyError(f"privacy of {node}: central noise is for nodes with children, which send protected kinds")
    if hidden := sorted(kind.name for kind in _crossing(method, links, privacy) if method.hides(kind, role)):
        raise PrivacyError(
            f"privacy of {node}: it gets sums of {hidden[0]!r} only, and central noise clips each by itself"
        )
    _check_past(method, node, links, privacy)
    for reaction in method.reactions:
        if role not in reaction.roles:
            continue
        main = getattr(reaction.trigger, "kind", None)
        alone = main is not None and main.name in read and not isinstance(reaction.trigger, Every)
        swept = any(kind.name in read for kind in reaction.trigger.also)
        if alone or swept:
            raise PrivacyError(
                f"privacy of {node}: central noise needs rounds, and {type(method).__name__} merges mail as it comes"
            )


def check_delta(node: str, count: int, privacy: Privacy, what: str = "rows") -> None:
    """Raise where delta is so large that a whole row, or a whole child of a trusted node, may be told."""
    assert privacy.delta is not None
    if count and privacy.delta >= 1 / count and not privacy.large_delta:
        raise PrivacyError(
            f"privacy of {node}: delta = {privacy.delta:g} is not below 1 / {count} {what}, so that it allows to tell "
            f"one of them in whole: choose a smaller one, or say large_delta = true"
        )


def check_training(name: str, training: PrivateSteps, models: Mapping[str, nn.Module]) -> None:
    """Raise where a network mixes rows, so that no gradient is that of one row."""
    for slot, model in models.items():
        if layers := sorted(norms(model)):
            raise PrivacyError(
                f"{name}.private: model {slot!r} has BatchNorm ({layers[0]}), which mixes rows: use GroupNorm instead"
            )


def check_kinds(name: str, kinds: Collection[Kind], privacy: Privacy | None) -> None:
    """Raise where a kind tells of private rows beside what a network has learnt of them, and takes no noise."""
    open_kinds = [kind for kind in kinds if privacy is None or not privacy.protects(kind.name)]
    for kind, field in told_raw(open_kinds):
        raise PrivacyError(
            f"{name}.private: {field} of {kind!r} is made of rows without noise: protect the kind too (`privacy`)"
        )
