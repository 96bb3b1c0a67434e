"""What a setting says, checked: the schema of the TOML files.

The text below a field is what docs/reference/settings-reference.md says of it (`python tools/make_settings_page.py`).
"""

from __future__ import annotations

import math
import os
import random
import tomllib
from collections.abc import Sequence
from dataclasses import MISSING, fields
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from heterophony.base import toml
from heterophony.base.seeds import derive
from heterophony.base.wording import meant
from heterophony.data import ArrayLayout, partitions
from heterophony.data.flower_partition import FlowerPartition
from heterophony.data.sources import own as own_data
from heterophony.kernel.attack import Attack
from heterophony.kernel.compression import Compression
from heterophony.kernel.privacy import Privacy
from heterophony.kernel.profile import Profile
from heterophony.masking.options import Secure
from heterophony.models.families import members
from heterophony.models.registry import imports as imported_by
from heterophony.parts import lies
from heterophony.settings.refusal import refusal
from heterophony.tasks.kinds import sized
from heterophony.tasks.scored import OwnScore, scored
from heterophony.tasks.task import Task


class SettingError(ValueError):
    """A setting that cannot be used; one line that names file and field."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PartitionPart(Strict):
    """How the rows of a domain are shared between its clients."""

    kind: Literal["iid", "dirichlet", "shards", "pathological", "quantity", "natural", "flwr"] = "iid"
    """`iid`: equal parts at random; `dirichlet`: each class by a draw (needs `alpha`); `shards`: `per_client` pieces of
    one class each; `pathological`: exactly `classes_per_client` classes each; `quantity`: parts of unequal size (needs
    `sigma` or `alpha`); `natural`: whole groups (persons, devices), one for each participant if `clients` is 1;
    `flwr`: a partitioner of the library `flwr-datasets` (needs `call`)."""
    alpha: float | None = None
    """Of `dirichlet` (small: few classes each) and `quantity` (small: very unequal sizes)."""
    sigma: float | None = None
    """Of `quantity`: log-normal sizes, larger is more unequal."""
    per_client: int | None = None
    """Of `shards`: how many each client gets."""
    classes_per_client: int | None = None
    """Of `pathological`: how many classes each client has."""
    min_size: int | None = None
    """Of `dirichlet` and `quantity`: the rows that every client has at least (1). Of `natural`: groups with fewer rows
    are joined with the next smallest."""
    by: str | None = None
    """Of `natural`: the array or column that tells whose each row is, if `data.arrays.group` does not name it."""
    call: str | None = None
    """Of `flwr`: a class of `flwr_datasets.partitioner`, such as "DirichletPartitioner"."""
    arguments: dict[str, Any] | None = None
    """Of `flwr`: what the class is told, as `{ alpha = 0.3 }`. The number of partitions, the column and the seed
    follow from the setting."""

    def build(self) -> partitions.Partition:
        made: dict[str, type[Any]] = {
            "iid": partitions.Iid,
            "dirichlet": partitions.Dirichlet,
            "shards": partitions.Shards,
            "pathological": partitions.Pathological,
            "quantity": partitions.Quantity,
            "natural": partitions.Natural,
            "flwr": FlowerPartition,
        }
        given = {key: value for key, value in self.model_dump(exclude={"kind"}).items() if value is not None}
        if self.kind == "natural":
            given.pop("by", None)
        chosen = made[self.kind]
        known = {field.name: field for field in fields(chosen)}
        wrong = [key for key in given if key not in known]
        asked = [name for name, field in known.items() if field.default is field.default_factory is MISSING]
        missing = [name for name in asked if name not in given]
        if wrong or missing:
            text = f"has no {wrong[0]}" if wrong else f"needs {missing[0]}"
            raise SettingError(f"data.partition: {self.kind} {text}")
        partition: partitions.Partition = chosen(**given)
        return partition


class WindowPart(Strict):
    """Rows that are steps in time are cut into windows, whose last axis is time: columns become its channels.

    No window reaches into another file or another group. What is left over at an end is no window.
    """

    rows: int = Field(ge=1)
    """Steps of a window."""
    step: int | None = Field(default=None, ge=1)
    """The next window begins so many steps further on; `rows` if not given. If it is less, windows overlap: then test
    rows must be whole groups (`data.split`) or a test half."""
    label: Literal["majority", "last"] = "majority"
    """The label of a window: that of most of its steps (of equals the first class), or that of its last step."""


class ArraysPart(Strict):
    """What is what in data of one's own whose rows have any shape: files (`.npz`, `.npy`, `.txt`, `.csv`, `.parquet`,
    `.safetensors`), folders of such files or that Hugging Face `datasets` saved, or a function.

    Rows are read as they are. Nothing is resized, cast or scaled unless it is asked for here. Keys are the names of
    arrays or columns. One that ends with `.npy` or `.txt` is a file beside the source, or in the folder.
    """

    x: str | tuple[str, ...] | None = None
    """What networks read: an array, or several that become the channels of a row. `x` (or `train_x`), the array of an
    `.npy` or `.txt` file, or all columns but `y` and `group` if not given. `"*_train.txt"` are several files."""
    y: str | tuple[str, ...] | None = None
    """The labels: whole numbers from 0, or others, of which each becomes a class. `y` (or `train_y`) if not given.
    Several columns are read as numbers, for what learns several."""
    group: str | None = None
    """Whose each row is: a person, a device, a hospital."""
    test_file: str | None = None
    """A file beside the source that holds the test half, by the same keys."""
    test_x: str | tuple[str, ...] | None = None
    """As `x`, of the test half."""
    test_y: str | tuple[str, ...] | None = None
    """As `y`, of the test half."""
    test_group: str | None = None
    """As `group`, of the test half."""
    files: str | None = None
    """Of a folder: the files that are read, one after the other, as `"user_{user}.csv"` or `"{user}/{activity}/*.npy"`.
    What stands in braces becomes a column of that name; `*` stands for anything."""
    test_files: str | None = None
    """As `files`, of the test half."""
    each_file: Literal["rows", "row"] = "rows"
    """Whether each of these files holds rows, or is one row."""
    train_split: str | None = None
    """Of a folder that `datasets` saved: the split to train on; `train` if not given."""
    test_split: str | None = None
    """Of such a folder: the split to test on; `test` if not given and there is one."""
    window: WindowPart | None = None
    """Rows are steps in time: they are cut into windows."""
    scale: float | str = 1.0
    """Values are multiplied by this: a number, or a key of the same file whose numbers belong to one axis."""
    offset: float | str = 0.0
    """This is added afterwards: a number or a key, as `scale`. Either of the two makes float32 of the values."""
    dtype: Literal["float32", "int64"] | None = None
    """What values become: float32, or int64 for tokens. As stored if not given; float32 of tables and texts."""
    axes: tuple[int, ...] = ()
    """The stored axes in the order in which networks read them, rows first: `[0, 2, 1]`."""
    classes: tuple[str, ...] = ()
    """The names of the classes, where not every file has all of them."""


class OwnScorePart(Strict):
    """A score of one's own: a function of all outputs and all targets of a test set that gives one number a row.

    The score is their mean. `"mine:within_ten"` is short for `{ call = "mine:within_ten" }`.
    """

    call: str
    """The function, as `module:callable`. Its name is the score's."""
    higher: bool = True
    """Whether more is better."""
    percent: bool = False
    """Whether it is a share, which is shown in per cent."""
    title: str = ""
    """What a person reads; the function's name if not given."""

    @model_validator(mode="after")
    def _callable(self) -> OwnScorePart:
        OwnScore(**self.model_dump())
        return self


