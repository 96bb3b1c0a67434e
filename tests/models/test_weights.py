"""Pretrained weights from local files, and what is said where they do not fit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import safetensors.torch
import torch

from heterophony.models import create
from heterophony.models.families import families, members
from heterophony.settings import Setting, SettingError
from heterophony.settings.assemble import assemble

SHAPE = {"in_channels": 1, "size": 28}


def trained(classes: int = 10, name: str = "lenet5") -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return {key: t.contiguous() for key, t in create(name, **SHAPE, classes=classes).state_dict().items()}


@pytest.fixture
def saved(tmp_path):
    """Writes tensors in one of the forms; returns the path as text."""

    def put(tensors, suffix=".safetensors"):
        path = tmp_path / f"w{suffix}"
        if suffix == ".safetensors":
            safetensors.torch.save_file(tensors, path)
        else:
            torch.save(tensors, path)
        return str(path)

    return put


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth", ".bin"])
def test_weights_of_a_file_are_taken(saved, suffix):
    path = saved(trained(), suffix)
    state = create("lenet5", **SHAPE, classes=10, weights=path).state_dict()
    assert all(torch.equal(state[key], tensor) for key, tensor in trained().items())


def test_a_checkpoint_that_holds_a_state_dict_is_one(saved):
    path = saved({"epoch": 3, "state_dict": trained()}, ".pt")
    state = create("lenet5", **SHAPE, classes=10, weights=path).state_dict()
    assert torch.equal(state["body.0.weight"], trained()["body.0.weight"])


def test_a_head_for_other_classes_stays_new(saved):
    path = saved(trained(classes=20))
    torch.manual_seed(9)
    state = create("lenet5", **SHAPE, classes=10, weights=path).state_dict()
    torch.manual_seed(9)
    new = create("lenet5", **SHAPE, classes=10).state_dict()
    for key in state:
        assert torch.equal(state[key], new[key] if key.startswith("head.") else trained(20)[key])


class Evil:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    ("change", "suffix", "text"),
    [
        (lambda t: {k: v for k, v in t.items() if k != "body.3.bias"}, ".pt", "has no tensor 'body.3.bias', which"),
        (
            lambda t: {**t, "body.0.weight": torch.zeros(6, 3, 5, 5)},
            ".pt",
            "tensor 'body.0.weight' is 6 x 3 x 5 x 5, in",
        ),
        (lambda t: {**t, "more.weight": torch.zeros(1)}, ".pt", "has a tensor 'more.weight', which network 'lenet5'"),
        (lambda t: [1, 2], ".pt", "is no state dict"),
        (lambda t: {"a": 1}, ".pt", "is no state dict"),
    ],
)
def test_weights_that_do_not_fit_are_refused_with_the_first_tensor(saved, change, suffix, text):
    path = saved(change(trained()), suffix)
    with pytest.raises(ValueError) as error:  # noqa: PT011 (its text is looked at)
        create("lenet5", **SHAPE, classes=10, weights=path)
    assert str(error.value).startswith(f"weights {path}: ")
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_no_weights_are_refused(tmp_path, capsys):
    evil, torn, other = (tmp_path / name for name in ("evil.pt", "torn.safetensors", "w.h5"))
    evil.write_bytes(pickle.dumps(Evil()))
    torch.save(Evil(), tmp_path / "evil2.pt")
    torn.write_bytes(b"nothing")
    other.write_bytes(b"")
    for path, text in (
        (evil, "holds Python objects, which are not read"),
        (tmp_path / "evil2.pt", "holds Python objects, which are not read"),
        (torn, "cannot be read"),
        (other, "a file .safetensors, .pt, .pth, .bin is needed"),
        (tmp_path / "absent.pt", "there is no such file"),
    ):
        with pytest.raises(ValueError, match=r"^weights ") as error:
            create("lenet5", **SHAPE, classes=10, weights=str(path))
        assert text in str(error.value)
        assert "\n" not in str(error.value)
    assert "run" not in capsys.readouterr().out


# -- settings --------------------------------------------------------------------------------------------------
@pytest.fixture
def setting(tmp_path, monkeypatch):
    """A setting of series in this folder, with options of `[models]`."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(60, 2, 8)).astype(np.float32)
    np.savez("rows.npz", x=x, y=(x[:, 0].sum(1) > 0).astype(np.int64))
    torch.manual_seed(3)
    tensors = create("cnn1d", shape=(2, 8), classes=5).state_dict()
    safetensors.torch.save_file(tensors, tmp_path / "w.safetensors")

    def made(**models):
        data = {"source": "rows.npz", "clients": 2, "test": 0.2, "arrays": {}}
        local = {"batch": 16, "lr": 0.1}
        return Setting.of({"name": "t", "data": data, "models": {"participants": "cnn1d", **models}, "local": local})

    return made


