"""Known data sets, read from plain `.npz` files or from the official ones."""

from heterophony.data.sources.catalogue import Listing, known, load, lookup, read, require
from heterophony.data.sources.entries import ENTRIES
from heterophony.data.sources.entry import Entry, File, Member, Reader
from heterophony.data.sources.source import Source, Split

__all__ = [
    "ENTRIES",
    "Entry",
    "File",
    "Listing",
    "Member",
    "Reader",
    "Source",
    "Split",
    "known",
    "load",
    "lookup",
    "read",
    "require",
]