class TaskPart(Strict):
    """What the targets are, where they are not one class for each row."""

    kind: Literal["classification", "multilabel", "regression", "segmentation", "sequence"] = "classification"
    """`classification`: one class; `multilabel`: 0 or 1 for each label, also one yes-or-no label by one logit;
    `regression`: numbers; `segmentation`: a class for each pixel; `sequence`: a class for each place."""
    classes: int | None = Field(default=None, ge=2)
    """Of `segmentation` and `sequence`: how many there are; as many as the data have if not given."""
    error: Literal["squared", "absolute", "huber"] | None = None
    """Of `regression`: what training makes small; `squared` if not given."""
    criterion: Literal["ce", "dice", "both"] | None = None
    """Of `segmentation`: what training makes small, cross-entropy, 1 - soft Dice, or both; `ce` if not given."""
    background: bool | None = None
    """Of `segmentation`: whether Dice and IoU count class 0 too; `false` if not given."""

    scores: tuple[OwnScorePart, ...] = ()
    """Scores of one's own, behind those that the task has."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("scores"), list | tuple):
            return {**values, "scores": [{"call": own} if isinstance(own, str) else own for own in values["scores"]]}
        return values

    @model_validator(mode="after")
    def _known(self) -> TaskPart:
        for name in ("classes", "error", "criterion", "background"):
            if getattr(self, name) is not None and name not in _OF_TASKS[self.kind]:
                raise ValueError(f"{self.kind} has no {name}")
        return self

    def build(self, size: int) -> Task:
        """Return the task, with so many classes, labels or targets."""
        options = self.model_dump(exclude_none=True, exclude={"classes", "kind", "scores"})
        return self.with_scores(sized(self.kind, self.classes or size, **options))

    def with_scores(self, task: Task) -> Task:
        """Return a task with the scores that the setting adds."""
        return scored(task, [OwnScore(**own.model_dump()) for own in self.scores])


# The options of each kind of task.
_OF_TASKS: dict[str, tuple[str, ...]] = {
    "classification": (),
    "multilabel": (),
    "regression": ("error",),
    "segmentation": ("classes", "criterion", "background"),
    "sequence": ("classes",),
}


class DomainPart(Strict):
    """One kind of data: a set, and how it is turned."""

    source: str
    """A data set (`heterophony data` lists them), a file (`.npz`, `.npy`, `.txt`, `.csv`, `.parquet`, `.safetensors`),
    `folder:PATH` or `module:callable`."""
    degrees: float = 0.0
    """Its images are turned clockwise by so much."""
    rows: int | None = Field(default=None, ge=1)
    """Private rows, drawn at random; all if not given."""


class PublicPart(Strict):
    """Public data: a part of the domains' own, or another set."""

    fraction: float | None = Field(default=None, gt=0, lt=1)
    """This share of each domain's rows is public; or a `source`."""
    source: str | None = None
    """Another data set, whose training rows are public; or a `fraction`."""
    rows: int | None = Field(default=None, ge=1)
    """So many rows of the other set, drawn at random; all if not given."""
    labelled: bool = True
    """Whether the labels are public too."""
    test: float = Field(default=0.0, ge=0, lt=1)
    """The share of the public rows that is held out, as the split "proxy"."""
    joint: Literal["fine", "coarse"] | None = None
    """The other set's classes (or coarse ones) get outputs of their own, behind the private ones."""
    augment: Literal["crop-flip"] | None = None
    """What is done to the public images, once by the seed: everyone sees the same ones."""

    @model_validator(mode="after")
    def _one(self) -> PublicPart:
        if (self.fraction is None) == (self.source is None):
            raise ValueError("give either a fraction or a source")
        if self.source is None and (self.rows is not None or self.joint is not None):
            raise ValueError("rows and joint are for public data from another source")
        if self.source is not None and self.test:
            raise ValueError("test goes with a fraction of the domains' own data")
        if self.joint is not None and not self.labelled:
            raise ValueError("joint outputs need labelled public data")
        return self


