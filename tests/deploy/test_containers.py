"""The files in containers/: every command, option, path and extra that they name exists, and the copied files suffice.

No container engine is needed. Where `hadolint` is installed, it reads the Dockerfile too.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from heterophony import __version__
from heterophony.cli import app
from heterophony.deploy.folder import COORDINATOR

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "containers"
pytestmark = pytest.mark.skipif(not PLACE.exists(), reason="not in a checkout")


def instructions():
    """The Dockerfile's instructions, lines that go on joined."""
    text = (PLACE / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


def copied():
    """What is copied from the repository."""
    words = [rest.split() for name, rest in instructions() if name == "COPY" and not rest.startswith("--from")]
    return [source for *sources, _ in words for source in sources]


def test_what_the_image_copies_exists_and_is_sent_to_who_builds_it():
    sent = (PLACE / "Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in sent
    for source in copied():
        assert (ROOT / source).exists(), source
        assert f"!{source}" in sent, source


def test_the_image_installs_extras_that_exist_and_starts_a_command_that_exists():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (PLACE / "Dockerfile").read_text()
    (extras,) = re.findall(r"\$\{wheel\}\[(.*?)\]", text)
    assert set(extras.split(",")) <= told["optional-dependencies"].keys()
    (python,) = set(re.findall(r"^FROM python:(\d+\.\d+)-", text, re.MULTILINE))
    assert f"Programming Language :: Python :: {python}" in told["classifiers"]
    start = dict(instructions())["ENTRYPOINT"]
    assert start == '["heterophony", "deploy"]'
    assert "heterophony" in told["scripts"]


@pytest.mark.slow
def test_the_copied_files_are_enough_to_build_the_wheel(tmp_path):
    pytest.importorskip("hatchling")
    for source in copied():
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, tmp_path / source)
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "made")]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    assert len(list((tmp_path / "made").glob("heterophony-*.whl"))) == 1


@pytest.mark.parametrize(("name", "command"), [("coordinator", "serve"), ("site", "node")])
def test_a_compose_file_starts_what_there_is(name, command):
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load((PLACE / f"{name}.yaml").read_text())
    service = told["services"][name]
    first, folder, *options = service["command"]
    assert first == command
    assert folder.startswith("${FOLDER")
    known = get_command(app).commands["deploy"].commands[command]
    names = {option for each in known.params for option in each.opts}
    assert {option for option in options if option.startswith("--")} <= names
    assert service["image"] == f"heterophony:{__version__}"
    assert f"-t {service['image']} ." in (PLACE / "README.md").read_text()
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "${FOLDER}:${FOLDER}" in service["volumes"]
    words = re.findall(r"^FOLDER=.* -f (\S+)", (PLACE / "README.md").read_text(), re.MULTILINE)
    assert f"containers/{name}.yaml" in words


def test_the_proxy_stands_before_the_coordinator_and_has_what_its_configuration_names(tmp_path):
    yaml = pytest.importorskip("yaml")
    proxy = yaml.safe_load((PLACE / "coordinator.yaml").read_text())["services"]["proxy"]
    assert proxy["network_mode"] == "service:coordinator"  # so it finds a SuperLink that listens on 127.0.0.1
    mounted = {volume.split(":")[0].removeprefix("${FOLDER}/") for volume in proxy["volumes"]}
    assert all(volume.endswith(":ro") for volume in proxy["volumes"])
    written = (ROOT / "src/heterophony/deploy/templates/nginx.conf").read_text()
    assert set(re.findall(r"\$folder/(\S+);", written)) <= mounted
    assert "nginx.conf" in mounted & COORDINATOR.keys()
    assert "ca.key" not in mounted


def test_a_linter_finds_nothing_in_the_dockerfile():
    linter = shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    found = subprocess.run([linter, str(PLACE / "Dockerfile")], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout
