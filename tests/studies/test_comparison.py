"""`heterophony compare`: the same runs as one by one, reused, resumed, refused; and what the table says of them."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import pytest

from heterophony import engines
from heterophony.runs.findings.diverged import Diverged
from heterophony.runs.findings.skipped import Skipped
from heterophony.runs.folder import Folder, find
from heterophony.runs.run import Run
from heterophony.settings import Setting
from heterophony.studies import campaign, comparison
from heterophony.studies.campaign import PlannedRun
from heterophony.tables.metrics import Metrics
from toys.altering import altered, resealed
from toys.compared import call, refused, said
from toys.summaries import summary

drawn = pytest.mark.skipif(find_spec("plotly") is None, reason="a report needs heterophony[report]")


def test_a_comparison_is_the_runs_one_by_one(small, runs, tmp_path):
    alone = said(call("run", "fedavg", "--on", small, "--seed", 1, "--out", tmp_path / "alone", "--json"))
    together = Folder(runs / "fedavg" / "seed-1").summary
    assert together.digest == alone["digest"]
    assert together.metrics.as_dict() == alone["metrics"]


def test_merges_that_were_skipped_are_said():
    """Where every update was refused, the start would look like a result."""
    told = summary(Metrics(acc=0.1))
    found = comparison.compare("small", [("solo", 0, told), ("fedavg", 0, told.having(Skipped(2)))])
    assert "merges skipped for want of sound answers (`heterophony ledger` has why): fedavg 2" in comparison.note(found)
    assert [line["skipped"] for line in found.as_dict()["methods"]] == [0, 2]


def test_finished_runs_are_reused_and_new_ones_added(small, runs, tmp_path, monkeypatch):
    folder = shutil.copytree(runs, tmp_path / "runs")
    before = said(call("compare", "solo", "fedavg", "fccl", "--on", small, "--seeds", 2, "--out", folder, "--json"))
    monkeypatch.setattr(engines, "local", lambda *_, **__: pytest.fail("a finished run was run again"))
    again = said(call("compare", "solo", "fedavg", "fccl", "--on", small, "--seeds", 2, "--out", folder, "--json"))
    assert again == before
    monkeypatch.undo()
    more = said(call("compare", "solo", "fedavg", "--on", small, "--seeds", 3, "--out", folder, "--json"))
    assert [line["method"] for line in more["methods"]] == ["solo", "fedavg"]
    assert more["seeds"] == [0, 1, 2]
    assert more["methods"][0]["by_seed"]["1"] == before["methods"][0]["by_seed"]["1"]
    fewer = call("compare", "solo", "--on", small, "--seeds", 1, "--out", folder)
    last = " ".join(fewer.stdout.split())
    assert last.endswith("not in this table: fccl, fedavg and seeds 1, 2; ask for them too, and they are reused")
    fewer = call("compare", "solo", "fedavg", "fccl", "--on", small, "--seeds", 1, "--out", folder)
    assert "not in this table: seeds 1, 2; ask" in " ".join(fewer.stdout.split())


def test_machines_are_told_both_names_of_a_figure(small, runs):
    found = said(call("compare", "solo", "fedavg", "--on", small, "--seeds", 2, "--out", runs, "--json"))
    assert found["metric"] == found["names"]["all"] == "acc"
    assert set(found["names"].values()) == found["methods"][0]["figures"].keys()
    for name, metric in found["names"].items():
        assert comparison.metric_of(name) == metric


def test_rounds_that_are_not_a_methods_own_are_said(small, tmp_path):
    path = tmp_path / "planned.toml"
    path.write_text(small.read_text() + "[methods.fedavg]\nrounds = 5\n")
    words = ("compare", "solo", "fedavg", "--on", path, "--seeds", 1, "--out", tmp_path / "out")
    answer = call(*words, "--rounds", 1)
    lines = [line for line in answer.stderr.splitlines() if "plan" in line]
    assert lines == ["--rounds 1 is not their own plan on planned: fedavg has 5, gets 1"]
    assert "plan" not in call(*words).stderr


@pytest.mark.slow
def test_two_at_a_time_end_on_the_same_bits(small, runs, tmp_path):
    found = call("compare", "solo", "fedavg", "--on", small, "--seeds", 2, "--out", tmp_path / "two", "--jobs", 2)
    assert found.exit_code == 0, found.stderr
    for place in ("solo/seed-0", "fedavg/seed-1"):
        assert Folder(tmp_path / "two" / place).summary.digest == Folder(runs / place).summary.digest


KILLED = """
import multiprocessing, os, signal
from concurrent.futures import ProcessPoolExecutor
from heterophony.compute.workers import die_with_parent
if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=die_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_is_killed_leaves_no_process_behind(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    # This comes back when the last process that holds the pipe has ended.
    done = subprocess.run([sys.executable, tmp_path / "killed.py"], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout)


def test_an_unfinished_run_goes_on(small, runs, tmp_path):
    order = PlannedRun("fedavg", "fedavg", Setting.load(str(small)), tmp_path / "run", 0, 1)
    campaign.complete(order, loud=False)  # one round of two
    (found,) = campaign.run([PlannedRun("fedavg", "fedavg", Setting.load(str(small)), tmp_path / "run", 0, 2)])
    assert found[1].digest == Folder(runs / "fedavg" / "seed-0").summary.digest


def test_a_folder_of_another_run_is_refused(small, runs, tmp_path):
    folder = shutil.copytree(runs, tmp_path / "runs")
    common = ("compare", "solo", "--on", small, "--seeds", 1, "--out", folder)
    refused(call(*common, "--set", "lr=0.5"), "seed-0 was run with local.lr = 0.1, not 0.5: choose another --out")
    refused(call(*common, "--set", "lr=0.5", "--rounds", 1), "local.lr = 0.1, not 0.5")  # what it is before how long
    refused(call(*common, "--set", "data.test_rows=10"), "data.test_rows = 20, not 10")
    refused(call(*common, "--precision", "bf16"), "precision = 'fp32', not 'bf16': give --precision fp32, or choose")
    refused(call(*common, "--rounds", 1), "has had 2 rounds, not 1")
    order = folder / "solo" / "seed-0" / "order.json"
    order.write_text("[]\n")
    refused(call(*common), "order.json is damaged")
    order.unlink()  # as a run that was started by itself
    refused(call(*common, "--rounds", 1), "has had 2 rounds, not 1")
    assert call(*common).exit_code == 0


def test_a_run_that_was_taken_further_is_not_the_shorter_one(small, tmp_path):
    """Also where it was stopped on the way: its tables are not those of the figures that were once written."""
    setting = Setting.load(str(small))
    short, longer = (PlannedRun("solo", "solo", setting, tmp_path / "solo" / "seed-0", 0, rounds) for rounds in (1, 9))
    campaign.complete(short, loud=False)

    def stop(engine):
        engine.stop = engine.table.rows[-1]["round"] >= 3

    federation = longer.build()
    with Run.open(longer.folder, federation.identity()) as record, pytest.raises(KeyboardInterrupt):
        engines.local(federation, record=record, progress=stop).run(longer.goal)
    words = ("compare", "solo", "--on", small, "--seeds", 1, "--out", tmp_path, "--rounds", 1)
    refused(call(*words), "is a run of 9 rounds, not 1: choose another folder")
    assert longer.finished() is None  # it goes on


def test_a_default_that_has_changed_since_is_noticed(small, runs, tmp_path):
    folder = shutil.copytree(runs, tmp_path / "runs")
    run = folder / "solo" / "seed-0"

    def batch(found, *size):
        """Its batch, or none: an option that came later."""
        local = {key: value for key, value in found["settings"]["local"].items() if key != "batch"}
        found["settings"]["local"] = {**local, **({"batch": size[0]} if size else {})}
        return found

    altered(run, "spec.json", lambda found: batch(found, 64))
    common = ("compare", "solo", "--on", small, "--seeds", 1, "--out", folder)
    refused(call(*common), "was run with local.batch = 64, not 32")
    altered(run, "spec.json", batch)  # says nothing of it
    assert call(*common).exit_code == 0


def test_options_by_method_from_a_file(small, tmp_path):
    path = tmp_path / "options.toml"
    path.write_text("[solo]\nlr = 0.02\nrounds = 1\n[fedmd]\ndistil.epochs = 2\n")
    assert comparison.read_options(path) == {"solo": {"local.lr": 0.02, "rounds": 1}, "fedmd": {"distil.epochs": 2}}
    given = ("compare", "solo", "--on", small, "--seeds", 1, "--out", tmp_path / "out", "--options", path)
    assert said(call(*given, "--json"))["methods"][0]["rounds"] == 1
    spec = Folder(tmp_path / "out/solo/seed-0").spec
    assert spec["settings"]["local"]["lr"] == 0.02


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[sollo]\nlr = 1", ("options.toml: [sollo]", "solo")),
        ("[solo]\nrate = 1", ("[solo]", "no option 'rate'")),
        ("[solo]\nlr = -1", ("[solo]", "lr")),
        ("[solo]\nrounds = 0", ("[solo]", "at least 1")),
        ("lr = 1", ("lr is no table",)),
        ("[solo", ("not TOML",)),
    ],
)
def test_a_wrong_file_of_options_is_one_line(small, tmp_path, text, words):
    path = tmp_path / "options.toml"
    path.write_text(text)
    refused(call("compare", "solo", "--on", small, "--options", path), "options.toml", *words)