class ParticipantPart(Strict):
    """What is different about one participant's data."""

    label_noise: float = Field(default=0.0, ge=0, le=1)
    """The share of its training rows that get a wrong label."""


class ConceptPart(Strict):
    """A kind of data that a stream may bring: one's own, turned, with labels moved on, or of a domain further on."""

    degrees: float = 0.0
    """Images are turned by so much more."""
    labels: int = Field(default=0, ge=0)
    """Every label is so many classes further on."""
    domain: int = Field(default=0, ge=0)
    """Rows come from the domain so many places further on in the list."""


class StreamPart(Strict):
    """Private rows come as a stream, `arrivals` of them a round, each once; `memory` rows are kept.

    `drift` says how the concepts follow each other, every so many rounds. The rounds are the participant's own, or the
    stream's, of so many `seconds` each.
    """

    drift: Literal["sudden", "gradual", "recurring"] = "sudden"
    """How one concept follows the other: at once, little by little, or again and again in turn."""
    every: int = Field(default=10, ge=1)
    """Rounds from one concept to the next."""
    seconds: float | None = Field(default=None, gt=0)
    """How long a round of the stream is, in virtual time: it goes on whatever the participant does."""
    arrivals: int = Field(ge=1)
    """New rows of a round; each comes once."""
    memory: int = Field(default=0, ge=0)
    """Older rows that are kept to train on."""
    keep: Literal["recent", "reservoir"] = "recent"
    """Which are kept: the latest, or a fair sample of all so far."""
    concepts: Annotated[tuple[ConceptPart, ...], Field(min_length=1)] = (ConceptPart(),)
    """What the stream brings, in this order."""


