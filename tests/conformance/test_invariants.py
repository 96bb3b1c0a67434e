"""One table of all methods, every invariant over every row.

A new method gets all of this from one line in `toys/federations.py` (or, for shipped methods, from its entry there).
"""

import hashlib
import itertools
import zlib
from dataclasses import replace

import pytest

from heterophony import Dropout, Profile
from heterophony.base import codec
from heterophony.engines import local, process
from heterophony.runs.run import Run
from toys.bytes import formula
from toys.crashing import Photographer
from toys.federations import ROWS
from toys.undisturbed import undisturbed

pytestmark = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


SHAPES = ("fedavg", "fedh2l", "bhfl")
PLACES = {row.name: zlib.crc32(row.name.encode()) for row in ROWS}


def sampled(row, one_in, place):
    """Return whether the quick tier has this row: a star, peers, a tree; of all other rows one in so many."""
    return row.name in SHAPES or PLACES[row.name] % one_in == place


def on_local(row, rounds=None, build=(), **options):
    return local(row.build(**dict(build)), **row.options, **options).run(rounds or row.rounds)


def on_process(row, build=()):
    return process(row.build(**dict(build)), **row.options).run(row.rounds)


def same(a, b):
    assert a.ledger.rows == b.ledger.rows
    assert a.table.rows == b.table.rows
    assert a.clock == b.clock
    assert a.digest == b.digest


def test_runs(row):
    result = undisturbed(row)
    assert result.rounds == row.rounds
    assert {incident["incident"] for incident in result.ledger.incidents} == row.incidents
    assert "refused" in row.incidents or all(r["sum"] is not None for r in result.table)
    assert len(result.table) > 0


def test_encoded_equals_in_memory(row):
    same(undisturbed(row), on_local(row, encode=True))


def test_process_engine_equals_local_engine(row):
    """A process for each node is slow to start: here some rows, all others in the slow tier.

    What may go wrong here is the coding of questions and answers. `tests/deploy/test_conformance.py` has the same
    coding for other methods.
    """
    if not sampled(row, 8, 0):
        pytest.skip("`make test-all` runs it")
    same(undisturbed(row), on_process(row))


@pytest.mark.slow
def test_process_engine_equals_local_engine_in_every_row(row):
    if sampled(row, 8, 0):
        pytest.skip("the quick tier runs it")
    same(undisturbed(row), on_process(row))


def test_same_seed_repeats_and_another_differs(row):
    first, again, other = undisturbed(row), on_local(row), on_local(row, build={"seed": 1})
    same(first, again)
    assert first.digest != other.digest


def test_ledger_equals_the_formula(row):
    if row.incidents - {"duplicate"} or row.lost:
        pytest.skip("the formula is that of an undisturbed run")
    federation, sent = row.build(), undisturbed(row).ledger.bytes()
    declared = (row.bytes or formula)(federation, row.rounds)
    assert {kind.name for kind in federation.method.kinds} == set(declared)
    assert sent == {kind: size for kind, size in declared.items() if kind in sent}
    assert all(size == 0 for kind, size in declared.items() if kind not in sent)


def test_evaluation_does_not_change_the_run(row):
    watched = undisturbed(row)
    unwatched = local(replace(row.build(), tests={}), **row.options).run(row.rounds)
    assert not any(r["quantity"] == "accuracy" for r in unwatched.table)
    assert watched.digest == unwatched.digest
    assert watched.clock == unwatched.clock
    assert watched.ledger.rows == unwatched.ledger.rows


def test_no_undeclared_state(row):
    """What a node keeps is what it declares: its state can be written, and nothing else of it has changed."""
    federation = row.build()
    before = {key: repr(value) for key, value in vars(federation.method).items()}
    engine = local(federation, **row.options)
    engine.run(row.rounds)
    assert {key: repr(value) for key, value in vars(federation.method).items()} == before
    for name, node in engine.host.nodes.items():
        assert set(node.vars) <= set(federation.method.memory)
        fresh = federation.node(name)
        fresh.restore(codec.unpack(codec.pack(node.state())))
        assert codec.pack(fresh.state()) == codec.pack(node.state())
        for slot, module in node.models.items():
            modules = zip(module.modules(), fresh.models[slot].modules(), strict=True)
            assert all(vars(used).keys() == vars(new).keys() for used, new in modules)
            assert all(p.grad is None for p in module.parameters())


DROPS = {"dropout": Dropout(rate=0.4), "seed": 3}


def test_copes_with_participants_that_miss_rounds(row):
    """Who is lost in which round is the engine's affair, not the host's: the other host has one row of each shape."""
    if not row.drops:
        pytest.skip("needs every participant")
    result = on_local(row, build=DROPS)
    assert result.rounds == row.rounds
    assert any(r["status"] == "dropped" for r in result.ledger.messages)
    if row.name in SHAPES:
        same(result, on_process(row, DROPS))


@pytest.mark.slow
def test_whoever_misses_rounds_misses_them_on_the_process_engine_too(row):
    if not row.drops:
        pytest.skip("needs every participant")
    same(on_local(row, build=DROPS), on_process(row, DROPS))