@pytest.mark.parametrize("weights", ["w.safetensors", {"cnn1d": "w.safetensors"}])
@pytest.mark.parametrize("frozen", [["body"], "body", {"cnn1d": "body"}, {"cnn1d": ["body.0", "body"]}])
def test_a_frozen_body_stays_as_it_was_pretrained_and_only_the_head_travels(setting, weights, frozen):
    federation = assemble("fedavg", setting(weights=weights, frozen=frozen))
    result = federation.run(1)
    file = safetensors.torch.load_file("w.safetensors")
    for node in ("server", *federation.homes):
        state = result.state(node)["models"]["model"]
        assert all(torch.equal(state[key], file[key]) for key in state if key.startswith("body."))
    assert {row["payload"] for row in result.ledger.rows if row["kind"] == "global"} == {4 * (128 * 2 + 2)}


def test_without_freezing_pretrained_weights_are_where_all_begin(setting):
    federation = assemble("fedavg", setting(weights="w.safetensors"))
    file = safetensors.torch.load_file("w.safetensors")
    for node in ("server", *federation.homes):
        state = federation.node(node).slots["model"].tensors()
        assert all(torch.equal(state[key], file[key]) for key in state if key.startswith("body."))


@pytest.mark.parametrize(
    ("models", "text"),
    [
        ({"frozen": ["body"]}, "models.frozen: body.0.bias of cnn1d is drawn anew on each node"),
        ({"frozen": ["head"], "weights": "w.safetensors"}, "models.frozen: head.bias of cnn1d is drawn anew"),
        ({"frozen": ["bdy"], "weights": "w.safetensors"}, "there is no part 'bdy' to freeze, perhaps you meant 'body'"),
        ({"frozen": {"cnn": ["body"]}}, "frozen names the network 'cnn', perhaps you meant 'cnn1d'"),
        ({"weights": {"mlp": "w.safetensors"}}, "weights names the network 'mlp'"),
        ({"weights": "absent.pt"}, "absent.pt: there is no such file"),
        ({"participants": "gru", "weights": "w.safetensors"}, "has no tensor 'body.0.input_weight', which"),
        ({"frozen": ["body"], "weights": "w.safetensors", "share": "body"}, "all that would travel of the model is"),
        ({"participants": "family:htfe-8"}, "unknown family 'family:htfe-8', perhaps you meant 'htfe-img-8'"),
    ],
)
def test_what_cannot_start_so_is_refused_in_one_line(setting, models, text):
    with pytest.raises((SettingError, ValueError)) as error:
        assemble("fedavg", setting(**models))
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_weights_may_lie_beside_the_file_that_names_them(setting, tmp_path, monkeypatch):
    (tmp_path / "s.toml").write_text(
        '[data]\nsource = "rows.npz"\nclients = 2\ntest = 0.2\narrays = {}\n'
        '[models]\nparticipants = "cnn1d"\nweights = "w.safetensors"\nfrozen = ["body"]\n'
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    federation = assemble("fedavg", str(tmp_path / "s.toml"))
    assert federation.recipe["setting"]["models"]["weights"] == str(tmp_path / "w.safetensors")


# -- families --------------------------------------------------------------------------------------------------
def test_every_family_is_made_of_networks_that_there_are():
    for name, summary in families():
        listed = members(name)
        assert summary.endswith(", ".join(listed))
        for network in listed:
            told = {"shape": (3, 16)} if name == "family:series-3" else {"in_channels": 3, "size": 32}
            with torch.device("meta"):
                create(network, **told, classes=10)


def test_a_family_is_dealt_round(setting):
    federation = assemble("solo", setting(participants="family:series-3"))
    assert federation.recipe["networks"] == {"c0": {"model": "cnn1d"}, "c1": {"model": "lstm"}}
    both = setting(participants=["mlp", "family:series-3"])
    assert both.models.names == ("mlp", "cnn1d", "lstm", "gru")
