"""Rooms stand in one order (docs/rooms.txt): a module imports from its own room and those above it in that file."""

import ast
from pathlib import Path

import pytest

import heterophony
from heterophony import parts

ROOT = Path(heterophony.__file__).parent
ROOMS = Path(__file__).parent.parent / "docs" / "rooms.txt"
DOOR = ("federation.federation", {"runs"})  # `Federation.run` and `resume`: the one way upward

rows = [line.split(":") for line in ROOMS.read_text().splitlines() if ":" in line]
ORDER = [name.strip() for name, _ in rows]
HOME = {package: name.strip() for name, packages in rows for package in packages.split()}


def room(module):
    """Return the room of a module, which is named without the package."""
    return HOME.get(module.split(".")[0])


def imports(path):
    """Return all modules of ours that a file imports: at the top, inside functions and for types alike."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "heterophony":
            module = node.module.partition(".")[2]
            for alias in node.names:
                inner = ROOT / node.module.partition(".")[2].replace(".", "/") / alias.name
                if not module and alias.name in heterophony._HOME:  # a public name counts as its home
                    found.add(heterophony._HOME[alias.name])
                elif inner.is_dir() or inner.with_suffix(".py").is_file():
                    found.add(f"{module}.{alias.name}".lstrip("."))
                else:
                    found.add(module)
        elif isinstance(node, ast.Import):
            ours = [alias.name for alias in node.names if alias.name.split(".")[0] == "heterophony"]
            found |= {name.partition(".")[2] for name in ours}
    return found - {""}


def taken(path):
    """Return what a file imports of ours, as it is written: the module, and the name."""
    tree = ast.walk(ast.parse(path.read_text()))
    froms = [node for node in tree if isinstance(node, ast.ImportFrom) and node.module]
    return {
        (node.module, alias.name) for node in froms for alias in node.names if node.module.startswith("heterophony")
    }


FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("file", FILES)
def test_a_module_has_a_room_and_imports_go_down_only(file):
    module = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    if module == "__init__":
        return  # the package's own names come from everywhere
    assert room(module) in ORDER, f"{file} is in no room of docs/rooms.txt"
    place, (door, through) = ORDER.index(room(module)), DOOR
    up = {other for other in imports(ROOT / file) if ORDER.index(room(other)) > place}
    up -= {other for other in up if module == door and room(other) in through}
    assert not up, f"{file} imports {', '.join(sorted(up))} from rooms above"


def test_every_file_of_tests_can_be_run_alone():
    """A test that imports another test file is found only where that one's folder was collected before it."""
    here = Path(__file__).parent
    borrowed = [
        f"{path.relative_to(here)}: {line}"
        for path in sorted(here.rglob("*.py"))
        for line in path.read_text().splitlines()
        if line.startswith(("from test_", "import test_"))
    ]
    assert not borrowed


METHODS = [file for file in FILES if file.startswith("methods/") and not file.endswith("__init__.py")]


@pytest.mark.parametrize("file", METHODS)
def test_a_method_of_ours_uses_what_anybody_can_use(file):
    """It imports public names of `heterophony` and `heterophony.parts`, and other methods' files."""
    for module, name in taken(ROOT / file):
        if module == "heterophony":
            assert name in heterophony.__all__, f"{file}: {name} is no public name"
        elif module == "heterophony.parts":
            assert name in parts.__all__ or (ROOT / "parts" / f"{name}.py").is_file(), f"{file}: {name} is no part"
        else:
            assert module.startswith("heterophony.methods."), f"{file} imports from {module}"


def test_no_two_files_of_tests_share_a_name():
    """Pytest imports them by name alone: it would collect none of the suite, though each file passes by itself."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
