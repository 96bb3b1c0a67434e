"""The page as a PDF, printed by a browser that is installed here. The page itself knows how it looks on paper."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from heterophony.base.disk import Disk
from heterophony.runs.folder import inside

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 300  # seconds


class PrintError(ValueError):
    """A PDF that cannot be made; one line that says why."""


def browser() -> str:
    """Return the browser that prints; raise where there is none."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise PrintError("a PDF needs Chromium: apt-get install chromium; or print the page from any browser")
    return found


def write(page: Path) -> Path:
    """Print a page into a file beside it."""
    to = page.with_suffix(".pdf")
    with TemporaryDirectory(prefix="heterophony-") as place:
        made = Path(place) / "page.pdf"
        command = [browser(), "--headless=new", "--disable-gpu", f"--user-data-dir={place}/profile"]
        command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]  # it asks nobody
        command += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # root has no other choice
        command += ["--no-pdf-header-footer", f"--print-to-pdf={made}", page.resolve().as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise PrintError(f"{page}: the browser did not print it within {PATIENCE} s") from None
        if not made.exists():
            said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
            raise PrintError(f"{page}: the browser did not print it: {said:.200}")
        Disk(private=inside(to)).replace(to, made.read_bytes())
    return to
