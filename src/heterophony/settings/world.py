"""The world of a setting: what every participant holds, and what everyone is tested on. `building.py` makes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heterophony.data import Coverage, Data
from heterophony.data.moments import Moments
from heterophony.data.views import View
from heterophony.kernel.profile import Profile
from heterophony.settings.participants import Network
from heterophony.tasks.task import Task


@dataclass(frozen=True)
class World:
    """Views by participant, test sets by domain, and what the leakage check found.

    The views are "train", "own" (and the public rows of its domain), "all" (and all public rows), "public", "mine"
    (which rows of "public" are of its domain) and its domain's "validation".
    """

    homes: dict[str, str]  # participant -> domain
    views: dict[str, dict[str, View]]
    public: View | None
    labelled: bool  # whether the public data have labels of the participants' own (or joint) label space
    tests: dict[str, dict[str, Data]]
    private_tests: dict[str, Data]
    told: dict[str, Any]  # what networks are told of a row: `in_channels` and `size`; of arrays their `shape`
    outputs: int  # classes of the first label space
    coverage: Coverage
    classes: dict[str, int]  # domain -> outputs that a model for it has
    tasks: dict[str, str]  # domain -> the first domain of the same label space; empty where there is one for all
    labels: dict[str, tuple[str, ...]]  # domain -> its classes' names; empty where rows have other targets
    targets: dict[str, Task]  # domain -> what its targets are
    reads: str = "images"  # or "texts", "arrays", or "sequences", whose every next byte is predicted
    moments: dict[str, Moments] = field(default_factory=dict)  # by what arrays were standardised; "": all of them
    # What Python may bring besides (`given.py`); where it is made of data sets, the setting says these.
    networks: tuple[Network, ...] = ()  # of the participants, dealt round
    common: Network | None = None  # the one that travels
    tree: Mapping[str, Any] | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    @property
    def validation(self) -> bool:
        """Whether there are rows to choose on."""
        return any("validation" in splits for splits in self.tests.values())

    @property
    def task(self) -> Task:
        """What the targets of the first domain are."""
        return next(iter(self.targets.values()))

    @property
    def label_spaces(self) -> str:
        """Say in words which classes each domain has."""
        return in_words(self.labels)


def in_words(labels: Mapping[str, tuple[str, ...]]) -> str:
    """Say how many classes each domain has, and the first and last of them."""
    texts = (
        f"{domain} has {len(names)} classes ({names[0]} to {names[-1]})" if names else f"{domain} has none"
        for domain, names in labels.items()
    )
    return ", ".join(texts)
