"""The queue: real tiny runs that are stopped, go on, are carried to another folder and merged there."""

import io
import json
import shutil
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from heterophony import Compute, __version__
from heterophony.base.seal import sealed
from heterophony.runs.run import Run
from heterophony.runs.summary import written
from heterophony.studies import campaign
from heterophony.studies.experiments import planning, queue, shipped
from heterophony.studies.experiments.archive import HEADER, ArchiveError, merge, pack
from heterophony.studies.experiments.pace import FILE, GROUP, NONE, OWN, TABLE, MeasuredPace, expected
from toys.compared import call, refused, said

FILE_OF_TWO = """
title = "A toy"
paper = "Nobody, Table 0"
setting = "{setting}"
seeds = 2
rounds = 4
[columns]
ACC = {{ figure = "acc" }}
[set]
evaluate = 1
[[arms]]
label = "alone"
method = "solo"
[[arms]]
label = "FedAvg"
method = "fedavg"
"""


@pytest.fixture(scope="module")
def two(small, tmp_path_factory):
    path = tmp_path_factory.mktemp("experiment") / "two.toml"
    path.write_text(FILE_OF_TWO.format(setting=small))
    return path


def left(two, root, seeds=None):
    (table,) = queue.remaining(root, planning.Version(seeds=seeds), Compute(), None, [str(two)])
    return table


def advanced(item, rounds=None):
    found = queue.advance(item.planned, time.time() + 600, rounds)
    assert not found.why
    return found


@pytest.fixture(scope="module")
def borrowed(two, tmp_path_factory):
    """What a borrowed machine has done: one run to its end, one only to its first round."""
    root = tmp_path_factory.mktemp("borrowed")
    alone, fedavg, *_ = left(two, root).items
    assert advanced(alone).ended
    assert not advanced(fedavg, 1).ended
    return root


