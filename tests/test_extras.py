"""Hints such as `pip install 'heterophony[report]'` name an extra that exists and brings what is missing."""

import re
import tomllib
from pathlib import Path

import pytest

import heterophony
from heterophony.runs.trackers import KINDS

SOURCE = Path(heterophony.__file__).parent
PROJECT = SOURCE.parents[1] / "pyproject.toml"
BRINGS = {
    "data": {"pillow", "scipy"},
    "report": {"plotly", "matplotlib"},
    "parquet": {"pyarrow"},
    "partitioners": {"flwr-datasets"},
    "hf": {"datasets"},
    "pandas": {"pandas"},
    "privacy": {"dp-accounting"},
    "secure": {"cryptography", "pycryptodome"},
    "ray": {"ray"},
    "flower": {"flwr"},
    "metrics": {"prometheus-client"},
    "text": {"transformers"},
    "vision": {"torchvision", "timm"},
    "onnx": {"onnx", "onnxscript"},
    **{name: {{"mlflow": "mlflow-skinny"}.get(module, module)} for name, (_, module) in KINDS.items()},
}


@pytest.fixture
def extras():
    if not PROJECT.exists():
        pytest.skip("not in a checkout")
    found = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    return {name: {re.split(r"[<>=\\[]", each)[0] for each in needs} for name, needs in found.items()}


def test_every_hint_names_an_extra_that_there_is(extras):
    files = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.md"), *SOURCE.rglob("*.service")]
    hinted = {name for path in files for name in re.findall(r"heterophony\[(\w+)\]", path.read_text())}
    assert {"data", "report", "ray", "flower", "text"} <= hinted <= extras.keys()


def test_every_extra_brings_what_its_hint_says_is_missing(extras):
    assert {name: needs & extras[name] for name, needs in BRINGS.items()} == BRINGS


def test_no_hint_names_a_bare_package():
    lines = [line for path in SOURCE.rglob("*.py") for line in path.read_text().splitlines() if "pip install" in line]
    assert lines
    assert all("heterophony[" in line for line in lines), lines
