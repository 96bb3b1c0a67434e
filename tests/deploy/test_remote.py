"""The engine between organisations, without a network: the same digests, each reaction once, nothing lost."""

import json
import struct
from dataclasses import replace

import pytest
import torch

from deploy.direct import Clock, Direct, at_coordinator, engine, node_server, node_servers
from heterophony.base import codec
from heterophony.base.toml import written
from heterophony.deploy import coordinator
from heterophony.deploy.named_function import DeployError
from heterophony.engines import local
from heterophony.engines.engine import Stalled
from heterophony.runs.folder import Folder
from heterophony.runs.run import Run
from heterophony.tables.ledger import sender_in
from toys.deployed import CASES, FIGURE, NAMES

ALL = {**CASES, FIGURE.name: FIGURE}


@pytest.mark.parametrize("case", ALL.values(), ids=lambda case: case.name)
def test_digests_are_those_of_the_local_engine(case, tmp_path):
    result = engine(case, Direct(node_servers(case, tmp_path))).run(case.rounds)
    here = local(case.federation()).run(case.rounds)
    assert result.digest == here.digest
    assert result.rounds == case.rounds
    assert result.ledger.bytes() == here.ledger.bytes()
    assert not result.ledger.incidents


def uninterrupted(case):
    return local(case.federation()).run(case.rounds).digest


def test_a_lost_answer_is_asked_for_again_and_nothing_is_done_twice(tmp_path):
    case = CASES["fedmd-global"]
    courier = Direct(node_servers(case, tmp_path))
    courier.deaf = {"north": 2, "west": 1}
    result = engine(case, courier, clock=(time := Clock()), sleep=time.sleep).run(case.rounds)
    assert result.digest == uninterrupted(case)
    assert len(courier.questions) == 4 * 2 * case.rounds + 3 + 4  # reactions, repetitions, digests
    for here in courier.node_servers.values():
        assert len(here.store.rows("ledger")) == case.rounds


class Crash(BaseException):
    """The coordinator's process dies."""


class Mortal(Direct):
    """A courier whose process dies at its n-th call, before or after the call has done its work."""

    def __init__(self, node_servers, life):
        super().__init__(node_servers)
        self.life = life

    def _age(self):
        self.life -= 1
        if self.life == 0:
            raise Crash

    def send(self, questions):
        self._age()
        tickets = super().send(questions)
        self._age()
        return tickets

    def collect(self, tickets):
        answers = super().collect(tickets)
        self._age()
        return answers


@pytest.mark.parametrize(
    ("name", "stride"),
    [("fedmd-global", 4), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ALL)],
)
def test_a_coordinator_that_dies_at_any_exchange_goes_on_from_its_snapshot(name, stride, tmp_path):
    """Its successor asks again what stands in the snapshot; the nodes, which kept their state, do nothing twice."""
    case, wanted = ALL[name], uninterrupted(ALL[name])
    life, deaths = 1, 0
    while True:
        place = tmp_path / str(life)
        nodes = node_servers(case, place)
        result = None
        try:
            result = attempt(case, Mortal(nodes, life), place / "run")
        except Crash:
            deaths += 1
            nodes = {name: node_server(case, name, place) for name in nodes}  # they may have died with it
            result = attempt(case, Direct(nodes), place / "run")
        else:
            break
        finally:
            life += stride
        assert result.digest == wanted
        own = [len(here.store.rows("ledger")) for here in nodes.values()]
        assert own == [len([r for r in result.ledger.messages if r["from"] == n]) for n in nodes]
    assert deaths >= 3 * case.rounds / stride


def attempt(case, courier, folder, **options):
    federation = at_coordinator(case)
    known = (folder / "spec.json").exists()
    opened = (
        Run.open(folder, federation.identity(), **options)
        if known
        else Run.create(folder, federation.identity(), case.rounds, **options)
    )
    with opened as record:
        return engine(case, courier, record=record).run(case.rounds)


def test_only_an_honest_outcome_is_taken(tmp_path):
    """A participant that answers nonsense is asked again, and harms nobody."""
    case = CASES["fedavg"]
    courier = Spoiled(node_servers(case, tmp_path))
    made = engine(case, courier, clock=(time := Clock()), sleep=time.sleep)
    result = made.run(case.rounds)
    assert result.digest == uninterrupted(case)
    assert courier.spoils == []


def _with(answer, **changes):
    return codec.pack({"outcome": {**answer["outcome"], **changes}})


def _without(answer, name):
    return codec.pack({"outcome": {key: value for key, value in answer["outcome"].items() if key != name}})


def _sends(answer, **changes):
    kind, to, round, body = answer["outcome"]["sends"][0]
    given = {"kind": kind, "to": to, "round": round, "body": body, **changes}
    return _with(answer, sends=[(given["kind"], given["to"], given["round"], given["body"])])


ROW = {"round": 0, "time": 0.0, "product": "global", "node": "north", "set": "here", "split": "test"}
ROW |= {"quantity": "accuracy", "sum": 12.0, "n": 24}
SHORT = dict.fromkeys(ROW, "") | dict.fromkeys(("round", "time", "sum", "n"), 0)


