"""What a setting says, checked: the schema of the TOML files."""

from __future__ import annotations

import math
import tomllib
from dataclasses import MISSING, fields
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from heterophony.data import partitions
from heterophony.data.sources import own as own_data
from heterophony.settings.refusal import refusal
from heterophony.wording import meant


class SettingError(ValueError):
    """A setting that cannot be used; one line that names file and field."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Partition(Strict):
    """How the rows of a domain are shared between its clients."""

    kind: Literal["iid", "dirichlet", "shards", "pathological", "quantity"] = "iid"
    alpha: float | None = None
    sigma: float | None = None
    per_client: int | None = None
    classes_per_client: int | None = None
    min_size: int | None = None

    def build(self) -> partitions.Partition:
        made: dict[str, type[Any]] = {
            "iid": partitions.Iid,
            "dirichlet": partitions.Dirichlet,
            "shards": partitions.Shards,
            "pathological": partitions.Pathological,
            "quantity": partitions.Quantity,
        }
        given = {key: value for key, value in self.model_dump(exclude={"kind"}).items() if value is not None}
        chosen = made[self.kind]
        known = {field.name: field for field in fields(chosen)}
        wrong = [key for key in given if key not in known]
        missing = [name for name, field in known.items() if field.default is MISSING and name not in given]
        if wrong or missing:
            text = f"has no {wrong[0]}" if wrong else f"needs {missing[0]}"
            raise SettingError(f"data.partition: {self.kind} {text}")
        partition: partitions.Partition = chosen(**given)
        return partition


class Domain(Strict):
    """One kind of data: a set, and how it is turned."""

    source: str
    degrees: float = 0.0
    rows: int | None = Field(default=None, ge=1)  # private rows, drawn at random


class Public(Strict):
    """Public data: a part of the domains' own, or another set."""

    fraction: float | None = Field(default=None, gt=0, lt=1)
    source: str | None = None
    rows: int | None = Field(default=None, ge=1)
    labelled: bool = True
    test: float = Field(default=0.0, ge=0, lt=1)  # share of these rows that is held out, as the split "proxy"
    joint: Literal["fine", "coarse"] | None = (
        None  # another set's classes get outputs of their own, behind the private ones
    )
    augment: Literal["crop-flip"] | None = None  # drawn once by the seed, so that everyone sees the same images

    @model_validator(mode="after")
    def _one(self) -> Public:
        if (self.fraction is None) == (self.source is None):
            raise ValueError("give either a fraction or a source")
        if self.source is None and (self.rows is not None or self.joint is not None):
            raise ValueError("rows and joint are for public data from another source")
        if self.source is not None and self.test:
            raise ValueError("test goes with a fraction of the domains' own data")
        if self.joint is not None and not self.labelled:
            raise ValueError("joint outputs need labelled public data")
        return self


class Participant(Strict):
    """What is different about one participant's data."""

    label_noise: float = Field(default=0.0, ge=0, le=1)  # the share of its training rows with a wrong label


class Concept(Strict):
    """A kind of data that a stream may bring: one's own, turned, with labels moved on, or of a domain further on."""

    degrees: float = 0.0
    labels: int = Field(default=0, ge=0)  # every label is so many classes further on
    domain: int = Field(default=0, ge=0)  # so many places further on in the list of domains


class StreamPart(Strict):
    """Private rows come as a stream, `arrivals` of them a round, each once; `memory` rows are kept.

    `drift` says how the concepts follow each other, every so many rounds.
    """

    drift: Literal["sudden", "gradual", "recurring"] = "sudden"
    every: int = Field(default=10, ge=1)
    arrivals: int = Field(ge=1)
    memory: int = Field(default=0, ge=0)
    keep: Literal["recent", "reservoir"] = "recent"
    concepts: Annotated[tuple[Concept, ...], Field(min_length=1)] = (Concept(),)


