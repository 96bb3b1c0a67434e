"""The rules of docs/reference/semantics.md, each on a small federation and on both engines."""

import math
from dataclasses import replace

import pytest
import torch

from heterophony import (
    Compute,
    Count,
    Dropout,
    Each,
    Every,
    Federation,
    Fit,
    Kind,
    Method,
    Model,
    Predict,
    Profile,
    Round,
    Scalar,
    on,
)
from heterophony.compute.eager import Eager
from heterophony.engines import Network, Stalled, local, process
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.topology import random_pairs, star
from heterophony.kernel.work import Note
from heterophony.methods import FedAvg, FedH2L, fedmd_global
from heterophony.parts.aggregate import mean
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from toys.federations import (
    AWAY,
    B16,
    CLIENTS,
    DISTURBED,
    STEP,
    bhfl,
    buffered,
    hierarchy,
    logits_star,
    peers,
    slow,
    timed,
    weights_star,
)
from toys.world import net, normed, points, private


@pytest.fixture(params=[local, process], ids=["local", "process"])
def engine(request):
    return request.param


def row(name):
    return next(r for r in DISTURBED if r.name == name)


def incidents(result, what=None):
    found = [(i["incident"], i["node"], i["detail"]) for i in result.ledger.incidents]
    return found if what is None else [i for i in found if i[0] == what]


def merged_without(federation, out, rounds):
    """FedAvg by hand: rounds in which some clients' updates do not count."""
    method, server = federation.method, federation.node("server")
    clients = {c: federation.node(c) for c in CLIENTS}
    for round in range(rounds):
        updates, shares = [], []
        for name, client in clients.items():
            client.load(server.weights())
            client.round = round
            tag = f"{round + 1}.1"
            from heterophony.compute.eager import Job

            work = method.local.fit("model", method.loss)
            Eager()([Job(client, work, tag)])
            if name not in out(round):
                updates.append(client.weights())
                shares.append(len(client.data["train"]))
        if updates:
            server.load(mean(updates, shares))
    return server.weights()


