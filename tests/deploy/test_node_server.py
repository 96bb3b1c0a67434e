"""A node at home: each question is applied once, whatever happens; nothing leaves but what may; the rest is refused."""

import errno
import json
import shutil
from dataclasses import replace

import pytest
import torch

from deploy.direct import Direct, engine, node_server, node_servers
from heterophony.base import codec
from heterophony.base.disk import Disk
from heterophony.deploy.named_function import DeployError
from heterophony.deploy.node_store import NodeStore
from heterophony.engines import local
from heterophony.parts.lies import attack
from toys.crashing import Photographer
from toys.deployed import CASES

FEDAVG, FEDMD = CASES["fedavg"], CASES["fedmd-global"]


def questions(case, folder, node="north", **changes):
    """The questions that a node got in an undisturbed run."""
    courier = Direct(node_servers(case, folder, **changes))
    engine(case, courier).run(case.rounds)
    return [data for to, data in courier.questions if to == node]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return questions(FEDAVG, tmp_path_factory.mktemp("undisturbed"))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def changed(question, **changes):
    return codec.pack({**codec.unpack(question), **changes})


def test_a_repeated_question_gets_the_same_answer_and_changes_nothing(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    first = here.answer(asked[0])
    before = files(tmp_path)
    again = node_server(FEDAVG, "north", tmp_path)  # another process, after a restart
    assert again.answer(asked[0]) == first
    again.plan = FEDAVG.plan(rounds=9)
    assert again.answer(changed(asked[0], rounds=9, start=123.0)) == first  # the same question, in a longer run
    after = files(tmp_path)
    after.pop(f"{here.plan.id}.incidents.jsonl")
    assert after == before
    assert len(here.store.rows("ledger")) == 1


def test_what_leaves_once_more_is_noted_and_as_the_policy_of_today_allows(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path, egress={"metrics": ["train"]})
    first = codec.unpack(here.answer(asked[0]))["outcome"]
    size = here.store.rows("ledger")[0]["payload"]
    assert codec.unpack(here.answer(asked[0]))["outcome"]["rows"] == first["rows"] != []
    assert [(row["incident"], row["detail"]) for row in here.store.rows("incidents")] == [
        ("again", f"'update' of round 0 to server left once more, {size} bytes")
    ]
    stricter = node_server(FEDAVG, "north", tmp_path, egress={"kinds": [], "metrics": []})
    again = codec.unpack(stricter.answer(asked[0]))["outcome"]
    assert again["sends"] == [("update", ("server",), 0, None)]
    assert again["rows"] == []
    assert len(here.store.rows("incidents")) == 1  # nothing left


def test_what_is_past_or_was_another_question_is_refused(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    for question in asked:
        here.answer(question)
    before = files(tmp_path)
    for question, why in (
        (asked[0], "is past"),
        (changed(asked[1], number=1), "is past"),
        (changed(asked[0], number=2), "was another one"),
    ):
        assert why in codec.unpack(here.answer(question))["refused"]
    after = files(tmp_path)
    after.pop(f"{here.plan.id}.incidents.jsonl")
    assert after == before
    assert [row["incident"] for row in here.store.rows("incidents")] == ["refused"] * 3


def test_a_crash_at_any_write_leaves_all_of_a_reaction_or_none(asked, tmp_path):
    whole = node_server(FEDAVG, "north", tmp_path / "whole")
    answers = [whole.answer(question) for question in asked]
    folder = tmp_path / "crashing" / "north"
    here = node_server(FEDAVG, "north", tmp_path / "crashing")
    folder.mkdir(parents=True)
    here.store.disk = camera = Photographer(folder, tmp_path / "album")
    done = []  # how many reactions an answer had been given for, when each picture was taken
    for number, question in enumerate(asked):
        here.answer(question)
        done += [number] * (len(camera.pictures) - len(done))
    assert len(camera.pictures) >= 8
    for picture, number in zip(camera.pictures, done, strict=True):
        place = tmp_path / "again"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(picture, place / "north")
        again = node_server(FEDAVG, "north", place)
        assert [again.answer(question) for question in asked[number:]] == answers[number:]
        for table in ("ledger", "metrics"):
            assert again.store.rows(table) == whole.store.rows(table)
        assert again.store.file.read_bytes() == whole.store.file.read_bytes()


def test_a_damaged_state_is_found_and_left_alone(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    here.answer(asked[0])
    data = bytearray(here.store.file.read_bytes())
    data[len(data) // 2] ^= 1
    here.store.file.write_bytes(bytes(data))
    with pytest.raises(DeployError, match="is damaged"):
        here.store.peek()
    assert "failed" in codec.unpack(here.answer(asked[1]))
    assert here.store.file.read_bytes() == bytes(data)
    assert "is damaged" in here.store.rows("incidents")[-1]["detail"]


class Full(Disk):
    """A disk without room, but for a first piece of what is to be written."""

    def write(self, path, data):
        path.write_bytes(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    def append(self, path, data):
        with open(path, "ab") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")


def test_on_a_full_disk_a_node_fails_keeps_what_it_has_and_goes_on_later(asked, tmp_path, caplog):
    whole = node_server(FEDAVG, "north", tmp_path / "whole")
    answers = [whole.answer(question) for question in asked]
    here = node_server(FEDAVG, "north", tmp_path / "full")
    assert here.answer(asked[0]) == answers[0]
    state = here.store.file.read_bytes()
    here.store.disk = Full()
    for _ in range(2):
        assert "failed" in codec.unpack(here.answer(asked[1]))
    assert here.store.file.read_bytes() == state
    assert "No space left on device" in caplog.text
    here.store.disk = Disk()
    assert here.answer(asked[1]) == answers[1]
    for table in ("ledger", "metrics"):
        assert here.store.rows(table) == whole.store.rows(table)


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path):
    store = NodeStore(tmp_path, "cut-off-federation")
    store.note("refused", "one")
    for table in ("incidents", "ledger"):
        with open(store.table(table), "a") as file:
            file.write('{"at": "2026-')
    assert [row["detail"] for row in store.rows("incidents")] == ["one"]
    assert store.rows("ledger") == []
    store.note("refused", "two")
    assert [row["detail"] for row in store.rows("incidents")] == ["one", "two"]


def test_a_node_reacts_no_more_often_than_its_organisation_allows(asked, tmp_path):
    """A coordinator may say of every question that it is of the first round."""
    here = node_server(FEDAVG, "north", tmp_path, egress={"reactions": 3})
    answers = [codec.unpack(here.answer(changed(asked[0], number=n))) for n in (1, 2, 3, 4)]
    assert [list(answer) for answer in answers] == [["outcome"]] * 3 + [["refused"]]
    assert answers[3]["refused"] == "reaction 4, but organisation.toml here says reactions = 3"
    assert "outcome" in codec.unpack(here.answer(changed(asked[0], number=3)))  # what was asked may be asked again


def test_an_old_state_put_back_is_noticed(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    assert "was an old state put back" in codec.unpack(here.answer(asked[1]))["refused"]
    assert not here.store.file.exists()


# -- what comes in -----------------------------------------------------------------------------------------------
def with_mail(question, **changes):
    return changed(question, mail={**codec.unpack(question)["mail"], **changes})


def without(question, name):
    return codec.pack({key: value for key, value in codec.unpack(question).items() if key != name})


def without_mail(question, name):
    mail = {key: value for key, value in codec.unpack(question)["mail"].items() if key != name}
    return changed(question, mail=mail)


HOSTILE = {
    "malformed": (lambda q: q[:-7], "malformed"),
    "random bytes": (lambda q: bytes(range(256)), "malformed"),
    "no question": (lambda q: codec.pack([1, 2]), "malformed"),
    "another federation": (lambda q: changed(q, federation="another-one"), "of federation another-one"),
    "another node": (lambda q: changed(q, node="south"), "a question to south"),
    "another plan": (lambda q: changed(q, plan="0" * 64), "compare federation.toml"),
    "another format": (lambda q: changed(q, format=99), "install the same version"),
    "another request": (lambda q: changed(q, ask="state"), "nobody can ask for state"),
    "no such reaction": (lambda q: changed(q, reaction="rng"), "no reaction of a client is called rng"),
    "another role's reaction": (lambda q: changed(q, reaction="merge"), "no reaction of a client is called merge"),
    "undeclared kind": (lambda q: with_mail(q, kind="gradient"), "the kind 'gradient' is not declared"),
    "a kind that it does not take": (lambda q: with_mail(q, kind="update"), "'train' takes no 'update'"),
    "from a stranger": (lambda q: with_mail(q, sender="south"), "is on no link here"),
    "to another": (lambda q: with_mail(q, receiver="south"), "is on no link here"),
    "mail of another form": (lambda q: changed(q, mail=None), "in a form that it never has"),
    "no mail": (lambda q: changed(q, mail={"inbox": 3, "also": []}), "no mail"),
    "nested mail": (lambda q: with_mail(q, also=[codec.unpack(q)["mail"]]), "takes no"),
    "more rounds than were agreed": (
        lambda q: changed(q, rounds=3),
        "a question for 3 rounds, but federation.toml here",
    ),
    "a negative round": (lambda q: changed(q, round=-1), "no activation"),
    "a negative number": (lambda q: changed(q, number=-1), "no activation"),
    "a number that is a truth": (lambda q: changed(q, number=True), "no activation"),
    "a round that is none": (lambda q: changed(q, round=False), "no activation"),
    "rounds beyond all floats": (lambda q: changed(q, rounds=10**400), "no activation"),
    "a format that is a truth": (lambda q: changed(q, format=True), "a question in format True"),
    "a start beyond all floats": (lambda q: changed(q, start=10**400), "the run cannot be 10000"),
    "a start that is no number": (lambda q: changed(q, start=float("nan")), "the run cannot be nan seconds old"),
    "a start at infinity": (lambda q: changed(q, start=float("inf")), "the run cannot be inf seconds old"),
    "a start before the run": (lambda q: changed(q, start=-1.0), "the run cannot be -1.0 seconds old"),
    "a start that is a truth": (lambda q: changed(q, start=True), "the run cannot be True seconds old"),
    "a last round that is a number": (lambda q: changed(q, last=1), "whether it is the last round is 1"),
    "a round that is not the node's": (
        lambda q: with_mail(changed(q, round=1), staleness=1),
        "of round 1, but this node is in round 0",
    ),
    "mail of a negative age": (lambda q: with_mail(q, staleness=-1), "is -1 rounds old, not 0"),
    "mail that is older than it is": (lambda q: with_mail(q, staleness=7), "is 7 rounds old, not 0"),
    "mail whose age is a truth": (lambda q: with_mail(q, staleness=False), "is False rounds old, not 0"),
    "mail of a round that never comes": (lambda q: with_mail(q, round=2**52), "but the run has 2"),
    "mail whose id is none": (lambda q: with_mail(q, id=(-1, 0)), "has an id that is not two whole numbers"),
    "mail swept along in no list": (lambda q: with_mail(q, also={}), "no mail"),
    "a question of no format": (lambda q: without(q, "format"), "no question of ours"),
    "a question of no federation": (lambda q: without(q, "federation"), "no question of ours"),
    "a question of no plan": (lambda q: without(q, "plan"), "no question of ours"),
    "a question to no node": (lambda q: without(q, "node"), "no question of ours"),
    "a question for nothing": (lambda q: without(q, "ask"), "no question of ours"),
    "a format that is a float": (lambda q: changed(q, format=1.0), "no question of ours"),
    "a plan that is no text": (lambda q: changed(q, plan=3), "no question of ours"),
    "a header without end": (lambda q: changed(q, more="x" * 2**20), "malformed"),
    "no number": (lambda q: without(q, "number"), "no activation"),
    "no reaction": (lambda q: without(q, "reaction"), "no activation"),
    "no round": (lambda q: without(q, "round"), "no activation"),
    "no rounds": (lambda q: without(q, "rounds"), "no activation"),
    "no start": (lambda q: without(q, "start"), "no activation"),
    "nothing about mail": (lambda q: without(q, "mail"), "no activation"),
    "number zero": (lambda q: changed(q, number=0), "no activation"),
    "a number that is a float": (lambda q: changed(q, number=1.0), "no activation"),
    "a number beyond all floats": (lambda q: changed(q, number=2**53), "no activation"),
    "a reaction that is a number": (lambda q: changed(q, reaction=3), "no activation"),
    "a round beyond all floats": (lambda q: changed(q, round=2**53), "no activation"),
    "a start that is a text": (lambda q: changed(q, start="0"), "no activation"),
    "a start that is too late": (lambda q: changed(q, start=2**53), "seconds old"),
    "a last round that is nothing": (lambda q: changed(q, last=None), "whether it is the last round is None"),
    "mail that is a text": (lambda q: changed(q, mail="inbox"), "malformed: no mail"),
    "mail that is a number": (lambda q: changed(q, mail=3), "malformed: no mail"),
    "mail that is a list": (lambda q: changed(q, mail=[]), "no message header"),
    "mail that is empty": (lambda q: changed(q, mail={}), "no message header"),
    "an inbox where one message belongs": (
        lambda q: changed(q, mail={"inbox": [codec.unpack(q)["mail"]], "also": []}),
        "in a form that it never has",
    ),
    "mail of no kind": (lambda q: without_mail(q, "kind"), "no message header"),
    "mail of no age": (lambda q: without_mail(q, "staleness"), "no mail"),
    "mail without what was swept along": (lambda q: without_mail(q, "also"), "no mail"),
    "mail without a body": (lambda q: without_mail(q, "body"), "no message header"),
    "mail whose body is a list": (lambda q: with_mail(q, body=[]), "no message header"),
    "mail whose sender is a number": (lambda q: with_mail(q, sender=3), "no message header"),
    "mail whose round is a truth": (lambda q: with_mail(q, round=False), "no message header"),
    "mail of a negative round": (lambda q: with_mail(q, round=-1), "no message header"),
    "mail of a round beyond all floats": (lambda q: with_mail(q, round=2**53), "no message header"),
    "mail whose id has three parts": (lambda q: with_mail(q, id=(1, 0, 0)), "no message header"),
    "mail whose id is two truths": (
        lambda q: with_mail(q, id=(True, False)),
        "has an id that is not two whole numbers",
    ),
    "mail from itself": (lambda q: with_mail(q, sender="north"), "is on no link here"),
    "mail from nobody": (lambda q: with_mail(q, sender="nobody"), "is on no link here"),
    "mail whose age is a float": (lambda q: with_mail(q, staleness=0.0), "is 0.0 rounds old, not 0"),
    "mail that is swept along and no mail": (lambda q: with_mail(q, also=[3]), "no message header"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_question_is_refused_logged_and_changes_nothing(name, asked, tmp_path):
    make, why = HOSTILE[name]
    here = node_server(FEDAVG, "north", tmp_path)
    assert why in codec.unpack(here.answer(make(asked[0])))["refused"]
    assert not here.store.file.exists()
    assert why in here.store.rows("incidents")[-1]["detail"]


def first(question):
    return codec.unpack(question)["mail"]["inbox"][0]


def others(question):
    return codec.unpack(question)["mail"]["inbox"][1:]


HOSTILE_TO_A_WINDOW = {
    "no mail": (lambda q: changed(q, mail=None), "in a form that it never has"),
    "one message where an inbox belongs": (lambda q: changed(q, mail=first(q)), "in a form that it never has"),
    "an inbox that is no list": (lambda q: with_mail(q, inbox={}), "malformed: no mail"),
    "an inbox with nothing swept along": (lambda q: without_mail(q, "also"), "malformed: no mail"),
    "mail within mail": (
        lambda q: with_mail(q, inbox=[{**first(q), "also": [first(q)]}, *others(q)]),
        "malformed: no mail",
    ),
    "the awaited kind among what is swept along": (lambda q: with_mail(q, also=[first(q)]), "takes no 'teach'"),
    "a stranger's message among others": (
        lambda q: with_mail(q, inbox=[*others(q), {**first(q), "sender": "server"}]),
        "is on no link here",
    ),
    "another kind among others": (
        lambda q: with_mail(q, inbox=[*others(q), {**first(q), "kind": "global"}]),
        "the kind 'global' is not declared",
    ),
    "one message of a wrong age": (
        lambda q: with_mail(q, inbox=[*others(q), {**first(q), "staleness": 1}]),
        "'teach' of round 0 is 1 rounds old, not 0",
    ),
    "one message of a round that never comes": (
        lambda q: with_mail(q, inbox=[*others(q), {**first(q), "round": 9}]),
        "'teach' of round 9, but the run has 2",
    ),
    "another reaction": (lambda q: changed(q, reaction="teach"), "in a form that it never has"),
}


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    """The question of FedH2L that begins a round, and the one that ends it with the mail of three peers."""
    return questions(CASES["fedh2l"], tmp_path_factory.mktemp("window"))[:2]


@pytest.mark.parametrize("name", HOSTILE_TO_A_WINDOW)
def test_a_hostile_inbox_is_refused_whole_and_changes_nothing(name, window, tmp_path):
    (teach, learn), (make, why) = window, HOSTILE_TO_A_WINDOW[name]
    here = node_server(CASES["fedh2l"], "north", tmp_path)
    here.answer(teach)
    before = here.store.file.read_bytes()
    assert why in codec.unpack(here.answer(make(learn)))["refused"]
    assert here.store.file.read_bytes() == before
    assert why in here.store.rows("incidents")[-1]["detail"]


def test_mail_where_a_round_begins_without_any_is_refused(window, tmp_path):
    teach, learn = window
    here = node_server(CASES["fedh2l"], "north", tmp_path)
    for mail in (codec.unpack(learn)["mail"], first(learn), {"inbox": [], "also": []}):
        assert "in a form that it never has" in codec.unpack(here.answer(changed(teach, mail=mail)))["refused"]
    assert not here.store.file.exists()


def test_one_message_of_a_window_that_does_not_fit_is_dropped_and_the_rest_counts(window, tmp_path):
    teach, learn = window
    answers = []
    for name, mail in (
        ("spoiled", [{**first(learn), "body": {}}, *others(learn)]),
        ("without", others(learn)),
    ):
        here = node_server(CASES["fedh2l"], "north", tmp_path / name)
        here.answer(teach)
        answers.append(codec.unpack(here.answer(with_mail(learn, inbox=mail)))["outcome"])
    spoiled, without_it = answers
    assert len(spoiled.pop("refused")) == 1
    assert without_it.pop("refused") == []
    assert codec.pack(spoiled) == codec.pack(without_it)


def test_a_repetition_with_anything_else_in_its_mail_is_another_question(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    here.answer(asked[0])
    for other in (
        with_mail(asked[0], more=1),
        with_mail(asked[0], id=(7, 0)),
        with_mail(asked[0], body={}),
    ):
        assert "was another one" in codec.unpack(here.answer(other))["refused"]


def test_what_a_question_says_beyond_what_is_asked_changes_nothing(asked, tmp_path):
    """Where a node's links are, and who has joined, its own copy of the plan says."""
    honest = node_server(FEDAVG, "north", tmp_path / "honest").answer(asked[0])
    more = {"links": {"parent": ["south"]}, "outside": ["server"], "wave": "x", "due": -1.0, "more": None}
    for name, value in more.items():
        assert node_server(FEDAVG, "north", tmp_path / name).answer(changed(asked[0], **{name: value})) == honest
    whole_seconds, listed_id = changed(asked[0], start=0), with_mail(asked[0], id=[1, 0])
    for name, question in (("seconds", whole_seconds), ("id", listed_id)):
        found = codec.unpack(node_server(FEDAVG, "north", tmp_path / name).answer(question))["outcome"]
        assert found["sends"][0][:3] == codec.unpack(honest)["outcome"]["sends"][0][:3]


def test_the_age_of_a_signal_divides_nothing_by_zero(tmp_path):
    """FedH2L's teachers count less by (1 + age) to a power."""
    case = CASES["fedh2l"]
    here = node_server(case, "north", tmp_path / "here")
    teach, learn, *_ = questions(case, tmp_path / "whole")
    here.answer(teach)
    mail = codec.unpack(learn)["mail"]
    old = [{**message, "staleness": -1} for message in mail["inbox"]]
    answer = codec.unpack(here.answer(with_mail(learn, inbox=old)))
    assert answer == {"refused": "'teach' of round 0 is -1 rounds old, not 0"}
    assert "outcome" in codec.unpack(here.answer(learn))


def test_what_the_coordinator_says_is_one_printable_line_here(asked, tmp_path, caplog):
    here = node_server(FEDAVG, "north", tmp_path)
    here.answer(changed(asked[0], ask="x\nfailed: \x1b[2J"))
    assert here.store.rows("incidents")[-1]["detail"] == "malformed: nobody can ask for x failed: [2J"
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_an_oversized_question_is_refused_before_it_is_read(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    here.plan = FEDAVG.plan(limit=1000)
    answer = codec.unpack(here.answer(asked[0]))
    assert answer == {"refused": f"malformed: {len(asked[0])} bytes, the limit is 1000"}


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda w: {**w, "0.weight": w["0.weight"][:, :4].clone()}, "has shape"),
        (lambda w: {**w, "0.weight": w["0.weight"].double()}, "is torch.float64"),
        (lambda w: {name: t for name, t in w.items() if name != "0.bias"}, "names do not match"),
        (lambda w: {**w, "0.bias": torch.full_like(w["0.bias"], float("nan"))}, "not finite"),
        (lambda w: {**w, " " * 10**6: w["0.bias"].clone()}, "names do not match"),
    ],
)
def test_mail_that_does_not_fit_is_refused_at_the_door(harm, why, asked, tmp_path):
    """Whoever sent it may be any participant, so that it only counts as absent."""
    body = codec.unpack(asked[0])["mail"]["body"]
    here = node_server(FEDAVG, "north", tmp_path)
    before = codec.unpack(here.answer(changed(asked[0], ask="digest")))
    outcome = codec.unpack(here.answer(with_mail(asked[0], body={"weights": harm(body["weights"])})))["outcome"]
    assert outcome["sends"] == []
    assert why in outcome["refused"][0]
    assert len(outcome["refused"][0]) <= 300  # a longer answer would be refused itself
    assert why in here.store.rows("incidents")[-1]["detail"]
    assert codec.unpack(here.answer(changed(asked[0], ask="digest"))) == before


# -- what goes out -----------------------------------------------------------------------------------------------
def test_a_deployed_node_can_be_made_to_lie(tmp_path):
    servers = node_servers(FEDAVG, tmp_path)
    servers["north"].federation = replace(servers["north"].federation, attack=attack("sign-flip", ["north"]))
    found = engine(FEDAVG, Direct(servers)).run(FEDAVG.rounds)
    theirs = replace(FEDAVG.federation(), attack=attack("sign-flip", ["north"]))
    assert found.digest == local(theirs).run(FEDAVG.rounds).digest
    assert found.digest != local(FEDAVG.federation()).run(FEDAVG.rounds).digest


def test_what_a_node_withholds_never_leaves_and_the_round_goes_on(tmp_path):
    courier = Direct(node_servers(FEDAVG, tmp_path, north={"egress": {"kinds": []}}))
    result = engine(FEDAVG, courier).run(FEDAVG.rounds)
    theirs = replace(FEDAVG.federation(), egress={"north": ()})
    assert result.digest == local(theirs).run(FEDAVG.rounds).digest
    held = [row for row in result.ledger.messages if row["from"] == "north"]
    assert {(row["status"], row["payload"]) for row in held} == {("withheld", 0)}
    assert {row["status"] for row in courier.node_servers["north"].store.rows("ledger")} == {"withheld"}
    answers = [courier.node_servers["north"].answer(data) for to, data in courier.questions if to == "north"]
    assert b"weight" not in b"".join(answers)


def test_the_ledger_at_home_is_what_left_byte_for_byte(tmp_path):
    courier = Direct(node_servers(FEDMD, tmp_path))
    result = engine(FEDMD, courier).run(FEDMD.rounds)
    for name, here in courier.node_servers.items():
        seen = [row for row in result.ledger.messages if row["from"] == name]
        own = here.store.rows("ledger")
        assert [(r["kind"], r["to"], r["round"], r["payload"]) for r in own] == [
            (r["kind"], r["to"], r["round"], r["payload"]) for r in seen
        ]


def test_figures_leave_as_the_policy_says_and_all_are_kept_at_home(tmp_path):
    told = {"north": {"egress": {"metrics": []}}, "south": {"egress": {"metrics": ["private-test", "train"]}}}
    courier = Direct(node_servers(CASES["fml"], tmp_path, **told))
    table = engine(CASES["fml"], courier).run(2).table
    splits = {node: {row["split"] for row in table if row["node"] == node} for node in courier.node_servers}
    assert splits == {"north": set(), "south": {"private-test", "train"}, "east": {"test"}, "west": {"test"}}
    for here in courier.node_servers.values():
        assert {row["split"] for row in here.store.rows("metrics")} == {"test", "private-test", "train"}


def test_a_digest_is_told_only_where_it_may(tmp_path):
    courier = Direct(node_servers(FEDAVG, tmp_path, north={"egress": {"digest": False}}))
    made = engine(FEDAVG, courier)
    made.run(1)
    assert made.host.digest("north") == b""
    assert made.host.digest("south") != b""


def test_what_went_wrong_inside_stays_inside(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    here.federation.data["north"]["train"] = lambda: 1 / 0
    answer = codec.unpack(here.answer(asked[0]))
    assert answer == {"failed": "it could not react; its own log says why"}
    assert "ZeroDivisionError" in here.store.rows("incidents")[-1]["detail"]
    assert not here.store.file.exists()


def test_state_is_kept_by_federation(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    here.answer(asked[0])
    other = NodeStore(tmp_path / "north", "another-one")
    assert other.load().applied == 0
    here.store.file.rename(other.file)
    with pytest.raises(DeployError, match="another federation"):
        other.load()


def test_an_answer_says_nothing_else(asked, tmp_path):
    """Above all not how long the work took in virtual seconds, which follow from the number of private rows."""
    outcome = codec.unpack(node_server(FEDAVG, "north", tmp_path).answer(asked[0]))["outcome"]
    assert outcome.keys() == {"number", "sends", "rows", "round", "groups", "refused"}
    assert {row["time"] for row in outcome["rows"]} <= {codec.unpack(asked[0])["start"]}


def test_the_tables_are_json_lines(asked, tmp_path):
    here = node_server(FEDAVG, "north", tmp_path)
    here.answer(asked[0])
    (row,) = [json.loads(line) for line in here.store.table("ledger").read_text().splitlines()]
    assert row.keys() == {"round", "kind", "from", "to", "status", "payload", "wire"}
