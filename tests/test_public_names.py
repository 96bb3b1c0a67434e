"""The package's public names, and how long it takes to import it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import heterophony
from heterophony import methods, parts


def ran(code):
    """Return what a new Python says."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_every_public_name_is_there():
    assert set(heterophony.__all__) == set(heterophony._HOME)
    assert all(getattr(heterophony, name) is not None for name in heterophony.__all__)
    assert set(heterophony.__all__) <= set(dir(heterophony))


@pytest.mark.parametrize("package", [parts, methods])
def test_every_part_and_every_method_is_there(package):
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        _ = package.nosuch


def test_what_type_checkers_are_told_of_parts_is_what_there_is():
    tree = ast.parse(Path(parts.__file__).read_text())
    told = {
        (node.module, alias.name)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        for alias in node.names
    }
    assert told == {(f"heterophony.parts.{file}", name) for name, file in parts._HOME.items()}


def test_a_method_is_called_by_its_name_also_when_its_file_has_that_name():
    both = "import heterophony.methods.fedprox; from heterophony.methods import fedprox"
    assert ran(f"{both}; print(fedprox(mu=0.5).transform)") == "Proximal(mu=0.5)"


def test_a_method_is_found_without_reading_the_files_of_others():
    looked = "from heterophony.catalogue.registry import lookup; lookup('fedavg').options()"
    read = ran(f"import sys; {looked}; print(*sys.modules)").split()
    assert {name for name in read if name.startswith("heterophony.methods.")} == {"heterophony.methods.fedavg"}


def test_importing_the_package_does_not_import_torch():
    """So that `heterophony --help` is quick."""
    heavy = ("torch", "numpy", "pydantic")
    packages = "heterophony, heterophony.cli, heterophony.parts, heterophony.methods"
    assert ran(f"import sys, {packages}; print([m for m in {heavy} if m in sys.modules])") == "[]"
