"""Receipts of what was sent: signed by its sender, kept by both ends, and an audit that names each lie about them."""

import json
import shutil

import pytest

from deploy.direct import Clock, Direct, engine, node_server
from deploy.folders import deploy
from heterophony.base import codec
from heterophony.base.toml import written
from heterophony.deploy import keys
from heterophony.deploy.receipts import Receipts, Signed, Signer
from heterophony.engines.question import Answer
from heterophony.kernel.fields import Refused
from heterophony.runs.run import Run
from toys.deployed import CASES, NAMES

FEDAVG, FEDMD = CASES["fedavg"], CASES["fedmd-global"]


class Place:
    """A federation's folders, and its nodes, which sign, with a courier between them that has no network."""

    def __init__(self, case, folder):
        self.case, self.folder, self.plan = case, folder, case.plan(pace={"poll": 0.001})
        self.coordinator = folder / "coordinator"
        (self.coordinator / "keys").mkdir(parents=True)
        (self.coordinator / "federation.toml").write_text(written(self.plan.model_dump(mode="json")))
        for name in NAMES:
            home = self.home(name)
            home.mkdir(parents=True)
            keys.node(home)
            shutil.copy(home / "node.pub", self.coordinator / "keys" / f"{name}.pub")
            own = case.organisation(name, folder=f"../../state/{name}").model_dump(mode="json")
            (home / "organisation.toml").write_text(written(own))
        self.nodes = {name: self.node(name) for name in NAMES}

    def home(self, name):
        return self.folder / "participants" / name

    def node(self, name, signer=None):
        key = keys.private(self.home(name) / "node.key")
        return node_server(self.case, name, self.folder / "state", signer or Signer(key))

    def known(self):
        return {name: keys.public(self.coordinator / "keys" / f"{name}.pub") for name in NAMES}

    def receipts(self):
        return Receipts(self.coordinator / "receipts", self.plan, self.known())

    def run(self, courier=None, receipts=None, **options):
        courier = courier or Direct(self.nodes)
        made = engine(self.case, courier, self.plan, receipts=receipts or self.receipts(), **options)
        place = self.coordinator / "run"
        with Run.create(place, made.federation.identity(), self.plan.rounds) as record:
            return engine(self.case, courier, self.plan, record, receipts=receipts or self.receipts(), **options).run(
                self.plan.rounds
            )

    def file(self, name):
        return self.coordinator / "receipts" / f"{name}.jsonl"

    def lines(self, name):
        return self.file(name).read_text().splitlines()

    def write(self, name, lines):
        self.file(name).write_text("".join(line + "\n" for line in lines))

    def audit(self, *names):
        """The exit code, and what the auditor is told; with both ends, where names of participants are given."""
        done = deploy("verify", self.coordinator, *map(self.home, names))
        return done.exit_code, done.output


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = Place(FEDAVG, tmp_path_factory.mktemp("finished"))
    place.run()
    return place


@pytest.fixture
def place(finished, tmp_path):
    """A copy of a federation that has finished, to be tampered with."""
    shutil.copytree(finished.folder, tmp_path / "copy")
    made = object.__new__(Place)
    made.case, made.folder, made.plan = finished.case, tmp_path / "copy", finished.plan
    made.coordinator = made.folder / "coordinator"
    return made


def test_both_ends_keep_a_receipt_of_each_message_and_the_audit_finds_nothing_wrong(finished):
    code, said = finished.audit(*NAMES)
    assert code == 0, said
    assert f"{len(NAMES) * FEDAVG.rounds} receipts that hold, of {len(NAMES)} nodes" in said
    for name in NAMES:
        mine = [json.loads(line) for line in finished.lines(name)]
        own = finished.nodes[name].store
        assert mine == own.rows("receipts")
        assert [r["size"] for r in mine] == [row["payload"] for row in own.rows("ledger")]
        assert [r["number"] for r in mine] == [1, 2]
    rows = [json.loads(line) for line in (finished.coordinator / "run" / "ledger.jsonl").read_text().splitlines()]
    assert sum(row.get("from") in NAMES for row in rows if "kind" in row) == len(NAMES) * FEDAVG.rounds


