"""Local training: what differs from node to node and from round to round, and what cannot be."""

from dataclasses import fields, replace

import pytest

from heterophony import Federation, Method
from heterophony.catalogue.registry import OptionError, lookup
from heterophony.engines import local
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.node import Node
from heterophony.kernel.topology import Links, star
from heterophony.methods import BHFL, FedAvg, FedBuff
from heterophony.parts.cohort import Cohort
from heterophony.parts.losses import cross_entropy
from heterophony.parts.node_optimiser import NodeOptimiser
from heterophony.parts.schedules import Ramp, Stairs, Warmup
from heterophony.parts.training import Training
from toys.federations import CLIENTS, METHODS, hierarchy, weights_star


def node(id="c0", round=0, role="client", parent="server", **vars):
    made = Node(id, role, links=Links(parent=(parent,) if parent else ()), memory=tuple(vars))
    made.round = round
    made.vars.update(vars)
    return made


# -- what a node gets ---------------------------------------------------------------------------------------------
def test_values_are_those_of_the_node_then_of_its_level_then_of_its_role():
    how = Training(epochs={"c0": 5, "1": 4, "client": 3, "*": 2}, batch={"1": 8, "client": 9, "*": 7}, lr=0.5)
    assert (how.at(node("c0")).epochs, how.at(node("c1")).epochs, how.at(node("s", parent=None)).epochs) == (5, 4, 3)
    assert (how.at(node("c0")).batch, how.at(node("s", parent=None, role="server")).batch) == (8, 7)
    deep = node("l0", role="leaf", level=3)
    assert Training(epochs={"1": 4, "3": 6, "*": 2}).at(deep).epochs == 6


def test_rates_are_those_of_a_nodes_own_round():
    how = Training(lr={"c0": Ramp(0.4, 0.2, 2), "c1": Warmup(1, Stairs(0.8, 0.5, every=1)), "*": 0.1})
    assert [how.at(node("c0", round)).lr for round in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.2])
    assert [how.at(node("c1", round)).lr for round in range(4)] == pytest.approx([0.4, 0.8, 0.4, 0.2])
    assert [how.at(node("c2", round)).lr for round in range(4)] == [0.1] * 4


def test_what_varies_is_put_into_an_order_where_it_is_taken_and_what_is_given_stays():
    how = Training(epochs={"c0": 3, "*": 1}, steps={"c1": 7}, lr=Ramp(0.4, 0.2, 2), clip=1.0, momentum=0.5)
    order = how.fit("model", cross_entropy).at(node("c0", 1))
    assert (order.epochs, order.steps, order.batch, order.optimiser.lr) == (3, None, 32, pytest.approx(0.3))
    assert (order.optimiser.clip, order.optimiser.changing, order.own) == (1.0, True, None)
    assert how.fit("model", cross_entropy).at(node("c1")).steps == 7
    assert how.fit("model", cross_entropy, epochs=9, steps=None).at(node("c1")).sizes is not None
    assert how.fit("model", cross_entropy, epochs=9, steps=None).at(node("c1")).epochs == 9
    assert how.fit("model", cross_entropy, epochs=9, steps=None).at(node("c1")).steps is None


def test_equal_trainings_have_one_optimiser_and_plain_ones_say_nothing_new():
    assert Training().build() is Training().build()
    assert Training(lr=Ramp(0.2, 0.1, 2)).built_at(node()) is Training(lr=Ramp(0.2, 0.1, 3)).built_at(node())
    plain = Training(momentum=0.9).build()
    assert (plain.clip, plain.changing, set(plain.options)) == (None, False, {"momentum", "weight_decay"})
    assert Training().fit("model", cross_entropy).own is None
    with pytest.raises(ValueError, match=r"built_at\(node\)"):
        Training(lr=Ramp(0.2, 0.1, 2)).build()


# -- in a run -----------------------------------------------------------------------------------------------------
def watched(federation, rounds):
    """All fits of a run as (node, round, epochs, batch, rate)."""
    from heterophony.compute.eager import Eager

    found, eager = [], Eager(federation.test_sets)

    def spy(jobs):
        for job in jobs:
            if hasattr(job.work, "optimiser"):
                found.append((job.node.id, job.node.round, job.work.epochs, job.work.batch, job.work.optimiser.lr))
        return eager(jobs)

    local(federation, executor=spy).run(rounds)
    return sorted(found)