def _row(answer, **changes):
    return _with(answer, rows=[{**ROW, **changes}])


def _half(data):
    """With XYZ become half a character, which our own codec would not write."""
    _, length = struct.unpack_from("<4sI", data)
    header = data[8 : 8 + length].replace(b"XYZ", b"\\ud800")
    assert len(header) > length
    return struct.pack("<4sI", codec.MAGIC, len(header)) + header + data[8 + length :]


SPOILS = {
    "no bytes of ours": lambda a: b"nonsense",
    "cut short": lambda a: codec.pack(a)[:-9],
    "another question's": lambda a: _with(a, number=17),
    "no answer": lambda a: codec.pack({"hello": 1}),
    "undeclared kind": lambda a: _sends(a, kind="gradient"),
    "a kind that is not its to send": lambda a: _sends(a, kind="global"),
    "to a stranger": lambda a: _sends(a, to=("south",)),
    "a negative round": lambda a: _sends(a, round=-1),
    "no message": lambda a: _with(a, sends=[3]),
    "no figure": lambda a: _with(a, rows=[{"round": 0}]),
    "another's figure": lambda a: _with(a, rows=[{"round": 0, "sum": float("nan"), "node": "server"}]),
    "no group": lambda a: _with(a, groups={"cohort": ("nobody",)}),
    "no round": lambda a: _with(a, round=-4),
    "a round that is none": lambda a: _sends(a, round=False),
    "for a round to come": lambda a: _sends(a, round=7),
    "from a round to come": lambda a: _with(a, round=5000),
    "twice to the same": lambda a: _sends(a, to=("server", "server")),
    "too many messages": lambda a: _with(a, sends=a["outcome"]["sends"] * 200),
    "half a character in a weight's name": lambda a: _half(
        _sends(a, body={"weights": {"XYZ": torch.zeros(1)}, "examples": 1.0})
    ),
    "half a character in a figure": lambda a: _half(_row(a, set="XYZ")),
    "half a character in a group": lambda a: _half(_with(a, groups={"XYZ": ("north",)})),
    "a figure beyond all floats": lambda a: _row(a, sum=10**400),
    "a figure whose sums are no numbers": lambda a: _row(a, sum=1e308),
    "a figure of too many rows": lambda a: _row(a, n=10**400),
    "a figure of fewer than no rows": lambda a: _row(a, n=-1),
    "a figure of no round": lambda a: _row(a, round=-1),
    "a figure at no time": lambda a: _row(a, time=float("nan")),
    "a figure at a time beyond all floats": lambda a: _row(a, time=10**400),
    "a figure of a round to come": lambda a: _row(a, round=7),
    "a figure whose name clears the screen": lambda a: _row(a, set="\x1b[2J"),
    "a weight whose name clears the screen": lambda a: _sends(
        a, body={**a["outcome"]["sends"][0][3], "weights": {"\x1b[2J": torch.zeros(1)}}
    ),
    "a weight with an endless name": lambda a: _sends(
        a, body={**a["outcome"]["sends"][0][3], "weights": {"a" * 300: torch.zeros(1)}}
    ),
    "more refusals than mail": lambda a: _with(a, refused=["no"] * 2),
    "more refusals than mail, of no words": lambda a: _with(a, refused=[3, 4]),
    "no outcome": lambda a: codec.pack({"outcome": None}),
    "an outcome of no number": lambda a: _without(a, "number"),
    "an outcome of no sends": lambda a: _without(a, "sends"),
    "an outcome of no rows": lambda a: _without(a, "rows"),
    "an outcome of no round": lambda a: _without(a, "round"),
    "an outcome of no groups": lambda a: _without(a, "groups"),
    "an outcome of no refusals": lambda a: _without(a, "refused"),
    "sends that are no list": lambda a: _with(a, sends=tuple(a["outcome"]["sends"])),
    "figures that are no list": lambda a: _with(a, rows=()),
    "groups that are a list": lambda a: _with(a, groups=[]),
    "refusals that are a text": lambda a: _with(a, refused="no"),
    "a refusal that is a number": lambda a: codec.pack({"refused": 3}),
    "a failure that is a number": lambda a: codec.pack({"failed": 3}),
    "a list": lambda a: codec.pack([1, 2]),
    "a round that is a truth": lambda a: _with(a, round=True),
    "a round that is a float": lambda a: _with(a, round=0.0),
    "a round beyond all floats": lambda a: _with(a, round=2**53),
    "a message of three parts": lambda a: _with(a, sends=[a["outcome"]["sends"][0][:3]]),
    "a message of a kind that is a number": lambda a: _sends(a, kind=3),
    "a message to a text": lambda a: _sends(a, to="server"),
    "a message to a list": lambda a: _sends(a, to=["server"]),
    "a message to a number": lambda a: _sends(a, to=(3,)),
    "a message to itself": lambda a: _sends(a, to=("north",)),
    "a message of a round beyond all floats": lambda a: _sends(a, round=2**53),
    "a message whose round is a text": lambda a: _sends(a, round="0"),
    "a body that is a list": lambda a: _sends(a, body=[]),
    "a body that is a text": lambda a: _sends(a, body="weights"),
    "a body without fields": lambda a: _sends(a, body={}),
    "weights that are a text": lambda a: _sends(a, body={**a["outcome"]["sends"][0][3], "weights": "none"}),
    "a figure too long": lambda a: _row(a, more=1),
    "a figure too short": lambda a: _with(a, rows=[{name: part for name, part in ROW.items() if name != "sum"}]),
    "a figure of a truth of rows": lambda a: _row(a, n=True),
    "a figure of a truth": lambda a: _row(a, sum=True),
    "a figure that is a text": lambda a: _row(a, sum="12"),
    "a figure at a truth": lambda a: _row(a, time=False),
    "a figure of a round that is a truth": lambda a: _row(a, round=False),
    "a figure of a quantity that is a number": lambda a: _row(a, quantity=3),
    "a figure with an endless name": lambda a: _row(a, split="a" * 300),
    "a figure that is a list": lambda a: _with(a, rows=[[ROW]]),
    "too many figures": lambda a: _with(a, rows=[SHORT] * 10_001),
    "a group that is a list": lambda a: _with(a, groups={"cohort": ["north"]}),
    "a group of a link": lambda a: _with(a, groups={"parent": ()}),
    "a group of numbers": lambda a: _with(a, groups={"cohort": (3,)}),
}


