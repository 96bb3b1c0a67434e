"""A run folder in which a figure was changed is no run folder; a run that is in progress can be looked at."""

import json
import shutil

import pytest

from heterophony.base.seal import digest, opened, sealed
from heterophony.engines import local
from heterophony.methods import FedAvg
from heterophony.runs import show
from heterophony.runs.folder import Folder
from heterophony.runs.run import Run, RunError
from heterophony.runs.summary import Summary
from toys.altering import altered, in_files, outdated
from toys.compared import call, refused, said
from toys.federations import B16, weights_star

FILES = ("result.json", "metrics.jsonl", "ledger.jsonl", "spec.json", "snapshot/manifest.json")


def federation():
    return weights_star(FedAvg(local=B16))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    federation().run(2, folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def readers(folder):
    return {
        "show": lambda: Summary.load(folder),
        "against": lambda: show.against(folder, folder),
        "ledger": lambda: show.ledger(folder),
        "report": lambda: (Folder(folder).summary, Folder(folder).table, Folder(folder).ledger),
        "resume": lambda: federation().resume(folder, 3),
    }


def blind(name):
    """Who does not read a file: a resumed run writes its result anew."""
    return {
        "result.json": {"resume", "ledger"},
        "metrics.jsonl": {"ledger"},
        "ledger.jsonl": set(),
    }.get(name, set())


@pytest.mark.parametrize("name", FILES)
def test_a_changed_digit_is_named_by_all_who_read_it_and_nothing_is_overwritten(folder, name):
    path = folder / name
    data = path.read_bytes()
    digits = [place for place, letter in enumerate(data) if chr(letter).isdigit()]
    for place in digits[:: max(1, len(digits) // 6)]:
        path.write_bytes(data[:place] + str((int(chr(data[place])) + 1) % 10).encode() + data[place + 1 :])
        before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
        for who, read in readers(folder).items():
            if who not in blind(name):
                with pytest.raises(RunError, match=rf"{path.name} is damaged|{folder} was written in another") as said:
                    read()
                assert "\n" not in str(said.value)
        assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before


@pytest.mark.parametrize("zeros", [True, False])
def test_a_ledger_of_nothing_is_not_an_empty_one(folder, zeros):
    path = folder / "ledger.jsonl"
    path.write_bytes(bytes(path.stat().st_size) if zeros else b"")
    for read in readers(folder).values():
        with pytest.raises(RunError, match=r"ledger.jsonl is (damaged|cut short)"):
            read()


def test_what_a_run_in_progress_has_written_since_its_snapshot_is_not_read_and_cut_off_by_who_resumes(folder, whole):
    for table in ("metrics", "ledger"):
        with (folder / f"{table}.jsonl").open("ab") as file:
            file.write(b'{"half": ')
    assert Summary.load(folder) == Summary.load(whole)
    assert Folder(folder).table.rows == Folder(whole).table.rows
    assert show.ledger(folder) == show.ledger(whole)
    assert federation().resume(folder).rounds == 2
    assert (folder / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_a_run_without_a_snapshot_has_no_rows_yet(tmp_path):
    with Run.create(tmp_path / "run", federation().identity(), 2):
        (tmp_path / "run" / "metrics.jsonl").write_text('{"half": ')
        assert Summary.load(tmp_path / "run").rounds == 0


def test_a_lost_manifest_is_named(folder):
    (folder / "snapshot" / "manifest.json").unlink()
    for read in readers(folder).values():
        with pytest.raises(RunError, match=r"manifest.json is missing"):
            read()


def test_checksums_go_on_over_snapshots_and_a_resumed_run(folder):
    with Run.open(folder, cadence=0.0) as run:
        local(federation(), record=run).run(4)
    found = opened((folder / "snapshot" / "manifest.json").read_bytes())[0]
    assert found["tables"] == {t: digest((folder / f"{t}.jsonl").read_bytes()) for t in ("metrics", "ledger")}
    assert not Summary.load(folder).finished  # its result is that of before


def test_a_result_of_another_run_is_not_taken_for_this_ones(folder, tmp_path):
    weights_star(FedAvg(local=B16), seed=1).run(2, tmp_path / "other")
    shutil.copy(tmp_path / "other" / "result.json", folder / "result.json")
    assert Summary.load(folder).finished is False
    federation().resume(folder)
    assert Summary.load(folder).digest == Summary.load(folder).digest != Summary.load(tmp_path / "other").digest


def test_a_folder_of_before_there_were_checksums_is_read_with_a_note(folder, whole):
    outdated(folder)
    found = Summary.load(folder)
    assert found.as_json() == {**Summary.load(whole).as_json(), "unchecked": True}
    assert any(line.startswith("UNCHECKED") for line in show.lines(found))
    assert not any(line.startswith("UNCHECKED") for line in show.lines(Summary.load(whole)))


@pytest.mark.parametrize("format", [1, 2])
def test_a_folder_of_an_earlier_version_can_be_shown_and_is_not_resumed(folder, whole, format):
    if format == 1:
        outdated(folder)
    else:
        altered(folder, "spec.json", lambda spec: {**spec, "format": 2})
    found = Summary.load(folder).as_json()
    assert found == Summary.load(whole).as_json() | ({"unchecked": True} if format == 1 else {})
    assert Folder(folder).table.rows == Folder(whole).table.rows
    before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    with pytest.raises(RunError, match="made by an earlier version of heterophony") as said:
        federation().resume(folder, 3)
    assert "begin again in another folder" in str(said.value)
    assert "\n" not in str(said.value)
    assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before


def test_commands_show_and_export_a_run_of_an_earlier_version_and_refuse_to_resume_it(runs, tmp_path):
    folder = shutil.copytree(runs / "solo" / "seed-0", tmp_path / "run")
    in_files(folder)
    altered(folder, "spec.json", lambda spec: {**spec, "format": 2, "settings": {"of": "that time"}})
    assert said(call("show", folder, "--json"))["rounds"] == 2
    refused(call("resume", folder, "--rounds", 3), "made by an earlier version of heterophony")
    exported = call("export", folder, "--node", "a", "--to", tmp_path / "a.safetensors")
    assert exported.exit_code == 0, exported.stderr


def test_a_damaged_folder_of_an_earlier_version_with_checksums_is_still_named(folder):
    altered(folder, "spec.json", lambda spec: {**spec, "format": 2})
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text.replace("1", "2", 1))
    with pytest.raises(RunError, match=r"metrics.jsonl is damaged"):
        Summary.load(folder)


def test_a_new_folder_does_not_pass_for_an_old_one(folder):
    for name in ("result.json", "snapshot/manifest.json", "spec.json"):
        path = folder / name
        data = path.read_bytes()
        path.write_text(json.dumps(opened(data)[0]))
        with pytest.raises(RunError, match=rf"{path.name} is damaged: its checksum is missing"):
            Summary.load(folder)
        path.write_bytes(data)


def test_the_spec_is_the_one_that_the_run_was_begun_with(folder):
    path = folder / "spec.json"
    path.write_bytes(sealed({**opened(path.read_bytes())[0], "seed": 7}))
    with pytest.raises(RunError, match=r"spec.json is damaged: it is not what the run was begun with"):
        Summary.load(folder)


def test_what_is_altered_with_all_checksums_is_another_run(folder):
    """Checksums find damage; they are no signature."""
    altered(folder, "metrics.jsonl", lambda text: text)
    assert Summary.load(folder).finished
