"""Build the documentation as a site: the pages of this checkout, searchable, one folder a version.

python tools/make_site.py [--to site]     # needs the extra `site`

The pages stay where they are and link to each other by their paths, so that they also work in a checkout. This gathers
them, and the files that they link to, in a temporary folder of the same layout. The list of pages follows from
`docs/README.md`. `site/versions.json` names all versions that were built there; a reader can switch between them.
Each warning ends the build.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

import heterophony

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]*)(#[^)\s]*)?\)")
IMAGE = re.compile(r'\b((?:src|srcset)=")(?![a-z]+:|/)([^"]+)"')  # in a page's own HTML
LONG = 40  # characters of a formula in a line that a phone may be too narrow for
CODE = {".py": "python", ".toml": "toml", ".cff": "yaml", ".csv": "text", ".txt": "text"}  # shown as pages
FIRST = {"Home": "README.md"}
LAST = {"Results": "results/README.md", "Changes": "CHANGELOG.md", "Contribute": "CONTRIBUTING.md"}


def gathered(to: Path) -> None:
    """Copy all pages to a folder, with the files that they link to."""
    found = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb", ".svg", ".png")]
    found = [path for path in found if path.parent.name != "words"]  # they are parts of pages
    waiting = [*found, *(ROOT / "results").glob("*.md"), *(ROOT / name for name in ("README.md", "CHANGELOG.md"))]
    done: set[Path] = set()
    while waiting:
        path = waiting.pop().resolve()
        if path in done:
            continue
        done.add(path)
        place = to / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text, linked = for_the_site(path)
            place.write_text(text)
            waiting += linked
        elif path.suffix in CODE:
            place.with_name(f"{place.name}.md").write_text(shown(path))
        else:
            shutil.copy(path, place)


def shown(file: Path) -> str:
    """Return a page that shows a file of code, and is left out of the search."""
    head = "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"
    return f"{head}# `{file.relative_to(ROOT)}`\n\n````{CODE[file.suffix]}\n{file.read_text()}````\n"


def for_the_site(page: Path) -> tuple[str, list[Path]]:
    """Return a page's text, in which links to folders lead to their README, and the files that it links to."""
    linked: list[Path] = []

    def replace(found: re.Match[str]) -> str:
        before, target, anchor = found.groups()
        if not target or re.match(r"[a-z]+:", target):
            return found.group(0)
        path = (page.parent / target).resolve()
        if path.is_dir():
            path, target = path / "README.md", f"{target.rstrip('/')}/README.md"
        if not path.is_file():
            return found.group(0)  # code that looks like a link; a true one is a warning of the build
        linked.append(path)
        target += ".md" if path.suffix in CODE else ""
        return f"{before}{target}{anchor or ''})"

    # A page is a folder of the site, and only links in Markdown are put right by mkdocs.
    up = "" if page.name == "README.md" else "../"
    parts = re.split(r"(^```.*?^```)", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for place, part in enumerate(parts):
        if not part.startswith("```"):
            parts[place] = IMAGE.sub(rf'\1{up}\2"', with_formulas(LINK.sub(replace, part)))
    return "".join(parts), linked


def with_formulas(text: str) -> str:
    """Return a text whose formulas are MathML, which browsers show without a program."""

    def replace(found: re.Match[str]) -> str:
        block, inline = found.group("block"), found.group("inline")
        if block:  # it may be wider than a phone
            return f'<div style="overflow-x: auto">{convert(block.strip(), display="block")}</div>'
        if not inline:
            return found.group(0)
        if len(inline) > LONG:
            wide = "display: inline-block; max-width: 100%; overflow-x: auto; vertical-align: middle"
            return f'<span style="{wide}">{convert(inline)}</span>'
        return convert(inline)

    return re.sub(r"`[^`\n]*`|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\s][^$\n]*)\$", replace, text, flags=re.DOTALL)


def listed() -> list[dict[str, Any]]:
    """Return the list of pages: the sections of `docs/README.md`, and below the methods a page for each."""
    nav: list[dict[str, Any]] = [{title: page} for title, page in FIRST.items()]
    for section in re.split(r"^## ", (ROOT / "docs" / "README.md").read_text(), flags=re.MULTILINE)[1:]:
        pages: list[Any] = []
        for words, target in re.findall(r"^\| \[([^\]]+)\]\(([^)\s]+)\)", section, re.MULTILINE):
            place = (ROOT / "docs" / target).resolve().relative_to(ROOT).as_posix()
            if place == "docs/methods/README.md":
                each = sorted(path for path in (ROOT / "docs" / "methods").glob("*.md") if path.name != "README.md")
                pages.append({words: [place, *({path.stem: f"docs/methods/{path.name}"} for path in each)]})
            elif not place.startswith("results/"):
                pages.append({words: place})
        nav.append({section.splitlines()[0].strip(): pages})
    return [*nav, *({title: page} for title, page in LAST.items())]


def build(to: Path) -> Path:
    """Build the pages of this version into its folder below `to`, and return that."""
    place = to.resolve() / heterophony.__version__
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        gathered(work / "pages")
        config = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "pages", "site_dir": str(place), "nav": listed()}
        (work / "mkdocs.yml").write_text(json.dumps(config))  # JSON is YAML
        subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"], cwd=work, check=True)
    return place


def missing(place: Path) -> list[str]:
    """Return the images that a page of the site shows and that are not there. mkdocs sees those in Markdown alone."""
    found = []
    for page in sorted(place.rglob("*.html")):
        for name in {target.split(" ")[0] for _, target in IMAGE.findall(page.read_text())}:
            if not (page.parent / name.split("?")[0]).exists() and "#" not in name:
                found.append(f"{page.relative_to(place)} shows {name}, which does not exist")
    return found


def remember(to: Path) -> None:
    """Write which versions there are, the newest first, and a first page that leads to it."""
    known = sorted((path.parent.name for path in to.glob("*/index.html")), key=numbers, reverse=True)
    versions = [{"version": name, "title": name, "aliases": ["latest"] if name == known[0] else []} for name in known]
    (to / "versions.json").write_text(json.dumps(versions) + "\n")
    refresh = f'<meta http-equiv="refresh" content="0; url={known[0]}/">'
    (to / "index.html").write_text(f"<!doctype html><title>Heterophony</title>{refresh}\n")


def numbers(version: str) -> list[int]:
    """Return the numbers of a version, by which versions are in order."""
    return [int(part) for part in re.findall(r"\d+", version)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("--to", type=Path, default=ROOT / "site", help="where the versions lie")
    asked = parser.parse_args()
    try:
        place = build(asked.to)
    except subprocess.CalledProcessError:
        print("site: the pages could not be built without a warning; the lines above say which", file=sys.stderr)
        return 1
    if lost := missing(place):
        print(*(f"site: {line}" for line in lost), sep="\n", file=sys.stderr)
        return 1
    remember(asked.to)
    print(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
