"""Federated learning between participants that differ: in model, data, task, hardware and place in the network."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heterophony.data.augment import CropFlip
    from heterophony.data.errors import DataError
    from heterophony.data.table import Data
    from heterophony.federation import Federation
    from heterophony.kernel.attack import Attack
    from heterophony.kernel.by_level import ByLevel, check_complete, pick
    from heterophony.kernel.capacity import Capacity
    from heterophony.kernel.compression import Compression
    from heterophony.kernel.compute import Compute
    from heterophony.kernel.deviation import Deviation
    from heterophony.kernel.fields import (
        Adapters,
        Counts,
        Family,
        Features,
        Labels,
        Logits,
        LowRank,
        Packed,
        Part,
        PerClass,
        Probabilities,
        Refused,
        Rows,
        Scalar,
        Sliced,
        Weights,
        family,
        members_of,
        within,
    )
    from heterophony.kernel.freezing import freeze
    from heterophony.kernel.mailbox import Inbox, by_sender, senders, summands
    from heterophony.kernel.message import Kind, Message, Send
    from heterophony.kernel.method import Method, MethodError, decides
    from heterophony.kernel.needs import Need, NoStream, PublicData, PublicLabels, Serves, Validation
    from heterophony.kernel.networks import Architectures, Built, Global, Model, NetworksByRole, Own, Same, Slice
    from heterophony.kernel.node import Node
    from heterophony.kernel.optimisers import Optimiser
    from heterophony.kernel.privacy import Privacy, PrivateSteps
    from heterophony.kernel.profile import Dropout, Profile
    from heterophony.kernel.reaction import Clock, Count, Each, Every, Round, on
    from heterophony.kernel.sum import NotSummable, Sum
    from heterophony.kernel.topology import complete, random_pairs, random_regular, ring, star, torus, tree
    from heterophony.kernel.work import Fit, Loss, Mark, Named, Note, Predict, Steps, Transform
    from heterophony.masking.options import Secure
    from heterophony.masking.transform import secure
    from heterophony.settings.participants import Participants
    from heterophony.tables.result import Result
    from heterophony.tasks.classification import Classification
    from heterophony.tasks.multilabel import MultiLabel
    from heterophony.tasks.regression import Regression
    from heterophony.tasks.score import Score
    from heterophony.tasks.scored import OwnScore, Scored
    from heterophony.tasks.segmentation import Segmentation
    from heterophony.tasks.sequence import Sequence
    from heterophony.tasks.task import Task

__version__ = "0.1.0"

logging.getLogger("heterophony").addHandler(logging.NullHandler())  # a library says nothing that nobody asked for

# Where each public name lives. They are imported when first used, because torch takes a second.
_HOMES = {
    "data.augment": ("CropFlip",),
    "data.errors": ("DataError",),
    "data.table": ("Data",),
    "federation": ("Federation",),
    "kernel.attack": ("Attack",),
    "kernel.by_level": ("ByLevel", "check_complete", "pick"),
    "kernel.capacity": ("Capacity",),
    "kernel.compression": ("Compression",),
    "kernel.compute": ("Compute",),
    "kernel.deviation": ("Deviation",),
    "kernel.fields": (
        "Adapters",
        "Counts",
        "Family",
        "Features",
        "Labels",
        "Logits",
        "LowRank",
        "Packed",
        "Part",
        "PerClass",
        "Probabilities",
        "Refused",
        "Rows",
        "Scalar",
        "Sliced",
        "Weights",
        "family",
        "members_of",
        "within",
    ),
    "kernel.freezing": ("freeze",),
    "kernel.mailbox": ("Inbox", "by_sender", "senders", "summands"),
    "kernel.message": ("Kind", "Message", "Send"),
    "kernel.method": ("Method", "MethodError", "decides"),
    "kernel.needs": ("Need", "NoStream", "PublicData", "PublicLabels", "Serves", "Validation"),
    "kernel.networks": ("Architectures", "Built", "Global", "Model", "NetworksByRole", "Own", "Same", "Slice"),
    "kernel.node": ("Node",),
    "kernel.optimisers": ("Optimiser",),
    "kernel.privacy": ("Privacy", "PrivateSteps"),
    "kernel.profile": ("Dropout", "Profile"),
    "kernel.reaction": ("Clock", "Count", "Each", "Every", "Round", "on"),
    "kernel.sum": ("NotSummable", "Sum"),
    "kernel.topology": ("complete", "random_pairs", "random_regular", "ring", "star", "torus", "tree"),
    "kernel.work": ("Fit", "Loss", "Mark", "Named", "Note", "Predict", "Steps", "Transform"),
    "masking.options": ("Secure",),
    "masking.transform": ("secure",),
    "settings.participants": ("Participants",),
    "tables.result": ("Result",),
    "tasks.classification": ("Classification",),
    "tasks.multilabel": ("MultiLabel",),
    "tasks.regression": ("Regression",),
    "tasks.score": ("Score",),
    "tasks.scored": ("OwnScore", "Scored"),
    "tasks.segmentation": ("Segmentation",),
    "tasks.sequence": ("Sequence",),
    "tasks.task": ("Task",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Adapters",
    "Architectures",
    "Attack",
    "Built",
    "ByLevel",
    "Capacity",
    "Classification",
    "Clock",
    "Compression",
    "Compute",
    "Count",
    "Counts",
    "CropFlip",
    "Data",
    "DataError",
    "Deviation",
    "Dropout",
    "Each",
    "Every",
    "Family",
    "Features",
    "Federation",
    "Fit",
    "Global",
    "Inbox",
    "Kind",
    "Labels",
    "Logits",
    "Loss",
    "LowRank",
    "Mark",
    "Message",
    "Method",
    "MethodError",
    "Model",
    "MultiLabel",
    "Named",
    "Need",
    "NetworksByRole",
    "NoStream",
    "Node",
    "NotSummable",
    "Note",
    "Optimiser",
    "Own",
    "OwnScore",
    "Packed",
    "Part",
    "Participants",
    "PerClass",
    "Predict",
    "Privacy",
    "PrivateSteps",
    "Probabilities",
    "Profile",
    "PublicData",
    "PublicLabels",
    "Refused",
    "Regression",
    "Result",
    "Round",
    "Rows",
    "Same",
    "Scalar",
    "Score",
    "Scored",
    "Secure",
    "Segmentation",
    "Send",
    "Sequence",
    "Serves",
    "Slice",
    "Sliced",
    "Steps",
    "Sum",
    "Task",
    "Transform",
    "Validation",
    "Weights",
    "by_sender",
    "check_complete",
    "complete",
    "decides",
    "family",
    "freeze",
    "members_of",
    "on",
    "pick",
    "random_pairs",
    "random_regular",
    "ring",
    "secure",
    "senders",
    "star",
    "summands",
    "torus",
    "tree",
    "within",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'heterophony' has no attribute {name!r}")
    return getattr(import_module(f"heterophony.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