class DataPart(Strict):
    """Where data come from and who gets what. Domains may have different classes where the method allows it."""

    domains: dict[str, DomainPart] = {}
    """By name, kinds of data of their own; or a `source`."""
    source: str | None = None
    """One data set for all (as `source` of a domain): one domain, or one for each of the `rotations`."""
    world: str | None = None
    """`module:callable` that gives `Participants`: everyone's rows, networks and tests, made in Python."""
    rotations: tuple[float, ...] = ()
    """Degrees; a domain `M0`, `M20`, ... for each."""
    rows: int | None = Field(default=None, ge=1)
    """Private rows of each domain that is made of `source`, drawn at random; all if not given."""
    clients: int = Field(default=1, ge=1)
    """Participants of each domain."""
    partition: PartitionPart = PartitionPart()
    """How a domain's rows are shared between its clients."""
    task: TaskPart = TaskPart()
    """What the targets of arrays are; one class for each row if not given."""
    arrays: ArraysPart | None = None
    """How files of one's own are read whose rows have any shape; without it an `.npz` file holds images."""
    standardise: Literal["everyone", "participant"] | None = None
    """Arrays get mean 0 and deviation 1 in each feature or channel, by the training rows of `everyone`, or each row by
    those of the `participant` that it belongs to."""
    public: PublicPart | None = None
    """Rows that everyone holds, for methods that need some."""
    validation: float = Field(default=0.0, ge=0, lt=1)
    """This share of each domain's rows is for choosing rounds and options (`tune`, "best by validation")."""
    test: float | None = Field(default=None, gt=0, lt=1)
    """This share of each domain's rows is for testing; the set's own test half if not given."""
    split: Literal["row", "group"] = "row"
    """What `test`, `validation` and `public.fraction` take of a source with groups: rows of each group, which keeps one
    at least, or all rows of that share of the groups."""
    test_rows: int | None = Field(default=None, ge=1)
    """At most so many test rows a domain, drawn at random."""
    private_test: bool = False
    """Each participant is also tested on its own share of the test rows, by the classes that it trains on; with a
    `natural` partition on those of its own groups."""
    side: int | None = Field(default=None, ge=8)
    """Images are resized to so many pixels a side; that of the largest if not given."""
    channels: Literal[1, 3] | None = None
    """Grey or colour for all; colour if any set has it, if not given."""
    mean: float = Field(default=0.5, ge=0, le=1)
    """Images are standardised: this is taken from every pixel's value between 0 and 1, ..."""
    std: float = Field(default=0.5, gt=0)
    """... and what is left is divided by this. As they are, networks see -1 (black) to 1 (white)."""
    length: int | None = Field(default=None, ge=8)
    """Bytes of a row of text; 64 for language models and 192 for topics if not given."""
    augment: Literal["crop-flip"] | None = None
    """What training does to private images, anew in each epoch: shifted by up to 4 pixels and mirrored at random."""
    participants: dict[str, ParticipantPart] = {}
    """By id, those whose data differ."""
    stream: StreamPart | None = None
    """Private rows come over time, and may change."""
    unseen: tuple[str, ...] = ()
    """Domains and participants that take no part; all are evaluated on them."""
    leaky: bool = False
    """Split each domain apart, so that one's training images are another's test images, turned: as some papers do."""

    @model_validator(mode="after")
    def _somewhere(self) -> DataPart:
        if self.world is not None:
            return self._only_world(self.world)
        if bool(self.domains) == bool(self.source):
            raise ValueError("give either domains or a source")
        if self.rotations and not self.source:
            raise ValueError("rotations need a source")
        if self.rows is not None and not self.source:
            raise ValueError("rows go with a source; domains have rows of their own")
        named = {self.partition.by, self.arrays and self.arrays.group} - {None}
        if len(named) > 1:
            raise ValueError(f"partition.by and arrays.group name two columns: {' and '.join(sorted(map(str, named)))}")
        if len({f"{angle:g}" for angle in self.rotations}) < len(self.rotations):
            raise ValueError(f"two rotations are the same: {list(self.rotations)}")
        return self

    @model_validator(mode="after")
    def _rows_left(self) -> DataPart:
        """Raise where nothing would be left to train on."""
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

    def _only_world(self, world: str) -> DataPart:
        """Raise where something else is said of rows that Python gives."""
        if ":" not in world:
            raise ValueError(f"world is module:callable, got {world!r}")
        given = self.model_fields_set - {"world", "validation"}
        if wrong := [name for name in sorted(given) if getattr(self, name) != type(self).model_fields[name].default]:
            raise ValueError(f"{wrong[0]} means nothing beside world: {world} gives everyone's rows itself")
        return self

    def all_domains(self) -> dict[str, DomainPart]:
        if self.domains or self.world is not None:
            return self.domains
        assert self.source is not None
        if not self.rotations:
            return {own_data.short(self.source): DomainPart(source=self.source, rows=self.rows)}
        return {
            f"M{angle:g}": DomainPart(source=self.source, degrees=angle, rows=self.rows) for angle in self.rotations
        }

    @property
    def layout(self) -> ArrayLayout | None:
        """Return how files of one's own are read as arrays; None: `.npz` files hold images."""
        kind = self.task.kind
        if self.arrays is None and self.partition.by is None and kind == "classification":
            return None
        given = {} if self.arrays is None else self.arrays.model_dump()
        return ArrayLayout.of({**given, "group": given.get("group") or self.partition.by, "task": kind})

    @property
    def sources(self) -> list[str]:
        """Return the data sets that it needs."""
        found = sorted({domain.source for domain in self.all_domains().values()})
        public = self.public.source if self.public is not None else None
        return [*found, *([public] if public and public not in found else [])]

    def located(self, *places: Path) -> DataPart:
        """Return it with absolute paths for data of one's own: those in the first of these folders that has them."""

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

    participants: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """A network for all, or a list or family that is dealt round (`heterophony models`, or `module:callable`). It is
    needed, unless `data.world` gives networks."""
    global_: str | None = Field(default=None, alias="global")
    """The network that travels, or that a server has; the first participant's if not given."""
    same: str | None = None
    """The network of methods that average weights; the participants' own if not given, where what travels is alike."""
    share: str | tuple[str, ...] = ""
    """The part that travels: `body`, `head`, several such, or nothing for the whole."""
    weights: str | dict[str, str] | None = None
    """A file of pretrained weights (`.safetensors`, or a state dict `.pt`, `.pth`, `.bin`), or one for each network by
    its name. A head of other shapes stays new."""
    frozen: str | tuple[str, ...] | dict[str, str | tuple[str, ...]] = ()
    """Parts that nobody trains and that do not travel, as `["body"]`, or such for each network by its name. They begin
    alike everywhere: their values come from `weights`, or a function of one's own sets them."""
    buffers: Literal["shared", "private"] = "shared"
    """Whether the statistics of batch norm travel."""
    width: float | Annotated[tuple[float, ...], Field(min_length=1)] | dict[str, float] | None = None
    """Of methods that cut slices of `same`, such as `heterofl`: the share of each layer's units that a participant can
    hold. A number for all, a list that is dealt round, or by participant (`"*"`: all others)."""
    depth: int | Annotated[tuple[int, ...], Field(min_length=1)] | dict[str, int] | None = None
    """As `width`: how many blocks (`depthfl`, `scalefl`)."""
    rank: int | Annotated[tuple[int, ...], Field(min_length=1)] | dict[str, int] | None = None
    """As `width`: the rank of adapters (`hetlora` and its relatives)."""
    smallest: bool = False
    """Everyone, the server too, has what the smallest participant can hold: what slices are compared with."""

    @property
    def names(self) -> tuple[str, ...]:
        given = (self.participants,) if isinstance(self.participants, str) else self.participants or ()
        return tuple(name for each in given for name in members(each))

    @property
    def travelling(self) -> str | None:
        return self.global_ or next(iter(self.names), None)

    @property
    def networks(self) -> list[str]:
        """Return the networks that are named, each once."""
        return list(dict.fromkeys(name for name in (*self.names, self.travelling, self.same) if name))

    @model_validator(mode="after")
    def _named(self) -> ModelPart:
        for field, given in (("weights", self.weights), ("frozen", self.frozen)):
            for name in given if isinstance(given, dict) else ():
                if self.networks and name not in self.networks:
                    known = ", ".join(self.networks)
                    raise ValueError(
                        f"{field} names the network {name!r}{meant(name, self.networks)}; there are {known}"
                    )
        return self

    def start(self, network: str) -> dict[str, Any]:
        """Return how a network of that name starts, as `create` takes it; nothing is said of what is drawn and free."""
        weights = self.weights.get(network) if isinstance(self.weights, dict) else self.weights
        given = self.frozen.get(network, ()) if isinstance(self.frozen, dict) else self.frozen
        frozen = (given,) if isinstance(given, str) else given
        return ({"weights": weights} if weights else {}) | ({"frozen": frozen} if frozen else {})

    def located(self, *places: Path) -> ModelPart:
        """Return it with absolute paths of weights: those in the first of these folders that has them."""

        def moved(path: str) -> str:
            whole = Path(os.path.expanduser(path))
            return os.path.abspath(next((place / whole for place in places if (place / whole).exists()), whole))

        found = self.weights
        found = (
            {name: moved(path) for name, path in found.items()} if isinstance(found, dict) else found and moved(found)
        )
        return self.model_copy(update={"weights": found})