def server_weights(result):
    return {n: t for n, t in result.state("server")["models"]["model"].items() if t.is_floating_point()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


# -- absence -------------------------------------------------------------------------------------------------
def test_a_refused_message_is_absent_and_the_round_goes_on(engine):
    federation = row("refused").build()
    result = engine(federation).run(2)
    refused = incidents(result, "refused")
    assert [(node, detail[:27]) for _, node, detail in refused] == [
        ("server", f"'update' of round {round} from c1") for round in (0, 1)
    ]
    assert "not finite" in refused[0][2]
    assert equal(server_weights(result), merged_without(federation, lambda round: {"c1"}, 2))


def test_a_withheld_message_is_absent_and_never_left(engine):
    federation = row("withheld").build()
    result = engine(federation).run(2)
    assert {(r["from"], r["kind"]) for r in result.ledger.messages if r["status"] == "withheld"} == {("c1", "update")}
    assert equal(server_weights(result), merged_without(federation, lambda round: {"c1"}, 2))
    size = result.ledger.messages[0]["payload"]
    assert result.ledger.bytes()["update"] == 2 * 2 * (size + 8)


def test_dropouts_are_absent_always_or_at_random():
    always = weights_star(FedAvg(local=B16), dropout=Dropout(always=("c0",)))
    result = local(always).run(3)
    assert equal(server_weights(result), merged_without_training(always, {"c0"}, 3))
    rate = weights_star(FedAvg(local=B16), dropout=Dropout(rate=0.5), seed=5)
    lost = {(r["round"], r["to"]) for r in local(rate).run(20).ledger.messages if r["status"] == "dropped"}
    assert 15 <= len({pair for pair in lost if pair[1] != "server"}) <= 45


def merged_without_training(federation, out, rounds):
    """As `merged_without`, for clients that did not even train."""
    kept = [c for c in CLIENTS if c not in out]
    data = {c: federation.data[c] for c in kept}
    smaller = replace(federation, topology=star(kept), data=data, dropout=Dropout())
    return server_weights(local(smaller).run(rounds))


def test_a_run_that_cannot_finish_names_who_waits_for_whom(engine):
    federation = weights_star(FedAvg(local=B16), profiles={"c2": Profile(available=((0.0, 0.05),))})
    with pytest.raises(Stalled) as caught:
        engine(federation).run(3)
    text = str(caught.value)
    assert text == (
        "the federation stopped short of 3 rounds at server (round 0): "
        "server waits for 'update' of round 0 from c2 (gone since 0.05 s)"
    )


# -- windows -------------------------------------------------------------------------------------------------
def test_a_deadline_with_quorum_fires_on_time_without_the_slow(engine):
    federation = row("deadline").build()
    result = engine(federation).run(3)
    marks = result.table.select(product="global", quantity="accuracy", set="here")
    assert [r["time"] for r in marks] == pytest.approx([0.1, 0.2, 0.3])
    assert [i[2] for i in incidents(result, "timeout")] == [f"update from c2, round {r}" for r in range(3)]
    assert incidents(result, "late")[0] == ("late", "server", "'update' of round 0 from c2")
    assert equal(server_weights(result), merged_without(federation, lambda round: {"c2"}, 3))


def test_a_deadline_without_quorum_rearms_once_then_skips_the_round(engine):
    federation = timed(3, 0.05, slow())
    start = federation.node("server").weights()
    result = engine(federation).run(2)
    marks = result.table.select(product="global", quantity="accuracy", set="here")
    assert [r["time"] for r in marks] == pytest.approx([0.1, 0.2])
    assert [i[2] for i in incidents(result, "skipped")] == [f"2 of 3 update, round {r}" for r in range(2)]
    assert equal(server_weights(result), start)


def test_a_rearmed_deadline_can_still_be_met(engine):
    federation = timed(3, 0.15, slow())  # c2 needs 0.224 s: after the first deadline, before the second
    result = engine(federation).run(1)
    assert incidents(result) == []
    assert result.clock == pytest.approx(0.224)
    assert equal(server_weights(result), merged_without(federation, lambda round: set(), 1))


def test_mail_precedes_a_timer_of_the_same_moment(engine):
    federation = timed(1, 0.056, {})  # the slowest client answers at 0.056 s exactly
    result = engine(federation).run(1)
    assert incidents(result) == []
    late = engine(timed(1, 0.0559, {})).run(1)
    assert [i[2] for i in incidents(late, "timeout")] == ["update from c2, round 0"]


def test_late_mail_is_accepted_with_its_staleness_where_the_trigger_says_so(engine):
    result = engine(row("late-accepted").build()).run(6)
    staleness = [r["sum"] for r in result.table.select(quantity="staleness")]
    assert max(staleness) >= 2
    assert staleness.count(0) == 12
    assert incidents(result, "late") == []


def test_a_duplicate_changes_nothing(engine):
    calm = engine(weights_star(FedAvg(local=B16))).run(3)
    repeated = row("repeated")
    twice = engine(repeated.build(), **repeated.options).run(3)
    assert len(incidents(twice, "duplicate")) == 3 * 3 * 2
    assert twice.digest == calm.digest


def test_lost_mail_is_waited_for_until_the_deadline(engine):
    class Lossy(Network):
        def arrivals(self, message, path, size, departure):
            found = super().arrivals(message, path, size, departure)
            return [] if (message.kind, message.sender, message.round) == ("update", "c0", 1) else found

    federation = timed(1, 0.2, {})
    result = engine(federation, network=Lossy).run(3)
    assert incidents(result) == [("timeout", "server", "update from c0, round 1")]
    assert equal(server_weights(result), merged_without(federation, lambda round: {"c0"} if round == 1 else set(), 3))


# -- availability, joining -----------------------------------------------------------------------------------
def test_a_node_that_dies_is_done_without(engine):
    result = engine(row("dies").build()).run(3)
    assert [i[2] for i in incidents(result, "timeout")] == [f"update from c2, round {r}" for r in range(3)]
    assert {r["to"] for r in result.ledger.messages if r["status"] == "lost"} == {"c2", "server"}


def test_a_node_that_returns_takes_part_again(engine):
    """c2 leaves at 0.05 s, in the middle of its work, and is back at 0.25 s with a backlog: what it does is late until
    it has caught up; its answer of round 4 leaves at 0.474 s, before that round's deadline.
    """
    result = engine(timed(2, 0.1, slow(1e-3, available=AWAY))).run(5)
    sent = [(r["round"], r["time"]) for r in result.ledger.messages if r["from"] == "c2" and r["status"] == "sent"]
    assert [round for round, _ in sent] == [0, 1, 2, 3, 4]
    assert [moment for _, moment in sent] == pytest.approx([0.056, 0.306, 0.362, 0.418, 0.474])
    assert [i[2] for i in incidents(result, "late")] == [f"'update' of round {r} from c2" for r in range(4)]
    assert [i[2] for i in incidents(result, "timeout")] == [f"update from c2, round {r}" for r in range(4)]


def test_peers_go_on_when_one_disappears(engine):
    gone = {"p1": Profile(available=((0.0, 0.03),))}
    result = engine(peers(method=FedH2L(local=STEP, sample=8, cohort=Cohort(deadline=0.05)), profiles=gone)).run(4)
    rounds = {n: result.state(n)["round"] for n in ("p0", "p1", "p2")}
    assert rounds["p0"] == rounds["p2"] == 4
    assert rounds["p1"] < 4


def test_a_newcomer_joins_a_running_federation(engine):
    federation = row("joins").build()
    result = engine(federation).run(3)
    assert incidents(result) == [("joined", "c2", "")]
    reached = [(r["round"], r["to"]) for r in result.ledger.messages if r["kind"] == "global"]
    assert [to for round, to in reached if round == 0] == ["c0", "c1"]
    assert [to for round, to in reached if round == 2] == ["c0", "c1", "c2"]


# -- time ----------------------------------------------------------------------------------------------------
def test_virtual_time_follows_from_work_and_profile(engine):
    """c1 has 48 rows: two epochs at 2 ms a sample; 10 kB/s and 5 ms at either end of the line."""
    profiles = {"c1": Profile(seconds_per_sample=2e-3), "": Profile(latency=0.005, bandwidth=1e4)}
    federation = weights_star(FedAvg(local=Training(batch=16, epochs=2)), profiles=profiles)
    federation = replace(federation, topology=star(["c1"]), data={"c1": federation.data["c1"]})
    model = sum(t.nbytes for t in federation.node("c1").weights().values())
    there, back = 0.005 + model / 1e4, 0.005 + (model + 8) / 1e4
    assert engine(federation).run(1).clock == pytest.approx(there + 2 * 48 * 2e-3 + back)


def test_an_early_send_departs_early_and_commits_with_its_reaction(engine):
    """The root trains for 48 ms; with `overlap` its children have the model at once, otherwise after that."""
    clocks = {}
    for early in (False, True):
        result = engine(hierarchy(bhfl(overlap=early))).run(1)
        sent = next(r for r in result.ledger.messages if r["kind"] == "down" and r["from"] == "root")
        clocks[early] = sent["time"]
    assert clocks == {False: pytest.approx(0.048), True: 0.0}


def test_a_node_is_busy_until_its_reaction_ends(engine):
    class Chat(Method):
        roles = ("server", "client")
        kinds = (PING, PONG)
        memory = ("got",)

        @on(Round, role="server")
        def begin(self, server):
            return [PING(value=i) for i in range(3)]

        @on(Each(PING), role="client")
        def work(self, client, mail):
            yield Predict("model", "train")
            return PONG(value=mail.value, round=0)

        @on(Each(PONG), role="server")
        def note(self, server, mail):
            server.vars.setdefault("got", []).append(mail.value)
            server.round = len(server.vars["got"]) // 3

    federation = Federation(Chat(), star(["c0"]), {"client": {"model": net()}}, private(["c0"]))
    result = engine(federation).run(1)
    third = 40 * 1e-3 / 3
    assert [r["time"] for r in result.ledger.messages if r["kind"] == "pong"] == pytest.approx(
        [third, 2 * third, 3 * third]
    )
    assert result.state("server")["vars"]["got"] == [0.0, 1.0, 2.0]


PING = Kind("ping", to="children", value=Scalar)
PONG = Kind("pong", to="parent", value=Scalar)


def test_pending_work_is_computed_together():
    """All clients of a round in one call; in asynchronous methods whatever is pending at the moment; and a server that
    goes on after an early send, beside those who got it."""
    alone, beside = weights_star(FedAvg(local=B16)), logits_star(fedmd_global(local=B16, distil=B16))
    for federation, least, most in ((alone, 3, 3), (buffered(), 2, 3), (beside, 4, 4)):
        sizes = []
        eager = Eager()

        def spy(jobs, eager=eager, sizes=sizes):
            sizes.append(sum(isinstance(job.work, Fit) for job in jobs))
            return eager(jobs)

        local(federation, executor=spy).run(5)
        assert max(sizes) == most
        assert sum(size >= least for size in sizes) >= 3


def test_idle_nodes_are_not_even_built():
    federation = Federation(
        FedAvg(cohort=Cohort(fraction=0.002)), star(1000), {"server": {"model": net()}, "client": {"model": net()}},
        {"client": {"train": points("all")}},
    )  # fmt: skip
    engine = local(federation)
    engine.run(3)
    assert 3 <= len(engine.host.nodes) <= 1 + 3 * 2
    assert len(engine.boxes) == len(engine.host.nodes)


def test_threads_are_the_federations_own_and_put_back():
    seen = []

    def loss(nets, batch):
        seen.append(torch.get_num_threads())
        return nets["model"](batch.x).sum()

    before = torch.get_num_threads()
    local(weights_star(FedAvg(loss=loss), compute=Compute(threads=2))).run(1)
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


# -- models --------------------------------------------------------------------------------------------------
def test_buffers_travel_or_stay_private_and_integers_never_travel():
    def star_of(**model):
        models = {role: {"model": Model(normed, **model)} for role in ("server", "client")}
        return Federation(FedAvg(local=B16), star(CLIENTS), models, private(CLIENTS))

    shared = star_of().node("c0").weights()
    assert "1.running_mean" in shared
    assert "1.num_batches_tracked" not in shared
    assert "1.running_mean" not in star_of(buffers="private").node("c0").weights()
    result = local(star_of(buffers="private")).run(2)
    server, client = (result.state(n)["models"]["model"]["1.running_mean"] for n in ("server", "c0"))
    assert torch.equal(server, torch.zeros(12))
    assert not torch.equal(client, torch.zeros(12))
    averaged = local(star_of()).run(2).state("server")["models"]["model"]
    assert not torch.equal(averaged["1.running_mean"], torch.zeros(12))
    assert int(averaged["1.num_batches_tracked"]) == 0


def test_a_part_of_a_model_can_be_the_shared_one():
    def star_of(share):
        models = {role: {"model": Model(net(), share=share)} for role in ("server", "client")}
        return Federation(FedAvg(local=B16), star(CLIENTS), models, private(CLIENTS))

    federation = star_of("0")
    result = local(federation).run(2)
    assert set(federation.node("c0").weights()) == {"0.weight", "0.bias"}
    first, second = (result.state(c)["models"]["model"] for c in ("c0", "c1"))
    assert not torch.equal(first["2.weight"], second["2.weight"])
    size = (8 * 12 + 12) * 4
    assert result.ledger.bytes() == {"global": 6 * size, "update": 6 * (size + 8)}


def test_common_models_start_alike_and_others_do_not():
    common = hierarchy()
    weights = [common.node(n).weights() for n in ("root", "e0", "l3")]
    assert equal(weights[0], weights[1])
    assert equal(weights[0], weights[2])
    own = weights_star(FedAvg())
    assert not equal(own.node("c0").weights(), own.node("c1").weights())
    assert equal(own.node("c0").weights(), own.node("c0").weights())


def test_residuals_are_counted_on_every_link_they_use():
    result = local(hierarchy()).run(1)
    model = sum(t.nbytes for t in hierarchy().node("root").weights().values())
    far = [r for r in result.ledger.messages if r["kind"] == "far-down"]
    assert [(r["to"], r["hops"], r["payload"]) for r in far] == [("l0", 2, model), ("l3", 2, model)]
    assert result.ledger.bytes()["far-down"] == 4 * model


def test_the_ledgers_wire_bytes_are_those_of_the_encoded_messages():
    seen = []

    class Weighing(Network):
        def arrivals(self, message, *rest):
            seen.append(len(message.encode()))
            return super().arrivals(message, *rest)

    for federation in (hierarchy(), peers(), weights_star(FedAvg(local=B16))):
        seen.clear()
        rows = local(federation, network=Weighing).run(2).ledger.messages
        assert sorted(r["wire"] for r in rows) == sorted(seen)


def test_turns_are_honoured_at_every_level():
    """Per round of the root: an inner node T = 2 times, so each leaf is reached twice."""
    result = local(hierarchy()).run(3)
    assert {n: result.state(n)["round"] for n in ("root", "e0", "e1", "l0", "l3")} == {
        "root": 3, "e0": 6, "e1": 6, "l0": 6, "l3": 6,
    }  # fmt: skip


def test_random_pairs_leave_one_of_three_alone():
    result = local(peers(random_pairs)).run(4)
    senders = [{r["from"] for r in result.ledger.messages if r["round"] == round} for round in range(4)]
    assert all(len(pair) == 2 for pair in senders)
    assert len({frozenset(pair) for pair in senders}) > 1
    assert all(r["round"] == 4 for r in (result.state(p) for p in ("p0", "p1", "p2")))


# -- mistakes of a method ------------------------------------------------------------------------------------
def toy(react):
    class Toy(Method):
        roles = ("server", "client")
        kinds = (PING, PONG)

        @on(Round, role="server")
        def begin(self, server):
            return react(server)

        @on(Each(PING), role="client")
        def hear(self, client, mail):
            return None

        @on(Each(PONG), role="server")
        def note(self, server, mail):
            return None

    return Federation(Toy(), star(2), {}, {})


def forget(server):
    server.vars["secret"] = 1


def stray(server):
    server.pocket = 1


OTHER = Kind("other", to="children")


@pytest.mark.parametrize(
    ("react", "error", "text"),
    [
        (forget, ReactionError, "node server, round 0, reaction 'begin': KeyError: \"undeclared variable 'secret'"),
        (stray, ReactionError, "has no attribute 'pocket'"),
        (lambda server: PING("c9", value=1), ReactionError, "'ping' goes to the node's children; 'c9' is none of them"),
        (lambda server: PONG("c0", value=1), ReactionError, "'pong' goes to the node's parent; 'c0' is none of them"),
        (lambda server: OTHER(), ReactionError, "Toy does not declare the kind 'other'"),
        (lambda server: [1], ReactionError, "expected messages or work, got 1"),
        (lambda server: 1 / 0, ReactionError, "node server, round 0, reaction 'begin': ZeroDivisionError"),
        (lambda server: server.cohort(0.0), ReactionError, "a cohort is a share"),
    ],
)
def test_mistakes_name_node_round_and_reaction(react, error, text, engine):
    with pytest.raises(error) as caught:
        engine(toy(react)).run(1)
    assert text in str(caught.value)
    assert str(caught.value).startswith("node server, round 0, reaction 'begin'")
    chain = caught.value
    while chain is not None:  # a StopIteration among them would print the whole message
        assert not isinstance(chain, StopIteration)
        chain = chain.__cause__ or chain.__context__


def test_a_variable_that_cannot_be_written_is_named():
    class Hoarder(Method):
        roles = ("peer",)
        memory = ("things",)

        @on(Round)
        def begin(self, peer):
            peer.vars["things"] = {1, 2}

    from heterophony.kernel.topology import complete

    with pytest.raises(
        ReactionError, match="node p0, round 0, reaction 'begin': TypeError: variable 'things': cannot write a set"
    ):
        local(Federation(Hoarder(), complete(1), {}, {})).run(1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topology": random_pairs(3)}, "FedAvg knows the roles server, client, the topology has peer"),
        ({"models": {"clients": {}}}, "models: no node or role is called 'clients'"),
        ({"egress": {"c0": ("weights",)}}, "egress of c0: FedAvg has no kind 'weights'"),
        ({"joins": {"c7": 1.0}}, "joins: no node or role is called 'c7'"),
    ],
)
def test_a_federation_that_does_not_fit_is_refused(change, text):
    with pytest.raises(ValueError, match=text):
        replace(weights_star(FedAvg()), **change)


