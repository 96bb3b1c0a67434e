"""Each setting of docs/how-to/arrays.md runs as it stands, on data of its layout that are made up here."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from heterophony.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "arrays.md"
ACTIVITIES = ("lie", "walk", "climb")
REST = '\n[models]\nparticipants = "mlp"\n\n[local]\nepochs = 5\nbatch = 8\nlr = 0.05\n'


def person(rng, windows, channels, steps=64):
    """Windows (N, steps, channels) and activities of one: activity k swings 2k + 2 times in a window."""
    activity = rng.integers(len(ACTIVITIES), size=windows)
    phase = np.arange(channels) + rng.uniform(0, 0.5, (windows, 1, 1))
    swing = np.sin((2 * activity[:, None, None] + 2) * np.linspace(0, 2 * np.pi, steps)[:, None] + phase)
    return rng.uniform(0.7, 1.5) * swing + rng.normal(scale=0.3, size=swing.shape), activity


def phones(here):
    """One file: bytes (rows, steps, channels), and test users of their own."""
    rng = np.random.default_rng(3)
    people = [person(rng, int(rows), 6) for rows in rng.integers(3, 12, 30)]
    x = np.concatenate([windows for windows, _ in people])
    label = np.concatenate([activities for _, activities in people])
    subject = np.repeat(np.arange(1, 31), [len(activities) for _, activities in people])
    stored = np.clip(np.round((x + 4) * 32), 0, 255).astype(np.uint8)
    old = subject <= 24
    held = {"windows": stored[old], "label": label[old], "subject": subject[old]}
    tested = {"test_windows": stored[~old], "test_label": label[~old], "test_subject": subject[~old]}
    np.savez(here / "phones.npz", **held, **tested)


def watches(here):
    """A folder: one table a user, a line a step."""
    rng = np.random.default_rng(4)
    (here / "watches").mkdir()
    for number in range(8):
        windows, activity = person(rng, 10, 3)
        lines = ["t,ax,ay,az,activity"]
        for step, values in enumerate(windows.reshape(-1, 3)):
            told = ",".join(f"{value:.4f}" for value in values)
            lines.append(f"{step / 50:.2f},{told},{ACTIVITIES[activity[step // 64]]}")
        (here / "watches" / f"user{number:02d}.csv").write_text("\n".join(lines))


def belts(here):
    """Folders train and test: features, labels and subjects as texts, and one file for each raw channel."""
    rng = np.random.default_rng(5)
    for half, users in (("train", range(1, 10)), ("test", range(10, 13))):
        place = here / "belts" / half
        (place / "Inertial Signals").mkdir(parents=True)
        people = [person(rng, 8, 6) for _ in users]
        x = np.concatenate([windows for windows, _ in people])
        np.savetxt(place / f"X_{half}.txt", np.abs(np.fft.rfft(x, axis=1))[:, 1:9].reshape(len(x), -1), fmt="% .7e")
        np.savetxt(place / f"y_{half}.txt", 1 + np.concatenate([activities for _, activities in people]), fmt="%d")
        np.savetxt(place / f"subject_{half}.txt", np.repeat(list(users), 8), fmt="%d")
        for number, name in enumerate(f"{kind}_{axis}" for kind in ("acc", "gyro") for axis in "xyz"):
            np.savetxt(place / "Inertial Signals" / f"{name}_{half}.txt", x[:, :, number], fmt="% .7e")


def clinics(here):
    """Folders train and test: one table a clinic, a line a patient."""
    rng = np.random.default_rng(6)
    for half, rows in (("train", 40), ("test", 20)):
        (here / "clinics" / half).mkdir(parents=True)
        for name in ("north", "south", "sea"):
            age, dose = rng.normal(size=(2, rows))
            told = [f"{a:.3f},{d:.3f},{'yes' if a + d > 0 else 'no'}" for a, d in zip(age, dose, strict=True)]
            (here / "clinics" / half / f"clinic_{name}.csv").write_text("\n".join(["age,dose,ill", *told]))


def moves(here):
    """One file a window, in folders of users and activities."""
    rng = np.random.default_rng(7)
    for user in ("ann", "bo", "cy"):
        for number, (x, activity) in enumerate(zip(*person(rng, 20, 3), strict=True)):
            place = here / "moves" / user / ACTIVITIES[activity]
            place.mkdir(parents=True, exist_ok=True)
            np.save(place / f"{number}.npy", x.T.astype(np.float32))


def waves(here):
    """A torch data set of (x, y, group) rows."""
    text = (
        "import torch\nfrom torch.utils.data import TensorDataset\n\n\n"
        "def waves():\n"
        "    y = torch.arange(90) % 3\n"
        "    time = torch.linspace(0, 6.28, 32)\n"
        "    x = torch.sin((y[:, None, None] + 1) * time + torch.arange(2)[:, None])\n"
        "    return TensorDataset(x, y, torch.arange(90) // 30)\n"
    )
    (here / "my_sets.py").write_text(text)


def moods(here):
    """A folder with two splits that the library `datasets` saved."""
    datasets = pytest.importorskip("datasets")
    rng = np.random.default_rng(8)
    features = datasets.Features(
        {"wave": datasets.Array2D((3, 64), "float32"), "mood": datasets.ClassLabel(names=["calm", "sad", "wild"])}
    )
    halves = {}
    for half, rows in (("train", 60), ("test", 30)):
        x, y = person(rng, rows, 3)
        held = {"wave": x.transpose(0, 2, 1).astype(np.float32), "mood": y}
        halves[half] = datasets.Dataset.from_dict(held, features=features)
    datasets.DatasetDict(halves).save_to_disk(here / "moods")


def clients(here):
    """A folder as PFLlib writes it: one file for each client and half."""
    rng = np.random.default_rng(9)
    for half in ("train", "test"):
        (here / "clients" / half).mkdir(parents=True)
        for number in range(4):
            x, y = person(rng, 30, 3)
            held = {"x": x.transpose(0, 2, 1).astype(np.float32), "y": y}
            np.savez_compressed(here / "clients" / half / f"{number}.npz", data=np.array(held, dtype=object))


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """A folder with the settings that the page shows. Returns their texts by name."""
    if not PAGE.exists():
        pytest.skip("not in a checkout")
    texts = re.findall(r"```toml\n# (\w+)\.toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return dict(texts)


WRITERS = {writer.__name__: writer for writer in (phones, clinics, moves, belts, watches, waves, moods, clients)}
EXPECTED = {  # the shape of a row, and how many participants
    "phones": ([6, 64], 24),
    "clinics": ([2], 3),
    "moves": ([3, 64], 3),
    "belts": ([6, 64], 9),
    "features": ([48], 9),
    "watches": ([3, 64], 6),
    "waves": ([2, 32], 3),
    "moods": ([3, 64], 1),
    "clients": ([3, 64], 4),
}


def test_the_page_shows_as_many_settings_as_are_run_here(shown):
    assert set(shown) == set(WRITERS)


def ran(*words):
    answer = CliRunner().invoke(app, list(words))
    assert answer.exit_code == 0, answer.stderr
    return answer.stdout


@pytest.mark.parametrize("name", EXPECTED)
def test_a_layout_is_run_by_toml_alone(tmp_path, shown, name):
    place = "belts" if name == "features" else name
    text = shown[place]
    if name == "features":
        for half in ("train", "test"):
            text = text.replace(f"Inertial Signals/*_{half}.txt", f"X_{half}.txt")
    WRITERS[place](tmp_path)
    (tmp_path / "mine.toml").write_text(text + REST)
    found = json.loads(ran("run", "fedavg", "--on", "mine.toml", "--rounds", "2", "--json", "--out", "run"))["metrics"]
    recipe = json.loads((tmp_path / "run" / "spec.json").read_text())["recipe"]
    assert (recipe["shape"]["shape"], len(found["participants"])) == EXPECTED[name]
    assert found["acc"] > 0.6  # chance is a third, or a half


def test_what_was_trained_on_a_folder_of_tables_predicts_a_table(tmp_path, shown):
    watches(tmp_path)
    (tmp_path / "watches.toml").write_text(shown["watches"] + REST)
    ran("run", "fedavg", "--on", "watches.toml", "--rounds", "2", "--out", "run")
    ran("export", "run", "--node", "server", "--to", "model.safetensors")
    names = json.loads(ran("predict", "model.safetensors", "watches/user03.csv", "--json"))["names"]
    lines = (tmp_path / "watches" / "user03.csv").read_text().splitlines()[1:]
    truth = [line.rsplit(",", 1)[1] for line in lines[32::64]]
    assert len(names) == (640 - 64) // 32 + 1
    assert np.mean(np.array(names[::2]) == truth) > 0.6


@pytest.mark.slow
def test_what_was_trained_on_folders_predicts_folders_of_that_layout_without_labels(tmp_path, shown):
    for name, writer in (("belts", belts), ("moves", moves)):
        writer(tmp_path)
        (tmp_path / f"{name}.toml").write_text(shown[name] + REST)
        ran("run", "solo", "--on", f"{name}.toml", "--rounds", "1", "--out", name + "-run")
    ran("export", "belts-run", "--node", "subject-1", "--to", "belts.safetensors")
    ran("export", "moves-run", "--node", "ann", "--to", "moves.safetensors")

    def labels(model, given):
        return json.loads(ran("predict", f"{model}.safetensors", given, "--json"))["labels"]

    assert len(labels("belts", "belts")) == 9 * 8
    for path in [
        *(tmp_path / "belts").rglob("[ys]*.txt"),
        *(tmp_path / "belts" / "train" / "Inertial Signals").iterdir(),
    ]:
        path.unlink()
    assert len(labels("belts", "belts")) == 3 * 8
    every = labels("moves", "moves")
    assert len(every) == 3 * 20
    one = next((tmp_path / "moves").rglob("*.npy")).relative_to(tmp_path)
    assert len(labels("moves", str(one))) == 1
    refused = CliRunner().invoke(app, ["predict", "belts.safetensors", str(one)])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "training rows were files train/Inertial Signals/*_train.txt: give their folder" in refused.stderr