@pytest.fixture(scope="module")
def archive(borrowed, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "runs.tar.xz"
    pack(borrowed, path)
    return path


def test_a_stopped_run_is_carried_elsewhere_and_ends_as_if_nobody_had_stopped_it(two, borrowed, archive, tmp_path):
    table = left(two, borrowed)
    assert [(item.planned.label, item.planned.seed, item.left) for item in table.items] == [
        ("FedAvg", 0, 3), ("alone", 1, 4), ("FedAvg", 1, 4)]  # fmt: skip
    here = tmp_path / "here"
    merged = merge(archive, here)
    assert (len(merged.new), merged.further, merged.kept) == (2, (), ())
    first = left(two, here).items[0]
    assert (first.planned.label, first.done) == ("FedAvg", 1)
    assert advanced(first).ended
    whole = left(two, tmp_path / "whole").items[1].planned
    assert written(first.planned.folder).digest == campaign.complete(whole, loud=False).digest


def test_a_finished_run_travels_without_weights_and_an_unfinished_one_with_them(archive):
    with tarfile.open(archive) as tar:
        weights = [name for name in tar.getnames() if name.endswith(".hph")]
    assert weights
    assert all("/FedAvg/" in name for name in weights)


def test_merged_twice_it_is_there_once_and_who_is_further_stays(two, archive, tmp_path):
    merge(archive, tmp_path)
    item = left(two, tmp_path).items[0]
    advanced(item)
    digest = written(item.planned.folder).digest
    again = merge(archive, tmp_path)
    assert (again.new, again.further, len(again.kept)) == ((), (), 2)
    assert written(item.planned.folder).digest == digest
    pack(tmp_path, tmp_path / "later.tar.xz")
    merge(archive, tmp_path / "other")
    later = merge(tmp_path / "later.tar.xz", tmp_path / "other")
    assert later.further == ("two/FedAvg/seed-0",)
    assert written(tmp_path / "other/two/FedAvg/seed-0").digest == digest
    assert not list(tmp_path.glob("**/.merging-*"))


def test_archives_of_different_seeds_make_one_table(two, borrowed, tmp_path):
    packed = []
    for seed in (0, 1):
        root = tmp_path / f"machine-{seed}"
        for item in left(two, root).items:
            if item.planned.seed == seed and item.planned.label == "alone":
                advanced(item)
        packed.append(tmp_path / f"{seed}.tar.xz")
        pack(root, packed[-1])
    out = tmp_path / "out"
    for path in packed:
        found = said(call("reproduce", two, "--merge", path, "--out", out, "--json"))
    table = json.loads(Path(found["tables"][0]).with_suffix(".json").read_text())
    (row,) = table["rows"]
    assert (row["arm"], row["seeds"]) == ("alone", [0, 1])
    assert row["by_seed"].keys() == {"0", "1"}


def rewritten(archive, to, change=lambda header: header, members=lambda contents: contents):
    """Write an archive anew, with another header or other members, and a checksum that fits."""
    with tarfile.open(archive) as tar:
        contents = {member.name: tar.extractfile(member).read() for member in tar}
    header = json.loads(contents.pop(HEADER))
    header.pop("sha256")
    with tarfile.open(to, "w:xz") as tar:
        for name, data in {HEADER: sealed(change(header)), **members(contents)}.items():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    return to


def moved(header, old, new):
    files = {name.replace(old, new): about for name, about in header["files"].items()}
    return {**header, "runs": {name.replace(old, new): how for name, how in header["runs"].items()}, "files": files}


def test_what_cannot_be_merged_is_one_line_and_changes_nothing(archive, tmp_path):
    out, bad = tmp_path / "out" / "root", tmp_path / "bad.tar.xz"
    data = archive.read_bytes()

    def refuses(*words):
        refused(call("reproduce", "--merge", bad, "--out", out), "bad.tar.xz", *words)
        assert not out.exists() or not list(out.iterdir())
        assert [path.name for path in out.parent.iterdir()] == ["root"]

    for cut in (data[: len(data) // 2], data[: len(data) * 3 // 4], b"nothing", b""):
        bad.write_bytes(cut)
        refuses("damaged")
    rewritten(archive, bad, lambda header: {**header, "heterophony": "0.0.9"})
    refuses("packed by heterophony 0.0.9", __version__)
    rewritten(archive, bad, lambda header: {**header, "format": 99})
    refuses("format 99")
    rewritten(archive, bad, lambda header: {"format": header["format"], "heterophony": __version__})
    refuses("lacks a part")
    for place in ("../two", "/two", "two/../../two", ".two", "two//x", "two/./x"):
        rewritten(
            archive,
            bad,
            lambda header, place=place: moved(header, "two/", f"{place}/"),
            lambda contents, place=place: {n.replace("two/", f"{place}/"): d for n, d in contents.items()},
        )
        refuses("no place of a run")
    rewritten(archive, bad, members=lambda contents: {**contents, "../../evil.json": b"{}"})
    refuses("does not stand in")
    rewritten(archive, bad, lambda header: {**header, "files": {**header["files"], "two/alone/seed-0/x.py": [1, "0"]}})
    refuses("no file of a run")
    rewritten(
        archive, bad, members=lambda contents: {n: d + b" " * n.endswith("spec.json") for n, d in contents.items()}
    )
    refuses("damaged", "spec.json")
    rewritten(archive, bad, members=lambda contents: dict(list(contents.items())[:-1]))
    refuses("is missing")


def test_a_link_in_an_archive_is_refused(archive, tmp_path):
    bad = tmp_path / "bad.tar.xz"
    with tarfile.open(archive) as tar, tarfile.open(bad, "w:xz") as made:
        for member in tar:
            if member.name.endswith("alone/seed-0/spec.json"):
                member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0
                made.addfile(member)
            else:
                made.addfile(member, tar.extractfile(member))
    with pytest.raises(ArchiveError, match="damaged"):
        merge(bad, tmp_path / "out")


def test_another_run_in_its_place_is_named_and_stays(two, small, archive, tmp_path):
    text = two.read_text().replace('method = "fedavg"', 'method = "fedprox"')
    (tmp_path / "two.toml").write_text(text)
    item = left(tmp_path / "two.toml", tmp_path / "out").items[1]
    advanced(item)
    answer = call("reproduce", "--merge", archive, "--out", tmp_path / "out")
    refused(answer, "FedAvg", "was run with fedprox, not fedavg")
    assert written(item.planned.folder) is not None
    assert not (tmp_path / "out/two/alone").exists()


def test_a_damaged_run_is_not_packed(borrowed, tmp_path):
    root = shutil.copytree(borrowed, tmp_path / "root")
    with (root / "two/alone/seed-0/metrics.jsonl").open("r+b") as file:
        file.write(b"{ ")
    refused(call("reproduce", "--pack", tmp_path / "x.tar.xz", "--out", root), "metrics.jsonl", "damaged")
    assert not (tmp_path / "x.tar.xz").exists()


def test_minutes_are_those_of_measured_rounds(two, borrowed):
    pace = MeasuredPace.load(borrowed / "two/FedAvg/seed-0")
    assert pace.done == 1
    assert (borrowed / "two/FedAvg/seed-0" / FILE).exists()
    known = {
        ("g", "a"): [MeasuredPace(2.0, 10.0, 5, "m"), MeasuredPace(4.0, 20.0, 5, "m")],
        ("h", "b"): [MeasuredPace(9.0, 0.0, 1, "m")],
    }
    assert (expected(("g", "a"), 7, known).seconds, expected(("g", "a"), 7, known).basis) == (15 + 7 * 3, OWN)
    assert (expected(("h", "a"), 7, known).seconds, expected(("h", "a"), 7, known).basis) == (15 + 7 * 3, GROUP)
    assert (expected(("h", "c"), 7, known).seconds, expected(("h", "c"), 7, known).basis) == (10 + 7 * 5, TABLE)
    assert (expected(("h", "c"), 7, {}).seconds, expected(("h", "c"), 7, {}).basis) == (None, NONE)
    table = left(two, borrowed)
    (line,) = queue.lines([table], minutes=1e6, jobs=2)
    assert line[:3] == ["two", "3 of 4", "11"]
    assert line[3] == f"{table.minutes / 2:.1f}"
    assert (line[4], line[5]) == ("measured", "fits")
    assert queue.lines([table], minutes=0.0)[0][5] == "later"


def test_the_queue_runs_what_remains_and_stops_in_time(two, tmp_path):
    out = ("--out", tmp_path / "out", "--json")
    nothing = said(call("reproduce", two, "--queue", *out))
    assert [row["minutes"] for row in nothing["remaining"]] == ["not known"]
    before = said(call("reproduce", two, "--queue", "--minutes", 0, *out))
    assert before["remaining"] == nothing["remaining"]
    assert not (tmp_path / "out").exists()
    packed = tmp_path / "runs.tar.xz"
    done = said(call("reproduce", two, "--queue", "--minutes", 5, "--jobs", 2, "--pack", packed, *out))
    assert (done["remaining"], done["failed"], done["finished"]) == ([], [], 4)
    assert Run.spec(tmp_path / "out/two/alone/seed-1")["seed"] == 1


def test_orders_that_do_not_go_together_are_refused(tmp_path):
    refused(call("reproduce", "--minutes", 3), "--queue")
    refused(call("reproduce", "--measure", "--pack", tmp_path / "x"), "--queue")
    refused(call("reproduce", "--pack", tmp_path / "x", "--out", tmp_path / "none"), "no such folder")
    refused(call("reproduce", "--merge", tmp_path / "none.tar.xz", "--out", tmp_path / "out"), "none.tar.xz")


def test_the_order_is_said_and_the_data_that_are_missing(tmp_path):
    names = queue.ordered(shipped())
    known = [name for name in queue.FIRST if name in shipped()]
    assert names[: len(known)] == known
    (table,) = queue.remaining(tmp_path, planning.Version(), Compute(), tmp_path, ["fccl-digits"])
    assert "cifar100" in table.missing
    assert queue.ready(table) == []
    assert queue.lines([table], 5.0)[0][5].startswith("data missing: cifar100")


def test_measuring_leaves_the_beginnings_of_runs_and_says_the_minutes(two, tmp_path):
    out = ("--out", tmp_path / "out", "--json")
    done = said(call("reproduce", two, "--queue", "--measure", "--minutes", 5, *out))
    (row,) = done["remaining"]
    assert (row["runs"], row["rounds left"], row["estimated from"]) == (
        "4 of 4",
        str(4 * 4 - 2 * queue.FEW),
        "measured",
    )
    assert float(row["minutes"]) >= 0


class Timed:
    """A pool whose runs take so many seconds a round, by how many are at work."""

    jobs = 4

    def __init__(self, seconds):
        self.seconds = seconds

    def run(self, items, jobs, *, span):
        for item in items:
            yield item, queue.Stretch(False, MeasuredPace(self.seconds[len(items)], 1.0, 3, "m"))


@pytest.mark.parametrize(("together", "taken"), [(1.0, 2), (1.7, 2), (1.9, 1), (2.5, 1)])
def test_runs_are_side_by_side_where_that_is_faster(two, tmp_path, together, taken):
    """Two at a time are faster where a round takes less than 2 / 1.1 times as long."""
    items = left(two, tmp_path).items
    assert queue._tried(Timed({1: 1.0, 2: together}), items, lambda text: None) == taken


class Device:
    """A device with room for so many runs: one more ends at once, as on a GPU without memory."""

    def __init__(self, room):
        self.room, self.busy, self.most, self.lock = room, 0, 0, threading.Lock()

    def advance(self, planned, until, most):
        with self.lock:
            if self.busy >= self.room:
                return queue.Stretch(False, None, f"{planned}: CUDA error: out of memory")
            self.busy += 1
            self.most = max(self.most, self.busy)
        time.sleep(0.01)
        with self.lock:
            self.busy -= 1
        return queue.Stretch(True)


@pytest.mark.parametrize(("room", "ended"), [(2, True), (5, True), (0, False)])
def test_runs_without_room_wait_until_there_are_fewer_and_one_alone_is_said(monkeypatch, room, ended):
    device = Device(room)
    monkeypatch.setattr(queue, "advance", device.advance)
    workers = queue.RunPool(4, time.time() + 60)
    workers.processes = ThreadPoolExecutor(4)
    items = [queue.Item(("", str(i)), SimpleNamespace(), 0) for i in range(6)]
    found = list(workers.run(items))
    assert sorted(item.place for item, _ in found) == [item.place for item in items]
    assert [stretch.ended for _, stretch in found] == [ended] * 6
    assert device.most == min(room, 4)
