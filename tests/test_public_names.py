"""The package's public names, and how long it takes to import it."""

import subprocess
import sys

import heterophony


def test_every_public_name_is_there():
    assert set(heterophony.__all__) == set(heterophony._HOME)
    assert all(getattr(heterophony, name) is not None for name in heterophony.__all__)
    assert set(heterophony.__all__) <= set(dir(heterophony))


def test_importing_the_package_does_not_import_torch():
    """So that `heterophony --help` is quick."""
    heavy = ("torch", "numpy", "pydantic")
    code = f"import sys, heterophony, heterophony.cli; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
