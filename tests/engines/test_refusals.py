"""A kind of message that everyone only refuses ends a simulation in one line; what may still fit does not."""

import shutil
import sys

import pytest
from typer.testing import CliRunner

from heterophony import (
    Count,
    Dropout,
    Each,
    Every,
    Federation,
    Kind,
    Method,
    Note,
    Own,
    Profile,
    Round,
    Scalar,
    Weights,
    cli,
    on,
)
from heterophony.base import codec
from heterophony.engines import Unheard, local, process
from heterophony.kernel.topology import complete, star
from heterophony.methods import FedAvg
from heterophony.parts.training import Training
from heterophony.runs.run import Run
from heterophony.runs.show import lines
from heterophony.runs.summary import Summary
from toys.federations import B16, weights_star
from toys.world import TESTS, net, private

ASK = Kind("ask", to="children", number=Scalar())
ANSWER = Kind("answer", to="parent", weights=Weights("model"))
CLIENTS = ["c0", "c1", "c2", "c3"]


class Tell(Method):
    """Clients tell their weights to a server that needs ones of its own shape."""

    roles = ("server", "client")
    kinds = (ASK, ANSWER)
    models = {"server": {"model": Own()}, "client": {"model": Own()}}
    headline = "own"

    fraction: float = 1.0
    quorum: int = 1
    deadline: float | None = None

    @on(Round, role="server")
    def ask(self, server):
        return ASK(server.cohort(self.fraction), number=1)

    @on(Each(ASK), role="client")
    def answer(self, client, mail):
        client.round = mail.round
        yield Note("asked", 1.0)
        return ANSWER(weights=client.weights())

    @on(Every(ANSWER, of="cohort", quorum="quorum", deadline="deadline", share="fraction"), role="server")
    def hear(self, server, mail):
        server.round += 1


class Buffer(Method):
    """The same without waiting for anyone."""

    roles = Tell.roles
    kinds = (ASK, ANSWER)
    models = Tell.models
    headline = "own"

    @on(Round, role="server")
    def ask(self, server):
        return ASK(number=1)

    @on(Each(ASK), role="client")
    def answer(self, client, mail):
        client.round = mail.round
        return ANSWER(weights=client.weights())

    @on(Count(ANSWER, 2), role="server")
    def hear(self, server, mail):
        server.round += 1


TEACH = Kind("teach", to="peers", weights=Weights("model"))


class Talk(Method):
    """Peers tell each other their weights."""

    roles = ("peer",)
    kinds = (TEACH,)
    models = {"peer": {"model": Own()}}
    headline = "own"

    @on(Round, role="peer")
    def teach(self, peer):
        return TEACH(weights=peer.weights())

    @on(Every(TEACH, of="peers"), role="peer")
    def learn(self, peer, mail):
        peer.round += 1


def federation(method, fitting=(), **options):
    models = {c: {"model": net(12 if c in fitting else 9)} for c in CLIENTS}
    return Federation(
        method, star(CLIENTS), {**models, "server": {"model": net(12)}}, private(CLIENTS), TESTS, **options
    )


@pytest.fixture(params=[local, process], ids=["local", "process"])
def engine(request):
    return request.param


FIRST = r"^no 'answer' was ever accepted: server refused 'answer' of round 0 from c0: weights: 0.weight has shape"


def refusals(made):
    return [row["detail"].partition(":")[0] for row in made.ledger.incidents if row["incident"] == "refused"]


def test_a_kind_that_is_refused_from_everyone_ends_the_run_with_the_first_refusal(engine):
    made = engine(federation(Tell()))
    with pytest.raises(Unheard, match=FIRST):
        made.run(5)
    assert refusals(made) == [f"'answer' of round 0 from {c}" for c in CLIENTS]


def test_one_sender_whose_message_fits_lets_the_run_go_on(engine):
    made = engine(federation(Tell(), fitting=["c2"]))
    assert made.run(3).rounds == 3
    assert len(refusals(made)) == 9


def test_a_cohort_of_misfits_does_not_end_the_run_while_others_may_fit():
    made = local(federation(Tell(fraction=0.25), fitting=["c3"]))
    assert made.run(12).rounds == 12
    assert "c3" not in refusals(made)[0]  # the first round was one of refusals only
    assert any(row["status"] == "sent" and row["from"] == "c3" for row in made.ledger.messages)


def test_where_rounds_ask_only_some_the_run_ends_when_the_last_of_them_was_refused():
    made = local(federation(Tell(fraction=0.25)))
    with pytest.raises(Unheard, match="no 'answer' was ever accepted"):
        made.run(60)
    heard = [detail.rpartition(" ")[2] for detail in refusals(made)]
    assert set(heard) == set(CLIENTS)
    assert heard.count(heard[-1]) == 1  # not one more than it takes