def test_infinite_profiles_and_spans_are_checked():
    with pytest.raises(ValueError, match="in order"):
        Profile(available=((5.0, 1.0),))
    with pytest.raises(ValueError, match="bandwidth"):
        Profile(bandwidth=0.0)
    assert Profile(available=((1.0, 2.0),)).next_available(2.0) == math.inf
    assert Profile(available=((1.0, 2.0),)).next_available(0.5) == 1.0


# -- found by review -------------------------------------------------------------------------------------------
def test_recipients_are_those_of_the_moment_at_which_the_reaction_fired(engine, tmp_path):
    """c2 joins while the server trains; the message that the server sends afterwards is not for it, on any engine."""

    class Push(Method):
        roles = ("server", "client")
        kinds = (PING, PONG)

        @on(Round, role="server")
        def begin(self, server):
            yield Fit("model", lambda nets, batch: nets["model"](batch.x).sum())
            return PING(value=1)

        @on(Each(PING), role="client")
        def hear(self, client, mail):
            return PONG(value=1, round=mail.round)

        @on(Each(PONG), role="server")
        def note(self, server, mail):
            server.round = mail.round + 1

    federation = Federation(
        Push(), star(3), {"server": {"model": net()}}, {"server": {"train": points("s")}}, joins={"c2": 0.02}
    )
    result = engine(federation).run(1)
    kept = federation.run(1, tmp_path / "run")
    for each in (result, kept):
        assert [r["to"] for r in each.ledger.messages if r["kind"] == "ping"] == ["c0", "c1"]


