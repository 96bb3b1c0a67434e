"""Making networks by name, and what is said when that cannot be done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from heterophony.models import create, names
from heterophony.models.wide_resnet import WideResNet

torch.set_num_threads(1)

SHAPE = {"in_channels": 3, "size": 32, "classes": 10}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_networks.py").write_text(
        "from torch import nn\n"
        "number = 3\n"
        "def linear(*, in_channels, size, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * size * size, classes))\n"
        "def nothing(*, in_channels, size, classes):\n"
        "    return {'in_channels': in_channels}\n"
    )
    (tmp_path / "own_broken.py").write_text("raise RuntimeError('first line\\nsecond line')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)
    return "own_networks"


def refusal(name: str) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the callers look at the text)
        create(name, **SHAPE)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_names_are_short_lower_case_and_each_has_a_summary_in_one_line() -> None:
    listed = names()
    assert len({name for name, _ in listed}) == len(listed)
    for name, summary in listed:
        assert name == name.lower()
        assert summary
        assert "\n" not in summary


def test_any_wide_resnet_has_a_name() -> None:
    with torch.device("meta"):
        named = create("wrn-16-4", **SHAPE)
        made = WideResNet(**SHAPE, depth=16, width=4)
    shapes = [{key: value.shape for key, value in net.state_dict().items()} for net in (named, made)]
    assert shapes[0] == shapes[1]


def test_wide_resnets_begin_as_torch_draws_them_or_as_their_authors_do() -> None:
    starts = {}
    for name in ("wrn-16-4", "wrn-16-4-fan-out"):
        torch.manual_seed(0)
        starts[name] = [part for part in create(name, **SHAPE).modules() if isinstance(part, nn.Conv2d)]
    for conv in starts["wrn-16-4"]:  # uniform within 1 / sqrt(fan-in), biases too
        bound = (conv.in_channels * conv.kernel_size[0] ** 2) ** -0.5
        assert 0.9 * bound < conv.weight.abs().max() <= bound
        assert 0 < conv.bias.abs().max() <= bound
    for conv in starts["wrn-16-4-fan-out"]:
        expected = (2 / (conv.out_channels * conv.kernel_size[0] ** 2)) ** 0.5
        assert conv.weight.std().item() == pytest.approx(expected, rel=0.1)
        assert not conv.bias.any()


@pytest.mark.parametrize("name", ["wrn-11-1", "wrn-4-1", "wrn-16-0"])
def test_impossible_wide_resnets(name: str) -> None:
    text = refusal(name)
    assert name.upper() in text
    assert "6n + 4" in text


def test_impossible_resnet() -> None:
    from heterophony.models.resnet import ResNet

    with pytest.raises(ValueError, match="depths 4, 6, 8, 10, 12, 18, 34, 50, 101, 152, got 20"):
        ResNet(**SHAPE, depth=20)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("resnet-18", "resnet18"),
        ("LeNet5", "lenet5"),
        ("efficientnet", "efficientnet-b0"),
        ("wrn-16", "wrn-16-1"),
    ],
)
def test_unknown_name_names_the_nearest_and_the_list(name: str, nearest: str) -> None:
    text = refusal(name)
    assert repr(name) in text
    assert repr(nearest) in text
    assert "`heterophony models`" in text


def test_even_an_empty_name_is_answered() -> None:
    assert "unknown network ''" in refusal("")


def test_own_network(own: str) -> None:
    network = create(f"{own}:linear", **SHAPE)
    assert isinstance(network, nn.Sequential)
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\n\nnet = 1 / 0\n", "ZeroDivisionError: division by zero (own_raises.py, line 3, in <module>)"),
        ("def net(:\n", "SyntaxError: invalid syntax (own_raises.py, line 1)"),
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package' (own_raises.py, line 1,"),
    ],
    ids=["raises", "cannot be read", "lacks another"],
)
def test_a_module_that_raises_is_not_called_missing(tmp_path, monkeypatch, text, said):
    (tmp_path / "own_raises.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    told = refusal("own_raises:net")
    assert f"module 'own_raises' was found, but importing it raised {said}" in told
    assert "PYTHONPATH" not in told


def test_own_network_refusals(own: str) -> None:
    assert "cannot import module 'no_such_module', which must be in this folder or on PYTHONPATH" in refusal(
        "no_such_module:net"
    )
    assert "importing it raised RuntimeError: first line second line (own_broken.py, line" in refusal("own_broken:net")
    assert "cannot import module ''" in refusal(":net")
    assert "'absent' in module 'own_networks' does not exist" in refusal(f"{own}:absent")
    assert "'number' in module 'own_networks' is not callable" in refusal(f"{own}:number")
    assert "gave a dict, not a torch.nn.Module" in refusal(f"{own}:nothing")


def test_importing_the_package_imports_no_network() -> None:
    code = (
        "import sys, heterophony.models as m; m.names(); "
        "print([n for n in sys.modules if n.startswith('heterophony.models.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['heterophony.models.registry']"
