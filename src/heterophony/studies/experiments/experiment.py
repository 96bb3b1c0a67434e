"""What an experiment file says, checked: which runs, which figures of them, and what the paper has."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from heterophony.base import toml
from heterophony.base.wording import meant
from heterophony.settings.setting import Strict


class ExperimentError(ValueError):
    """An experiment that cannot be used; one line that names file and field."""


class Column(Strict):
    """A figure of a run: of a product's metrics, of a level of a tree, or at a moment of virtual time.

    With `round = "test"` it is the best of all evaluations on test data. That is no figure of ours: it stands beside
    those of others who report it.
    """

    figure: str = "acc"
    product: str | None = None  # None: the method's headline
    minus: str | None = None  # the same figure of another product, which is taken away
    participants: tuple[str, ...] = ()  # the mean of these alone
    sets: tuple[str, ...] = ()  # on these domains together, whether they take part or not: the mean over all models
    level: str | None = None  # of a tree: leaf, level 1, ..., root; then the figure is own, subtree, union or proxy
    at: float | None = None  # the last value that was known by so many virtual seconds
    after: float | None = Field(default=None, gt=0, le=1)  # the last value after this share of the rounds
    score: str | None = None  # by which models are judged, where it is not the task's own: top5, say
    term: str | None = None  # not a figure: the last value of this term of the training loss, the mean over nodes
    note: str | None = None  # not a figure: the mean of a noted number over rounds and nodes, or those of a level
    correlation: Literal["public", "private"] | None = (
        None  # of outputs with others'; the figure is on, or off, diagonal
    )
    round: Literal["last", "validation", "test"] | None = None  # which counts, where it is not as `keep` says
    deviation: int | None = Field(default=None, ge=2)  # not the value: how it varies over the last so many evaluations
    unit: Literal["per cent", "perplexity", "number"] = "per cent"  # perplexity: the exponential of the mean loss

    @model_validator(mode="after")
    def _check_unit(self) -> Column:
        """Raise where a figure is asked of what has none such."""
        if (self.figure in ("on", "off")) != (self.correlation is not None):
            raise ValueError("on and off the diagonal are figures of a correlation, and it has no others")
        if (self.unit == "number") != (self.note is not None):
            raise ValueError("a number is what is noted, and what is noted is a number: set both, or neither")
        if self.round == "test" and (self.participants or self.minus or self.sets):
            raise ValueError("the best of test is of all participants' models together")
        if self.unit == "perplexity":
            self._check_perplexity()
        return self

    def _check_perplexity(self) -> None:
        """Raise where perplexity is asked of what there is none of."""
        if self.at is not None or self.deviation or self.minus or self.participants:
            raise ValueError("perplexity is of a level, or of a product in the last round")
        if self.figure not in ("own", "union", "proxy"):
            raise ValueError(f"a perplexity is own, union or proxy, got {self.figure!r}")


class Arm(Strict):
    """One row of the table: a method with its options."""

    label: str
    method: str
    set: dict[str, Any] = {}
    rounds: int | None = Field(default=None, ge=1)
    paper: str | None = None  # the label that the paper's figures stand under, where it is another
    product: str | None = None  # what counts, where it is not the method's headline
    quick: dict[str, Any] = {}  # options of the quick version


class Group(Strict):
    """One block of the table: all arms on one kind of data. `paper` has a figure a column, by label of the arm."""

    label: str = ""
    setting: str | None = None
    set: dict[str, Any] = {}
    rounds: int | None = Field(default=None, ge=1)
    arms: tuple[str, ...] = ()  # those that the paper has here; none: all
    paper: dict[str, tuple[float, ...]] = {}
    only: Literal["full", "quick"] | None = None


class Claim(Strict):
    """What the paper says without a figure, or what its figures amount to: one thing is more than another.

    Of two `arms` in a column, of two `columns` of an arm, or of two `groups` in an arm's column.
    """

    of: Literal["arms", "columns", "groups"] = "arms"
    more: str
    less: str
    column: str | None = None  # None: the first
    arm: str | None = None
    by: str = ""  # where the paper says so
    margin: float | None = Field(default=None, gt=0)  # not more: the two differ by less than so many points


class Quick(Strict):
    """The smaller version: fewer rounds and seeds, other options, fewer groups and arms."""

    seeds: int = Field(default=1, ge=1)
    scale: float = Field(default=1.0, gt=0, le=1)
    set: dict[str, Any] = {}
    groups: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()


class Experiment(Strict):
    """A whole experiment."""

    name: str
    title: str
    paper: str
    setting: str
    seeds: int = Field(default=3, ge=1)
    rounds: int | None = Field(default=None, ge=1)
    keep: Literal["last", "best"] = "last"  # "best": of each node the model with the best validation accuracy
    set: dict[str, Any] = {}
    columns: dict[str, Column]
    arms: tuple[Arm, ...] = Field(min_length=1)
    groups: tuple[Group, ...] = (Group(),)
    missing: dict[str, str] = {}  # comparators that we do not have, and why
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()  # where this differs from the paper
    quick: Quick = Quick()

    @property
    def unit(self) -> str:
        """Return what the figures are in. Where columns differ, each is named after its own."""
        return " and ".join(dict.fromkeys(column.unit for column in self.columns.values()))

    @model_validator(mode="after")
    def _check_labels(self) -> Experiment:
        """Raise where two arms or two groups have one label."""
        arms, groups = [arm.label for arm in self.arms], [group.label for group in self.groups]
        for what, labels in (("arm", arms), ("group", groups)):
            if twice := [label for label in labels if labels.count(label) > 1]:
                raise ValueError(f"two {what}s are called {twice[0]!r}")
        return self

    @model_validator(mode="after")
    def _check_paper(self) -> Experiment:
        """Raise where the paper's figures are of no arm, or of more columns than there are."""
        known = {*self.missing}
        for arm in self.arms:
            known |= {arm.label, arm.paper or arm.label}
        for group in self.groups:
            for label, figures in group.paper.items():
                if label not in known:
                    raise ValueError(f"group {group.label!r}: paper has {label!r}, which is no arm")
                if len(figures) > len(self.columns):
                    raise ValueError(f"group {group.label!r}: {label} has {len(figures)} figures, more than columns")
        return self

    @model_validator(mode="after")
    def _check_references(self) -> Experiment:
        """Raise where groups, claims or the quick version name arms, groups or columns that there are not."""
        arms, groups = [arm.label for arm in self.arms], [group.label for group in self.groups]
        columns = list(self.columns)
        _check_known(self.quick.groups, groups)
        _check_known(self.quick.arms, arms)
        for group in self.groups:
            _check_known(group.arms, arms)
        for claim in self.claims:
            _check_known((claim.more, claim.less), {"arms": arms, "columns": columns, "groups": groups}[claim.of])
            _check_known((claim.column,) if claim.column else (), columns)
            _check_known((claim.arm,) if claim.arm else (), arms)
        return self

    @classmethod
    def load(cls, name: str) -> Experiment:
        """Load a shipped experiment by name, or a TOML file by path."""
        path = Path(name)
        if path.suffix == ".toml" or "/" in name:
            return cls.read(toml.text(path, ExperimentError), path.stem)
        known = shipped()
        if name not in known:
            raise ExperimentError(f"there is no experiment {name!r}{meant(name, known)}; there are {', '.join(known)}")
        return cls.read(known[name], name)

    @classmethod
    def read(cls, text: str, name: str) -> Experiment:
        """Make an experiment of the text of a TOML file. An error names the file and the field."""
        values = toml.parsed(text, f"{name}.toml", ExperimentError)
        if "name" in values:
            raise ExperimentError(f"{name}.toml: name: an experiment is called as its file is: leave it out")
        try:
            return cls(name=name, **values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            text = first["msg"].removeprefix("Value error, ")
            raise ExperimentError(f"{name}.toml: {where + ': ' if where else ''}{text}") from None


def _check_known(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise where a name is not among those that there are."""
    for name in names:
        if name not in known:
            raise ValueError(f"there is no {name!r} among {', '.join(map(repr, known))}")


def shipped() -> dict[str, str]:
    """Return the text of each experiment that comes with the package, by name."""
    files = sorted(resources.files("heterophony.studies.experiments").iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text() for file in files if file.name.endswith(".toml")}