def test_rounds_of_other_roles_end_when_nobody_leads_any_more(engine):
    class Push(Method):
        roles = ("server", "client")
        kinds = (PONG,)

        @on(Round, role="client")
        def speak(self, client):
            yield Predict("model", "train")
            yield PONG(value=client.round)
            client.round += 1

        @on(Count(PONG, n=2), role="server")
        def hear(self, server, mail):
            server.round += 1

    federation = Federation(Push(), star(["c0"]), {"client": {"model": net()}}, private(["c0"]))
    result = engine(federation).run(3)
    assert result.rounds == 3
    assert result.state("c0")["round"] <= 8


def test_a_round_begins_before_its_window_fires():
    """The reaction to the window stands first, and the lonely peer's window is complete at once."""

    class Backwards(Method):
        roles = ("peer",)
        kinds = (HELLO,)
        memory = ("spoke",)

        @on(Every(HELLO, of="peers"))
        def learn(self, peer, mail):
            assert peer.vars["spoke"] == peer.round
            peer.round += 1

        @on(Round)
        def teach(self, peer):
            peer.vars["spoke"] = peer.round
            return HELLO()

    assert local(Federation(Backwards(), random_pairs(3), {}, {})).run(5).rounds == 5


HELLO = Kind("hello", to="peers")