class DropoutPart(Strict):
    """Who misses rounds: at random, or always the same weak ones."""

    rate: float = Field(default=0.0, ge=0, le=1)
    """The share of participants that miss a round, drawn by the seed."""
    always: tuple[str, ...] = ()
    """Ids of those that never make it."""
    weakest: float = Field(default=0.0, ge=0, lt=1)
    """This share of the participants never makes it: those with the smallest networks."""


class AttackPart(Strict):
    """Some participants lie, to see what a method bears."""

    how: str
    """`label-flip`, `sign-flip`, `gaussian`, `alie`, `ipm`, `huge`, `nan`, `backdoor`, `free-rider`, `soft-labels`, or
    a function of a message of your own (`module:callable`)."""
    who: tuple[str, ...] | int | float
    """Participants by their ids; or how many, a number or a share, which the seed draws."""
    since: int = Field(default=0, ge=0)
    """The first round in which they lie, by their own count."""
    scale: float | None = Field(default=None, gt=0)
    """How far a lie goes, in steps of an honest participant; each attack has a value of its own if not given."""

    @model_validator(mode="after")
    def _some(self) -> AttackPart:
        if isinstance(self.who, int | float) and not (
            0 < self.who < 1 if isinstance(self.who, float) else self.who >= 0
        ):
            raise ValueError(f"who is a list of ids, a number, or a share in (0, 1), got {self.who}")
        return self

    def build(self, participants: Sequence[str], seed: int) -> Attack | None:
        """Return the attack among these participants."""
        who = self.who
        if isinstance(who, tuple):
            names = list(who)
        else:
            count = round(who * len(participants)) if isinstance(who, float) else who
            if count > len(participants):
                raise ValueError(f"who is {count}, but there are {len(participants)} participants")
            names = random.Random(derive(seed, "liars")).sample(sorted(participants), count)
        return lies.attack(self.how, names, since=self.since, scale=self.scale) if names else None