def _filled(answer, value):
    weights = {
        name: torch.full_like(tensor, value) for name, tensor in answer["outcome"]["sends"][0][3]["weights"].items()
    }
    return _sends(answer, body={**answer["outcome"]["sends"][0][3], "weights": weights})


UNSOUND = {
    "a field too many": (
        lambda a: _sends(a, body={**a["outcome"]["sends"][0][3], "more": 1.0}),
        "carries ['examples', 'more', 'weights'], but its kind declares ['examples', 'weights']",
    ),
    "not finite": (
        lambda a: _sends(a, body={**a["outcome"]["sends"][0][3], "examples": float("inf")}),
        "examples: expected a finite number, got inf",
    ),
    "weights that are none": (
        lambda a: _filled(a, float("nan")),
        "weights: 0.weight: holds values that are not finite",
    ),
    "huge": (lambda a: _filled(a, -3e38), "weights: 0.weight: holds -3e+38, the limit is 1e+15"),
    "a whole number whose sums are none": (
        lambda a: _sends(a, body={**a["outcome"]["sends"][0][3], "examples": 10**308}),
        "examples: expected a number that a float holds, got 10000",
    ),
    "a number whose sums are none": (
        lambda a: _sends(a, body={**a["outcome"]["sends"][0][3], "examples": 1.7e308}),
        "examples: expected a number that a float holds, got 1.7e+308",
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_a_message_that_no_door_takes_is_absent_at_once_and_its_sender_named(name, tmp_path):
    """As in one process; asked again, a node gives the answer that it has kept."""
    case, (make, why) = CASES["fedavg"], UNSOUND[name]
    courier = Odd(node_servers(case, tmp_path), "west", make)
    made = engine(case, courier)
    result = made.run(case.rounds)
    assert result.digest == local(replace(case.federation(), egress={"west": ()})).run(case.rounds).digest
    assert list(made.host.trouble) == ["west"]
    assert why in made.host.trouble["west"]
    found = [(row["node"], row["incident"], row["detail"].partition(": ")[0]) for row in result.ledger.incidents]
    assert found == [("server", "refused", f"'update' of round {r} from west") for r in range(case.rounds)]


class Odd(Direct):
    """A node of whose outcomes other ones are made."""

    def __init__(self, node_servers, node, make):
        super().__init__(node_servers)
        self.node, self.make = node, make

    def send(self, questions):
        tickets = super().send(questions)
        if self.node in tickets and codec.unpack(questions[self.node])["ask"] == "react":
            answer = codec.unpack(self.answers[tickets[self.node]])
            self.answers[tickets[self.node]] = self.make(answer)
        return tickets


def test_whatever_reading_an_answer_raises_is_a_refusal(tmp_path, monkeypatch):
    """One answer must not end the coordinator, also by a way that nobody has thought of."""
    case, time = CASES["fedavg"], Clock()
    made = engine(case, Direct(node_servers(case, tmp_path)), clock=time, sleep=time.sleep)
    rows, calls = made.host._rows, []

    def odd(node, *given):
        calls.append(node)
        if len(calls) == 1:
            raise OverflowError("whatever")
        return rows(node, *given)

    monkeypatch.setattr(made.host, "_rows", odd)
    assert made.run(case.rounds).digest == uninterrupted(case)
    assert len(calls) == 4 * case.rounds + 1


class Spoiled(Direct):
    """North's answers are all spoiled once, each in another way, before the right one comes through."""

    def __init__(self, node_servers):
        super().__init__(node_servers)
        self.spoils = list(SPOILS)

    def send(self, questions):
        tickets = super().send(questions)
        if "north" in questions and codec.unpack(questions["north"])["ask"] == "react" and self.spoils:
            right = codec.unpack(self.answers[tickets["north"]])
            self.answers[tickets["north"]] = SPOILS[self.spoils.pop(0)](right)
        return tickets


@pytest.mark.parametrize("name", SPOILS)
def test_why_an_answer_is_not_taken_is_said(name, tmp_path):
    case, said = CASES["fedavg"], []
    courier = Spoiled(node_servers(case, tmp_path))
    courier.spoils = [name]
    made = engine(case, courier, clock=(time := Clock()), sleep=time.sleep)
    complain = made.host._complain
    made.host._complain = lambda node, text: (said.append((node, text)), complain(node, text))
    made.run(1)
    ((node, text),) = said
    assert node == "north"
    assert "\n" not in text
    assert made.host.trouble == {}  # it has answered since


@pytest.mark.parametrize(
    "make",
    [
        lambda a: _with(a, refused=[3]),  # a refusal without words says nothing
        lambda a: _with(a, more=1, end=-3.0, times=[7.0], outside="x"),
        lambda a: _with(a, sends=[list(a["outcome"]["sends"][0])]),
        lambda a: _row(a, sum=None),
        lambda a: _row(a, n=0, sum=0),
        lambda a: _with(a, groups={"anything": ("north", "server")}),
        lambda a: _with(a, round=1),
    ],
)
def test_an_odd_answer_that_harms_nobody_is_taken(make, tmp_path):
    case = CASES["fedavg"]
    made = engine(
        case, courier := Odd(node_servers(case, tmp_path), "west", make), clock=(time := Clock()), sleep=time.sleep
    )
    result = made.run(1)
    assert made.host.trouble == {}
    assert not result.ledger.incidents
    assert [row["time"] for row in result.ledger.messages if row["from"] == "west"] == [0.0]
    assert sum(node == "west" for node, data in courier.questions if codec.unpack(data)["ask"] == "react") == 1


class Forged(Direct):
    """Every outcome has these parts instead of its own."""

    def __init__(self, node_servers, **parts):
        super().__init__(node_servers)
        self.parts = parts

    def send(self, questions):
        tickets = super().send(questions)
        for ticket in tickets.values():
            answer = codec.unpack(self.answers[ticket])
            if "outcome" in answer:
                self.answers[ticket] = _with(answer, **self.parts)
        return tickets


FORGED = "no\n2026-12-01 00:00:00 heterophony.coordinator: finished after 30 rounds\x1b[2J\u202e"


def test_what_a_participant_says_is_one_printable_line_of_a_log(tmp_path, caplog):
    case, time = deadline_case(), Clock()
    courier = Stubborn(node_servers(case, tmp_path), "west", codec.pack({"refused": FORGED}))
    made = engine(case, courier, case.plan(pace={"poll": 0.5, "patience": 60.0}), clock=time, sleep=time.sleep)
    made.run(4)
    said = [record.getMessage() for record in caplog.records if "finished after" in record.getMessage()]
    assert said
    assert all(text.isprintable() for text in [*said, *made.host.trouble.values()])


class Misfits(Direct):
    """Everyone's weights lack a tensor that the coordinator's model has."""

    def send(self, questions):
        tickets = super().send(questions)
        for ticket in tickets.values():
            answer = codec.unpack(self.answers[ticket])
            if "outcome" in answer:
                body = answer["outcome"]["sends"][0][3]
                less = dict(list(body["weights"].items())[1:])
                self.answers[ticket] = _sends(answer, body={**body, "weights": less})
        return tickets


def test_a_deployment_in_which_everything_is_refused_goes_on_and_says_so(tmp_path, caplog):
    case = CASES["fedavg"]
    result = engine(case, Misfits(node_servers(case, tmp_path))).run(case.rounds)
    assert result.rounds == 2
    assert sum(row["incident"] == "refused" for row in result.ledger.incidents) == 8
    said = [record.getMessage() for record in caplog.records if record.name == "heterophony.engine"]
    assert [text.partition(": weights")[0] for text in said] == [
        "every 'update' was refused so far, and the run goes on: server refused 'update' of round 0 from east"
    ]


def test_what_a_participant_has_refused_is_one_printable_line_of_the_ledger(tmp_path):
    case = CASES["fedavg"]
    said = f"'global' of round 0 from server: {FORGED}"  # each had one message
    courier = Forged(node_servers(case, tmp_path), refused=[said])
    incidents = engine(case, courier).run(1).ledger.incidents
    assert len(incidents) == 4
    assert all(row["detail"].isprintable() for row in incidents)


def test_a_figure_of_no_rows_does_not_spoil_the_end_of_a_run(tmp_path):
    """Means are divided by rows; a run that cannot be summed up would never end."""
    case = CASES["fedh2l"]
    row = {**ROW, "product": "note", "split": "note", "quantity": "gradients.cosine", "n": 0}
    courier = Forged(node_servers(case, tmp_path), rows=[row])
    done = coordinator.run(tmp_path, case.plan(pace={"poll": 0.001}), courier)
    assert done.finished
    assert not [r for r in Folder(tmp_path / "run").table if r["n"] == 0]


def test_figures_are_those_of_their_own_node(tmp_path):
    """A node cannot write into the server's results."""
    case = CASES["fedavg"]
    row = {"round": 0, "time": 0.0, "product": "global", "node": "server", "set": "here", "split": "test"}
    row |= {"quantity": "accuracy", "sum": 48.0, "n": 48}
    courier = Forged(node_servers(case, tmp_path), rows=[row])
    table = engine(case, courier).run(1).table
    assert {r["node"] for r in table if r["sum"] == 48.0} >= {"north", "south"}
    assert table.select(node="server", set="here", quantity="accuracy").rows[0]["sum"] < 48.0


def test_a_status_that_cannot_be_written_ends_no_run(tmp_path, caplog):
    case = CASES["fedavg"]
    (tmp_path / "status.json").mkdir()
    (tmp_path / "status.json" / "in the way").write_text("")
    done = coordinator.run(tmp_path, case.plan(pace={"poll": 0.001}), Direct(node_servers(case, tmp_path)))
    assert done.finished
    assert any("status.json: " in record.getMessage() for record in caplog.records)


class Sleeper(Direct):
    """A node is away between two moments; its clock is the federation's."""

    def __init__(self, node_servers, node, span, clock):
        super().__init__(node_servers)
        self.node, self.span, self.clock = node, span, clock

    def present(self):
        gone = self.span[0] <= self.clock() < self.span[1]
        return super().present() - ({self.node} if gone else set())


def deadline_case():
    """Rounds that last ten seconds at the most, and go on with two of four."""
    case = CASES["fedavg"]
    return replace(case, options={**case.options, "deadline": 10.0, "quorum": 2}, rounds=4)


def test_a_node_that_misses_its_deadline_is_absent_and_goes_on_later(tmp_path):
    case, time = deadline_case(), Clock()
    courier = Sleeper(node_servers(case, tmp_path), "west", (0.0, 25.0), time)
    plan = case.plan(pace={"poll": 0.5})
    result = engine(case, courier, plan, clock=time, sleep=time.sleep).run(4)
    timeouts = [i["detail"] for i in result.ledger.incidents if i["incident"] == "timeout"]
    assert timeouts == [f"update from west, round {r}" for r in (0, 1)]
    late = [i["detail"] for i in result.ledger.incidents if i["incident"] == "late"]
    assert late == ["'update' of round 0 from west", "'update' of round 1 from west"]
    assert [r["round"] for r in result.ledger.messages if r["from"] == "west"] == [0, 1, 2, 3]
    assert courier.node_servers["west"].store.load().applied == 4  # nothing was lost, nothing done twice


def test_a_run_that_is_over_does_not_wait_for_ever_for_a_lost_node(tmp_path):
    """The last answers of FedMD are awaited by nobody; the question stands in the snapshot until the node is back."""
    case, time = CASES["fedmd-global"], Clock()
    plan = case.plan(pace={"poll": 0.5, "patience": 60.0})
    nodes = node_servers(case, tmp_path)
    federation = plan.coordinator()
    with Run.create(tmp_path / "run", federation.identity(), 1) as record:
        courier = Vanishing(nodes, "south", 1)
        made = engine(case, courier, plan, record=record, clock=time, sleep=time.sleep)
        assert made.run(1).rounds == 1
    assert nodes["south"].store.load().applied == 1
    with Run.open(tmp_path / "run", federation.identity()) as record:
        again = engine(case, Direct(nodes), plan, record=record, clock=time, sleep=time.sleep)
        result = again.run(2)
    assert nodes["south"].store.load().applied == 4
    assert result.digest == uninterrupted(case)


def test_digests_are_asked_for_once_where_nobody_is_there(tmp_path):
    case, time = CASES["fedavg"], Clock()
    courier = Direct(node_servers(case, tmp_path))
    result = engine(case, courier, case.plan(pace={"poll": 0.5}), clock=time, sleep=time.sleep).run(1)
    courier.away, began = set(NAMES), time.now
    assert result.digest
    assert time.now - began < 130.0  # the patience of one question, not of one for each participant


class Stubborn(Direct):
    """A node that is connected, and answers everything with the same."""

    def __init__(self, node_servers, node, answer):
        super().__init__(node_servers)
        self.node, self.answer = node, answer

    def send(self, questions):
        tickets = super().send(questions)
        if self.node in tickets:
            self.answers[tickets[self.node]] = self.answer
        return tickets


@pytest.mark.parametrize("answer", [codec.pack({"refused": "no"}), codec.pack({"failed": "no"}), b"nonsense", None])
def test_a_run_that_is_over_does_not_wait_for_ever_for_a_node_that_only_refuses(answer, tmp_path):
    case, time = deadline_case(), Clock()
    courier = Stubborn(node_servers(case, tmp_path), "west", answer)
    made = engine(case, courier, case.plan(pace={"poll": 0.5, "patience": 60.0}), clock=time, sleep=time.sleep)
    result = made.run(4)
    assert result.rounds == 4
    assert 60.0 < time.now < 200.0
    assert sum(node == "west" for node, _ in courier.questions) < time.now / 10 + 3  # and it is not asked at once again
    assert list(made.host.trouble) == ["west"]


def test_a_node_that_is_connected_may_take_as_long_as_it_likes(tmp_path):
    case, time = CASES["fedh2l"], Clock()
    plan = case.plan(pace={"poll": 0.5, "patience": 5.0})
    courier = Slow(node_servers(case, tmp_path), time, 60.0)
    made = engine(case, courier, plan, clock=time, sleep=time.sleep)
    result = made.run(case.rounds)
    assert result.rounds == case.rounds
    assert result.clock > 60.0 * case.rounds
    assert not result.ledger.incidents


class Slow(Direct):
    """Everyone answers, after a minute."""

    def __init__(self, node_servers, clock, seconds):
        super().__init__(node_servers)
        self.clock, self.seconds, self.sent = clock, seconds, {}

    def send(self, questions):
        tickets = super().send(questions)
        self.sent |= dict.fromkeys(tickets.values(), self.clock())
        return tickets

    def collect(self, tickets):
        return super().collect([t for t in tickets if self.clock() - self.sent[t] >= self.seconds])


class Vanishing(Direct):
    """A node that is gone after so many questions."""

    def __init__(self, node_servers, node, questions):
        super().__init__(node_servers)
        self.node, self.left = node, questions

    def present(self):
        return super().present() - ({self.node} if self.left <= 0 else set())

    def send(self, questions):
        self.left -= self.node in questions
        return super().send(questions)


# -- silence -----------------------------------------------------------------------------------------------------
def _nothing(answer):
    return _with(answer, sends=[])


def without_west(case):
    return local(replace(case.federation(), egress={"west": ()})).run(case.rounds).digest


def told(result):
    return [(i["node"], i["incident"], i["detail"]) for i in result.ledger.incidents]


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_a_participant_that_answers_without_the_awaited_message_is_absent_and_named(case, tmp_path):
    result = engine(case, Odd(node_servers(case, tmp_path), "west", _nothing)).run(case.rounds)
    assert result.rounds == case.rounds
    assert result.digest == without_west(case)
    said = told(result)
    assert {what for _, what, _ in said} == {"absent"}
    assert all(" from west: it has answered all that it was sent" in detail for _, _, detail in said)
    assert len(said) == case.rounds * (3 if case.name == "fedh2l" else 1)


class Liar(Direct):
    """A node that has come to a round far ahead, by its own account."""

    def send(self, questions):
        tickets = super().send(questions)
        if "west" in tickets and (asked := codec.unpack(questions["west"]))["ask"] == "react":
            forged = {"number": asked["number"], "sends": [("update", ("server",), 900, None)], "rows": []}
            self.answers[tickets["west"]] = codec.pack(
                {"outcome": {**forged, "round": 900, "groups": {}, "refused": []}}
            )
        return tickets


def test_a_participant_that_answers_for_a_round_far_ahead_is_absent(tmp_path):
    case = CASES["fedavg"]
    result = engine(case, Liar(node_servers(case, tmp_path))).run(case.rounds)
    assert [detail.partition(":")[0] for _, _, detail in told(result)] == [
        f"'update' of round {r} from west" for r in (0, 1)
    ]


def test_a_peer_that_leaps_beyond_the_runs_rounds_is_refused(tmp_path):
    """Else it would have the run say that so many were done."""
    case, time = CASES["fedh2l"], Clock()
    courier = Odd(node_servers(case, tmp_path), "west", lambda answer: _with(answer, round=900))
    made = engine(case, courier, case.plan(pace={"poll": 0.5, "patience": 60.0}), clock=time, sleep=time.sleep)
    assert made.run(case.rounds).rounds == case.rounds
    assert made.host.trouble == {"west": "round 900 after round 0"}


def test_a_federation_in_which_nobody_says_anything_stalls_and_names_all(tmp_path):
    case = CASES["fedavg"]
    with pytest.raises(Stalled, match="server waits for 'update' of round 0 from north, south, east, west"):
        engine(case, Forged(node_servers(case, tmp_path), sends=[])).run(case.rounds)


def test_a_run_folder_that_stalled_for_a_silent_participant_goes_on(tmp_path, monkeypatch):
    """Its snapshot holds the answer without a message: that is why it stalled again."""
    case, nodes = CASES["fml"], node_servers(CASES["fml"], tmp_path)
    with monkeypatch.context() as before:
        before.setattr("heterophony.engines.engine.silent", lambda *_: [])  # as it was
        with pytest.raises(Stalled):
            attempt(case, Odd(nodes, "west", _nothing), tmp_path / "run", cadence=0.0)
        with pytest.raises(Stalled):
            attempt(case, Direct(nodes), tmp_path / "run")
    result = attempt(case, Direct(nodes), tmp_path / "run")
    assert result.rounds == case.rounds
    assert [node for node, what, _ in told(result) if what == "absent"] == ["server"]  # in round 0; then it is heard


class MortalAndOdd(Mortal, Odd):
    def __init__(self, node_servers, life):
        Odd.__init__(self, node_servers, "west", _nothing)
        self.life = life


def test_a_run_with_a_silent_participant_resumes_as_if_nothing_had_happened(tmp_path):
    case = CASES["fedmd-global"]
    wanted = engine(case, Odd(node_servers(case, tmp_path / "whole"), "west", _nothing)).run(case.rounds)
    for life in range(2, 99, 4):
        nodes = node_servers(case, tmp_path / str(life))
        try:
            attempt(case, MortalAndOdd(nodes, life), tmp_path / str(life) / "run")
        except Crash:
            result = attempt(case, Odd(nodes, "west", _nothing), tmp_path / str(life) / "run")
        else:
            break
        assert result.digest == wanted.digest
        assert told(result) == told(wanted)
    assert life > 8


class SlowLearner(Slow):
    """West answers what it is to learn after a minute, all else at once."""

    def send(self, questions):
        tickets = super().send(questions)
        for node, ticket in tickets.items():
            asked = codec.unpack(questions[node])
            if node != "west" or asked["ask"] != "react" or asked["reaction"] != "learn":
                self.sent[ticket] = -self.seconds
        return tickets


@pytest.mark.parametrize("name", ["fedmd-global", "fccl", "fedh2l"])
def test_who_is_still_at_another_reaction_or_has_not_got_the_question_is_not_absent(name, tmp_path):
    """What FedMD learns it answers with nothing, while the window of the next round is open."""
    case, time = CASES[name], Clock()
    plan = case.plan(pace={"poll": 0.5, "patience": 5.0})
    result = engine(
        case, SlowLearner(node_servers(case, tmp_path), time, 60.0), plan, clock=time, sleep=time.sleep
    ).run(case.rounds)
    assert result.digest == uninterrupted(case)
    assert time.now > 60.0 * (case.rounds - 1)
    assert not result.ledger.incidents


class Moody(Stubborn):
    """It gives that answer until a moment."""

    def __init__(self, node_servers, node, answer, until, clock):
        super().__init__(node_servers, node, answer)
        self.until, self.clock = until, clock

    def send(self, questions):
        node_servers, self.node_servers = self.node_servers, dict(self.node_servers)
        if self.clock() < self.until:  # it does not even react
            self.node_servers[self.node] = Mute(self.answer)
            tickets = super().send(questions)
        else:
            tickets = Direct.send(self, questions)
        self.node_servers = node_servers
        return tickets


class Mute:
    def __init__(self, said):
        self.said = said

    def answer(self, data):
        return self.said


NO = codec.pack({"refused": "no"})


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        *((name, NO) for name in CASES),
        *(("fedavg", other) for other in (codec.pack({"failed": "no"}), b"nonsense", None)),
    ],
)
def test_an_open_window_does_not_wait_for_ever_for_a_node_that_only_refuses(name, answer, tmp_path):
    """Without a deadline; after its patience the round goes on, the node is absent, and named."""
    case, time = replace(CASES[name], rounds=3), Clock()
    courier = Stubborn(node_servers(case, tmp_path), "west", answer)
    made = engine(case, courier, case.plan(pace={"poll": 0.5, "patience": 60.0}), clock=time, sleep=time.sleep)
    result = made.run(3)
    assert result.rounds == 3
    assert 60.0 < time.now < 200.0
    assert {(what, "only refused and failed" in detail) for _, what, detail in told(result) if what != "late"} == {
        ("absent", True)
    }