def test_a_run_that_ends_before_everyone_was_heard_is_no_success_either(tmp_path):
    made = federation(Tell(fraction=0.25))
    with pytest.raises(Unheard, match="when the method is mended, begin in another folder"):
        made.run(1, tmp_path)
    text = "\n".join(lines(Summary.load(tmp_path)))
    assert "REFUSED: 1 message; server refused 'answer' of round 0 from" in text
    with pytest.raises(Unheard):
        made.resume(tmp_path)
    assert federation(Tell(fraction=0.25)).method == made.method


def test_a_slow_client_may_still_fit():
    slow = {"c3": Profile(latency=7.0)}
    method = Tell(deadline=1.0)
    made = local(federation(method, fitting=["c3"], profiles=slow))
    assert made.run(12).rounds == 12
    made = local(federation(method, profiles=slow))
    with pytest.raises(Unheard):
        made.run(60)
    assert made.boxes["server"].round < 12


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": Dropout(always=["c1"])},
        {"dropout": Dropout(rate=0.5)},
        {"egress": {"c1": []}},
        {"profiles": {"c1": Profile(available=((0.0, 1e-9),))}},
    ],
    ids=["always dropped", "dropped at random", "withheld", "gone"],
)
def test_who_cannot_be_heard_is_not_waited_for(options):
    method = Tell(deadline=1.0)
    made = local(federation(method, **options))
    with pytest.raises(Unheard):
        made.run(60)
    assert made.boxes["server"].round < 20


def test_an_asynchronous_method_says_what_was_refused_and_not_who_waits():
    with pytest.raises(Unheard, match=FIRST):
        local(federation(Buffer())).run(5)
    assert local(federation(Buffer(), fitting=["c1", "c2"])).run(1).rounds == 1


def test_a_late_joiner_may_still_fit():
    made = local(federation(Tell(), fitting=["c3"], joins={"c3": 0.5}, profiles={"": Profile(latency=0.1)}))
    assert made.run(12).rounds == 12


def test_peers_who_refuse_each_other_end_the_run_and_one_pair_that_fits_does_not():
    def talk(*hidden):
        models = {c: {"model": net(h)} for c, h in zip(CLIENTS, hidden, strict=True)}
        return local(Federation(Talk(), complete(CLIENTS), models, private(CLIENTS), TESTS))

    with pytest.raises(Unheard, match="no 'teach' was ever accepted: c0 refused 'teach' of round 0 from c1"):
        talk(5, 6, 7, 8).run(3)
    assert talk(5, 6, 5, 8).run(3).rounds == 3


def test_weights_that_diverged_do_not_end_the_run():
    """Another round, or another cohort, may be sound; and in a search for a rate some trials diverge."""
    made = local(weights_star(FedAvg(local=Training(batch=16, lr=1e30))))
    assert made.run(2).rounds == 2
    assert len(refusals(made)) == 6
    assert not made.refusals.refused


def test_what_has_been_accepted_once_is_never_given_up():
    made = local(federation(Tell(), fitting=["c0"]))
    made.run(1)
    assert made.refusals.taken == {"ask", "answer"}
    assert not made.refusals.refused


