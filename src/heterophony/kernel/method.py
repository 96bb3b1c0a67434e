"""A method: frozen options plus reactions, checked when the class is defined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, ClassVar, TypeVar, dataclass_transform

from heterophony.kernel.by_level import pick, values
from heterophony.kernel.message import Kind, Send
from heterophony.kernel.needs import Need, Needy, OneLabelSpace, PublicData, Serves
from heterophony.kernel.networks import NetworksByRole, misfit
from heterophony.kernel.node import Node
from heterophony.kernel.reaction import Clock, Count, Every, Reaction, Round
from heterophony.kernel.sum import Sum


class MethodError(TypeError):
    """A method that cannot work as it is written."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Method:
    """Base of all methods. A subclass becomes a frozen dataclass of its options.

    It says which `roles` take part. The first one leads: the run ends when every node of it has done its rounds. It
    also says which `kinds` of message may leave a node, and which variables a node keeps between reactions (`memory`).
    For settings and deployments it says which `models` each role needs, by values of `networks.py`: `Own()`,
    `Global()`, `Same()`, `Architectures()` or `Built(...)`. `headline` is the product that tables show.
    """

    roles: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[tuple[Kind, ...]] = ()
    memory: ClassVar[tuple[str, ...]] = ()
    models: ClassVar[NetworksByRole] = {}
    headline: ClassVar[str] = ""
    public: ClassVar[bool] = False  # whether it needs public data
    trusts: ClassVar[bool] = False  # whether a server can learn from public rows whom to trust (`cohort.combine`)
    serves: ClassVar[tuple[str, ...]] = ()  # the kinds of tasks; any, if none is named
    tasks: ClassVar[bool] = False  # whether participants may have different classes
    complete: ClassVar[bool] = False  # whether every peer must be linked with every other
    correlates: ClassVar[bool] = False  # whether a run folder tells how participants' outputs correlate in the end
    unused: ClassVar[tuple[str, ...]] = ()  # options of its parts that mean nothing to it, as "cohort.weighted"
    reactions: ClassVar[tuple[Reaction, ...]] = ()
    masked: ClassVar[tuple[Kind, ...]] = ()  # kinds that do not leave as they are: `hide` says what does

    def __init_subclass__(cls, without: Collection[str] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if without is None and cls.__bases__ != (Method,):
            raise MethodError(f"{cls.__name__}: a method is varied by its parts, so inherit from Method alone")
        own = _reactions(cls)
        replaced = {reaction.name for reaction in own} | set(without or ())
        cls.reactions = (*(r for r in cls.reactions if r.name not in replaced), *own)
        dataclass(frozen=True, kw_only=True)(cls)
        _check(cls)

    def __post_init__(self) -> None:
        """Raise where an option is set that means nothing to the method, or to a clock."""
        for name in self.unused:
            part, _, own = name.rpartition(".")
            usual = next(field.default for field in fields(self.option(part)) if field.name == own)
            given = self.option(name)
            if given != usual:
                raise ValueError(f"{type(self).__name__} does not use {name}, got {given}")
        self._check_clocks()

    def _check_clocks(self) -> None:
        """Raise where a clock would strike all the time."""
        for trigger in (reaction.trigger for reaction in self.reactions):
            if isinstance(trigger, Clock):
                given = self.option(trigger.every)
                if not all(every is None or every > 0 for every in values(given)):
                    raise ValueError(f"{trigger.every} is a number of virtual seconds > 0, or none, got {given}")

    def networks(self) -> NetworksByRole:
        """Return the `models` that it needs with these options."""
        return self.models

    def needs(self) -> list[Need]:
        """Return what it needs of the data with these options; a method may add to what its parts need."""
        found: list[Need] = [Serves(self.serves)] if self.serves else []
        if not self.tasks:
            found.append(OneLabelSpace())
        if self.public:
            found.append(PublicData())
        for field in fields(self):  # type: ignore[arg-type]
            part = getattr(self, field.name)
            if isinstance(part, Needy):
                found += part.needs(field.name)
        return found

    def sends(self) -> tuple[Kind, ...]:
        """Return the `kinds` that leave a node with these options."""
        return self.kinds

    @property
    def told(self) -> tuple[Kind, ...]:
        """Return the kinds as their senders mean them: privacy and lies are about these, whatever hides them."""
        return self.kinds

    def sums(self) -> Sum | None:
        """Return the window for which a sum is enough, with these options; None: single messages are read.

        Raise `NotSummable` where an option reads them.
        """
        return None

    def hide(self, node: Node, send: Send) -> Send:
        """Return what leaves a node in place of a message of a `masked` kind."""
        return send

    def hides(self, kind: Kind, role: str) -> bool:
        """Return whether messages of a kind do not leave as they are, on their way to nodes of a role."""
        return kind in self.masked

    def clocks(self, *names: str) -> dict[str, float]:
        """Return the reactions that a clock wakes on the node with these names (the last is its role), each with every
        how many virtual seconds."""
        found = {}
        for reaction in self.reactions:
            if isinstance(reaction.trigger, Clock) and names[-1] in reaction.roles:
                every = self.setting(reaction.trigger.every, *names)
                if every is not None:
                    found[reaction.name] = float(every)
        return found

    def option(self, value: Any) -> Any:
        """Return an option by its name, such as "lr" or "cohort.quorum"; what is no name is returned as it is."""
        return attrgetter(value)(self) if isinstance(value, str) else value

    def setting(self, value: Any, *names: str) -> Any:
        """Return the value that a trigger or a field gives, or that of the option it names.

        Where the option is a table, return the entry of the node with these names.
        """
        return pick(self.option(value), *names)


Composes = TypeVar("Composes", bound=Callable[..., Method])


def decides(*options: str) -> Callable[[Composes], Composes]:
    """Name the options that a function decides which composes a method, such as "server.kind": nobody can set them."""

    def decide(function: Composes) -> Composes:
        vars(function)["fixed"] = options
        return function

    return decide


def derived(cls: type[Method], name: str, parts: Mapping[str, Any], without: Collection[str] = ()) -> type[Method]:
    """Return a class of methods that are like another but for some parts: a transformation of a method.

    It has the options of the other and its reactions, but those that `without` names. `parts` are what it has beside
    them, or instead: reactions, kinds, memory, annotated options.
    """
    if cls.__bases__ != (Method,):
        raise MethodError(f"{cls.__name__} is derived already")
    return type(name, (cls,), dict(parts), without=tuple(without))


def _reactions(cls: type[Method]) -> list[Reaction]:
    """Return the functions of a class that `on` was put on, in their order."""
    found = []
    for name, function in vars(cls).items():
        if hasattr(function, "reacts"):
            trigger, roles = function.reacts
            found.append(Reaction(name, trigger, cls.roles if roles is None else roles))
    return found


def _check(cls: type[Method]) -> None:
    """Raise where a method cannot work as it is written."""

    def fail(text: str) -> None:
        raise MethodError(f"{cls.__name__}{text}")

    if not cls.roles:
        fail(" declares no roles")
    names = [kind.name for kind in cls.kinds]
    if len(set(names)) != len(names):
        fail(f" declares a kind twice: {', '.join(names)}")
    woken: dict[tuple[str, str], str] = {}  # by role and kind, the reaction
    for reaction in cls.reactions:
        _check_roles(cls, reaction, woken, fail)
        _check_kinds(cls, reaction, fail)
        _check_numbers(cls, reaction, fail)
    if deaf := set(names) - {kind for _, kind in woken}:
        fail(f": nothing reacts to {', '.join(sorted(map(repr, deaf)))}")
    for name in cls.unused:
        if not _has(cls, name):
            fail(f".unused names {name!r}, which is no option")
    if wrong := misfit(cls.models, cls.roles):
        fail(f".models: {wrong}")
    if not any(isinstance(reaction.trigger, Round) for reaction in cls.reactions):
        fail(": nothing begins a round; attach a reaction to Round")


def _check_roles(cls: type[Method], reaction: Reaction, woken: dict[tuple[str, str], str], fail: Any) -> None:
    """Raise where a role is unknown, or where one message would wake two reactions. Note in `woken` who is woken."""
    # What is only swept along wakes nobody, so that it may go with whichever reaction fires first.
    swept = {r.name: {kind.name for kind in r.trigger.also} for r in cls.reactions}
    wakers = [kind.name for kind in reaction.kinds]
    if isinstance(reaction.trigger, Round):
        wakers.append("Round")
    for role in reaction.roles:
        if role not in cls.roles:
            fail(f".{reaction.name}: unknown role {role!r}; the roles are {', '.join(cls.roles)}")
        for waker in wakers:
            other = woken.setdefault((role, waker), reaction.name)
            if other != reaction.name and not (waker in swept[other] and waker in swept[reaction.name]):
                fail(f".{reaction.name}: {waker!r} already wakes {other!r} on role {role!r}")


def _check_kinds(cls: type[Method], reaction: Reaction, fail: Any) -> None:
    """Raise where a trigger names a kind that the method does not declare."""
    for kind in reaction.kinds:
        if kind not in cls.kinds:
            names = ", ".join(known.name for known in cls.kinds)
            fail(f".{reaction.name}: unknown kind {kind.name!r}; the kinds are {names or 'none'}")


def _check_numbers(cls: type[Method], reaction: Reaction, fail: Any) -> None:
    """Raise where a trigger names an option that there is not."""
    trigger = reaction.trigger
    numbers: dict[str, Any] = {}
    if isinstance(trigger, Every):
        numbers = {"quorum": trigger.quorum, "deadline": trigger.deadline, "share": trigger.share}
        numbers["least"] = trigger.least
    elif isinstance(trigger, Count):
        numbers = {"n": trigger.n}
    elif isinstance(trigger, Clock):
        numbers = {"every": trigger.every}
    for key, value in numbers.items():
        if isinstance(value, str) and not _has(cls, value):
            fail(f".{reaction.name}: {key} names {value!r}, which is no option")


def _has(cls: type[Method], name: str) -> bool:
    """Return whether there is an option of that name: a field, or, behind a dot, a field of the part that it holds."""
    first, *inner = name.split(".")
    if first not in {field.name for field in fields(cls)}:  # type: ignore[arg-type]
        return False
    part = getattr(cls, first, None)
    for name_within in inner:
        if part is None:  # a part without a default cannot be looked into
            return True
        if not is_dataclass(part) or name_within not in {field.name for field in fields(part)}:
            return False
        part = getattr(part, name_within)
    return True