def test_a_round_that_asks_nobody_but_one_who_refuses_is_skipped(tmp_path):
    """Else that one would hold up all others for ever."""
    case, time = CASES["fedavg"], Clock()
    case = replace(case, options={**case.options, "fraction": 0.25}, rounds=6)
    courier = Stubborn(node_servers(case, tmp_path), "south", NO)
    made = engine(case, courier, case.plan(pace={"poll": 0.5, "patience": 60.0}), clock=time, sleep=time.sleep)
    result = made.run(6)
    assert result.rounds == 6
    assert 60.0 < time.now < 200.0
    asked = [row["round"] for row in result.ledger.messages if row["to"] == "south"]
    assert asked[0] == 0
    skipped = [detail for _, what, detail in told(result) if what == "skipped"]
    assert skipped == [f"0 of 1 update, round {round}" for round in asked]


def test_a_node_that_refused_and_was_done_without_takes_part_again_when_it_answers(tmp_path):
    case, time = replace(CASES["fedavg"], rounds=4), Clock()
    courier = SlowAndMoody(node_servers(case, tmp_path), codec.pack({"refused": "no"}), time)
    made = engine(case, courier, case.plan(pace={"poll": 0.5, "patience": 60.0}), clock=time, sleep=time.sleep)
    result = made.run(4)
    absent = [detail.partition(":")[0] for _, what, detail in told(result) if what == "absent"]
    assert absent == ["'update' of round 0 from west"]
    heard = [row["round"] for row in result.ledger.messages if row["from"] == "west" and row["status"] == "sent"]
    assert heard == [0, 1, 2, 3]  # the first came too late
    assert made.host.trouble == {}
    assert courier.node_servers["west"].store.load().applied == 4


