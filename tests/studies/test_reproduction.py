"""`heterophony reproduce`: shipped files are sound, figures are those of the runs, verdicts can be checked by hand."""

import csv
import json
import math
import shutil
from pathlib import Path

import pytest

from heterophony import Compute
from heterophony.base.machine import machine
from heterophony.base.seal import sealed
from heterophony.catalogue import registry
from heterophony.runs.folder import Folder
from heterophony.settings import Setting
from heterophony.settings.assemble import PARTS
from heterophony.studies.experiments import Experiment, ExperimentError, claims, facts, planning, shipped, written
from heterophony.studies.experiments.experiment import Column, Quick
from heterophony.studies.experiments.measured import Measured, measured_column
from heterophony.studies.experiments.rows import FoundFigures, table
from heterophony.studies.experiments.verdict import DIFFERS, FEW, ORDER, WITHIN, claimed, probability, verdict
from heterophony.tables.interval import Interval, interval
from heterophony.tables.metrics import curve
from toys.altering import altered
from toys.compared import call, refused, said

NAMES = (
    *("fedh2l-table2", "fedh2l-ablation", "fedh2l-interval", "fedh2l-pacs", "fml-table1", "fml-personal", "fml-models"),
    *("fml-tasks", "fml-catfish", "fml-schedules", "fedmd-global-table2", "fedmd-global-table3", "fccl-digits"),
    *("fccl-homogeneous", "fccl-public", "fccl-ablation", "bhfl-levels", "bhfl-options", "bhfl-async", "flamby-heart"),
    *("bhfl-languages", "fedh2l-domains", "fedh2l-office", "fedh2l-curves", "fedmd-global-options", "fml-curves"),
    *("fccl-office", "fccl-curves", "niid-bench", "nvflare-cifar10", "pfllib-cifar100", "htfllib-images"),
    "heterofl-levels",
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
    wanted = planning.planned_runs(experiment, planning.Version(quick=quick), Path("out"), {}, None)
    folders = [planned.folder for runs in wanted.values() for planned in runs]
    assert len(set(folders)) == len(folders)
    for planned, *_ in wanted.values():
        theirs = {key: value for key, value in planned.changes.items() if key.split(".")[0] in PARTS}
        changed = planned.setting.changed(theirs)
        changed.data.partition.build()
        entry = registry.lookup(planned.method)
        entry.build({key: value for key, value in planned.changes.items() if key not in theirs})
        assert planned.goal >= 1


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_there_for_all_is_used_by_someone(name):
    experiment = Experiment.load(name)
    for quick, keys in ((False, experiment.set), (True, experiment.quick.set)):
        wanted = planning.planned_runs(experiment, planning.Version(quick=quick), Path("out"), {}, None)
        used = {key for planned, *_ in wanted.values() for key in planned.changes}
        assert set(keys) <= used


@pytest.mark.parametrize("name", NAMES)
def test_an_arm_without_public_labels_trains_on_none(name):
    """ "own" is private rows and labelled public ones."""
    for arm in Experiment.load(name).arms:
        if arm.set.get("data.public.labelled") is False:
            assert arm.set["local.data"] == "train", arm.label


def test_a_reproduction_is_its_runs(finished):
    folder, said = finished
    rows = {(row["group"], row["arm"], row["column"]): row for row in said["rows"]}
    runs = [Folder(folder / "slow" / "FedProx" / f"seed-{seed}") for seed in (0, 1)]
    ours = interval([100 * run.summary.metrics.acc for run in runs])
    row = rows["slow", "FedProx", "ACC"]
    assert (row["ours"], row["half"]) == (pytest.approx(ours.mean), pytest.approx(ours.half))
    assert row["difference"] == pytest.approx(ours.mean - 70.0)
    assert row["seeds"] == [0, 1]
    assert list(row["by_seed"].values()) == [pytest.approx(100 * run.summary.metrics.acc) for run in runs]
    claim = next(claim for claim in said["claims"] if claim["group"] == "slow")
    other = rows["slow", "alone", "ACC"]["by_seed"]
    assert claim["by_seed"] == {seed: pytest.approx(row["by_seed"][seed] - other[seed]) for seed in ("0", "1")}
    how = next(run for run in said["runs"] if (run["group"], run["arm"]) == ("slow", "FedProx"))
    assert (how["rounds"], how["precision"], how["options"]["local"]["lr"]) == (2, "fp32", 0.01)
    assert how["options"] == runs[0].spec["settings"]
    assert how["setting"] == runs[0].recipe["setting"]
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
        lines = list(csv.DictReader(sheet))
    assert len(lines) == len(said["rows"])
    assert (lines[0]["seeds"], lines[0]["seed list"]) == ("2", "0 1")
    assert json.loads((folder / "toy.json").read_text())["rows"] == said["rows"]


def test_it_says_where_its_runs_were_made(toy, finished, tmp_path):
    """Also where they were made on several machines, and only the table here."""
    folder, found = finished
    assert found["machine"] == machine("cpu")
    shutil.copytree(folder, tmp_path / "out")
    altered(tmp_path / "out/slow/alone/seed-0", "result.json", lambda found: {**found, "machine": "abacus, 10 beads"})
    again = said(call("reproduce", toy, "--table", "--out", tmp_path / "out", "--json"))
    assert again["machine"] == f"abacus, 10 beads; {machine('cpu')}"


def test_the_command_makes_the_same_table_anywhere():
    experiment, version = Experiment.load("fml-models"), planning.Version(True, 2, 0.5, ("FML",))
    compute = Compute(device="cuda", precision="bf16")
    assert facts.command(experiment, version, compute) == (
        "heterophony reproduce fml-models --quick --seeds 2 --scale 0.5 --only FML --device cuda --precision bf16"
    )
    assert facts.command(experiment, planning.Version(), Compute()).endswith("fml-models")


def test_the_command_has_the_flags_of_the_runs(toy, finished, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "out")
    for spec in folder.glob("*/*/seed-*/spec.json"):
        altered(spec.parent, "spec.json", lambda made: {**made, "device": "cuda", "precision": "bf16"})
    words = ("reproduce", toy, "--table", "--out", folder)
    refused(call(*words), "precision = 'bf16', not 'fp32': give --precision bf16")
    found = said(call(*words, "--precision", "bf16", "--json"))
    assert found["command"] == "heterophony reproduce toy --device cuda --precision bf16"


def test_nan_stands_for_a_column_in_which_nothing_is_printed(toy, finished, tmp_path):
    text = toy.read_text().replace("alone = [50.0, 60.0]", "alone = [nan, 60.0]")
    (toy.parent / "nan").mkdir()
    (toy.parent / "nan" / "toy.toml").write_text(text)
    folder = shutil.copytree(finished[0], tmp_path / "out")
    found = said(call("reproduce", toy.parent / "nan" / "toy.toml", "--table", "--out", folder, "--json"))
    rows = {row["column"]: row for row in found["rows"] if (row["group"], row["arm"]) == ("slow", "alone")}
    assert [rows[name]["paper"] for name in ("ACC", "own")] == [None, 60.0]
    assert rows["ACC"]["verdict"] is None


def test_columns_that_nobody_has_are_left_out_and_claims_are_counted(toy, tmp_path):
    """B-HFL has no published figures, only expectations."""
    text = toy.read_text()
    paper = next(line for line in text.splitlines() if line.startswith("paper = {"))
    (tmp_path / "toy.toml").write_text(text.replace(paper, ""))
    answer = call("reproduce", tmp_path / "toy.toml", "--quick", "--out", tmp_path / "out")
    assert answer.exit_code == 0, answer.stderr
    text = (tmp_path / "out" / "toy.md").read_text()
    assert "| arm | figure | ours | seeds |\n" in text
    assert "Claims: 1 " in text
    assert "Claims: 1 " in answer.stdout
    assert "ours - paper" not in answer.stdout


def test_a_quick_version_is_smaller_and_says_so(toy, tmp_path):
    found = said(call("reproduce", toy, "--quick", "--out", tmp_path / "quick", "--json"))
    assert found["version"].startswith("quick version")
    assert {row["group"] for row in found["rows"]} == {"slow"}
    assert Folder(tmp_path / "quick/slow/alone/seed-0").summary.rounds == 1


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
    runs = {row["name"]: (row["runs"], row["quick"]) for row in listed}
    assert runs["fedh2l-interval"] == (15, 3)
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
        (text.replace("mu = 0.5", "mue = 0.5"), "set: no arm has an option 'mue', perhaps you meant 'mu'"),
        (text.replace('"local.lr"', '"local.lrr"'), "groups 'slow': set: no arm has an option 'local.lrr', perhaps"),
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
    metrics = folder.summary.metrics

    def of(**column):
        return measured_column(Column(**column), folder).value

    assert of(figure="cdp") == metrics.cdp
    assert of(figure="wdp", participants=("b",)) == metrics.participants["b"]["wdp"]
    assert of(product="local", minus="local") == 0
    assert of(product="global") is None
    assert of(level="root") is None
    assert of(at=folder.summary.clock) == metrics.acc
    assert of(at=0.0) is None
    assert of(deviation=2) >= 0
    assert of(deviation=3) is None  # of two evaluations
    assert of(after=1.0) == of(score="accuracy") == metrics.acc
    assert of(round="last") == metrics.acc
    assert of(round="validation") == measured_column(Column(figure="acc"), folder, "best").value
    assert of(round="test") == max(at["acc"] for at in curve(folder.table, folder.homes, "local"))
    with pytest.raises(ValueError, match="best of test"):
        Column(round="test", participants=("a",))
    assert of(after=0.5) == next(at["acc"] for at in curve(folder.table, folder.homes, "local"))
    assert of(after=0.4) is None  # not even a whole round
    assert of(score="f1") == pytest.approx(metrics.get("f1"))
    losses = {r["node"]: r["sum"] / r["n"] for r in folder.table if r["quantity"] == "model.ce"}
    assert of(term="model.ce") == pytest.approx(sum(losses.values()) / len(losses))
    assert of(note="cosine", unit="number") is None
    assert of(term="model.kl") is of(correlation="public", figure="on") is None  # what a run has not is no figure


def test_correlations_of_a_run_are_means_over_participants(finished, tmp_path):
    shutil.copytree(finished[0] / "fast" / "alone" / "seed-0", tmp_path / "run")
    cells = {"a": {"public": [[1.0, 0.2], [0.4, 0.8]]}, "b": {"public": [[0.5, 0.0], [0.0, 0.7]]}}
    (tmp_path / "run" / "correlation.json").write_bytes(sealed({"round": 0, "participants": cells}))
    folder = Folder(tmp_path / "run")
    assert measured_column(Column(correlation="public", figure="on"), folder).value == pytest.approx((0.9 + 0.6) / 2)
    assert measured_column(Column(correlation="public", figure="off"), folder).value == pytest.approx((0.3 + 0.0) / 2)
    assert measured_column(Column(correlation="private", figure="on"), folder).value is None
    with pytest.raises(ValueError, match="figures of a correlation"):
        Column(correlation="public")


def test_perplexities_of_a_run(finished):
    """The exponential of the mean loss a row: of a participant's own set, or of all, in the mean over participants."""
    folder = Folder(finished[0] / "fast" / "alone" / "seed-0")
    losses = {}
    for row in folder.table:  # the last evaluation stays
        if (row["quantity"], row["split"], row["product"]) == ("loss", "test", "local"):
            losses.setdefault(row["node"], {})[row["set"]] = row["sum"], row["n"]
    own = [sums[folder.homes[node]][0] / sums[folder.homes[node]][1] for node, sums in losses.items()]
    union = [sum(a for a, _ in sums.values()) / sum(n for _, n in sums.values()) for sums in losses.values()]

    def of(figure, **column):
        return measured_column(Column(figure=figure, unit="perplexity", **column), folder).value

    assert of("own") == pytest.approx(math.exp(sum(own) / len(own)))
    assert of("union") == pytest.approx(math.exp(sum(union) / len(union)))
    assert of("proxy") is of("own", level="root") is of("own", product="global") is None
    with pytest.raises(ValueError, match="a perplexity is own, union or proxy, got 'acc'"):
        of("acc")
    with pytest.raises(ValueError, match="of a level, or of a product in the last round"):
        of("own", at=1.0)


def test_a_run_that_was_over_before_a_moment_says_nothing_of_it(finished):
    """Only up to where its next evaluation would have come."""
    folder = Folder(finished[0] / "fast" / "alone" / "seed-0")
    first, last = (at["time"] for at in curve(folder.table, folder.homes, folder.headline))
    assert measured_column(Column(at=last + 0.9 * (last - first)), folder).value == folder.summary.metrics.acc
    late = measured_column(Column(at=last + 1.1 * (last - first)), folder)
    assert (late.value, late.note) == (None, f"the run was over after {last:.1f} s")


def test_the_best_model_needs_validation_data(finished, tmp_path):
    folder = shutil.copytree(finished[0] / "fast" / "alone" / "seed-0", tmp_path / "run")
    assert measured_column(Column(), Folder(folder), "best").value is not None
    altered(folder, "metrics.jsonl", lambda rows: rows.replace('"validation"', '"some-other"'))
    got = measured_column(Column(), Folder(folder), "best")
    assert (got.value, got.note) == (None, "no validation data to choose a round by")
    assert measured_column(Column(product="global"), Folder(folder), "best") == Measured(None)


def _of(mean: float, half: float = 0.5, n: int = 3) -> Interval:
    return Interval(mean, half, 2 * half, n)


def _verdict(label: str, ours: dict, papers: dict) -> str | None:
    """With differences that are as surely known as 0.5 points."""
    own = ours.get(label)
    gaps = {name: _of(own.mean - other.mean, n=other.n) for name, other in ours.items() if own and name != label}
    rest = {name: printed for name, printed in papers.items() if name != label}
    return verdict(own, papers.get(label), gaps, rest)


def test_verdicts_by_hand():
    ours = {"a": _of(80, 1.5), "b": _of(70), "c": _of(70.2)}
    papers = {"a": 82.0, "b": 60.0, "c": 59.5}
    assert _verdict("a", ours, papers) == WITHIN  # |80 - 82| <= 3
    assert _verdict("b", ours, papers) == ORDER  # ten off, below a as printed; c is printed within a point of it
    assert _verdict("c", ours, papers) == ORDER
    assert _verdict("c", ours, {**papers, "c": 58.0}) == DIFFERS  # printed two below b, ours above, but not surely
    assert _verdict("b", {"b": _of(70)}, papers) == DIFFERS  # nobody to be in order with
    assert _verdict("b", {"b": _of(70, n=2)}, papers) == FEW
    once = {name: _of(found.mean, 0, n=1) for name, found in ours.items()}
    assert _verdict("b", once, papers) == f"order as printed, {FEW}"
    assert _verdict("c", once, {**papers, "c": 58.0}) == f"order not as printed, {FEW}"
    assert _verdict("d", ours, papers) is None


def test_order_comes_before_noise():
    """FedAvg of FedH2L's Table II: in reach of one more run, but surely above what is printed above it."""
    ours = {"FedH2L": _of(88.8, 2.7, 5), "FedAvg": _of(92.2, 2.9, 5)}
    for name, other in (("FedAvg", "FedH2L"), ("FedH2L", "FedAvg")):
        assert _verdict(name, ours, {"FedH2L": 89.13, "FedAvg": 86.5}) == f"order reversed: {other}"
    assert _verdict("FedAvg", ours, {"FedH2L": 88.9, "FedAvg": 88.8}) == "apart, tied in print: FedH2L"
    unsure = {"FedH2L": Interval(3.4, 3.5, 7.0, 5)}
    assert verdict(ours["FedAvg"], 86.5, unsure, {"FedH2L": 89.13}) == WITHIN


def test_claims_by_hand():
    """With three seeds, Student's t of 95 % is 4.303: p = 0.05 where the mean is half an interval."""
    for mean, margin in ((1.0, None), (-1.0, None), (1.0, 2.0), (-3.0, 2.0)):
        assert probability(Interval(mean, 1.0, 3.0, 3), margin) == pytest.approx(0.05)
    assert probability(Interval(2.0, 1.0, 3.0, 3)) < 0.05 < probability(Interval(0.5, 1.0, 3.0, 3))
    assert probability(Interval(2.0, 1.0, 3.0, 2)) is None
    for mean, margin, wanted in ((2.0, None, "holds"), (-2.0, None, "does not hold"), (0.5, 2.0, "holds")):
        assert claimed(Interval(mean, 1.0, 3.0, 3), 0.04, margin) == wanted
        assert claimed(Interval(mean, 1.0, 3.0, 3), 0.06, margin) == WITHIN
    assert claimed(Interval(-9.0, 1.0, 3.0, 3), 0.01, 2.0) == "does not hold"
    assert claimed(Interval(0.5, None, None, 1), None) == f"as claimed, {FEW}"
    assert claimed(Interval(-2.5, None, None, 1), None, 2.0) == f"not as claimed, {FEW}"
    assert claimed(None, None) is None


def test_claims_are_corrected_for_their_number():
    """One of 1.2 half intervals holds alone, p = 0.035, and not as one of two."""
    claim = {"difference": 1.2, "half": 1.0, "n": 3, "margin": None}
    (alone,) = claims.judged([claim])
    pair = claims.judged([claim, {**claim, "difference": 1.3}])
    assert (alone["verdict"], [entry["verdict"] for entry in pair]) == ("holds", [WITHIN, WITHIN])
    assert pair[1]["p"] == pytest.approx(2 * probability(Interval(1.3, 1.0, None, 3)))


def _found(experiment: Experiment, value: float = 50.0) -> FoundFigures:
    """Made-up figures for every arm in every group: all the same but for the seeds."""
    return {
        (group.label, arm.label): {seed: dict.fromkeys(experiment.columns, Measured(value + seed)) for seed in range(3)}
        for group in experiment.groups
        for arm in experiment.arms
        if not group.arms or arm.label in group.arms
    }


def test_a_printed_figure_counts_once():
    experiment = Experiment.load("fedh2l-table2")
    rows = table(experiment, _found(experiment))
    once = {(row.group, row.arm) for row in rows if not row.again}
    assert ("alpha = 10 %", "AGG") in once
    assert ("alpha = 10 %, each rotation split apart", "AGG") not in once
    fedavg = [row for row in rows if row.group == "alpha = 10 %" and row.arm == "FedAvg"]
    assert [row.again for row in fedavg] == [False, True, True]  # all, own and others' data: one model
    assert sum(not row.again for row in rows) == 5 * 3 + 2 + 2 * 3 * 3
    text = written.tally(rows, [])
    assert text.startswith("Printed figures: ")
    assert "Beside the same figures again: " in text


def test_arms_beside_one_printed_figure_are_no_tie():
    experiment = Experiment.load("fml-table1")
    found = _found(experiment)
    for group in experiment.groups:
        found[group.label, "FedProx, mu = 1"] = {
            seed: dict.fromkeys(experiment.columns, Measured(90.0 + seed)) for seed in range(3)
        }
    rows = table(experiment, found)
    assert not [row for row in rows if row.arm == "FedProx" and "FedProx, mu = 1" in (row.verdict or "")]
    assert [row for row in rows if row.arm == "FedAvg" and "FedProx, mu = 1" in (row.verdict or "")]


def test_a_paper_does_not_claim_what_its_figures_contradict():
    """FML is printed below FedAvg in three of sixteen blocks."""
    experiment = Experiment.load("fml-table1")
    said = claims.claims(experiment, _found(experiment))
    where = {claim["group"] for claim in said if (claim["more"], claim["less"]) == ("FML", "FedAvg")}
    assert {group.label for group in experiment.groups} - where == {
        "CIFAR-10, CNN2, IID",
        "CIFAR-10, CNN2, Non-IID (2)",
        "CIFAR-100, CNN2, Non-IID (2)",
    }


@pytest.mark.parametrize(
    ("name", "ours"), [("fedh2l-table2", "FedH2L"), ("fedh2l-pacs", "FedH2L"), ("fccl-digits", "FCCL")]
)
def test_there_is_a_claim_against_every_printed_rival(name, ours):
    experiment = Experiment.load(name)
    rivals = {
        arm.label for arm in experiment.arms if not arm.label.startswith(ours) and arm.label in _printed(experiment)
    }
    assert rivals <= {claim.less for claim in experiment.claims if claim.more == ours}


def _printed(experiment: Experiment) -> set[str]:
    return {label for group in experiment.groups for label in group.paper}


def test_an_undefined_seed_is_no_claim():
    experiment = Experiment.load("fedh2l-interval")
    found = _found(experiment)
    found["", "E = 5"][1] = dict.fromkeys(experiment.columns, Measured(None))
    assert {claim["less"] for claim in claims.claims(experiment, found)} == {"E = 10"}


# -- the quick version ------------------------------------------------------------------------------------------
def test_an_arm_keeps_what_it_is_called_after_in_the_quick_version():
    experiment = Experiment.load("fccl-public")
    wanted = planning.planned_runs(experiment, planning.Version(quick=True), Path("out"), {}, None)
    rows = {
        arm: planned.setting.changed(theirs(planned)).data.public.rows for (_, arm), (planned, *_) in wanted.items()
    }
    assert rows == {"CIFAR-100, 2,000": 2000, "Fashion-MNIST, 2,000": 2000}
    toy = experiment.model_copy(update={"quick": Quick(set={"data.public.rows": 9})})  # before it or after it
    wanted = planning.planned_runs(toy, planning.Version(quick=True), Path("out"), {}, None)
    rows = {
        arm: planned.setting.changed(theirs(planned)).data.public.rows for (_, arm), (planned, *_) in wanted.items()
    }
    assert rows == {"CIFAR-100, 5,000": 9, "CIFAR-100, 2,000": 2000, "Fashion-MNIST, 2,000": 2000}


def public_rows(planned):
    return planned.setting.changed(theirs(planned)).data.public.rows


def theirs(planned):
    return {key: value for key, value in planned.changes.items() if key.split(".")[0] in PARTS}


def test_a_quick_table_says_what_it_has_instead_of_its_labels(toy, tmp_path):
    text = toy.read_text().replace("seeds = 1\nscale = 0.5", 'seeds = 1\nscale = 0.5\nset = { "local.lr" = 0.02 }')
    (tmp_path / "toy.toml").write_text(text)
    words = ("reproduce", tmp_path / "toy.toml", "--quick", "--out", tmp_path / "out")
    assert "slow (quick: local.lr = 0.02)" in call(*words).stdout
    text = (tmp_path / "out" / "toy.md").read_text()
    assert "## slow (quick: local.lr = 0.02)" in text
    assert "The quick version has 0.5 times the rounds, local.lr = 0.02, whatever the labels say." in text
    assert "quick: " not in (tmp_path / "out" / "toy.json").read_text().partition('"rows"')[2]


def test_settings_of_experiments_are_shipped():
    for name in NAMES:
        experiment = Experiment.load(name)
        for setting in {experiment.setting, *(g.setting for g in experiment.groups if g.setting)}:
            assert Setting.load(setting).name == setting


def test_a_figure_can_be_of_some_domains_alone_also_of_those_that_take_no_part(small, tmp_path):
    answer = call("run", "solo", "--on", small, "--set", 'data.unseen=["b"]', "--out", tmp_path / "run")
    assert answer.exit_code == 0, answer.stderr
    folder = Folder(tmp_path / "run")
    for domain in ("a", "b"):
        tested = [r for r in folder.table if r["split"] in ("test", "unseen")]
        rows = [r for r in tested if (r["set"], r["quantity"]) == (domain, "accuracy")]
        assert rows
        last = [r for r in rows if r["round"] == max(row["round"] for row in rows)]
        by_hand = sum(r["sum"] / r["n"] for r in last) / len(last)
        assert measured_column(Column(sets=(domain,)), folder).value == pytest.approx(by_hand, abs=1e-12)
