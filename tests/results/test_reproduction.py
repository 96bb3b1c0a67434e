"""`heterophony reproduce`: shipped files are sound, figures are those of the runs, verdicts can be checked by hand."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from heterophony import registry
from heterophony.experiments import Experiment, ExperimentError, reproduction, shipped
from heterophony.experiments.experiment import Column
from heterophony.experiments.figures import figure
from heterophony.experiments.verdict import DIFFERS, FEW, ORDER, WITHIN, claimed, verdict
from heterophony.record.folder import Folder
from heterophony.record.interval import Interval, interval
from heterophony.record.machine import machine
from heterophony.settings import Setting
from heterophony.settings.assemble import PARTS
from results.conftest import call, refused, said

NAMES = (
    *("fedh2l-table2", "fedh2l-ablation", "fedh2l-interval", "fedh2l-pacs", "fml-table1", "fml-personal", "fml-models"),
    *("fml-tasks", "fml-catfish", "fml-schedules", "fedmd-global-table2", "fedmd-global-table3", "fccl-digits"),
    *("fccl-homogeneous", "fccl-public", "fccl-ablation", "bhfl-levels", "bhfl-async"),
)
FILE = """
title = "A toy"
paper = "Nobody, Table 0"
setting = "{setting}"
seeds = 2
[columns]
ACC = {{ figure = "acc" }}
own = {{ figure = "wdp", participants = ["a"] }}
[set]
mu = 0.5
evaluate = 1
[[arms]]
label = "alone"
method = "solo"
[[arms]]
label = "FedProx"
method = "fedprox"
[[groups]]
label = "slow"
set = {{ "local.lr" = 0.01 }}
paper = {{ alone = [50.0, 60.0], FedProx = [70.0], Oracle = [99.0] }}
[[groups]]
label = "fast"
only = "full"
[missing]
Oracle = "not implemented"
[[claims]]
more = "FedProx"
less = "alone"
by = "Table 0"
[[claims]]
of = "groups"
more = "fast"
less = "slow"
[quick]
seeds = 1
scale = 0.5
"""


@pytest.fixture(scope="module")
def toy(small, tmp_path_factory):
    path = tmp_path_factory.mktemp("experiment") / "toy.toml"
    path.write_text(FILE.format(setting=small))
    return path


@pytest.fixture(scope="module")
def finished(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduced")
    return folder, said(call("reproduce", toy, "--out", folder, "--json"))


def test_every_table_that_was_promised_is_there():
    assert sorted(shipped()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quick", [False, True])
def test_every_run_of_a_shipped_file_has_options_that_exist(name, quick):
    """Without the data: settings are checked by their schema, options by their methods."""
    experiment = Experiment.load(name)
    wanted = reproduction.orders(experiment, reproduction.Version(quick=quick), Path("out"), {}, None)
    folders = [order.folder for runs in wanted.values() for order in runs]
    assert len(set(folders)) == len(folders)
    for order, *_ in wanted.values():
        theirs = {key: value for key, value in order.changes.items() if key.split(".")[0] in PARTS}
        changed = order.setting.changed(theirs)
        changed.data.partition.build()
        entry = registry.lookup(order.method)
        entry.build({key: value for key, value in order.changes.items() if key not in theirs})
        assert order.goal >= 1


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_there_for_all_is_used_by_someone(name):
    experiment = Experiment.load(name)
    for quick, keys in ((False, experiment.set), (True, experiment.quick.set)):
        wanted = reproduction.orders(experiment, reproduction.Version(quick=quick), Path("out"), {}, None)
        used = {key for order, *_ in wanted.values() for key in order.changes}
        assert set(keys) <= used


def test_a_reproduction_is_its_runs(finished):
    folder, said = finished
    rows = {(row["group"], row["arm"], row["column"]): row for row in said["rows"]}
    runs = [Folder(folder / "slow" / "FedProx" / f"seed-{seed}") for seed in (0, 1)]
    ours = interval([100 * run.summary["metrics"]["acc"] for run in runs])
    row = rows["slow", "FedProx", "ACC"]
    assert (row["ours"], row["half"]) == (pytest.approx(ours.mean), pytest.approx(ours.half))
    assert row["difference"] == pytest.approx(ours.mean - 70.0)
    assert row["seeds"] == [0, 1]
    assert runs[0].recipe["changes"] == {"mu": 0.5, "local.lr": 0.01}
    alone = Folder(folder / "fast" / "alone" / "seed-0")
    assert alone.recipe["changes"] == {}  # it has no mu
    assert rows["slow", "Oracle", "ACC"]["note"] == "not implemented"
    assert (rows["slow", "Oracle", "ACC"]["ours"], rows["slow", "Oracle", "ACC"]["paper"]) == (None, 99.0)
    assert [claim["group"] for claim in said["claims"]] == ["slow", "fast", ""]


def test_it_is_written_as_markdown_csv_and_json(finished):
    folder, said = finished
    text = (folder / "toy.md").read_text()
    assert text.startswith("# A toy\n\nNobody, Table 0. **Full version.**")
    assert "| Oracle | ACC | not here: not implemented | 99.00 |" in text
    with (folder / "toy.csv").open() as sheet:
        assert len(list(csv.DictReader(sheet))) == len(said["rows"])
    assert json.loads((folder / "toy.json").read_text())["rows"] == said["rows"]


def test_it_says_where_its_runs_were_made(toy, finished, tmp_path):
    """Also where they were made on several machines, and only the table here."""
    folder, found = finished
    assert found["machine"] == machine("cpu")
    shutil.copytree(folder, tmp_path / "out")
    result = tmp_path / "out/slow/alone/seed-0/result.json"
    result.write_text(result.read_text().replace(f'"machine": "{machine("cpu")}"', '"machine": "abacus, 10 beads"'))
    again = said(call("reproduce", toy, "--table", "--out", tmp_path / "out", "--json"))
    assert again["machine"] == f"abacus, 10 beads; {machine('cpu')}"


def test_the_command_makes_the_same_table_anywhere():
    experiment, version = Experiment.load("fml-models"), reproduction.Version(True, 2, 0.5, ("FML",))
    compute = {"device": "cuda", "precision": "bf16"}
    assert reproduction.command(experiment, version, compute) == (
        "heterophony reproduce fml-models --quick --seeds 2 --scale 0.5 --only FML --device cuda --precision bf16"
    )
    assert reproduction.command(experiment, reproduction.Version(), {"device": "cpu"}).endswith("fml-models")


def test_a_quick_version_is_smaller_and_says_so(toy, tmp_path):
    found = said(call("reproduce", toy, "--quick", "--out", tmp_path / "quick", "--json"))
    assert found["version"].startswith("quick version")
    assert {row["group"] for row in found["rows"]} == {"slow"}
    assert Folder(tmp_path / "quick/slow/alone/seed-0").summary["rounds"] == 1


def test_a_part_of_it_and_the_table_of_what_is_there(toy, tmp_path):
    out = ("--out", tmp_path / "out", "--seeds", 1)
    refused(call("reproduce", toy, "--table", *out), "no finished run")
    refused(call("reproduce", toy, "--table", "--device", "cuda", *out), "no finished run")  # no GPU is needed to look
    refused(call("reproduce", toy, "--only", "nobody", *out), "'alone'", "'slow'")
    said(call("reproduce", toy, "--only", "alone", "--only", "slow", *out, "--json"))
    found = said(call("reproduce", toy, "--table", *out, "--json"))
    assert {(row["group"], row["arm"]) for row in found["rows"]} == {("slow", "alone"), ("slow", "Oracle")}
    assert found["version"] == "full version, 1 of 4 runs"


def test_parts_that_are_run_one_by_one_add_up_to_one_table(toy, tmp_path):
    out = ("--out", tmp_path / "out", "--seeds", 1)
    for arm in ("alone", "FedProx"):
        said(call("reproduce", toy, "--only", arm, "--only", "slow", *out, "--json"))
    whole = json.loads((tmp_path / "out/toy.json").read_text())
    assert {row["arm"] for row in whole["rows"]} == {"alone", "FedProx", "Oracle"}
    assert (whole["version"], len(whole["claims"])) == ("full version, 2 of 4 runs", 1)
    assert "--only" not in whole["command"]
    # an arm that was run in another way is no reason to lose this one
    found = said(call("reproduce", toy, "--only", "FedProx", "--only", "fast", "--scale", 0.5, *out, "--json"))
    assert {(row["group"], row["arm"]) for row in found["rows"]} == {("fast", "FedProx"), ("fast", "Oracle")}


def test_the_list_says_which_data_are_missing(tmp_path):
    listed = said(call("reproduce", "--data", tmp_path, "--json"))
    missing = {row["name"]: row["missing"] for row in listed}
    assert missing["fedh2l-table2"] == []
    assert missing["fccl-digits"] == ["mnist", "mnistm", "svhn", "usps", "cifar100"]
    assert missing["fml-table1"] == ["mnist", "cifar10", "cifar100"]
    assert {"cifar100", "fashion-mnist-mini"} <= set(missing["fccl-public"])  # each arm has its own


def test_a_wrong_file_is_one_line(toy, tmp_path):
    text = toy.read_text()
    for change, words in (
        (text.replace('more = "FedProx"', 'more = "FedPox"'), "'FedPox'"),
        (text.replace("alone = [50.0, 60.0]", "alone = [1.0, 2.0, 3.0]"), "more than columns"),
        (text.replace('label = "FedProx"', 'label = "alone"'), "two arms"),
        (text + "[other]", "other"),
    ):
        (tmp_path / "toy.toml").write_text(change)
        refused(call("reproduce", tmp_path / "toy.toml"), "toy.toml", words)
    refused(call("reproduce", "fedh2l-table3"), "perhaps you meant")
    path = tmp_path / "odd.toml"
    path.write_bytes(b"title = '\xff'")
    with pytest.raises(ExperimentError, match=r"odd\.toml: not a text file in UTF-8"):
        Experiment.load(str(path))
    path.write_text('name = "x"')
    with pytest.raises(ExperimentError, match=r"odd\.toml: name: an experiment is called as its file is"):
        Experiment.load(str(path))
    with pytest.raises(ExperimentError, match="no such file"):
        Experiment.load(str(tmp_path / "none.toml"))


# -- figures and verdicts ---------------------------------------------------------------------------------------
def test_columns_of_a_run(finished):
    folder = Folder(finished[0] / "fast" / "alone" / "seed-0")
    metrics = folder.summary["metrics"]
    assert figure(Column(figure="cdp"), folder) == metrics["cdp"]
    assert figure(Column(figure="wdp", participants=("b",)), folder) == metrics["participants"]["b"]["wdp"]
    assert figure(Column(product="local", minus="local"), folder) == 0
    assert figure(Column(product="global"), folder) is None
    assert figure(Column(level="root"), folder) is None
    assert figure(Column(at=folder.summary["clock"]), folder) == metrics["acc"]
    assert figure(Column(at=1e9), folder) is None  # it was over long before
    assert figure(Column(at=0.0), folder) is None
    assert figure(Column(deviation=2), folder) >= 0
    assert figure(Column(deviation=3), folder) is None  # of two evaluations


def _of(mean: float, reach: float, n: int = 3) -> Interval:
    return Interval(mean, reach / 2, reach, n)


def test_verdicts_by_hand():
    ours = {"a": _of(80, 3), "b": _of(70, 1), "c": _of(75, 1)}
    papers = {"a": 82.0, "b": 60.0, "c": 59.5}
    assert verdict("a", ours, papers) == WITHIN  # |80 - 82| <= 3
    assert verdict("b", ours, papers) == ORDER  # ten off, below a as printed; c is printed within a point of it
    assert verdict("c", ours, papers) == ORDER
    assert verdict("c", ours, {**papers, "c": 58.0}) == DIFFERS  # printed two below b, ours five above
    assert verdict("b", {"b": _of(70, 1)}, papers) == DIFFERS  # nobody to be in order with
    assert verdict("b", {"b": _of(70, 1, n=2)}, papers) == FEW
    once = {name: _of(found.mean, 0, n=1) for name, found in ours.items()}
    assert verdict("b", once, papers) == f"order as printed, {FEW}"
    assert verdict("c", once, {**papers, "c": 58.0}) == f"order not as printed, {FEW}"
    assert verdict("d", ours, papers) is None


def test_claims_by_hand():
    assert claimed(Interval(2.0, 1.0, 3.0, 3)) == "holds"
    assert claimed(Interval(-2.0, 1.0, 3.0, 3)) == "does not hold"
    assert claimed(Interval(0.5, 1.0, 3.0, 3)) == WITHIN
    assert claimed(Interval(0.5, None, None, 1)) == f"as claimed, {FEW}"
    for mean, half, n, wanted in ((0.5, 1.0, 3, "holds"), (-9.0, 1.0, 3, "does not hold"), (1.5, 1.0, 3, WITHIN)):
        assert claimed(Interval(mean, half, 3.0, n), margin=2.0) == wanted
    assert claimed(Interval(-2.5, None, None, 1), margin=2.0) == f"not as claimed, {FEW}"
    assert claimed(None) is None


def test_settings_of_experiments_are_shipped():
    for name in NAMES:
        experiment = Experiment.load(name)
        for setting in {experiment.setting, *(g.setting for g in experiment.groups if g.setting)}:
            assert Setting.load(setting).name == setting
