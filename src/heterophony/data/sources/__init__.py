"""Known data sets, read from plain `.npz` files or from the official ones."""

from heterophony.data.sources.catalogue import Listing, known, load, lookup, read, require
from heterophony.data.sources.known_set import File, KnownSet, PackedFile, Reader
from heterophony.data.sources.known_sets import KNOWN_SETS
from heterophony.data.sources.layout import ArrayLayout, TimeWindow
from heterophony.data.sources.source import Source, Split

__all__ = [
    "KNOWN_SETS",
    "ArrayLayout",
    "KnownSet",
    "File",
    "Listing",
    "PackedFile",
    "Reader",
    "Source",
    "Split",
    "TimeWindow",
    "known",
    "load",
    "lookup",
    "read",
    "require",
]
