"""`[secure]` in a setting: the same as `secure(method)` in Python, and one line where it cannot be."""

import re
import sys

import pytest

from heterophony import Secure
from heterophony.engines import local
from heterophony.settings import assemble
from heterophony.settings.setting import Setting, SettingError

TEXT = """
rounds = 1
[data]
test = 0.1
test_rows = 20
side = 16
domains.a = { source = "digits-embedded", rows = 32 }
domains.b = { source = "digits-embedded", rows = 32, degrees = 40 }
domains.c = { source = "digits-embedded", rows = 32, degrees = 80 }
[models]
participants = "mlp"
[local]
epochs = 1
lr = 0.1
"""


def setting(more=""):
    return Setting.read(TEXT + more, "three", "three.toml")


def test_an_empty_table_turns_it_on_and_nothing_else_does():
    assert assemble("fedavg", setting("[secure]")).method.secure == Secure()
    assert assemble("fedavg", setting(), changes={"secure.least": 3}).method.secure == Secure()
    assert not assemble("fedavg", setting()).method.masked


def test_a_run_sends_no_single_message():
    result = local(assemble("fedavg", setting("[secure]"))).run(1)
    assert "update" not in result.ledger.bytes()
    assert result.ledger.bytes()["masked"] > 0


@pytest.mark.parametrize(
    ("method", "more", "words"),
    [
        ("cfl", "", "three.toml: secure: CFL reads single messages"),
        ("fedbuff", "", "three.toml: secure: FedBuff reads single messages"),
        ("fedavg", "least = 4", "secure.least is 4, but server can hear from 3 only"),
        ("fedavg", "least = 2", "secure.least is at least 3, got 2"),
        ("fedavg", "bits = 32", "lower secure.range and secure.most, or take 64"),
        ("fedavg", 'at = ["client"]', "secure.at: 'client' merges nothing"),
        ("fedavg", "lest = 3", "lest"),
    ],
)
def test_what_cannot_be_secure_is_told_in_one_line(method, more, words):
    with pytest.raises(ValueError, match=re.escape(words)) as told:
        assemble(method, setting("[secure]\n" + more))
    assert "\n" not in str(told.value)


def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "Crypto.Protocol.SecretSharing", None)
    for name in [name for name in sys.modules if name.startswith("heterophony.masking")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SettingError, match=r"pip install 'heterophony\[secure\]'"):
        assemble("fedavg", setting("[secure]"))