class ProfilePart(Strict):
    """A participant's device and network, in virtual seconds."""

    seconds_per_sample: float = Field(default=1e-3, ge=0)
    """To train on one row once."""
    bandwidth: float = Field(default=math.inf, gt=0)
    """Bytes a second; the slower end of a link counts."""
    latency: float = Field(default=0.0, ge=0)
    """Seconds that each message takes on top, at each end."""
    available: tuple[tuple[float, float], ...] = ()
    """Spans `[from, to]` of virtual seconds in which it is there; always if empty."""
    width: float | None = None
    """What it can hold of a common network, as `models.width`."""
    depth: int | None = None
    """As `models.depth`."""
    rank: int | None = None
    """As `models.rank`."""

    def build(self) -> Profile:
        """Return the device and the network; what it can hold stands apart."""
        return Profile(**self.model_dump(exclude={"width", "depth", "rank"}))


class PrivacyPart(Strict):
    """Clip and noise at a participant's door, and the most that it may ever tell ([Privacy](../how-to/privacy.md))."""

    clip: float | Annotated[dict[str, float], "by field"] | None = None
    """The longest that values of a message are; by field, where they differ."""
    noise: float | None = None
    """The deviation of the noise, as a multiple of the clip."""
    delta: float | None = None
    """Of (epsilon, delta)-differential privacy; below one over the number of rows."""
    budget: float | None = None
    """The most epsilon in all."""
    kinds: tuple[str, ...] | None = None
    """The kinds of messages that are protected; all if not given. `[]`: only private training is charged."""
    central: bool = False
    """It is trusted: it clips what its children send, and adds noise once, to their mean."""
    large_delta: bool = False
    """Whether a delta of one over the number of rows, or more, is meant."""

    @model_validator(mode="after")
    def _sound(self) -> PrivacyPart:
        self.build()
        return self

    def build(self) -> Privacy:
        """Return what it says as the engines take it."""
        return Privacy(**{name: getattr(self, name) for name in type(self).model_fields})


class SecurePart(Strict):
    """A server gets sums of masked numbers, and no single message ([Privacy](../how-to/privacy.md#secure-sums)). An
    empty table is enough."""

    least: int = 3
    """The fewest members of a sum, at least 3."""
    threshold: float = 0.5
    """More than this share of a neighbourhood opens a sum; from 0.5."""
    neighbours: int | None = None
    """With how many others each shares masks. If not given: with all; of more than some twenty, with `4 log2(n)`."""
    bits: int = 64
    """Of a masked number: 32 or 64."""
    range: float = 1024.0
    """The largest value. What is beyond is cut off, counted and noted."""
    most: int = 2**20
    """The most that one member may count, as examples."""
    wait: float | None = None
    """Virtual seconds of each of the protocol's own windows; if not given, they wait for all."""
    at: tuple[str, ...] = ()
    """The roles that get sums instead of messages, such as `["inner"]` for edge servers only. All that merge, if it is
    empty."""

    @model_validator(mode="after")
    def _sound(self) -> SecurePart:
        self.build()
        return self

    def build(self) -> Secure:
        """Return what it says as a method takes it."""
        return Secure(**{name: getattr(self, name) for name in type(self).model_fields})