class DataPart(Strict):
    """Where data come from and who gets what. Domains may have different classes where the method allows it."""

    domains: dict[str, Domain] = {}
    source: str | None = None  # with rotations, or alone
    rotations: tuple[float, ...] = ()
    rows: int | None = Field(default=None, ge=1)  # private rows of each domain made of it; None: all
    clients: int = Field(default=1, ge=1)  # of each domain
    partition: Partition = Partition()
    public: Public | None = None
    validation: float = Field(default=0.0, ge=0, lt=1)
    test: float | None = Field(default=None, gt=0, lt=1)  # None: the set's own test half
    test_rows: int | None = Field(default=None, ge=1)
    private_test: bool = False
    side: int | None = Field(default=None, ge=8)
    channels: Literal[1, 3] | None = None
    length: int | None = Field(default=None, ge=8)  # bytes of a row of text
    augment: Literal["crop-flip"] | None = None  # what training does to private images, anew in each epoch
    participants: dict[str, Participant] = {}  # by id, those that differ
    stream: StreamPart | None = None
    unseen: tuple[str, ...] = ()  # domains and participants that take no part; all are evaluated on them
    leaky: bool = False  # split each domain apart, so that one's training images are another's test images, turned

    @model_validator(mode="after")
    def _somewhere(self) -> DataPart:
        if bool(self.domains) == bool(self.source):
            raise ValueError("give either domains or a source")
        if self.rotations and not self.source:
            raise ValueError("rotations need a source")
        if self.rows is not None and not self.source:
            raise ValueError("rows go with a source; domains have rows of their own")
        if len({f"{angle:g}" for angle in self.rotations}) < len(self.rotations):
            raise ValueError(f"two rotations are the same: {list(self.rotations)}")
        taken = {
            "test": self.test,
            "validation": self.validation,
            "public.fraction": self.public and self.public.fraction,
        }
        shares = {name: share for name, share in taken.items() if share}
        if sum(shares.values()) >= 1:
            texts = " and ".join(f"{name} = {share:g}" for name, share in shares.items())
            raise ValueError(f"{texts} leave no rows to train on: together they must be less than 1")
        return self

    def all_domains(self) -> dict[str, Domain]:
        if self.domains:
            return self.domains
        assert self.source is not None
        if not self.rotations:
            return {own_data.short(self.source): Domain(source=self.source, rows=self.rows)}
        return {f"M{angle:g}": Domain(source=self.source, degrees=angle, rows=self.rows) for angle in self.rotations}

    @property
    def sources(self) -> list[str]:
        """The data sets that it needs."""
        found = sorted({domain.source for domain in self.all_domains().values()})
        public = self.public.source if self.public is not None else None
        return [*found, *([public] if public and public not in found else [])]

    def located(self, *places: Path) -> DataPart:
        """With absolute paths for data of one's own: those in the first of these folders that has them."""

        def moved(part: Any) -> Any:
            if part is None or part.source is None:
                return part
            return part.model_copy(update={"source": own_data.whole(part.source, *places)})

        domains = {name: moved(domain) for name, domain in self.domains.items()}
        parts = {"domains": domains, "public": moved(self.public)}
        made: DataPart = moved(self.model_copy(update=parts))
        return made


class ModelPart(Strict):
    """Whose network is which: one for all, or a list that is dealt round."""

    participants: str | Annotated[tuple[str, ...], Field(min_length=1)]
    global_: str | None = Field(default=None, alias="global")  # None: the first participant's
    same: str | None = None  # for methods that need one network for all; None: the participants' own, if it is one
    share: str | tuple[str, ...] = ""  # the part that travels: "body", "head", or "" for the whole
    buffers: Literal["shared", "private"] = "shared"  # whether BatchNorm's statistics travel

    @property
    def names(self) -> tuple[str, ...]:
        return (self.participants,) if isinstance(self.participants, str) else self.participants

    @property
    def travelling(self) -> str:
        return self.global_ or self.names[0]


class DropoutPart(Strict):
    """Who misses rounds: at random, or always the same weak ones."""

    rate: float = Field(default=0.0, ge=0, le=1)
    always: tuple[str, ...] = ()
    weakest: float = Field(default=0.0, ge=0, lt=1)  # always that share of participants, by the size of their networks


class ProfilePart(Strict):
    """A participant's device and network, in virtual seconds."""

    seconds_per_sample: float = Field(default=1e-3, ge=0)
    bandwidth: float = Field(default=math.inf, gt=0)
    latency: float = Field(default=0.0, ge=0)
    available: tuple[tuple[float, float], ...] = ()


class TopologyPart(Strict):
    """Who is linked to whom, where the method leaves a choice.

    Peers are a `complete` graph, a `ring`, `pairs` that are drawn anew each round, or linked by `edges`.
    A tree is written out (participants are its leaves), or has so many `clusters` as subtrees: participants in their
    order, at `random`, or with similar `labels`. Otherwise each domain that has several clients is a subtree, else each
    two participants are; with `by = "random"` subtrees have these sizes, and whoever the seed puts there. `residuals`
    are pairs of ancestor and descendant. `proxy` names the internal nodes, or roles, that train on the public data
    where those have labels.
    """

    kind: Literal["complete", "ring", "pairs", "edges", "tree"] | None = None  # None: what the method needs
    edges: tuple[tuple[str, str], ...] = ()  # between participants that are peers
    tree: dict[str, Any] | None = None
    clusters: int | None = Field(default=None, ge=1)
    by: Literal["labels", "order", "random"] = "labels"
    residuals: tuple[tuple[str, str], ...] = ()
    proxy: tuple[str, ...] = ("root",)

    @model_validator(mode="after")
    def _one(self) -> TopologyPart:
        if self.tree is not None and self.clusters is not None:
            raise ValueError("give either a tree or clusters")
        if (self.kind == "edges") != bool(self.edges):
            raise ValueError('kind = "edges" and a list of edges go together')
        return self


