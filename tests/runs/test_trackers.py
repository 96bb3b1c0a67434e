"""Trackers: what they are told is what the table says, resumed or not; who is not there is said in one line."""

import sys

import pytest

from heterophony.runs import trackers
from heterophony.runs.folder import Folder
from toys.compared import call, refused, said


def numbers(folder):
    """tag -> step -> value, as TensorBoard itself reads the event files."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    book = EventAccumulator(str(folder / "tensorboard"))
    book.Reload()
    return {tag: {event.step: event.value for event in book.Scalars(tag)} for tag in book.Tags()["scalars"]}


def expected(folder, product, quantity, split="test"):
    rows = folder.table.select(product=product, quantity=quantity, split=split)
    rounds = sorted({row["round"] for row in rows})
    here = {r: [row["sum"] / row["n"] for row in rows if row["round"] == r] for r in rounds}
    return {r + 1: pytest.approx(sum(values) / len(values), rel=1e-6) for r, values in here.items()}


def test_tensorboard_reads_what_the_table_says(small, tmp_path):
    said(call("run", "fml", "--on", small, "--rounds", 3, "--out", tmp_path / "run", "--json"))
    found, folder = numbers(tmp_path / "run"), Folder(tmp_path / "run")
    assert found["personalised/accuracy"] == expected(folder, "personalised", "accuracy")
    assert found["global/loss"] == expected(folder, "global", "loss")
    assert found["personalised/accuracy (validation)"] == expected(folder, "personalised", "accuracy", "validation")
    assert found["training/meme.kl (train)"] == expected(folder, "training", "meme.kl", "train")
    assert list(found["personalised/accuracy"]) == [1, 2, 3]
    figures = folder.summary.metrics.as_dict()
    for word, key in (("all domains", "acc"), ("own domain", "wdp"), ("other domains", "cdp")):
        assert found[f"personalised/{word}"][3] == pytest.approx(figures[key], rel=1e-6)
    assert found["personalised/worst participant"][3] == pytest.approx(figures["worst"], rel=1e-6)
    assert found["run/bytes sent"][3] == folder.summary.sent
    assert found["run/virtual seconds"][3] == pytest.approx(folder.summary.clock, rel=1e-6)


def test_losses_on_different_data_are_told_apart(small, tmp_path):
    said(
        call(
            "run",
            "fedh2l",
            "--on",
            small,
            "--rounds",
            2,
            "--set",
            "local.data=own",
            "--out",
            tmp_path / "run",
            "--json",
        )
    )
    table = Folder(tmp_path / "run").table
    sets = {row["set"] for row in table if row["quantity"] == "model.ce"}
    assert sets == {"own", "public"}
    found = numbers(tmp_path / "run")
    for name in sets:
        values = [
            row["sum"] / row["n"]
            for row in table
            if (row["quantity"], row["set"], row["round"]) == ("model.ce", name, 1)
        ]
        assert found[f"training/model.ce ({name})"][2] == pytest.approx(sum(values) / len(values), rel=1e-6)


def test_a_resumed_run_tells_the_same(small, tmp_path):
    said(call("run", "fedavg", "--on", small, "--rounds", 2, "--out", tmp_path / "run", "--json"))
    said(call("resume", tmp_path / "run", "--rounds", 4, "--json"))
    assert numbers(tmp_path / "run")["global/accuracy"] == expected(Folder(tmp_path / "run"), "global", "accuracy")


def test_nobody_is_told_where_nobody_is_to_be(small, tmp_path, monkeypatch):
    said(call("run", "solo", "--on", small, "--out", tmp_path / "run", "--track", "none", "--json"))
    assert not (tmp_path / "run" / "tensorboard").exists()
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    assert trackers.chosen("auto") == []


def test_whoever_goes_on_with_a_run_tells_whom_it_began_with(small, tmp_path):
    pytest.importorskip("tensorboard")
    begin = ("run", "fedavg", "--on", small, "--rounds", 1, "--json", "--out")
    said(call(*begin, tmp_path / "none", "--track", "none"))
    said(call("resume", tmp_path / "none", "--rounds", 2, "--json"))
    said(call("run", "fedavg", "--on", small, "--rounds", 3, "--json", "--out", tmp_path / "none"))
    assert not (tmp_path / "none" / "tensorboard").exists()
    said(call("resume", tmp_path / "none", "--rounds", 4, "--track", "tensorboard", "--json"))
    assert 4 in numbers(tmp_path / "none")["global/accuracy"]
    said(call(*begin, tmp_path / "some"))
    before = set((tmp_path / "some" / "tensorboard").iterdir())
    said(call("resume", tmp_path / "some", "--rounds", 2, "--track", "none", "--json"))
    assert set((tmp_path / "some" / "tensorboard").iterdir()) == before
    said(call("resume", tmp_path / "some", "--rounds", 3, "--json"))
    assert set((tmp_path / "some" / "tensorboard").iterdir()) > before


def test_a_tracker_that_is_unknown_is_refused_by_resume_too(small, tmp_path):
    said(call("run", "solo", "--on", small, "--rounds", 1, "--out", tmp_path / "run", "--track", "none", "--json"))
    refused(call("resume", tmp_path / "run", "--track", "paper"), "there is no tracker 'paper'")


def test_a_full_disk_names_the_event_file(small, tmp_path):
    pytest.importorskip("tensorboard")
    tracker = trackers.TensorBoard(tmp_path, "title", {})
    tracker.file.flush()
    tracker.file.close()
    tracker.path = tmp_path / "tensorboard" / "events"
    with open("/dev/full", "wb", buffering=0) as tracker.file:
        tracker.write = trackers_writer(tracker.file)
        with pytest.raises(OSError, match="events") as caught:
            tracker.log({"a": 1.0}, 1)
    assert caught.value.filename == str(tracker.path)


def trackers_writer(file):
    from tensorboard.summary.writer.record_writer import RecordWriter

    return RecordWriter(file)


def test_a_tracker_that_is_not_there_is_one_line(small, tmp_path, monkeypatch):
    run = ("run", "solo", "--on", small)
    refused(call(*run, "--track", "paper", "--out", tmp_path / "run"), "there is no tracker 'paper'")
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    refused(call(*run, "--track", "wandb", "--out", tmp_path / "run"), "pip install 'heterophony[wandb]'")
    monkeypatch.undo()
    refused(call(*run, "--track", "tensorboard"), "needs a run folder")


def test_mlflow_is_told_the_same(small, tmp_path):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    said(call("run", "fedavg", "--on", small, "--out", tmp_path / "run", "--track", "mlflow", "--json"))
    client = MlflowClient((tmp_path / "run" / "mlflow").absolute().as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("heterophony").experiment_id])
    found = {m.step: m.value for m in client.get_metric_history(run.info.run_id, "global/accuracy")}
    assert found == expected(Folder(tmp_path / "run"), "global", "accuracy")
    assert run.info.status == "FINISHED"


def test_several_runs_are_told_to_one_store_of_mlflow(small, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").absolute().as_uri())
    for name in ("one", "other"):
        said(call("run", "fedavg", "--on", small, "--out", tmp_path / name, "--track", "mlflow", "--json"))
        assert not (tmp_path / name / "mlflow").exists()
    client = MlflowClient()
    runs = client.search_runs([client.get_experiment_by_name("heterophony").experiment_id])
    assert len(runs) == 2


def test_weights_and_biases_is_told_offline(small, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    said(call("run", "fedavg", "--on", small, "--out", tmp_path / "run", "--track", "wandb", "--json"))
    (book,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    assert book.stat().st_size > 500
    assert "wandb" in sys.modules