def test_a_run_has_every_clients_own_values_in_every_round():
    how = Training(epochs={"c1": 2, "*": 1}, batch={"c2": 8, "client": 16}, lr=Stairs(0.1, 0.5, every=1))
    found = watched(weights_star(FedAvg(local=how)), 2)
    assert found == [
        ("c0", 0, 1, 16, 0.1), ("c0", 1, 1, 16, 0.05),
        ("c1", 0, 2, 16, 0.1), ("c1", 1, 2, 16, 0.05),
        ("c2", 0, 1, 8, 0.1), ("c2", 1, 1, 8, 0.05),
    ]  # fmt: skip


def test_a_tree_has_its_values_by_level():
    train = Training(epochs={"2": 2, "*": 1}, batch=16, lr={"2": Ramp(0.2, 0.1, 1), "*": 0.3})
    proxy = Training(batch={"0": 8, "*": 16}, lr={"0": 0.4, "*": 0.3})
    found = watched(hierarchy(BHFL(local=train, proxy=proxy)), 2)
    assert [row for row in found if row[0] in ("l0", "root")] == [
        ("l0", 0, 2, 16, 0.2), ("l0", 1, 2, 16, 0.1), ("root", 0, 1, 8, 0.4), ("root", 1, 1, 8, 0.4),
    ]  # fmt: skip


def varied(method):
    """The same method whose trainings all say their values as tables and schedules."""
    changed = {}
    for field in fields(method):
        how = getattr(method, field.name)
        if isinstance(how, Training):
            rates = {name: Stairs(rate, 1.0, every=1) for name, rate in table(how.lr).items()}
            others = {name: table(getattr(how, name)) for name in ("epochs", "steps", "batch")}
            changed[field.name] = replace(how, lr=rates, **others)
    return replace(method, **changed) if changed else None


def table(value):
    """A table that says this value of all nodes; a table, or no value, as it is."""
    return value if value is None or isinstance(value, dict) else {"*": value}


PLAIN = [row for row in METHODS if not row.name.endswith("-scheduled") and varied(row.build().method)]


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.name)
def test_every_method_takes_values_by_node_and_schedules(row):
    """Of one value for all nodes and rounds, so that the bits must be those of plain numbers."""
    plain = row.build()
    expected = local(plain, **row.options).run(row.rounds)
    found = local(replace(plain, method=varied(plain.method)), **row.options).run(row.rounds)
    assert found.digest == expected.digest
    assert found.clock == expected.clock
    assert found.table.rows == expected.table.rows


def test_a_schedule_of_one_value_is_that_value_to_the_bit():
    constant = weights_star(FedAvg(local=Training(batch=16, lr=0.05), server=NodeOptimiser("momentum", 0.5))).run(2)
    how = Training(batch={"*": 16}, lr=Ramp(0.05, 0.05, 3))
    method = FedAvg(local=how, server=NodeOptimiser("momentum", rate=Stairs(0.5, 1.0, every=1)))
    assert weights_star(method).run(2).digest == constant.digest


def test_a_run_that_is_resumed_goes_on_at_the_rate_of_its_round(tmp_path):
    method = FedAvg(
        local=Training(batch=16, lr=Warmup(1, Ramp(0.2, 0.0, 2, "cosine")), momentum=0.5, nesterov=True, clip=0.5),
        server=NodeOptimiser("nesterov", rate=Ramp(1.0, 0.5, 3)),
    )
    whole = weights_star(method).run(4, tmp_path / "whole")
    weights_star(method).run(2, tmp_path / "parts")
    assert weights_star(method).resume(tmp_path / "parts", 4).digest == whole.digest


def test_quorum_deadline_and_buffer_may_differ_by_level():
    """The root waits for one edge server that is quick, an edge server for all of its leaves."""
    method = BHFL(cohort=Cohort(quorum={"0": 1, "*": 2}, deadline={"0": 0.5}), buffer={"1": 2, "*": 0})
    federation = hierarchy(method)
    assert federation.method.setting("cohort.deadline", "root", "0", "root") == 0.5
    box = local(federation)
    box.run(1)
    by_role = BHFL(cohort=Cohort(quorum={"root": 1, "*": 2}, deadline={"root": 0.5}), buffer={"inner": 2, "*": 0})
    assert hierarchy(method).run(2).digest == hierarchy(by_role).run(2).digest
    with pytest.raises(ValueError, match="quorum is 3, but e0 can hear from 2"):
        hierarchy(BHFL(cohort=Cohort(quorum={"1": 3, "*": 1})))