class SlowAndMoody(Moody):
    """The others take half a minute for each answer; west comes to its senses in their second round."""

    def __init__(self, node_servers, answer, clock):
        super().__init__(node_servers, "west", answer, 90.0, clock)
        self.sent = {}

    def send(self, questions):
        tickets = super().send(questions)
        self.sent |= {ticket: self.clock() for node, ticket in tickets.items() if node != "west"}
        return tickets

    def collect(self, tickets):
        return super().collect([t for t in tickets if self.clock() - self.sent.get(t, -99.0) >= 30.0])


def test_who_all_refuse_are_waited_for(tmp_path):
    """As after more rounds were agreed on, while nobody has started its node again: no round is spent on that."""
    case, time = CASES["fedavg"], Clock()
    courier = Refusing(node_servers(case, tmp_path), 500.0, time)
    made = engine(case, courier, case.plan(pace={"poll": 0.5, "patience": 60.0}), clock=time, sleep=time.sleep)
    result = made.run(case.rounds)
    assert result.digest == uninterrupted(case)
    assert time.now >= 500.0
    assert not result.ledger.incidents


class Refusing(Direct):
    """Everybody refuses until a moment."""

    def __init__(self, node_servers, until, clock):
        super().__init__(node_servers)
        self.until, self.clock, self.honest = until, clock, node_servers

    def send(self, questions):
        mute = Mute(codec.pack({"refused": "not yet"}))
        self.node_servers = self.honest if self.clock() >= self.until else dict.fromkeys(self.honest, mute)
        return super().send(questions)