def test_an_auditor_needs_only_the_plan_the_public_keys_and_the_files(finished, tmp_path):
    for path in [finished.coordinator / "federation.toml", finished.file("north")]:
        shutil.copy(path, tmp_path)
    shutil.copytree(finished.coordinator / "keys", tmp_path / "pub")
    words = ["--plan", tmp_path / "federation.toml", "--keys", tmp_path / "pub"]
    done = deploy("verify", tmp_path / "north.jsonl", *words)
    assert done.exit_code == 0, done.output
    assert "only one end" in done.output
    (tmp_path / "pub" / "east.pub").unlink()
    assert "east.pub is missing" in deploy("verify", tmp_path / "north.jsonl", *words).output


@pytest.mark.parametrize("field", ["round", "size", "sha256", "kind", "to", "number", "before", "reaction", "node"])
def test_a_line_that_was_changed_is_named(place, field):
    first, second = place.lines("north")
    value = json.loads(second)
    other = {"to": ["south"], "node": "south", "before": "", "kind": "global", "sha256": "0" * 64}
    value[field] = other.get(field, 7)
    place.write("north", [first, json.dumps(value)])
    code, said = place.audit("north")
    assert code == 1
    assert "north.jsonl line 2: changed or invented" in said.replace("\n", " ")
    assert "receipts of north end at 1" in said


def test_a_line_that_was_dropped_is_named_in_the_middle_by_one_end_and_at_the_end_by_two(place):
    lines = place.lines("north")
    place.write("north", lines[1:])
    code, said = place.audit()
    assert code == 1
    assert "receipt 1 of north missing: dropped, or changed" in said
    place.write("north", lines[:1])
    (place.coordinator / "run" / "ledger.jsonl").unlink()
    code, said = place.audit()
    assert code == 0  # as the command says, this end alone cannot show it
    assert "only one end: if the last receipts were cut off, nobody sees it here" in said
    code, said = place.audit("north")
    assert code == 1
    assert "receipts of north end at 1" in said
    place.file("north").unlink()
    assert "receipts of north end at 0" in place.audit("north")[1]


def test_what_the_coordinator_cuts_from_its_receipts_its_ledger_still_tells(place):
    place.write("north", place.lines("north")[:1])
    code, said = place.audit()
    assert code == 1
    assert "no receipt covers 'update' of round 1 from north to server" in said


def test_a_replayed_contribution_is_named_in_the_receipts_and_in_the_ledger(place):
    first, second = place.lines("north")
    place.write("north", [first, second, first])
    assert "line 3: replayed: it is line 1 once more" in place.audit()[1]
    place.write("north", [first, second])
    ledger = place.coordinator / "run" / "ledger.jsonl"
    row = next(line for line in ledger.read_text().splitlines() if '"from": "north"' in line)
    ledger.write_text(ledger.read_text() + row + "\n")
    code, said = place.audit()
    assert code == 1
    assert "no receipt covers 'update' of round 0 from north" in said


def forged(place, signer, name, number=3, **changes):
    """A receipt of a node's, signed by somebody."""
    last = Signed.of(place.lines(name)[1]).receipt
    about = {**vars(last), "number": number, "before": last.hash, **changes}
    made = type(last)(**about)
    return Signed(made, keys.sign(signer, made.content)).line


def test_nobody_can_invent_a_receipt_of_another(place):
    south = keys.private(place.home("south") / "node.key")
    north = keys.private(place.home("north") / "node.key")
    lines = place.lines("north")
    place.write("north", [*lines, forged(place, south, "north")])
    assert "line 3: changed or invented: who holds north has not signed it" in place.audit()[1]
    place.write("north", [*lines, forged(place, south, "north", node="stranger")])
    assert "no organisation holds a node 'stranger'" in place.audit()[1]
    place.write("north", [*lines, forged(place, north, "north", federation="another-one")])
    assert "signed it for another federation or plan" in place.audit()[1]
    place.write("north", [*lines, forged(place, north, "north", number=2, round=9)])
    assert "north has signed two receipts of number 2" in place.audit()[1]
    place.write("north", [*lines, forged(place, north, "north", before="0" * 64)])
    assert "does not follow the one before it: two histories" in place.audit()[1]
    place.write("north", [*lines, forged(place, north, "north", number=10**15)])
    assert f"receipts 3 to {10**15 - 1} of north missing" in place.audit()[1]
    place.write("north", [*lines, "[]", "no JSON", '{"node": 3}', "[" * 9000])
    code, said = place.audit()
    assert code == 1
    assert all(f"line {count}: " in said for count in (3, 4, 5, 6))


