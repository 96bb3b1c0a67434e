"""A method: frozen hyper-parameters plus reactions, checked when the class is defined."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, dataclass_transform

from heterophony.kernel.by_level import pick, values
from heterophony.kernel.message import Kind
from heterophony.kernel.needs import Need, Needy, OneLabelSpace, OneOutputPerRow, PublicData
from heterophony.kernel.networks import NetworksByRole, misfit
from heterophony.kernel.reaction import Count, Every, Reaction, Round


class MethodError(TypeError):
    """A method that cannot work as it is written."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Method:
    """Base of all methods. A subclass becomes a frozen dataclass of its hyper-parameters.

    It says which `roles` take part (the first one leads: the run ends when every node of it has done its rounds),
    which `kinds` of message may leave a node, and which variables a node keeps between reactions (`memory`).
    For settings and deployments it says which `models` each role needs, by values of `networks.py`: `Own()`,
    `Global()`, `Same()`, `Architectures()` or `Built(...)`. `headline` is the product that tables show.
    """

    roles: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[Kind, ...]] = ()
    memory: ClassVar[tuple[str, ...]] = ()
    models: ClassVar[NetworksByRole] = {}
    headline: ClassVar[str] = ""
    public: ClassVar[bool] = False  # whether it needs public data
    tasks: ClassVar[bool] = False  # whether participants may have different classes
    correlates: ClassVar[bool] = False  # whether a run folder tells how participants' outputs correlate in the end
    reactions: ClassVar[tuple[Reaction, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__bases__ != (Method,):
            raise MethodError(f"{cls.__name__}: a method is varied by its parts, so inherit from Method alone")
        cls.reactions = tuple(_reactions(cls))
        dataclass(frozen=True, kw_only=True)(cls)
        _check(cls)

    def __post_init__(self) -> None:
        """Numbers that many methods have, checked once for all."""
        for fraction in values(getattr(self, "fraction", None)):
            if fraction is not None and not 0 < fraction <= 1:
                raise ValueError(f"fraction is a share in (0, 1], got {fraction}")
        for quorum in values(getattr(self, "quorum", None)):
            if quorum is not None and (quorum < 0 or (isinstance(quorum, float) and not 0 < quorum <= 1)):
                raise ValueError(f"quorum is a count >= 0 or a share in (0, 1], got {quorum}")
        for deadline in values(getattr(self, "deadline", None)):
            if deadline is not None and not deadline > 0:
                raise ValueError(f"deadline is a number of virtual seconds > 0, got {deadline}")
        for name, least in (("initial_local", 0), ("initial_public", 0), ("local_every", 1)):
            if (given := getattr(self, name, least)) < least:
                raise ValueError(f"{name} is a whole number >= {least}, got {given}")
        sample = getattr(self, "sample", None)
        if sample is not None and sample < 1:
            raise ValueError(f"sample is a number of rows >= 1, got {sample}")

    def networks(self) -> NetworksByRole:
        """Return the `models` that it needs with these options."""
        return self.models

    def needs(self) -> list[Need]:
        """Return what it needs of the data with these options; a method may add to what its parts need."""
        found: list[Need] = [] if self.tasks else [OneLabelSpace()]
        if self.public:
            found += [OneOutputPerRow(), PublicData()]
        for field in fields(self):  # type: ignore[arg-type]
            part = getattr(self, field.name)
            if isinstance(part, Needy):
                found += part.needs(field.name)
        return found

    def sends(self) -> tuple[Kind, ...]:
        """The `kinds` that leave a node with these options."""
        return self.kinds

    def setting(self, value: Any, *names: str) -> Any:
        """A trigger's number: as written, or the hyper-parameter of that name; of a table, the node's own entry."""
        return pick(getattr(self, value) if isinstance(value, str) else value, *names)


def _reactions(cls: type[Method]) -> list[Reaction]:
    found = []
    for name, function in vars(cls).items():
        if hasattr(function, "reacts"):
            trigger, roles = function.reacts
            found.append(Reaction(name, trigger, cls.roles if roles is None else roles))
    return found


def _check(cls: type[Method]) -> None:
    def fail(text: str) -> None:
        raise MethodError(f"{cls.__name__}{text}")

    if not cls.roles:
        fail(" declares no roles")
    names = [kind.name for kind in cls.kinds]
    if len(set(names)) != len(names):
        fail(f" declares a kind twice: {', '.join(names)}")
    taken: dict[tuple[str, str], str] = {}
    # What is only swept along wakes nobody, so that it may go with whichever reaction fires first.
    swept = {r.name: {kind.name for kind in r.kinds[1:]} for r in cls.reactions}
    for reaction in cls.reactions:
        where = f".{reaction.name}"
        for role in reaction.roles:
            if role not in cls.roles:
                fail(f"{where}: unknown role {role!r}; the roles are {', '.join(cls.roles)}")
            for waker in [kind.name for kind in reaction.kinds] + ["Round"] * isinstance(reaction.trigger, Round):
                other = taken.setdefault((role, waker), reaction.name)
                if other != reaction.name and not (waker in swept[other] and waker in swept[reaction.name]):
                    fail(f"{where}: {waker!r} already wakes {other!r} on role {role!r}")
        for kind in reaction.kinds:
            if kind not in cls.kinds:
                fail(f"{where}: unknown kind {kind.name!r}; the kinds are {', '.join(names) or 'none'}")
        _check_numbers(cls, reaction, fail)
    if deaf := set(names) - {kind for _, kind in taken}:
        fail(f": nothing reacts to {', '.join(sorted(map(repr, deaf)))}")
    if wrong := misfit(cls.models, cls.roles):
        fail(f".models: {wrong}")
    if not any(isinstance(reaction.trigger, Round) for reaction in cls.reactions):
        fail(": nothing begins a round; attach a reaction to Round")


def _check_numbers(cls: type[Method], reaction: Reaction, fail: Any) -> None:
    trigger = reaction.trigger
    numbers: dict[str, Any] = {}
    if isinstance(trigger, Every):
        numbers = {"quorum": trigger.quorum, "deadline": trigger.deadline}
    elif isinstance(trigger, Count):
        numbers = {"n": trigger.n}
    for key, value in numbers.items():
        if isinstance(value, str) and value not in {f.name for f in fields(cls)}:  # type: ignore[arg-type]
            fail(f".{reaction.name}: {key} names {value!r}, which is no hyper-parameter")
