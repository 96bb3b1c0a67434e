"""A hook of the build: what the package's page shows beside the code.

The README's links are relative, so that they work in a checkout and on whatever site holds it. A package has no such
place beside it. If HETEROPHONY_HOME names the address of the repository, links become absolute and the package has
URLs; `tools/release.py --home ADDRESS` sets it. Without an address the README is taken as it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def absolute(text: str, home: str, version: str) -> str:
    """Return a page whose relative links and pictures lead to the files of this version."""

    def replace(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found.group(0)
        return f"{picture}[{words}]({home}/{'raw' if picture else 'blob'}/v{version}/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", replace, text)


class Hook(MetadataHookInterface):
    """Gives the package its README and its URLs."""

    def update(self, metadata: dict[str, Any]) -> None:
        text, home = (Path(self.root) / "README.md").read_text(), os.environ.get("HETEROPHONY_HOME", "").rstrip("/")
        if home:
            source = (Path(self.root) / "src" / "heterophony" / "__init__.py").read_text()
            (version,) = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
            text = absolute(text, home, version)
            metadata["urls"] = {
                "Homepage": home,
                "Documentation": f"{home}/blob/v{version}/docs/README.md",
                "Changelog": f"{home}/blob/v{version}/CHANGELOG.md",
                "Issues": f"{home}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