def test_a_changed_message_is_an_error_that_names_the_reaction(engine):
    class Vandal(Method):
        roles = ("server", "client")
        kinds = FedAvg.kinds

        @on(Round, role="server")
        def begin(self, server):
            return FedAvg.kinds[0](server.cohort(), weights=server.weights())

        @on(Each(FedAvg.kinds[0]), role="client")
        def train(self, client, mail):
            mail.weights["0.weight"].mul_(2)

        @on(Each(FedAvg.kinds[1]), role="server")
        def merge(self, server, mail): ...

    with pytest.raises(ReactionError, match="reaction 'train': ValueError: changed the message 'global' it got"):
        engine(weights_star(Vandal())).run(1)


@pytest.mark.parametrize("when", ["before it ends", "while it goes on", "in a later reaction"])
def test_a_message_that_its_sender_changes_is_an_error_that_names_the_sender(when):
    class Fickle(Method):
        roles = ("server", "client")
        kinds = FedAvg.kinds
        memory = ("kept",)

        @on(Round, role="server")
        def begin(self, server):
            weights = server.weights()
            send = FedAvg.kinds[0](server.cohort(), weights=weights)
            server.vars["kept"] = weights
            if when == "while it goes on":
                yield send
            if when != "in a later reaction":
                weights["0.weight"].zero_()
            yield Note("step", 1)
            return [] if when == "while it goes on" else send

        @on(Each(FedAvg.kinds[0]), role="client")
        def train(self, client, mail):
            if client.id == "c0":  # its answer makes the server write into what is on its way to the others
                return FedAvg.kinds[1](weights=client.weights(), examples=1)

        @on(Each(FedAvg.kinds[1]), role="server")
        def merge(self, server, mail):
            server.vars["kept"]["0.weight"].zero_()

    late = {client: Profile(latency=5.0) for client in CLIENTS if client != "c0"}
    names = "node server.*changed (the|its) message 'global'"
    with pytest.raises(ReactionError, match=names):
        local(weights_star(Fickle(), profiles=late)).run(1)


