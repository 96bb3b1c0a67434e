"""A node's own clock: when it strikes, what it waits for, and what ends it."""

import math

import pytest

from heterophony import Clock, Each, Every, Federation, Kind, Method, MethodError, Profile, Round, Scalar, on
from heterophony.engines import Stalled, local, process
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.by_level import ByLevel
from heterophony.kernel.topology import star
from heterophony.kernel.work import Predict
from heterophony.runs.run import Run
from toys.world import net, points

ASK = Kind("ask", to="children", n=Scalar())
TELL = Kind("tell", to="parent", n=Scalar())


class Lively(Method):
    """A server that asks its clients; each writes down when it was asked, and when its clock woke it."""

    roles = ("server", "client")
    kinds = (ASK, TELL)
    memory = ("asked", "struck")
    every: ByLevel[float] | None = 1.0
    works: bool = False  # whether the clock sets a client to work
    talks: bool = False  # whether it sends then, which it must not
    mute: bool = False  # whether it never answers

    @on(Round, role="server")
    def begin(self, server):
        return ASK(server.cohort(), n=0)

    @on(Each(ASK), role="client")
    def hear(self, client, mail):
        client.vars["asked"] = [*client.vars.get("asked", []), client.time]
        return [] if self.mute else TELL(round=mail.round, n=0)

    @on(Clock("every"), role="client")
    def wake(self, client):
        client.vars["struck"] = [*client.vars.get("struck", []), client.time]
        if self.works:
            yield Predict("model", "train")
        return TELL(n=1) if self.talks else []

    @on(Every(TELL, of="cohort"), role="server")
    def merge(self, server, mail):
        server.round += 1


FAR = Profile(latency=0.375)  # a message takes 0.75 s, so a round 1.5 s


def federation(method=None, profiles=None, clients=("c0", "c1"), **options):
    models = {"client": {"model": net()}}
    data = {client: {"train": points(client, rows=12)} for client in clients}
    return Federation(
        method or Lively(), star(clients), models, data, profiles={"": FAR, **(profiles or {})}, **options
    )


def times(result, what, node="c0"):
    return result.state(node)["vars"].get(what, [])


@pytest.fixture(params=[local, process], ids=["local", "process"])
def engine(request):
    return request.param


def test_a_clock_strikes_until_nobody_leads_any_more(engine):
    """Rounds end at 1.5, 3 and 4.5 s. What would strike after that wakes nobody, and does not move the clock."""
    result = engine(federation()).run(3)
    assert times(result, "asked") == [0.75, 2.25, 3.75]
    assert times(result, "struck") == times(result, "struck", "c1") == [1.0, 2.0, 3.0, 4.0]
    assert result.clock == 4.5


def test_at_equal_times_mail_and_the_end_of_a_round_come_before_a_clock():
    """The run is over at 3 s, when the clock strikes for the second time."""
    assert times(local(federation(Lively(every=1.5))).run(2), "struck") == [1.5]
    boxes = local(federation(Lively(every=0.75)))
    result = boxes.run(2)
    assert times(result, "asked") == [0.75, 2.25]
    assert times(result, "struck") == [0.75, 1.5, 2.25]


def test_clocks_differ_by_node_and_none_is_none():
    result = local(federation(Lively(every={"c0": 0.5}))).run(1)
    assert times(result, "struck") == [0.5, 1.0]
    assert times(result, "struck", "c1") == []
    without = local(federation(Lively(every=None)))
    assert times(without.run(1), "struck") == []
    assert without.queue.heap == []


def test_whoever_is_busy_reacts_once_when_it_is_free_and_to_its_mail_first(engine):
    """A prediction of 12 rows takes 12 / 3 * 0.6 = 2.4 s. The ask of 2.25 s waits until 3.4 s, and goes first."""
    slow = {"c0": Profile(latency=0.375, seconds_per_sample=0.6)}
    result = engine(federation(Lively(works=True), slow)).run(2)
    assert times(result, "asked") == [0.75, pytest.approx(3.4)]
    assert times(result, "struck")[:2] == [1.0, pytest.approx(3.4)]  # at 2 and 3 s it was busy
    assert result.clock == pytest.approx(5.8)  # what it has begun it finishes


def test_whoever_is_away_reacts_once_when_it_is_back():
    away = {"c0": Profile(latency=0.375, available=((0.0, 0.8), (3.6, math.inf)))}
    result = local(federation(profiles=away)).run(3)
    assert times(result, "struck")[:2] == [3.6, 4.0]


def test_the_clock_of_a_newcomer_starts_when_it_joins():
    result = local(federation(joins={"c1": 1.6})).run(3)
    assert times(result, "struck", "c1") == pytest.approx([2.6, 3.6])


def test_what_a_clock_wakes_sends_nothing():
    with pytest.raises(ReactionError, match="sends 'tell', but a reaction that a clock wakes may send nothing"):
        local(federation(Lively(talks=True))).run(1)


@pytest.mark.parametrize("works", [False, True])
def test_clocks_keep_no_run_going_that_cannot_finish(works):
    """The work of c0 lasts over the next strike of c1 each time, so that someone is always at work."""
    slow = {"c0": Profile(latency=0.375, seconds_per_sample=0.3)}
    with pytest.raises(Stalled, match="server waits for 'tell' of round 0 from c0, c1"):
        local(federation(Lively(mute=True, works=works), slow)).run(1)


def test_more_rounds_go_on_with_the_clock_where_it_stands(tmp_path):
    whole = local(federation()).run(4)
    folder = tmp_path / "run"
    federation().run(2, folder)
    result = federation().resume(folder, 4)
    assert times(result, "struck") == times(whole, "struck") == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert (result.clock, result.digest) == (whole.clock, whole.digest)


def test_a_run_that_stops_after_every_wave_strikes_as_if_it_had_not(tmp_path):
    made = federation(Lively(works=True, every={"c0": 0.4, "c1": 0.7}), {"c1": Profile(0.2, latency=0.375)})
    whole = local(made).run(3)

    def stop(engine):
        engine.stop = True

    def attempt(opened):
        with opened as run:
            try:
                return local(made, record=run, progress=stop).run(3)
            except KeyboardInterrupt:
                return None

    result, stops = attempt(Run.create(tmp_path / "run", made.identity(), 3)), 0
    while result is None:
        result, stops = attempt(Run.open(tmp_path / "run", made.identity())), stops + 1
    assert stops > 10
    for node in ("c0", "c1"):
        assert times(result, "struck", node) == times(whole, "struck", node)
    assert result.clock == whole.clock


def test_clocks_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"every is a number of virtual seconds > 0, or none, got \{'c0': 0"):
        Lively(every={"c0": 0, "*": 1.0})
    with pytest.raises(MethodError, match="every names 'often', which is no option"):

        class Odd(Method):
            roles = ("peer",)

            @on(Round)
            def begin(self, node): ...

            @on(Clock("often"))
            def wake(self, node): ...
