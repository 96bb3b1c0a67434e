"""A method is checked when it is defined; the error names what is wrong."""

import pytest

from heterophony import Count, Each, Every, Kind, Method, MethodError, Own, Round, Weights, on

DOWN = Kind("down", to="children", weights=Weights)
UP = Kind("up", to="parent", weights=Weights)


def define(text="", roles=("server", "client"), kinds=(DOWN, UP), **members):
    """A method with the given members, and the reactions that make it complete."""

    def begin(self, node): ...
    def hear(self, node, mail): ...
    def gather(self, node, mail): ...

    body = {
        "__annotations__": {"patience": float},
        "patience": 1.0,
        "begin": on(Round, role="server")(begin),
        "hear": on(Each(DOWN), role="client")(hear),
        "gather": on(Every(UP, of="children"), role="server")(gather),
        "roles": roles,
        "kinds": kinds,
        **members,
    }
    return type("Toy", (Method,), {key: value for key, value in body.items() if value is not None})


def reaction(trigger, role=None):
    def react(self, node, mail): ...

    return on(trigger, role)(react)


def test_a_sound_method_is_a_frozen_dataclass():
    toy = define()(patience=2.0)
    assert toy.patience == 2.0
    with pytest.raises(AttributeError):
        toy.patience = 3.0


OTHER = Kind("other", to="peers")
SIDE = Kind("side", to="peers")


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"hear": reaction(Each(DOWN), "clinet")}, "Toy.hear: unknown role 'clinet'; the roles are server, client"),
        ({"extra": reaction(Each(OTHER), "client")}, "Toy.extra: unknown kind 'other'; the kinds are down, up"),
        ({"extra": reaction(Each(DOWN), "client")}, "Toy.extra: 'down' already wakes 'hear' on role 'client'"),
        ({"begin": reaction(Round(also=(UP,)), "server")}, "Toy.gather: 'up' already wakes 'begin' on role 'server'"),
        ({"extra": reaction(Round(also=()), "server")}, "Toy.extra: 'Round' already wakes 'begin' on role 'server'"),
        ({"hear": None}, "Toy: nothing reacts to 'down'"),
        ({"begin": None}, "Toy: nothing begins a round"),
        ({"roles": ()}, "Toy declares no roles"),
        ({"kinds": (DOWN, UP, Kind("up", to="peers"))}, "Toy declares a kind twice"),
        (
            {"gather": reaction(Every(UP, of="children", deadline="patients"), "server")},
            "Toy.gather: deadline names 'patients', which is no option",
        ),
        ({"gather": reaction(Count(UP, n="some"), "server")}, "Toy.gather: n names 'some'"),
        (
            {"models": {"client": {"model": "shared"}}},
            "Toy.models: client.model = 'shared'; it is one of Own(), Global(), Same()",
        ),
        ({"models": {"client": {"model": Own}}}, "Toy.models: client.model = <class"),
        ({"models": {"client": Own()}}, "Toy.models: client = Own(start='different'); it is models by name, such as"),
        ({"models": {"clinet": {"model": Own()}}}, "Toy.models: unknown role 'clinet'; the roles are server, client"),
    ],
)
def test_mistakes_are_named(members, text):
    with pytest.raises(MethodError) as caught:
        define(**members)
    assert str(caught.value).startswith(text)


def test_a_method_is_not_varied_by_inheritance():
    parent = define()
    with pytest.raises(MethodError, match="varied by its parts"):
        type("Child", (parent,), {})


def test_mail_that_is_only_swept_along_may_go_with_several_reactions():
    kinds = (DOWN, UP, OTHER, SIDE)
    sweeping = reaction(Every(UP, of="children", also=(SIDE,)), "server")
    toy = define(kinds=kinds, gather=sweeping, extra=reaction(Each(OTHER, also=(SIDE,)), "server"))
    assert [r.name for r in toy.reactions if SIDE in r.kinds] == ["gather", "extra"]
    with pytest.raises(MethodError, match="'side' already wakes 'gather'"):
        define(kinds=kinds, gather=sweeping, extra=reaction(Each(SIDE), "server"), more=reaction(Each(OTHER), "server"))


def test_a_round_that_sweeps_mail_along_shares_it_with_other_reactions():
    begin = reaction(Round(also=(SIDE,)), "server")
    toy = define(kinds=(DOWN, UP, SIDE), begin=begin, gather=reaction(Every(UP, of="children", also=(SIDE,)), "server"))
    assert [r.name for r in toy.reactions if SIDE in r.kinds] == ["begin", "gather"]