# -- refusals -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epochs": -1}, "epochs >= 0"),
        ({"epochs": {"c0": -1, "*": 1}}, "epochs >= 0"),
        ({"batch": {"c0": 0, "*": 4}}, "batch >= 1"),
        ({"steps": {"c0": 0}}, "steps >= 1"),
        ({"lr": 0.0}, "lr > 0"),
        ({"lr": {"c0": -0.1, "*": 0.1}}, "lr > 0"),
        ({"lr": Ramp(0.0, 0.1, 3)}, "lr > 0"),
        ({"lr": Ramp(0.1, -0.1, 3)}, "lr > 0"),
        ({"lr": Stairs(0.1, 2.0, every=3)}, "lr > 0"),
        ({"momentum": 1.0}, "momentum"),
        ({"nesterov": True}, "nesterov needs the optimiser sgd and momentum > 0"),
        ({"nesterov": True, "momentum": 0.9, "optimiser": "adamw"}, "nesterov needs the optimiser sgd"),
        ({"clip": 0.0}, "clip is a length > 0"),
        ({"clip": -1.0}, "clip is a length > 0"),
        ({"weight_decay": -1.0, "optimiser": "adamw"}, "weight_decay >= 0"),
        ({"initial": -1}, "initial"),
    ],
)
def test_what_cannot_be_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        Training(**options)
    with pytest.raises(OptionError) as error:
        lookup("fedavg").build({f"local.{name}": value for name, value in options.items()})
    assert "local." in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"epochs": "two"}, "local.epochs = 'two': input should be a valid integer"),
        ({"epochs": {"c0": "two"}}, "local.epochs = {'c0': 'two'}: input should be a valid integer"),
        ({"nesterov": True}, "local.nesterov: nesterov needs the optimiser sgd and momentum > 0"),
        ({"clip": "short"}, "local.clip = 'short': input should be a valid number"),
        ({"optimiser": "lamb"}, "local.optimiser = 'lamb'"),
        ({"server.kind": "nestorov"}, "server.kind = 'nestorov'"),
        ({"server.rate": -1.0}, "server.rate: a node optimiser needs rate >= 0"),
    ],
)
def test_a_setting_is_refused_by_the_name_of_its_option(settings, text):
    with pytest.raises(OptionError, match=r"^fedavg: ") as error:
        lookup("fedavg").build(settings)
    assert text in str(error.value)


def test_options_that_need_each_other_may_come_in_any_order():
    for order in (("nesterov", "momentum"), ("momentum", "nesterov")):
        method = lookup("fedavg").build({name: {"nesterov": True, "momentum": 0.9}[name] for name in order})
        assert method.local.nesterov


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epochs": {"c9": 2, "*": 1}}, "local.epochs: no node, level or role is called 'c9'"),
        ({"epochs": {"3": 2, "*": 1}}, "local.epochs: no node, level or role is called '3'"),
        ({"lr": {"strat": 0.1, "*": 1.0}}, "local.lr: no node, level or role is called 'strat'"),
        ({"batch": {"c0": 2}}, "local.batch has no value for c1: give one, or one for '*'"),
        ({"lr": {"c0": 0.1, "c1": Ramp(0.1, 0.2, 2)}}, "local.lr has no value for c2: give one, or one for '*'"),
    ],
)
def test_tables_are_checked_before_anything_runs(options, text):
    with pytest.raises(ValueError, match=text):
        weights_star(FedAvg(local=Training(**options)))


def test_a_table_of_steps_may_leave_nodes_with_whole_epochs():
    assert weights_star(FedAvg(local=Training(batch=16, steps={"c0": 1}))).run(1).rounds == 1


def test_a_table_without_a_value_for_a_server_that_trains_is_refused_when_it_does():
    how = Training(batch={"c0": 2, "*": 1})
    with pytest.raises(ValueError, match="batch has no value for server"):
        Training(batch={"client": 2}).at(node("server", role="server", parent=None))
    assert how.at(node("server", role="server", parent=None)).batch == 1


def test_an_order_that_cannot_be_made_says_where():
    class Bare(Method):
        """Trains on a server that its table forgets."""

        roles = ("server", "client")
        local: Training = Training(batch={"client": 4})

        from heterophony import Round, on

        @on(Round, role="server")
        def begin(self, server):
            yield self.local.fit("model", cross_entropy)
            server.round += 1

    made = weights_star(FedAvg())
    federation = Federation(Bare(), star(CLIENTS), made.models, made.data, made.tests)
    with pytest.raises(ReactionError, match=r"node server, round 0.*batch has no value for server"):
        federation.run(1)


def test_fedbuff_refuses_tables_of_nodes_that_are_not_there():
    with pytest.raises(ValueError, match=r"local\.lr: no node"):
        weights_star(FedBuff(local=Training(lr={"x": 1.0, "*": 0.1})))