@pytest.mark.parametrize(
    ("engine", "method"),
    [(local, Tell(fraction=0.5)), (local, Tell(deadline=1.0)), (process, Tell(fraction=0.5))],
    ids=["local, some", "local, a deadline", "process, some"],
)
def test_a_run_that_was_killed_decides_as_one_that_was_not(engine, method, tmp_path):
    """A snapshot after every event; whoever goes on from any of them ends with the same refusals."""
    made = federation(method, profiles={"c3": Profile(latency=3.0)})
    spec, pictures = made.identity(), []

    def picture(running):
        shutil.copytree(tmp_path / "run", tmp_path / str(len(pictures)), ignore=shutil.ignore_patterns("lock"))
        pictures.append(tmp_path / str(len(pictures)))

    with Run.create(tmp_path / "run", spec, 60, cadence=0.0) as record:
        whole = engine(made, record=record, progress=picture)
        with pytest.raises(Unheard) as wanted:
            whole.run(60)
    assert len(pictures) > 5
    for place in pictures[1 :: len(pictures) // (4 if engine is local else 1)]:
        with Run.open(place, spec) as record:
            resumed = engine(made, record=record)
            with pytest.raises(Unheard) as found:
                resumed.run(60)
        assert str(found.value) == str(wanted.value)
        assert resumed.ledger.rows == whole.ledger.rows


def test_a_run_without_snapshots_decides_as_one_with_them(tmp_path):
    made = federation(Tell(fraction=0.5), profiles={"c3": Profile(latency=3.0)})
    without = local(made)
    with pytest.raises(Unheard):
        without.run(60)
    with Run.create(tmp_path / "run", made.identity(), 60, cadence=0.0) as record:
        kept = local(made, record=record)
        with pytest.raises(Unheard):
            kept.run(60)
    assert kept.ledger.rows == without.ledger.rows


def test_a_snapshot_of_an_earlier_version_gives_no_kind_up(tmp_path):
    made = weights_star(FedAvg(local=B16))
    made.run(1, tmp_path / "run")
    engine = local(made)
    value = codec.unpack(engine.encode_queue())
    del value["refusals"]
    engine.restore_queue(codec.pack(value))
    assert engine.refusals.taken == {kind.name for kind in made.method.kinds}


def test_the_first_refusal_is_told_when_a_round_has_passed_without_any_success(caplog):
    with pytest.raises(Unheard):
        local(federation(Tell(fraction=0.25))).run(1)
    local(federation(Tell(fraction=0.25), fitting=["c3"])).run(12)
    said = [record.getMessage() for record in caplog.records if record.name == "heterophony.engine"]
    assert all(text.startswith("every 'answer' was refused so far, and the run goes on: server") for text in said)
    assert len(said) <= 2
    assert said


# -- on the command line -------------------------------------------------------------------------------------------
TABLES = """
from heterophony import Each, Every, Kind, Mark, Method, Round, Same, Weights, on
from heterophony.kernel.fields import Counts, PerClass
from heterophony.parts.classwise import by_label
from heterophony.kernel.work import Predict

ASK = Kind("ask", to="children", weights=Weights("model"))
TABLE = Kind("table", to="parent", means=PerClass({view}), held=Counts)


class Tables(Method):
    roles = ("server", "client")
    kinds = (ASK, TABLE)
    models = {{"server": {{"model": Same()}}, "client": {{"model": Same()}}}}
    headline = "global"

    fraction: float = 1.0

    @on(Round, role="server")
    def begin(self, server):
        return ASK(server.cohort(self.fraction), weights=server.weights())

    @on(Each(ASK), role="client")
    def tell(self, client, mail):
        client.round = mail.round
        found = by_label((yield Predict("model", "train")), client.data["train"])
        return TABLE(means=found.means * {factor}, held=found.counts)

    @on(Every(TABLE, of="cohort"), role="server")
    def hear(self, server, mail):
        yield Mark("global")
        server.round += 1
"""
SMALL = """
rounds = 2
[data]
test = 0.1
test_rows = 20
side = 16
public = { fraction = 0.02 }
domains.a = { source = "digits-embedded", rows = 32 }
domains.b = { source = "digits-embedded", rows = 32, degrees = 40 }
[models]
participants = "mlp"
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """The command line in a folder with a method of one's own: `tables:Tables` on `small.toml`."""

    def start(*words, view="'train'", factor="1"):
        (tmp_path / "tables.py").write_text(TABLES.format(view=view, factor=factor))
        sys.modules.pop("tables", None)
        return CliRunner().invoke(cli.app, [str(word) for word in words])

    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield start
    sys.modules.pop("tables", None)


RUN = ("run", "tables:Tables", "--on", "small.toml")
IMPORTED = {"run": [], "resume": ["importing tables, as out names method 'tables:Tables'"]}  # what a folder names
FIRST_OF_TWO = "server refused 'table' of round 0 from a: means: the receiver has no data view 'train'"


@pytest.mark.parametrize("engine", ["local", "process"])
def test_a_method_that_nobody_can_hear_is_one_line_and_exit_1_and_the_folder_stays(call, engine):
    for command in ((*RUN, "--out", "out", "--engine", engine), ("resume", "out", "--trust", "--engine", engine)):
        answer = call(*command)
        assert answer.exit_code == 1, answer.exception
        *said, line = answer.stderr.splitlines()
        assert [words.rpartition(": ")[2] for words in said] == IMPORTED[command[0]]
        assert line.startswith(f"heterophony: no 'table' was ever accepted: {FIRST_OF_TWO}")
        assert answer.stdout == ""
    assert f"REFUSED: 2 messages; the first: {FIRST_OF_TWO}" in call("show", "out").stdout
    assert "refused 'table' of round 0 from b" in call("ledger", "out").stdout


def test_the_same_method_without_a_view_is_heard(call):
    answer = call(*RUN, view="rows='held'")
    assert answer.exit_code == 0, answer.stderr
    assert "0 incidents" in answer.stdout
    assert "REFUSED" not in answer.stdout


def test_a_summary_says_the_first_refusal_and_names_the_ledger_only_where_there_is_one(call):
    nothing = {"view": "rows='held'", "factor": "(float('nan') if client.id == 'b' else 1)"}
    answer = call(*RUN, **nothing)
    assert answer.exit_code == 0, answer.stderr
    refused = "REFUSED: 2 messages; the first: server refused 'table' of round 0 from b: means: holds values"
    assert refused in answer.stdout
    assert "2 incidents: with --out, `heterophony ledger` lists them" in answer.stdout
    answer = call(*RUN, "--out", "out", **nothing)
    assert refused in answer.stdout
    assert "2 incidents: see `heterophony ledger`" in answer.stdout