def test_a_coordinator_knows_nothing_of_participants_but_their_names():
    for case in CASES.values():
        federation = case.plan().coordinator()
        assert not federation.models.keys() & set(NAMES)
        assert not federation.data.keys() & set(NAMES)
        assert not federation.private_tests


# -- blame -------------------------------------------------------------------------------------------------------
def test_what_a_participant_says_of_mail_that_it_never_got_blames_nobody(tmp_path):
    """Else one of them could have all others put out."""
    case, said = CASES["fedavg"], "'update' of round 0 from north: 9 times as far"
    courier = Odd(node_servers(case, tmp_path), "west", lambda a: _with(a, doubts=[said], refused=[said]))
    made = engine(case, courier)
    made.federation = replace(made.federation, expel=1)
    result = made.run(case.rounds)
    assert told(result) == []
    assert result.digest == uninterrupted(case)


def _slandering(answer):
    doubts = ["update of round 0 from south: as far as what is from server: 9 times"]
    doubts += ["update of round 0 from south: 9 times as far", "global of round 0 from server: 9 times as far"]
    return _with(answer, doubts=doubts)


def test_an_organisation_cannot_have_others_put_out(tmp_path):
    """North doubts what south has never sent to it, and what the server has: neither is put out."""
    case = CASES["fedavg"]
    made = engine(case, Odd(node_servers(case, tmp_path), "north", _slandering))
    made.federation = replace(made.federation, expel=1)
    result = made.run(case.rounds)
    assert {(what, node) for node, what, _ in told(result)} == {("doubted", "north")}
    assert {sender_in(detail) for _, _, detail in told(result)} == {"server"}
    assert result.digest == uninterrupted(case)


def test_the_coordinator_can_put_a_participant_out(tmp_path):
    case = CASES["fedavg"]
    plan = case.plan(pace={"poll": 0.001})
    (tmp_path / "federation.toml").write_text(written(plan.model_dump(mode="json", exclude_none=True)))
    with pytest.raises(DeployError, match="is not a coordinator's folder"):
        coordinator.put_out(tmp_path, "north")
    (tmp_path / "coordinator.toml").write_text("")
    with pytest.raises(DeployError, match="no participant is called 'nroth'"):
        coordinator.put_out(tmp_path, "nroth")
    coordinator.put_out(tmp_path, "north")
    courier = Direct(node_servers(case, tmp_path))
    coordinator.run(tmp_path, plan, courier)
    rows = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert [row["detail"] for row in rows if row.get("incident") == "put out"] == [
        "north from round 1 on: the coordinator has put it out"
    ]
    assert [row["round"] for row in rows if row.get("from") == "north" and row.get("status") == "sent"] == [0]
    assert len([to for to, data in courier.questions if to == "north" and codec.unpack(data)["ask"] == "react"]) == 1
