"""What methods share: a cohort, public rows, epochs before the first round; and options that mean nothing to one."""

from dataclasses import replace

import pytest
import torch

from heterophony import Each, Every, Kind, Method, MethodError, Round, Weights, on
from heterophony.catalogue import registry
from heterophony.engines import local
from heterophony.kernel.message import Message
from heterophony.kernel.node import Node
from heterophony.methods import BHFL, FML, FedAvg
from heterophony.parts.cohort import Cohort, answers
from heterophony.parts.public import PublicRows
from heterophony.parts.training import Training
from toys.federations import CLIENTS, METHODS, hierarchy, weights_star

UPDATE = Kind("update", to="parent", weights=Weights("model"))
ONE_OF_EACH = list({row.build().method.__class__: row for row in reversed(METHODS)}.values())


def test_values_that_cannot_work_are_refused():
    for bad in ({"fraction": 0}, {"fraction": 1.5}, {"fraction": {"root": 2.0, "*": 1.0}}):
        with pytest.raises(ValueError, match="fraction is a share"):
            Cohort(**bad)
    for bad in ({"quorum": -1}, {"quorum": 1.5}, {"quorum": 0.0}):
        with pytest.raises(ValueError, match="quorum is a count >= 0 or a share"):
            Cohort(**bad)
    with pytest.raises(ValueError, match="deadline is a number of virtual seconds"):
        Cohort(deadline=0)
    with pytest.raises(ValueError, match="sample is a number of rows"):
        PublicRows(sample=0)
    with pytest.raises(ValueError, match="initial is a whole number"):
        Training(initial=-1)


def test_the_mean_is_by_a_field_by_numbers_or_of_equals():
    def said(value, examples):
        return Message("update", "c", "s", 0, (0, 0), {"weights": {"w": torch.tensor([value])}, "examples": examples})

    mail, node = [said(0.0, 1.0), said(4.0, 3.0)], Node("s", "server")
    assert Cohort().mean(node, mail)["w"].item() == 3.0
    assert Cohort(weighted=False).mean(node, mail)["w"].item() == 2.0
    assert Cohort().mean(node, mail, by=None)["w"].item() == 2.0
    assert Cohort().mean(node, mail, by=[3.0, 1.0])["w"].item() == 1.0
    assert Cohort().shares(mail) == [1.0, 3.0]
    assert Cohort(weighted=False).shares(mail) is None


def test_a_cohort_is_drawn_among_the_children_of_each_node():
    node = weights_star(FedAvg()).node("server")
    assert Cohort().draw(node) == tuple(CLIENTS)
    drawn = Cohort(fraction=0.34).draw(node, "some")
    assert (len(drawn), node.groups["some"]) == (1, drawn)
    root = hierarchy(BHFL()).node("root")
    assert Cohort(fraction={"root": 0.5, "*": 1.0}).share(root) == 0.5


def test_windows_wait_as_the_methods_own_cohort_says():
    cohort = Cohort(fraction=0.5, quorum=2, deadline=3.0)
    method, window = FedAvg(cohort=cohort), answers(UPDATE)
    assert [method.setting(number) for number in (window.quorum, window.deadline, window.share)] == [2, 3.0, 0.5]


@pytest.mark.parametrize("option", ["fraction", "quorum"])
def test_a_table_without_a_value_for_a_node_that_asks_is_refused(option):
    assert weights_star(FedAvg(cohort=Cohort(**{option: {"server": 1}})))  # clients ask nobody
    for names, wrong in (
        ({"client": 1}, "has no value for server"),
        ({"serber": 1}, "no node, level or role is called 'serber'"),
    ):
        with pytest.raises(ValueError, match=rf"cohort\.{option}:? {wrong}"):
            weights_star(FedAvg(cohort=Cohort(**{option: names})))


# -- what means nothing to a method ----------------------------------------------------------------------------
def test_an_option_that_means_nothing_is_not_listed_and_cannot_be_set():
    assert "cohort.weighted" not in registry.lookup("fml").options()
    with pytest.raises(registry.OptionError, match="fml has no option 'weighted'"):
        registry.lookup("fml").build({"weighted": False})
    with pytest.raises(ValueError, match=r"FML does not use cohort\.weighted, got False"):
        FML(cohort=Cohort(weighted=False))
    assert FML(cohort=Cohort(fraction=0.5)).cohort.weighted  # as the part is by itself


def changed(row, part, **options):
    federation = row.build()
    method = federation.method
    made = replace(method, **{part: replace(getattr(method, part), **options)})
    return [local(replace(federation, method=each), **row.options).run(2).digest for each in (method, made)]


@pytest.mark.parametrize("row", ONE_OF_EACH, ids=lambda row: row.name)
def test_options_of_parts_that_a_method_has_change_what_it_does(row):
    """Those that it calls unused would not, and everything else of these is read."""
    method = row.build().method
    for part, own, value in (("local", "initial", 2), ("cohort", "weighted", None)):
        value = not method.cohort.weighted if value is None and hasattr(method, "cohort") else value
        if hasattr(method, part) and f"{part}.{own}" not in method.unused:
            first, other = changed(row, part, **{own: value})
            assert first != other, f"{part}.{own}"


# -- names ---------------------------------------------------------------------------------------------------
def toy(unused=(), **window):
    down = Kind("down", to="children", weights=Weights("model"))

    class Toy(Method):
        roles = ("server", "client")
        kinds = (down, UPDATE)
        cohort: Cohort = Cohort()

        @on(Round, role="server")
        def begin(self, server):
            return down(weights=server.weights())

        @on(Each(down), role="client")
        def hear(self, client, mail):
            return UPDATE(weights=mail.weights)

        @on(Every(UPDATE, of="children", **window), role="server")
        def gather(self, server, mail):
            server.round += 1

    Toy.unused = unused
    return Toy


def test_a_trigger_may_name_an_option_of_a_part():
    assert toy(quorum="cohort.quorum")(cohort=Cohort(quorum=3)).setting("cohort.quorum") == 3
    for name in ("cohort.quorm", "cohorts.quorum", "cohort.quorum.more"):
        with pytest.raises(MethodError, match=f"quorum names '{name}', which is no option"):
            toy(quorum=name)


def test_what_is_called_unused_must_be_an_option():
    with pytest.raises(MethodError, match=r"Odd\.unused names 'cohort\.wieghted', which is no option"):
        type("Odd", (Method,), {"unused": ("cohort.wieghted",), "roles": ("server",)})


def test_short_names_find_options_of_parts():
    made = registry.lookup("fedavg").build({"fraction": 0.5, "quorum": 2, "initial": 3, "weighted": False})
    assert made.cohort == Cohort(fraction=0.5, quorum=2, weighted=False)
    assert made.local.initial == 3
    assert registry.lookup("fedmd").build({"sample": 20, "fresh": False}).rows == PublicRows(sample=20, fresh=False)
