"""Which folder is searched, and in which order."""

from pathlib import Path

import pytest

from heterophony.data.root import ENVIRONMENT, find, folder


def test_an_explicit_folder_goes_before_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "from-environment"))
    assert folder(tmp_path / "given") == tmp_path / "given"
    assert folder() == tmp_path / "from-environment"


@pytest.mark.skipif("os.name == 'nt'")
def test_the_cache_folder_comes_last(tmp_path, monkeypatch):
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "heterophony" / "data"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert folder() == Path.home() / ".cache" / "heterophony" / "data"


def test_an_empty_variable_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, "")
    assert folder().name == "data"


def test_find_prefers_the_plain_file(tmp_path):
    assert find("mnist", tmp_path) is None
    (tmp_path / "mnist").mkdir()
    assert find("mnist", tmp_path) == tmp_path / "mnist"
    (tmp_path / "mnist.npz").write_bytes(b"")
    assert find("mnist", tmp_path) == tmp_path / "mnist.npz"
