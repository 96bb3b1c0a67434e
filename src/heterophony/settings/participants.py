"""`Participants`: what a function of your own gives to `--on module:callable`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from heterophony.data.table import Data
from heterophony.kernel.profile import Profile

Network = str | nn.Module | Callable[..., nn.Module]


@dataclass(frozen=True)
class Participants:
    """Who takes part, made in Python: everyone's rows, networks and tests. `heterophony run fedavg --on mine:world`.

    Arguments:
        data: by participant, its private rows; or its views by name: "train", and "test" or "validation" of its own.
        models: a network for all; a list that is dealt round; or one by participant. A network is a function or a
            class, which is told `shape` and `classes` if it takes them; a name of `heterophony models`; or a module,
            which everyone gets a copy of.
        tests: what everyone is tested on: by domain, or one set for all. Without it, each participant's "test".
        homes: by participant, the domain of `tests` that is its own. Not needed where they have the same names.
        public: rows that everyone holds, for methods that need some.
        common: the network that travels, where participants have others; the first participant's if not given.
        tree: for methods on a tree, names below names: `{"root": {"north": ["anna", "ben"]}}`.
        profiles: by participant, role, or "" for all others: device and network.
    """

    data: Mapping[str, Data | Mapping[str, Data]]
    models: Network | Sequence[Network] | Mapping[str, Network]
    tests: Data | Mapping[str, Data | Mapping[str, Data]] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    public: Data | None = None
    common: Network | None = None
    tree: Mapping[str, Any] | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)