def test_quorum_and_deadline_are_the_methods_own(row):
    """Rounds that a slow participant keeps from their quorum are skipped, and the run goes on."""
    federation = row.build()
    if "c2" not in federation.topology.roles or not hasattr(federation.method, "cohort") or row.incidents:
        pytest.skip("nobody waits, or not by these options, or others are slow already")
    cohort = replace(federation.method.cohort, deadline=2.0, quorum=1.0)
    hurried = replace(federation.method, cohort=cohort)
    result = local(replace(federation, method=hurried, profiles={"c2": Profile(seconds_per_sample=1.0)})).run(4)
    assert result.rounds == 4
    assert {"timeout", "skipped"} <= {incident["incident"] for incident in result.ledger.incidents}


def test_more_rounds_continue_a_finished_run(row, tmp_path):
    """Raising the number of rounds goes on from where the run stands; no reaction is lost or done twice."""
    if not sampled(row, 2, 0):
        pytest.skip("`make test-all` goes on after every write of this row")
    folder, federation = tmp_path / "run", row.build()
    federation.run(row.rounds - 1, folder, **row.options)
    result = federation.resume(folder, row.rounds, **row.options)
    assert result.rounds == row.rounds
    if row.waits:
        assert result.digest == undisturbed(row).digest


def run_in(folder, row, rounds, create=False, **options):
    federation = row.build()
    arguments = (folder, federation.identity(), *([rounds] if create else []))
    with (Run.create if create else Run.open)(*arguments, **options) as run:
        engine = local(federation, record=run, **row.options)
        return engine, engine.run(rounds)


def fingerprint(folder, row):
    """What a resumed engine starts from, to the bit; None where there is nothing to start from."""
    federation = row.build()
    with Run.open(folder, federation.identity(), cadence=1e9) as run:
        if not run.exists:
            return None
        engine = local(federation, record=run, **row.options)
        run.load(engine)
    nodes = sorted({*engine.boxes, *engine.idle})
    for node in nodes:
        engine.box(node)  # a row only, so far
    state = [engine.encode_queue(), *(engine.encode_node(node) for node in nodes)]
    tables = repr((engine.table.rows, engine.ledger.rows)).encode()
    return hashlib.sha256(b"".join([*state, tables])).digest()


def crash(row, tmp_path, resume_each, **moments):
    """Crash before and within writes of a run; each time the resumed run must end as if nothing was.

    Crashes that leave the engine in the same state, to the bit, are resumed to the end once, unless `resume_each`.
    """
    folder, album = tmp_path / "run", tmp_path / "album"
    album.mkdir()
    disk = Photographer(folder, album, **moments)
    _, whole = run_in(folder, row, row.crash_rounds, create=True, disk=disk, cadence=0.0)
    tables = [(folder / name).read_bytes() for name in ("metrics.jsonl", "ledger.jsonl")]
    known, resumed = set(), 0
    for picture in disk.pictures:
        if not (picture / "spec.json").exists():
            continue  # the crash came before there was a run
        start = fingerprint(picture, row)
        if start in known and not resume_each:
            continue
        known.add(start)
        resumed += 1
        _, result = run_in(picture, row, row.crash_rounds, cadence=1e9)
        same(result, whole)
        assert [(picture / name).read_bytes() for name in ("metrics.jsonl", "ledger.jsonl")] == tables
    assert resumed * disk.every > 15
    assert disk.moments > 40


def test_resume_after_a_crash_equals_uninterrupted(row, tmp_path):
    """Every ninth write, other ones for other rows, so that all kinds of writes are among them.

    When a write ends is the engine's affair: here some rows, all of them, after every write, in the slow tier.
    """
    if not sampled(row, 6, 1):
        pytest.skip("`make test-all` runs it")
    crash(row, tmp_path, resume_each=False, every=9, first=zlib.crc32(row.name.encode()) % 9)


@pytest.mark.slow
def test_resume_to_the_end_after_every_crash(row, tmp_path):
    crash(row, tmp_path, resume_each=True)


def whenever_snapshots_are_taken(row, tmp_path):
    ends = []
    for name, cadence in (("never", 1e9), ("always", 0.0)):
        ends.append(run_in(tmp_path / name, row, row.rounds, create=True, cadence=cadence)[1])
    ends.append(undisturbed(row))
    for a, b in itertools.pairwise(ends):
        same(a, b)


def test_when_snapshots_are_taken_does_not_matter(row, tmp_path):
    """A snapshot lets pending reactions finish early; the run must not notice."""
    if not sampled(row, 6, 2):
        pytest.skip("`make test-all` runs it")
    whenever_snapshots_are_taken(row, tmp_path)


@pytest.mark.slow
def test_when_snapshots_are_taken_does_not_matter_in_any_row(row, tmp_path):
    if sampled(row, 6, 2):
        pytest.skip("the quick tier runs it")
    whenever_snapshots_are_taken(row, tmp_path)