def test_what_cannot_be_built_is_said_before_anything_runs(small, tmp_path):
    out = tmp_path / "out"
    refused(call("compare", "solo", "sollo", "--on", small, "--out", out), "there is no method 'sollo'")
    refused(call("compare", "solo", "--on", small, "--out", out, "--metric", "best"), "there is no metric 'best'")
    refused(call("compare", "solo", "bhfl", "--on", small, "--out", out, "--set", "alpha=1"), "alpha")
    assert not out.exists()


def _runs(alike: bool = False, **accuracies: list[float]) -> list:
    """Summaries by label and seed; if `alike`, the own domain is all there is."""
    return [
        (label, seed, summary(Metrics(acc=acc, wdp=acc if alike else None)))
        for label, values in accuracies.items()
        for seed, acc in enumerate(values)
    ]


def _also(run, **figures: float):
    """The same run with further figures."""
    label, seed, told = run
    return label, seed, replace(told, metrics=replace(told.metrics, **figures))


def test_the_table_by_hand():
    """Differences b - a are 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t = 0.2 / (0.1 / sqrt 3) = 3.464, p = 0.0742."""
    found = comparison.compare("toy", _runs(a=[0.1, 0.1, 0.1], b=[0.2, 0.3, 0.4], c=[0.2, 0.3, 0.4]))
    a, b, c = found.methods
    assert found.best == "b"
    assert (b.p, c.p) == (None, 1.0)
    assert a.p == pytest.approx(2 * 0.0742, abs=1e-4)  # the smaller of two
    assert a.figures["acc"].mean == pytest.approx(0.1)
    assert [row[0] for row in comparison.cells(found)] == ["a", "b", "c"]
    assert comparison.cells(found)[1][1] == "30.0 ± 24.8"  # 4.303 * 0.1 / sqrt 3
    assert json.loads(json.dumps(found.as_dict()))["best"] == "b"


