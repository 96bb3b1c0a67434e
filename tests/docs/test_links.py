"""What the documents point to is there: files, headings, tests, scripts and sources."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md") if path.parent.name != "words")
RESULTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "results").rglob("*.md"))
HISTORY = {"CHANGELOG.md"}  # it may name what is gone

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="not in a checkout")


def prose(page):
    """Return a page's text without its blocks of code; of a notebook, its words."""
    text = (ROOT / page).read_text()
    if page.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def links(page):
    """Return the targets of a page's links and pictures that are no web addresses."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))  # what is code is no link
    found = re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", text)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(path):
    """Return the names that GitHub gives to a page's headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", [*TOP, *PAGES, *RESULTS, "docs/tour.ipynb"])
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(page):
    for target in links(page):
        file, _, anchor = target.partition("#")
        path = ((ROOT / page).parent / file).resolve() if file else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert path.is_relative_to(ROOT.resolve()), f"{page}: {target} leaves the repository"
        if anchor:
            assert anchor in anchors(path), f"{page}: {target}: no such heading"


@pytest.mark.parametrize("page", [*TOP, *PAGES])
def test_every_file_that_is_named_by_its_path_exists(page):
    if page in HISTORY:
        pytest.skip("tells of the past")
    named = re.findall(
        r"\b(?:docs|src|tests|tools|benchmarks|results)/[\w./-]*\w\.(?:py|md|ipynb|toml|txt|svg)\b",
        (ROOT / page).read_text(),
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", [*TOP, *PAGES])
def test_every_test_that_is_named_exists(page):
    if page in HISTORY:
        pytest.skip("tells of the past")
    known = {name for path in (ROOT / "tests").rglob("*.py") for name in defined(path)}
    named = set(re.findall(r"`(?:[\w/]+\.py: )?(test_\w+_\w+)(?!\.py)\b(\.\.\.)?", prose(page)))
    missing = {
        name for name, dots in named if not (any(one.startswith(name) for one in known) if dots else name in known)
    }
    assert missing == set()


def defined(path):
    """Return the names of a file's tests, and of the file."""
    return [path.stem, *re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)]


def test_the_index_leads_to_every_page():
    found = {(DOCS / target.partition("#")[0]).resolve() for target in links("docs/README.md")}
    pages = {path for path in DOCS.rglob("*.md") if path.parent.name not in ("methods", "words")} - {DOCS / "README.md"}
    assert {path.resolve() for path in [*pages, DOCS / "methods" / "README.md", DOCS / "tour.ipynb"]} <= found


def test_the_architecture_names_every_room_in_its_order_and_only_files_that_exist():
    page, drawing = (DOCS / "explanation" / name for name in ("architecture.md", "rooms.svg"))
    rooms = [line.partition(":")[0] for line in (DOCS / "rooms.txt").read_text().splitlines() if ":" in line]
    section = page.read_text().partition("## The house")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == rooms
    assert re.findall(r'class="t"[^>]*>(\w+)<', drawing.read_text())[::-1] == rooms
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text().replace("`tests/", "`../../tests/"))
    assert [name for name in named if not (ROOT / "src" / "heterophony" / name).exists()] == []


def test_every_picture_is_described_in_words():
    pictures = [found for page in (*TOP, *PAGES, *RESULTS) for found in re.findall(r"!\[([^\]]*)\]\(", prose(page))]
    assert pictures
    assert all(len(words) > 20 for words in pictures)


def test_the_page_of_containers_leads_somewhere():
    page = ROOT / "containers" / "README.md"
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
