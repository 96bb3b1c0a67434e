"""Methods by name, with the options that a command line or a settings file may set."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from importlib.metadata import entry_points
from typing import Any, get_type_hints

from heterophony import methods
from heterophony.base import imported
from heterophony.base.wording import listed, meant
from heterophony.kernel.deviation import Deviation
from heterophony.kernel.message import Kind
from heterophony.kernel.method import Method

GROUP = "heterophony.methods"  # entry points of other packages


class OptionError(ValueError):
    """A method, key or value that does not exist; one line that says what does."""


@dataclass(frozen=True)
class Entry:
    """A method by its name: a class, or a function that composes one."""

    name: str
    make: Callable[..., Method]

    @property
    def base(self) -> type[Method]:
        """Return the class of what it makes."""
        if isinstance(self.make, type) and issubclass(self.make, Method):
            return self.make
        if isinstance(self.make, type) or not callable(self.make):
            raise OptionError(f"method {self.name!r} is no Method, and no function that makes one: {self.make!r:.60}")
        try:
            found = get_type_hints(self.make).get("return")
        except (NameError, TypeError):  # an object that can be called, or names that nothing stands for
            found = None
        if isinstance(found, type) and issubclass(found, Method):
            return found
        try:
            made = self.make()  # which says it, too
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise OptionError(f"method {self.name!r} cannot be made with its defaults: {reason}") from None
        if not isinstance(made, Method):
            raise OptionError(f"method {self.name!r} makes a {type(made).__name__}, not a Method")
        return type(made)

    @property
    def about(self) -> str:
        """Return what its file says: what leaves a node, equations, deviations, reference."""
        return inspect.getdoc(inspect.getmodule(self.make)) or inspect.getdoc(self.make) or ""

    @property
    def deviations(self) -> tuple[Deviation, ...]:
        """Return where the method differs from its paper, as its file lists it in `DEVIATIONS`."""
        return getattr(inspect.getmodule(self.make), "DEVIATIONS", ())

    def sends(self) -> tuple[Kind, ...]:
        """Return what may leave a node, with options as they are by default."""
        return self.build({}).sends()

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.make) or "").split("\n")[0]

    def options(self) -> dict[str, tuple[Any, Any]]:
        """Return the type and the default of all that can be set, by name. Parts are reached by a dot (`local.lr`)."""
        found: dict[str, tuple[Any, Any]] = {}
        fixed = {*getattr(self.make, "fixed", ()), *self.base.unused}  # what the function decides, or means nothing
        for name, (hint, default) in self.parts().items():
            if is_dataclass(default) and not isinstance(default, type):
                hints = get_type_hints(type(default))
                for part in fields(default):
                    if f"{name}.{part.name}" not in fixed:
                        found[f"{name}.{part.name}"] = hints[part.name], getattr(default, part.name)
            elif name not in fixed and not callable(default) and not _is_code(hint):
                found[name] = hint, default
        return found

    def parts(self) -> dict[str, tuple[Any, Any]]:
        """Return the type and the default of everything it is made of, by name."""
        hints = get_type_hints(self.base)
        own = {field.name: (hints[field.name], field.default) for field in fields(self.base)}  # type: ignore[arg-type]
        if bare := [name for name, (_, default) in own.items() if default is MISSING]:
            raise OptionError(
                f"method {self.name!r}: the option {bare[0]} has no default: write {bare[0]}: type = value"
            )
        if not isinstance(self.make, type):
            hints = get_type_hints(self.make)
            for name, parameter in inspect.signature(self.make).parameters.items():
                if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
                    own[name] = hints.get(name, Any), parameter.default
        return own

    def full_name(self, key: str) -> str:
        """Return an option by its whole name: `lr` is `local.lr` if there is only one."""
        known = self.options()
        if key in known:
            return key
        ends = [name for name in known if name.endswith(f".{key}")]
        if len(ends) == 1:
            return ends[0]
        if ends:
            raise OptionError(f"{self.name} has no option {key!r}, but {', '.join(ends)}: say which")
        near = meant(key, [*known, *(name.rpartition(".")[2] for name in known)])
        raise OptionError(f"{self.name} has no option {key!r}{near}; it has {listed(known)}")

    def build(self, settings: Mapping[str, Any]) -> Method:
        """Make the method with these options, checked against their types."""
        from pydantic import TypeAdapter, ValidationError

        known, own = self.options(), self.parts()
        given: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}  # what is set of each part: set at once, for one option may need another
        for key, value in settings.items():
            name = self.full_name(key)
            try:
                checked = TypeAdapter(known[name][0]).validate_python(value)
            except ValidationError as error:
                raise OptionError(f"{self.name}: {name} = {value!r}: {_refusal(error, value)}") from None
            outer, _, inner = name.partition(".")
            if inner:
                parts.setdefault(outer, {})[inner] = checked
            else:
                given[outer] = checked
        for outer, options in parts.items():
            given[outer] = self._part(outer, own[outer][1], options)
        try:
            return self.make(**given)
        except ValueError as error:
            raise OptionError(f"{self.name}: {error}") from None

    def _part(self, outer: str, usual: Any, options: Mapping[str, Any]) -> Any:
        """Return a part with these options. An error names the option without which there is none, or else all."""
        try:
            return replace(usual, **options)
        except ValueError as error:
            wrong = ", ".join(options)
            for inner in options:
                others = {key: value for key, value in options.items() if key != inner}
                if _fits(usual, others):
                    wrong = inner
                    break
            raise OptionError(f"{self.name}: {outer}.{wrong}: {error}") from None


def _fits(part: Any, options: Mapping[str, Any]) -> bool:
    """Return whether a part can have these options together."""
    try:
        replace(part, **options)
    except ValueError:
        return False
    return True


def _refusal(error: Any, value: Any) -> str:
    """Return why pydantic refuses a value. Of several types that it might have had, that of its form counts."""
    found = error.errors()
    for kind in ("schedule", "no_schedule"):
        ours = sorted((one for one in found if one["type"] == kind), key=lambda one: len(one["loc"]))
        if ours:
            return str(ours[0]["msg"])
    if not isinstance(value, Mapping):  # tables are for values that differ from node to node
        found = [one for one in found if one["type"] != "dict_type"] or found
    return str(found[0]["msg"]).lower()


def _is_code(hint: Any) -> bool:
    """Return whether an option is a function, which no settings file can name."""
    return "Callable" in str(hint)


def ours(name: str) -> Entry:
    """Return a method of ours by its name; its file is imported now."""
    _, attribute = methods.NAMES[name].split(":")
    return Entry(name, getattr(methods, attribute))


def all_methods() -> dict[str, Entry]:
    """Return our methods by name, and those that other packages register."""
    return _all()[0]


def sound_methods() -> tuple[dict[str, Entry], dict[str, str]]:
    """Return the methods that can be described, and why others of other packages cannot."""
    known, broken = _all()
    found = {}
    for name, entry in known.items():
        try:
            entry.options()
            found[name] = entry
        except Exception as error:
            broken[name] = str(error) if isinstance(error, OptionError) else f"{type(error).__name__}: {error}"
    return found, broken


def _all() -> tuple[dict[str, Entry], dict[str, str]]:
    """Return all methods, and why those of broken packages are not among them."""
    found, broken = {name: ours(name) for name in methods.NAMES}, {}
    for point in entry_points(group=GROUP):
        if point.name in methods.NAMES:
            broken[f"{point.name} ({point.value})"] = "the name is one of ours; give it another"
            continue
        try:
            found[point.name] = Entry(point.name, point.load())
        except Exception as error:
            broken[point.name] = f"{type(error).__name__}: {error}"
    return found, broken


def lookup(name: str) -> Entry:
    """Find a method by its name, or by where it is written: `module:callable`."""
    if ":" in name:
        try:
            entry = Entry(name, imported.function(name, "method"))
        except ValueError as error:
            raise OptionError(str(error)) from error
        entry.options()  # raises where it makes no method
        return entry
    if name in methods.NAMES:
        return ours(name)
    known, broken = _all()
    if name in known:
        return known[name]
    if name in broken:
        raise OptionError(f"method {name!r} of another package cannot be loaded: {broken[name]}")
    raise OptionError(
        f"there is no method {name!r}{meant(name, known)}; `heterophony methods` lists {', '.join(known)}, "
        "and one of your own is module:callable, of a module in this folder or on PYTHONPATH"
    )


def parse(text: str) -> tuple[str, Any]:
    """Read `key=value` from a command line. The value is as TOML reads it, else text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise OptionError(f"--set {text!r}: write key=value")
    try:
        return key.strip(), tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value
