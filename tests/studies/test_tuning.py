"""Fair tuning: chosen on validation data alone, the same budget for all, everything tried is on record."""

import json

import pytest
from typer.testing import CliRunner

from heterophony import Classification
from heterophony.cli import app
from heterophony.settings import Setting, SettingError
from heterophony.studies.tuned import options, read, write
from heterophony.studies.tuning import Trial, best, combinations, edges, grid, tune
from heterophony.tasks.score import ACCURACY

SMALL = """
rounds = 2
[data]
test = 0.1
test_rows = 20
side = 16
validation = 0.1
domains.a = { source = "digits-embedded", rows = 48 }
domains.b = { source = "digits-embedded", rows = 48, degrees = 40 }
[models]
participants = "mlp"
[local]
lr = 0.1
"""


@pytest.fixture
def setting():
    return Setting.read(SMALL, "small", "small.toml")


def trial(value, lr=0.1, by="acc", method="fedavg", **more):
    score = Classification().scores[2] if by == "loss" else ACCURACY
    return Trial(method, "small", {"local.lr": lr}, {"0": value}, more.pop("rounds", 2), by, score=score, **more)


def test_a_grid_is_read_as_toml_or_as_words():
    found = grid(["lr=0.01,1", "epochs=1,2,5", "optimiser=sgd,adam", "weighted=true,false"], "fedavg")
    assert found == {
        "local.lr": [0.01, 1],
        "local.epochs": [1, 2, 5],
        "local.optimiser": ["sgd", "adam"],
        "cohort.weighted": [True, False],
    }
    for texts in (["lr="], ["lr"], []):
        with pytest.raises(SettingError):
            grid(texts, "fedavg")
    with pytest.raises(ValueError, match="has no option 'nonsense'"):
        grid(["nonsense=1"], "fedavg")


def test_a_large_grid_is_sampled_and_a_small_one_taken_whole():
    wanted = {"a": [1, 2, 3], "b": [1, 2, 3, 4]}
    whole = combinations(wanted, 12)
    assert whole == combinations(wanted, 99)
    assert len({tuple(each.values()) for each in whole}) == 12
    some = combinations(wanted, 5)
    assert len(some) == 5
    assert [each for each in whole if each in some] == some == combinations(wanted, 5)
    with pytest.raises(SettingError, match="at least one trial"):
        combinations(wanted, 0)


def test_the_best_is_the_earliest_of_equals_and_the_least_loss():
    assert best([trial(0.5, 1), trial(0.7, 2), trial(0.7, 3), trial(None, 4)]).options == {"local.lr": 2}
    assert best([trial(0.5, 1, "loss"), trial(0.7, 2, "loss")]).options == {"local.lr": 1}
    with pytest.raises(SettingError, match="every run diverged"):
        best([trial(None, diverged=("0",))])
    with pytest.raises(SettingError, match="nobody was evaluated in the last round"):
        best([trial(None)])
    with pytest.raises(SettingError, match="came to a value: 1 diverged"):
        best([trial(None), trial(None, diverged=("0",))])
    assert Trial("m", "s", {}, {"0": 0.5, "1": None}, 2, "acc").value is None


def test_who_diverged_is_remembered(setting, tmp_path):
    """Also when the trial is read from the file."""
    for _ in range(2):
        (lost,) = tune("solo", setting, {"local.lr": [1e9]}, budget=1, rounds=1, tried=tmp_path / "tried.jsonl")
        assert (lost.value, lost.diverged) == (None, ("0",))


def test_the_best_at_the_edge_of_the_grid_is_said():
    tried = [trial(0.5, 0.01), trial(0.6, 0.05), trial(0.4, 0.02)]
    assert edges(tried, best(tried)) == ["local.lr = 0.05 is the largest that was tried"]
    assert edges([*tried, trial(0.1, 0.1)], best(tried)) == []
    assert edges([*tried, trial(0.9, 0.001)], trial(0.9, 0.001)) == ["local.lr = 0.001 is the smallest that was tried"]
    assert edges([trial(0.5, "a"), trial(0.6, "b")], trial(0.6, "b")) == []


def test_test_data_are_not_even_evaluated(setting):
    seen = []

    def watched(federation, rounds):
        result = federation.run(rounds)
        seen.append({row["split"] for row in result.table if row["quantity"] == "accuracy"})
        assert federation.private_tests == {}
        return result

    private = setting.changed({"data.private_test": True})
    trials = tune("fedavg", private, {"local.lr": [0.01, 0.2]}, budget=2, seeds=(0, 1), rounds=1, run=watched)
    assert seen == [{"validation"}] * 4
    assert [list(t.values) for t in trials] == [["0", "1"]] * 2
    assert trials[0].value != trials[1].value


def test_without_validation_data_it_refuses(setting):
    with pytest.raises(SettingError, match=r"no validation data to choose on: set data\.validation"):
        tune("fedavg", setting.changed({"data.validation": 0.0}), {"local.lr": [0.1]}, budget=1)


def test_a_changed_value_of_what_was_tried_is_noticed(setting, tmp_path):
    file = tmp_path / "tried.jsonl"
    (trial,) = tune("fedavg", setting, {"local.lr": [0.01]}, budget=1, rounds=1, tried=file)
    text = file.read_text()
    assert str(trial.value) in text
    file.write_text(text.replace(str(trial.value), f"{trial.value + 1}"))
    with pytest.raises(SettingError, match=r"tried.jsonl is damaged: of a line, its checksum differs"):
        tune("fedavg", setting, {"local.lr": [0.01]}, budget=1, rounds=1, tried=file)


