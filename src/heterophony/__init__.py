"""Federated learning between participants that differ: in model, data, task, hardware and place in the network."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heterophony.data.table import Data
    from heterophony.federation import Federation
    from heterophony.kernel.compute import Compute
    from heterophony.kernel.deviation import Deviation
    from heterophony.kernel.fields import (
        Counts,
        Logits,
        LowRank,
        Part,
        PerClass,
        Probabilities,
        Refused,
        Rows,
        Scalar,
        Weights,
    )
    from heterophony.kernel.message import Kind
    from heterophony.kernel.method import Method, MethodError
    from heterophony.kernel.needs import Need, NoStream, PublicData, PublicLabels, Validation
    from heterophony.kernel.networks import Architectures, Built, Global, Model, NetworksByRole, Own, Same
    from heterophony.kernel.profile import Dropout, Profile
    from heterophony.kernel.reaction import Count, Each, Every, Round, on
    from heterophony.kernel.topology import complete, random_pairs, ring, star, tree
    from heterophony.kernel.work import Fit, Mark, Note, Predict
    from heterophony.tables.result import Result

__version__ = "0.1.0"

# Where each public name lives. They are imported when first used, because torch takes a second.
_HOMES = {
    "data.table": ("Data",),
    "federation": ("Federation",),
    "kernel.compute": ("Compute",),
    "kernel.deviation": ("Deviation",),
    "kernel.fields": (
        "Counts",
        "Logits",
        "LowRank",
        "Part",
        "PerClass",
        "Probabilities",
        "Refused",
        "Rows",
        "Scalar",
        "Weights",
    ),
    "kernel.message": ("Kind",),
    "kernel.method": ("Method", "MethodError"),
    "kernel.needs": ("Need", "NoStream", "PublicData", "PublicLabels", "Validation"),
    "kernel.networks": ("Architectures", "Built", "Global", "Model", "NetworksByRole", "Own", "Same"),
    "kernel.profile": ("Dropout", "Profile"),
    "kernel.reaction": ("Count", "Each", "Every", "Round", "on"),
    "kernel.topology": ("complete", "random_pairs", "ring", "star", "tree"),
    "tables.result": ("Result",),
    "kernel.work": ("Fit", "Mark", "Note", "Predict"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Architectures",
    "Built",
    "Compute",
    "Count",
    "Counts",
    "Data",
    "Deviation",
    "Dropout",
    "Each",
    "Every",
    "Federation",
    "Fit",
    "Global",
    "Kind",
    "Logits",
    "LowRank",
    "Mark",
    "Method",
    "MethodError",
    "Model",
    "Need",
    "NetworksByRole",
    "NoStream",
    "Note",
    "Own",
    "Part",
    "PerClass",
    "Predict",
    "Probabilities",
    "Profile",
    "PublicData",
    "PublicLabels",
    "Refused",
    "Result",
    "Round",
    "Rows",
    "Same",
    "Scalar",
    "Validation",
    "Weights",
    "complete",
    "on",
    "random_pairs",
    "ring",
    "star",
    "tree",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'heterophony' has no attribute {name!r}")
    return getattr(import_module(f"heterophony.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
