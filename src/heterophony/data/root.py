"""Where the data are: an explicit folder, else `HETEROPHONY_DATA`, else a cache folder of the user."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = "HETEROPHONY_DATA"

Folder = str | os.PathLike[str]


def folder(root: Folder | None = None) -> Path:
    """Return the folder in which data sets are looked for. It need not exist."""
    named = root if root is not None else os.environ.get(ENVIRONMENT)
    return Path(named).expanduser() if named else _cache() / "heterophony" / "data"


def find(name: str, root: Folder | None = None) -> Path | None:
    """Return `NAME.npz`, or else the file or folder `NAME`, among the data; None: there is none."""
    candidates = (folder(root) / f"{name}.npz", folder(root) / name)
    return next((path for path in candidates if path.exists()), None)


def _cache() -> Path:
    home = Path.home()
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    named = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification asks to ignore relative paths.
    return Path(named) if os.path.isabs(named) else home / ".cache"