class Setting(Strict):
    """A whole setting. `local` and `methods.NAME` are defaults for the methods' options.

    `rounds` and `evaluate` in `methods.NAME` are that method's own: a round may be a batch, or many epochs.

    `profiles` are by participant, role, or "" for all others; `egress` says which kinds may leave a participant;
    `joins` says who comes later, and when.
    """

    name: str
    summary: str = ""
    rounds: int = Field(default=10, ge=1)
    evaluate: int = Field(default=1, ge=1)
    data: DataPart
    models: ModelPart
    local: dict[str, Any] = {}
    methods: dict[str, dict[str, Any]] = {}
    topology: TopologyPart = TopologyPart()
    dropout: DropoutPart = DropoutPart()
    profiles: dict[str, ProfilePart] = {}
    joins: dict[str, float] = {}
    egress: dict[str, tuple[str, ...]] = {}

    @model_validator(mode="after")
    def _own_plans(self) -> Setting:
        for name, own in self.methods.items():
            for key in ("rounds", "evaluate"):
                value = own.get(key, 1)
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise ValueError(f"methods.{name}.{key} is a whole number of at least 1, got {value!r}")
        return self

    def plan(self, method: str) -> tuple[int, int]:
        """Rounds of a method, and after how many of them it is evaluated."""
        own = self.methods.get(method, {})
        return own.get("rounds", self.rounds), own.get("evaluate", self.evaluate)

    @classmethod
    def load(cls, name: str) -> Setting:
        """A shipped setting by name, or a TOML file by path; data of one's own may lie beside the file."""
        made = cls.read(text(name), Path(name).stem if _is_file(name) else name, name)
        return made.located(Path(name).parent) if _is_file(name) else made

    @classmethod
    def read(cls, toml: str, name: str, where: str) -> Setting:
        try:
            return cls.of({"name": name, **tomllib.loads(toml)})
        except tomllib.TOMLDecodeError as error:
            raise SettingError(f"{where}: not TOML: {error}") from None
        except SettingError as error:
            raise SettingError(f"{where}: {error}") from None

    @classmethod
    def of(cls, values: dict[str, Any]) -> Setting:
        """A setting from plain values; an error names the field."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingError(refusal(cls, error)) from None

    @property
    def sources(self) -> list[str]:
        """The data sets that it needs."""
        return self.data.sources

    def located(self, *places: Path) -> Setting:
        """With absolute paths for data of one's own: those in the first of these folders that has them."""
        return self.model_copy(update={"data": self.data.located(*places)})

    def changed(self, changes: dict[str, Any]) -> Setting:
        """With some fields replaced: `{"data.clients": 4}`."""
        values = self.plain()
        for key, value in changes.items():
            place, *path = values, *key.split(".")
            for part in path[:-1]:
                place = place.setdefault(part, {})
                if not isinstance(place, dict):
                    raise SettingError(f"{key}: {part} has no parts")
            place[path[-1]] = value
        return Setting.of(values)

    def plain(self) -> dict[str, Any]:
        """As plain values, such as a run folder keeps."""
        values: dict[str, Any] = _listed(self.model_dump(by_alias=True, exclude_defaults=True))
        return values | {"name": self.name}


def _listed(value: Any) -> Any:
    """Tuples as lists, as JSON and TOML have them."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def text(name: str) -> str:
    """The text of a shipped setting, or of a TOML file by path."""
    if _is_file(name):
        try:
            return Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise SettingError(f"{name}: {(error.strerror or str(error)).lower()}") from None
        except UnicodeDecodeError:
            raise SettingError(f"{name}: not a text file in UTF-8") from None
    known = shipped()
    if name not in known:
        raise SettingError(
            f"there is no setting {name!r}{meant(name, known)}; name a .toml file or one of {', '.join(known)}"
        )
    return known[name]


def _is_file(name: str) -> bool:
    return name.endswith(".toml") or "/" in name


def shipped() -> dict[str, str]:
    """name -> text of the settings that come with the package."""
    files = sorted(resources.files("heterophony.settings").iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text() for file in files if file.name.endswith(".toml")}