class CompressPart(Strict):
    """Weights of a kind of message travel in few bits ([Fewer bytes](../how-to/fewer-bytes.md))."""

    bits: int = 32
    """Of a number: 16, 8 or 4 with stochastic rounding; 32: numbers are not rounded."""
    keep: float = 1.0
    """The share of each tensor's numbers that is sent, those with the largest changes."""
    delta: bool = False
    """What is sent is the difference from what the sender was sent."""
    feedback: bool = False
    """What rounding and leaving out have lost is added to the next message."""
    momentum: float = 0.0
    """Of the differences, as in Deep Gradient Compression; with `feedback`."""
    warmup: int = 0
    """So many rounds come first that keep more, exponentially less from one to the next."""
    block: int = 256
    """So many numbers have a scale of their own."""

    @model_validator(mode="after")
    def _sound(self) -> CompressPart:
        self.build()
        return self

    def build(self) -> Compression:
        """Return what it says as the engines take it."""
        return Compression(**{name: getattr(self, name) for name in type(self).model_fields})


class TopologyPart(Strict):
    """Who is linked to whom, where the method leaves a choice.

    Peers are a `complete` graph, a `ring`, a `torus` (a grid whose edges meet), a `regular` graph (each is linked with
    `degree` others at random; with `regular-anew` others in each round), `pairs` that are drawn anew each round, or
    linked by `edges`.
    A tree is written out (participants are its leaves), or has so many `clusters` as subtrees: participants in their
    order, at `random`, or with similar `labels`. Otherwise each domain that has several clients is a subtree, else each
    two participants are; with `by = "random"` subtrees have these sizes, and whoever the seed puts there. `residuals`
    are pairs of ancestor and descendant. `proxy` names the internal nodes, or roles, that train on the public data
    where those have labels.
    """

    kind: Literal["complete", "ring", "torus", "regular", "regular-anew", "pairs", "edges", "tree"] | None = None
    """Between peers, or a tree; what the method needs if not given."""
    degree: int = Field(default=3, ge=2)
    """Of a regular graph: with how many others each peer is linked."""
    edges: tuple[tuple[str, str], ...] = ()
    """Pairs of participants that are linked, with `kind = "edges"`."""
    tree: dict[str, Any] | None = None
    """A tree written out, `{ root = { edge = ["M0", "M20"] } }`; its leaves are the participants."""
    clusters: int | None = Field(default=None, ge=1)
    """So many subtrees are made instead."""
    by: Literal["labels", "order", "random"] = "labels"
    """Who is put together in a subtree: similar labels, the order of participants, or at random by the seed."""
    residuals: tuple[tuple[str, str], ...] = ()
    """Pairs of ancestor and descendant that are linked past the levels between them (`bhfl`)."""
    proxy: tuple[str, ...] = ("root",)
    """Internal nodes, or roles, that train on the public data where those have labels."""

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

    `profiles` are by participant, role, or "" for all others. `egress` says which kinds may leave a participant.
    `joins` says who comes later, and when.
    """

    name: str
    """What it is called in results, and their folder."""
    summary: str = ""
    """One line about it."""
    rounds: int = Field(default=10, ge=1)
    """How long; `--rounds` for one run."""
    evaluate: int = Field(default=1, ge=1)
    """Every so many rounds, and in the last; participants who miss rounds, in each that they take part in."""
    data: DataPart
    """Where data come from and who gets what."""
    models: ModelPart = ModelPart()
    """Whose network is which."""
    local: dict[str, Any] = {}
    """Every method's local training."""
    methods: dict[str, dict[str, Any]] = {}
    """By name, the options of one method (`heterophony methods NAME`), and its own `rounds` and `evaluate`."""
    topology: TopologyPart = TopologyPart()
    """Who is linked to whom."""
    dropout: DropoutPart = DropoutPart()
    """Who misses rounds."""
    profiles: dict[str, ProfilePart] = {}
    """By participant, role, or `""` for all others: device and network."""
    joins: dict[str, float] = {}
    """By participant, the virtual second at which it comes in."""
    attack: AttackPart | None = None
    """Who lies, and how; nobody if not given."""
    bound: float | None = Field(default=None, gt=0, le=1e15)
    """The largest number that a tensor in a message may hold, else it is refused; 1e15 if not given."""
    expel: int | None = Field(default=None, ge=1)
    """Puts a participant out after so many of its messages were refused, or far from the rest."""
    egress: dict[str, tuple[str, ...]] = {}
    """By participant, the kinds of messages that may leave it; all if not given."""
    privacy: dict[str, PrivacyPart] = {}
    """By participant, role, or `""` for all others: how what leaves is clipped and noised, and the budget."""
    secure: SecurePart | None = None
    """Whether servers get sums of masked numbers instead of messages; they get messages if not given."""
    compress: dict[str, CompressPart] = {}
    """By kind of message, how its weights are put into few bits; all travel whole if not given."""

    @model_validator(mode="after")
    def _folder(self) -> Setting:
        if self.name in ("", ".", "..") or set(self.name) & set("/\\\0"):
            raise ValueError(f"name = {self.name!r}: results go to a folder of this name, so that it is no path")
        return self

    @model_validator(mode="after")
    def _networks(self) -> Setting:
        if self.models.participants is None and self.data.world is None:
            raise ValueError("models.participants: field required")
        return self

    @model_validator(mode="after")
    def _own_plans(self) -> Setting:
        for name, own in self.methods.items():
            for key in ("rounds", "evaluate"):
                value = own.get(key, 1)
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise ValueError(f"methods.{name}.{key} is a whole number of at least 1, got {value!r}")
        return self

    def plan(self, method: str) -> tuple[int, int]:
        """Return the rounds of a method, and after how many of them it is evaluated."""
        own = self.methods.get(method, {})
        return own.get("rounds", self.rounds), own.get("evaluate", self.evaluate)

    @classmethod
    def load(cls, name: str) -> Setting:
        """Load a shipped setting by name, a TOML file by path, or make one of a `module:callable` (`data.world`).

        Data of one's own may lie beside the file.
        """
        if ":" in name and not _is_file(name):
            return cls.of({"name": name.replace(":", "."), "data": {"world": name}})
        made = cls.read(text(name), Path(name).stem if _is_file(name) else name, name)
        return made.located(Path(name).parent) if _is_file(name) else made

    @classmethod
    def read(cls, text: str, name: str, where: str) -> Setting:
        values = toml.parsed(text, where, SettingError)
        try:
            return cls.of({"name": name, **values})
        except SettingError as error:
            raise SettingError(f"{where}: {error}") from None

    @classmethod
    def of(cls, values: dict[str, Any]) -> Setting:
        """Make a setting of plain values. An error names the field."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingError(refusal(cls, error)) from None

    @property
    def sources(self) -> list[str]:
        """Return the data sets that it needs."""
        return self.data.sources

    def imports(self) -> list[tuple[str, str]]:
        """Return what it names that is not ours and would be imported: what each is, and its name."""
        named = [("network", own) for network in self.models.networks for own in imported_by(network)]
        if self.data.world is not None:
            named.append(("world", self.data.world))
        named += [("score", own.call) for own in self.data.task.scores]
        if self.attack is not None and ":" in self.attack.how:
            named.append(("attack", self.attack.how))
        return [*named, *(("data", source) for source in self.sources if own_data.imports(source))]

    def located(self, *places: Path) -> Setting:
        """Return it with absolute paths for data of one's own: those in the first of these folders that has them."""
        return self.model_copy(update={"data": self.data.located(*places), "models": self.models.located(*places)})

    def changed(self, changes: dict[str, Any]) -> Setting:
        """Return it with some fields replaced: `{"data.clients": 4}`."""
        values = self.plain()
        for key, value in changes.items():
            place, path = values, _path(key)
            for part in path[:-1]:
                place = place.setdefault(part, {})
                if not isinstance(place, dict):
                    raise SettingError(f"{key}: {part} has no parts")
            place[path[-1]] = value
        return Setting.of(values)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, such as a run folder keeps."""
        values: dict[str, Any] = _listed(self.model_dump(by_alias=True, exclude_defaults=True))
        return values | {"name": self.name}


def _path(key: str) -> list[str]:
    """Split a key as TOML reads it, so that a name with a dot can be quoted: `data.participants."a.b".rows`."""
    try:
        place: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return key.split(".")
    path = []
    while isinstance(place, dict):
        name, place = next(iter(place.items()))
        path.append(name)
    return path


def _listed(value: Any) -> Any:
    """Return tuples as lists, as JSON and TOML have them."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def text(name: str) -> str:
    """Return the text of a shipped setting, or of a TOML file by path."""
    if _is_file(name):
        return toml.text(Path(name), SettingError)
    known = shipped()
    if name not in known:
        raise SettingError(
            f"there is no setting {name!r}{meant(name, known)}; name a .toml file or one of {', '.join(known)}"
        )
    return known[name]


def _is_file(name: str) -> bool:
    return name.endswith(".toml") or "/" in name


def shipped() -> dict[str, str]:
    """Return the text of each setting that comes with the package, by name."""
    files = sorted(resources.files("heterophony.settings").iterdir(), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text() for file in files if file.name.endswith(".toml")}