def test_what_was_tried_is_not_run_again(setting, tmp_path):
    ran = []

    def counted(federation, rounds):
        ran.append(federation.method.local.lr)
        return federation.run(rounds)

    file = tmp_path / "t" / "tried.jsonl"
    first = tune("fedavg", setting, {"local.lr": [0.01, 0.2]}, budget=2, tried=file, run=counted)
    with file.open("a") as stream:
        stream.write('{"half": ')  # a process that was killed while it wrote
    again = tune("fedavg", setting, {"local.lr": [0.01, 0.2, 0.3]}, budget=3, tried=file, run=counted)
    assert ran == [0.01, 0.2, 0.3]
    assert again[:2] == first
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["options"]["local.lr"] for line in lines] == [0.01, 0.2, 0.3]
    assert [line["value"] for line in lines] == [t.value for t in again]
    tune("fedavg", setting.changed({"data.test_rows": 10}), {"local.lr": [0.2]}, budget=1, tried=file, run=counted)
    assert ran[-1] == 0.2  # another setting is another run
    file.write_text("nonsense\n")
    with pytest.raises(SettingError, match="is damaged"):
        tune("fedavg", setting, {"local.lr": [0.2]}, budget=1, tried=file)


def test_every_method_has_the_same_budget(tmp_path):
    file = tmp_path / "tuned.toml"
    write(file, [trial(0.5), trial(0.6, 0.2)], 2)
    write(file, [trial(0.4, 0.3, method="a b")], 2)
    assert {name: entry["tried"] for name, entry in read(file)["small"].items()} == {"fedavg": 2, "a b": 1}
    with pytest.raises(SettingError, match="fedavg had budget 2, solo would have 3: give all the same"):
        write(file, [trial(0.4, method="solo")], 3)
    with pytest.raises(SettingError, match="fedavg had by acc, solo would have loss"):
        write(file, [trial(0.4, by="loss", method="solo")], 2)
    write(file, [trial(0.9, 0.7)], 2)  # once more for the same method
    assert options(file, "small", "fedavg") == {"local.lr": 0.7}
    with pytest.raises(SettingError, match="nothing for fml on small; it has fedavg, a b there"):
        options(file, "small", "fml")
    file.write_text("[x]\ny = 1\n")
    with pytest.raises(SettingError, match="is not a file that"):
        read(file)
    with pytest.raises(SettingError, match="no such file"):
        read(tmp_path / "other.toml")


def test_every_method_has_its_own_plan_or_the_same_rounds(tmp_path):
    file = tmp_path / "tuned.toml"
    write(file, [trial(0.5)], 1)
    write(file, [trial(0.4, method="solo", rounds=9)], 1)  # as the setting has it for each
    with pytest.raises(SettingError, match="fedavg had rounds 2, fml would have 1"):
        write(file, [trial(0.4, method="fml", rounds=1, planned=False)], 1)


def test_every_method_has_the_same_changes_as_far_as_it_can(tmp_path):
    file = tmp_path / "tuned.toml"
    write(file, [trial(0.5, changes={"local.batch": 8, "weighted": False})], 1)
    assert read(file)["small"]["fedavg"]["changes"] == {"local.batch": 8, "weighted": False}
    with pytest.raises(SettingError, match=r"fedavg had --set local\.batch 8, solo would have as it is"):
        write(file, [trial(0.4, method="solo")], 1)
    write(file, [trial(0.4, method="solo", changes={"local.batch": 8})], 1)  # it averages nothing
    with pytest.raises(SettingError, match=r"had --set data\.rows as it is, fml would have 5"):
        write(file, [trial(0.4, method="fml", changes={"local.batch": 8, "data.rows": 5})], 1)


def test_the_command_and_a_run_with_what_it_found(tmp_path):
    file, place = tmp_path / "small.toml", tmp_path / "tuned"
    file.write_text(SMALL)

    def call(*words):
        return CliRunner().invoke(app, [str(word) for word in words])

    base = ("--on", file, "--budget", 2, "--out", place, "--workers", 1)
    answer = call("tune", "fedavg", *base, "--grid", "lr=0.001,0.2", "--json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["tried"] == 2
    assert "that was tried: a wider grid may hold a better one" in answer.stderr
    tuned = ("run", "fedavg", "--on", file, "--tuned", place / "tuned.toml", "--workers", 1)
    for more, lr in (((), found["options"]["local.lr"]), (("--set", "lr=0.5"), 0.5)):
        out = tmp_path / f"run{lr}"
        assert call(*tuned, *more, "--out", out).exit_code == 0
        assert json.loads((out / "spec.json").read_text())["settings"]["local"]["lr"] == lr
    for words, text in (
        (("tune", "fedavg", *base, "--grid", "lr=0.1", "--by", "luck"), "it is all, own or one of top5, loss"),
        (("tune", "fedavg", *base, "--grid", "lr=0.1", "--seeds", "a"), "write whole numbers"),
        (("tune", "fedavg", *base, "--grid", "lr=0.1", "--set", "data.validation=0.0"), "no validation data"),
        (("run", "solo", "--on", file, "--tuned", place / "tuned.toml"), "nothing for solo on small"),
    ):
        refused = call(*words)
        assert refused.exit_code == 2
        assert text in refused.stderr