@pytest.mark.parametrize(
    "lie", [{"sender": "c1"}, {"receiver": "c1"}, {"round": 5}, {"id": (99, 0)}, {"kind": "global"}]
)
def test_a_header_that_is_not_that_of_its_edge_is_refused(lie, monkeypatch):
    from heterophony.kernel.message import Message

    honest = Message.encode

    def forged(self):
        liar = self.kind == "update" and self.sender == "c0"
        return honest(replace(self, **lie) if liar else self)

    monkeypatch.setattr(Message, "encode", forged)
    federation = weights_star(FedAvg(local=B16))
    result = local(federation, encode=True).run(2)
    assert [i[2] for i in incidents(result, "refused")] == [
        f"'update' of round {r} from c0: its header is not that of the edge it came on" for r in range(2)
    ]
    assert equal(server_weights(result), merged_without(federation, lambda round: {"c0"}, 2))


def test_a_newcomer_among_peers_starts_where_they_are(engine):
    federation = peers(method=FedH2L(local=STEP, sample=8, cohort=Cohort(deadline=0.5)), joins={"p2": 0.03})
    result = engine(federation).run(5)
    rounds = sorted(r["round"] for r in result.ledger.messages if r["from"] == "p2")
    assert rounds[0] > 0
    assert rounds[-1] == 4
    assert incidents(result, "skipped") == []


def test_transforms_of_several_models_are_given_by_name():
    with pytest.raises(ValueError, match="give their transforms by name"):
        Fit(("a", "b"), lambda nets, batch: 0, transform=lambda g, p: g)


def test_a_share_that_names_nothing_is_refused():
    models = {role: {"model": Model(net(), share="bodi")} for role in ("server", "client")}
    with pytest.raises(ValueError, match="share names 'bodi'"):
        Federation(FedAvg(), star(2), models, {}).node("c0")


def test_live_modules_are_copied_for_each_node():
    module = net()()
    federation = Federation(FedAvg(), star(2), {"server": {"model": module}, "client": {"model": module}}, {})
    assert federation.node("c0").models["model"] is not module
    assert equal(federation.node("c0").weights(), federation.node("c1").weights())


def test_threads_and_processes_do_not_go_together():
    with pytest.raises(ValueError, match="threads = 1"):
        process(weights_star(FedAvg(), compute=Compute(threads=2)))
