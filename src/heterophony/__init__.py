"""Federated learning between participants that differ: in model, data, task, hardware and place in the network."""

from heterophony.data.table import Data
from heterophony.federation import Federation, Model
from heterophony.message import Kind, Logits, Probabilities, Refused, Rows, Scalar, Weights
from heterophony.method import Method, MethodError
from heterophony.profile import Dropout, Profile
from heterophony.reaction import Count, Each, Every, Round, on
from heterophony.work import Fit, Mark, Note, Predict

__version__ = "0.1.0.dev0"
__all__ = [
    "Count",
    "Data",
    "Dropout",
    "Each",
    "Every",
    "Federation",
    "Fit",
    "Kind",
    "Logits",
    "Mark",
    "Method",
    "MethodError",
    "Model",
    "Note",
    "Predict",
    "Probabilities",
    "Profile",
    "Refused",
    "Round",
    "Rows",
    "Scalar",
    "Weights",
    "on",
]