def test_the_coordinator_takes_no_answer_whose_receipts_are_not_its_senders(tmp_path):
    """A node that signs with another's key is absent, and nobody else is."""
    place = Place(FEDAVG, tmp_path)
    thief = Signer(keys.private(place.home("south") / "node.key"))
    place.nodes["north"] = place.node("north", thief)
    time = Clock()
    place.plan = place.plan.model_copy(update={"pace": place.plan.pace.model_copy(update={"patience": 50.0})})
    result = place.run(clock=time, sleep=time.sleep)
    assert {row["from"] for row in result.ledger.messages} == {"server", *NAMES} - {"north"}
    assert not place.file("north").exists()
    assert len(place.lines("south")) == FEDAVG.rounds
    assert place.audit("south", "east", "west")[0] == 0


def answered(place, name="north"):
    """A node's first answer, and the question."""
    full = {other: node_server(place.case, other, place.folder / "before") for other in NAMES}
    courier = Direct(full)
    engine(place.case, courier, place.plan).run(place.case.rounds)
    asked = next(data for to, data in courier.questions if to == name)
    return asked, codec.unpack(place.nodes[name].answer(asked))


def test_a_repeated_answer_has_the_same_receipts_and_is_written_down_once(tmp_path):
    place = Place(FEDAVG, tmp_path)
    asked, first = answered(place)
    again = codec.unpack(place.node("north").answer(asked))
    assert again["receipts"] == first["receipts"]
    kept = place.receipts()
    sends = Answer.of(first["outcome"], place.nodes["north"].door.kinds).sends
    for _ in range(2):
        kept.keep("north", kept.checked("north", 1, sends, first["receipts"]))
    fresh = place.receipts()  # another process, after a crash in the middle of a line
    with open(place.file("north"), "a") as file:
        file.write('{"federation": "toy')
    fresh.keep("north", fresh.checked("north", 1, sends, first["receipts"]))
    assert place.lines("north") == first["receipts"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda lines: None, "an answer without receipts"),
        (lambda lines: [], "no receipt says what its message 'update' is"),
        (lambda lines: lines * 2, "an answer without receipts"),
        (lambda lines: ["no JSON"], "malformed: no receipt"),
        (lambda lines: [lines[0].replace('"round": 0', '"round": 1')], "receipt 1 is not one of north"),
        (lambda lines: [lines[0].replace('"reaction": 1', '"reaction": 2')], "receipt 1 is not one of north"),
    ],
)
def test_an_answer_without_the_right_receipts_is_refused(change, text, tmp_path):
    from heterophony.engines.question import Answer

    place = Place(FEDAVG, tmp_path)
    _, first = answered(place)
    sends = Answer.of(first["outcome"], place.nodes["north"].door.kinds).sends
    with pytest.raises(Refused, match=text):
        place.receipts().checked("north", 1, sends, change(first["receipts"]))


def test_a_state_from_before_there_were_receipts_signs_from_then_on(tmp_path):
    place = Place(FEDAVG, tmp_path)
    asked, _ = answered(place)
    shutil.rmtree(place.folder / "state")
    node_server(FEDAVG, "north", place.folder / "state").answer(asked)  # an older version, that does not sign
    first = codec.unpack(place.node("north").answer(asked))
    assert len(first["receipts"]) == 1
    assert codec.unpack(place.node("north").answer(asked))["receipts"] == first["receipts"]
    assert len(place.node("north").store.rows("receipts")) == 1


def test_receipts_cover_every_kind_that_leaves_and_a_damaged_file_is_named(tmp_path):
    place = Place(FEDMD, tmp_path)
    place.run()
    code, said = place.audit(*NAMES)
    assert code == 0, said
    assert {json.loads(line)["kind"] for line in place.lines("north")} == {
        row["kind"] for row in place.nodes["north"].store.rows("ledger")
    }
    place.file("north").write_text("nonsense\n")
    with pytest.raises(keys.DeployError, match=r"north\.jsonl is damaged"):
        place.receipts()._kept("north")