def test_a_narrow_table_leaves_out_what_it_costs_and_says_so(small, runs, monkeypatch):
    command = ("compare", "solo", "fedavg", "fccl", "--on", small, "--seeds", 2, "--out", runs)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert " wall " in call(*command).stdout
    monkeypatch.setenv("COLUMNS", "80")
    table, _, rest = call(*command).stdout.partition("Per cent")
    assert max(map(len, table.splitlines())) <= 80
    assert "wall" not in table
    assert "virtual, wall;" in " ".join(rest.split())
    assert "wall" in (runs / "comparison.md").read_text()


def test_one_domain_is_said_once():
    """The own domain is left out where it is all there is, unless it is what was asked for; machines are told all."""
    runs = _runs(alike=True, a=[0.1, 0.2], b=[0.3, 0.4])
    found = comparison.compare("toy", runs)
    assert comparison.columns(found) == ["acc"]
    assert "domains" not in comparison.note(found)
    assert found.as_dict()["methods"][0]["figures"]["wdp"] is not None
    assert comparison.columns(comparison.compare("toy", runs, "wdp")) == ["wdp", "acc"]
    runs[0] = _also(runs[0], cdp=0.1)  # one of two seeds: still nothing to show
    assert comparison.columns(comparison.compare("toy", runs)) == ["acc"]
    runs[1] = _also(runs[1], cdp=0.1)
    assert comparison.columns(comparison.compare("toy", runs)) == ["acc", "wdp", "cdp"]


def test_nothing_is_said_of_a_test_that_is_not_in_the_table():
    found = comparison.compare("toy", _runs(a=[0.1, 0.2]))
    assert "p" not in comparison.header(found)
    assert "Holm" not in comparison.note(found)
    assert "Holm" in comparison.note(comparison.compare("toy", _runs(a=[0.1, 0.2], b=[0.3, 0.4])))


def test_seeds_at_different_rounds_have_no_mean():
    runs = _runs(a=[0.1, 0.2])
    label, seed, told = runs[1]
    runs[1] = label, seed, replace(told, rounds=4)
    with pytest.raises(comparison.ComparisonError, match="a: its seeds have had 3 and 4 rounds"):
        comparison.compare("toy", runs)


def test_an_undefined_figure_is_no_zero():
    found = comparison.compare("toy", _runs(a=[None, 0.1], b=[None, None], c=[0.05, 0.05]))
    assert [line.figures["acc"] is None for line in found.methods] == [True, True, False]
    assert [line.p for line in found.methods][1] is None


def test_who_diverged_in_one_seed_is_not_the_best():
    runs = _runs(a=[0.5, 0.6, 0.55], b=[0.7, None, 0.72])
    label, seed, told = runs[4]
    assert told.metrics.acc is None
    runs[4] = label, seed, told.having(Diverged(["M0"]))
    found = comparison.compare("toy", runs)
    assert found.best == "a"
    assert [row[1] for row in comparison.cells(found)] == ["55.0 ± 12.4", "diverged"]
    assert "(a lower learning rate may help): b in 1 of 3 seeds" in comparison.note(found)
    assert found.as_dict()["methods"][1]["diverged"] == [1]


