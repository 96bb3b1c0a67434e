"""docs/tutorials/add-a-method.md: its file is a method as it stands, and its commands work."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import heterophony
from heterophony import Counts, Kind, PerClass, cli
from heterophony.catalogue import registry
from heterophony.engines import local
from heterophony.kernel.fields import Shape
from heterophony.settings import assemble
from toys.bytes import averaged
from toys.federations import B16, Row, weights_star

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "add-a-method.md"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    if not PAGE.exists():
        pytest.skip("not in a checkout")
    text = PAGE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield re.findall(r"^heterophony (.*)$", text, re.MULTILINE)
    sys.modules.pop("mine", None)


def test_the_commands_work(mine):
    for command in mine:
        words = shlex.split(command.replace("--seeds 3", "--seeds 1 --rounds 1"))
        found = CliRunner().invoke(cli.app, words)
        assert found.exit_code == 0, (command, found.stderr)
    assert len(mine) == 4
    assert Path("runs/mine/result.json").exists()


def test_what_the_page_sends_to_a_server_fits_it():
    if not PAGE.exists():
        pytest.skip("not in a checkout")
    text = PAGE.read_text()
    assert 'PerClass("train")' not in text
    assert 'Kind("table", to="parent", means=PerClass(rows="counts"), counts=Counts)' in text
    kind = Kind("table", to="parent", means=PerClass(rows="counts"), counts=Counts)
    body = kind(means=torch.zeros(3, 4), counts=torch.ones(3)).body
    kind.check(body, Shape())  # a server without any data


def test_every_field_of_the_page_can_be_imported_from_the_package():
    if not PAGE.exists():
        pytest.skip("not in a checkout")
    _, _, after = PAGE.read_text().partition("| field | what |")
    table, _, _ = after.partition("\n\n")
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    fields = {name for cell in cells for name in re.findall(r"`([A-Z]\w+)", cell)}
    assert {"Weights", "Counts", "PerClass", "LowRank"} <= fields
    assert fields <= set(heterophony.__all__)


def test_it_is_fedavg(mine):
    changes = {"data.rows": 60, "local.lr": 0.1, "local.batch": 32, "local.momentum": 0.0, "local.weight_decay": 0.0}
    ours, theirs = (assemble(name, "rotated-mnist", changes=changes) for name in ("mine:Mine", "fedavg"))
    assert ours.run(2).digest == theirs.run(2).digest


def test_its_row_of_the_conformance_table_says_what_it_sends(mine):
    (line,) = re.findall(r'^Row\("mine", .*$', PAGE.read_text(), re.MULTILINE)
    known = {"Row": Row, "weights_star": weights_star, "B16": B16, "averaged": averaged}
    row = eval(line.rstrip(","), {**known, "Mine": registry.lookup("mine:Mine").make})
    assert local(row.build()).run(2).ledger.bytes() == row.bytes(row.build(), 2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:Mine", "cannot import module 'nowhere', which must be in this folder or on PYTHONPATH"),
        ("mine:Yours", "'Yours' in module 'mine' does not exist"),
        ("mine:GLOBAL", "cannot be made with its defaults"),
        ("mine", "one of your own is module:callable"),
    ],
)
def test_what_is_no_method_is_one_line(mine, name, said):
    with pytest.raises(registry.OptionError, match=re.escape(said)):
        registry.lookup(name)