def test_all_that_diverge_are_still_a_table(small, tmp_path):
    words = ("compare", "solo", "finetune", "--on", small, "--set", "lr=1e9", "--seeds", 1, "--out", tmp_path / "out")
    table = " ".join(call(*words).stdout.split())
    assert "solo diverged" in table
    assert "none is best by all" in table
    shown = " ".join(call("show", tmp_path / "out" / "solo" / "seed-0").stdout.split())
    assert "DIVERGED: the outputs of a, b are no numbers any more" in shown


def test_a_server_that_took_no_update_says_that_its_merges_were_skipped(small, tmp_path):
    """Updates that are no numbers are refused, so that the server keeps the model that it began with."""
    words = ("compare", "fedavg", "--on", small, "--set", "lr=1e9", "--seeds", 1, "--out", tmp_path / "out")
    table = " ".join(call(*words).stdout.split())
    assert "merges skipped for want of sound answers (`heterophony ledger` has why): fedavg" in table
    shown = " ".join(call("show", tmp_path / "out" / "fedavg" / "seed-0").stdout.split())
    assert "REFUSED: " in shown


def test_options_that_were_tuned_are_for_all(small, tmp_path):
    for method in ("solo", "fedavg"):
        words = (
            "tune",
            method,
            "--on",
            small,
            "--grid",
            "lr=0.02,0.03",
            "--budget",
            2,
            "--rounds",
            1,
            "--set",
            "batch=8",
        )
        answer = call(*words, "--out", tmp_path / "tuned")
        assert "--rounds 1 --set batch=8 --tuned" in " ".join(answer.stdout.split())
    file = tmp_path / "tuned" / "tuned.toml"
    call("compare", "solo", "fedavg", "--on", small, "--seeds", 1, "--tuned", file, "--out", tmp_path / "out")
    for method in ("solo", "fedavg"):
        lr = json.loads((tmp_path / "out" / method / "seed-0" / "order.json").read_text())["changes"]["local.lr"]
        assert f'"local.lr" = {lr}' in file.read_text()
    common = ("compare", "solo", "fml", "--on", small, "--seeds", 1, "--tuned", file, "--out", tmp_path / "other")
    refused(call(*common), "has nothing for fml")


def test_what_nobody_has_makes_nobody_the_best():
    found = comparison.compare("toy", _runs(a=[0.1, 0.2], b=[0.3, 0.4]), "private")
    assert found.best is None
    assert "p" not in comparison.header(found)
    assert "none is best by private" in comparison.note(found)
    assert "none is best" not in comparison.note(comparison.compare("toy", _runs(a=[0.1, 0.2], b=[0.3, 0.4])))


@drawn
@pytest.mark.parametrize("line", [b"[1]", b"\xff\xfe", b"no JSON"])
def test_a_damaged_table_is_one_line(runs, tmp_path, line):
    folder = shutil.copytree(runs / "solo" / "seed-0", tmp_path / "run")
    (folder / "metrics.jsonl").write_bytes((folder / "metrics.jsonl").read_bytes() + line + b"\n")
    resealed(folder)
    for command in (("report", folder), ("show", folder, "--against", folder)):
        refused(call(*command), "metrics.jsonl is damaged")


@drawn
@pytest.mark.parametrize("name", ["result.json", "metrics.jsonl", "ledger.jsonl", "order.json"])
def test_a_changed_digit_is_named_by_who_makes_results_of_many_runs(runs, small, tmp_path, name):
    folder = shutil.copytree(runs, tmp_path / "runs")
    path = folder / "fedavg" / "seed-1" / name
    data = path.read_bytes()
    place = next(place for place in range(len(data) // 2, len(data)) if chr(data[place]).isdigit())
    path.write_bytes(data[:place] + str((int(chr(data[place])) + 1) % 10).encode() + data[place + 1 :])
    refused(call("compare", "fedavg", "--on", small, "--seeds", 2, "--out", folder), f"{name} is damaged")
    if name != "order.json":
        refused(call("report", folder), f"{name} is damaged")
    assert path.read_bytes() != data


@drawn
def test_a_table_that_was_cut_short_is_no_table(runs, tmp_path):
    folder = shutil.copytree(runs / "solo" / "seed-0", tmp_path / "run")
    whole = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(whole[: whole.rfind(b"\n", 0, -1) + 1])
    refused(call("report", folder), "metrics.jsonl is cut short")


def test_run_folders_are_found_below_a_place(runs, tmp_path):
    assert len(find([runs])) == 6
    assert find([runs / "solo" / "seed-0", runs / "solo"]) == [runs / "solo/seed-0", runs / "solo/seed-1"]
    with pytest.raises(ValueError, match="holds no run"):
        find([tmp_path])
