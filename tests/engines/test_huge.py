"""Values that are finite and huge: refused at the door and blamed on their sender, before anybody merges them."""

from dataclasses import replace

import pytest
import torch

from heterophony import Kind, Logits, Scalar, Weights
from heterophony.engines import Stalled, local, process
from heterophony.engines.network import Network
from heterophony.kernel.fields import LARGEST, Refused, Shape
from heterophony.kernel.message import Body
from heterophony.methods import Scaffold
from heterophony.tables.ledger import Ledger
from toys.deployed import B16, CASES
from toys.federations import weights_star


class Boundless(Network):
    """Whatever goes up from this client holds a number that a float can just hold."""

    value = 3e38

    def arrivals(self, message, *rest):
        if message.sender in ("west", "c1"):
            for name, value in message.body.items():
                message.body[name] = _filled(value, self.value)
            message.body.verdict, message.body.versions = None, message.body._versions()
        return super().arrivals(message, *rest)


def _filled(value, number):
    if isinstance(value, dict):
        return {name: _filled(part, number) for name, part in value.items()}
    return torch.full_like(value, number) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


@pytest.mark.parametrize("name", ["fedavg", "fml", "fccl", "scaffold"])
def test_who_sends_huge_values_is_named_and_the_others_go_on(name):
    liar = "c1" if name == "scaffold" else "west"
    federation = weights_star(Scaffold(local=B16)) if name == "scaffold" else CASES[name].federation()
    found = local(federation, network=Boundless).run(6)
    assert [row["incident"] for row in found.ledger.incidents] == ["refused"] * 6
    assert all(f"from {liar}: " in row["detail"] for row in found.ledger.incidents)
    assert all("holds 3e+38, the limit is 1e+15" in row["detail"] for row in found.ledger.incidents)
    assert found.digest == local(replace(federation, egress={liar: ()})).run(6).digest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_value_that_a_message_may_hold(dtype):
    weights, logits = Kind("w", to="parent", weights=Weights), Kind("l", to="parent", logits=Logits)
    for value, fits in ((0.9 * LARGEST, True), (-0.9 * LARGEST, True), (LARGEST * 2, False), (-LARGEST * 2, False)):
        tensor = torch.zeros(3, 4, dtype=dtype)
        tensor[1, 2] = value
        copied = {"a": tensor[0], "b": tensor[1:]}  # parts of one, and each by itself
        for kind, body in (
            (weights, {"weights": {"a": tensor}}),
            (weights, {"weights": copied}),
            (logits, {"logits": tensor}),
        ):
            if fits:
                kind.check(Body(body), Shape())
                continue
            with pytest.raises(Refused, match=f"holds {value:.3g}".replace("+", "[+]") + ", the limit is 1e[+]15"):
                kind.check(Body(body), Shape())


def test_sums_of_numbers_are_numbers():
    kind = Kind("k", to="parent", examples=Scalar(low=0))
    kind.check(Body({"examples": 1e99}), Shape())
    with pytest.raises(Refused, match=r"expected a number that a float holds, got 1e\+101"):
        kind.check(Body({"examples": 1e101}), Shape())


class Patient(Boundless):
    """The same with the largest numbers that the door takes: what adds them up over rounds exceeds its limit."""

    value = 9e14


@pytest.mark.parametrize("engine", [local, process], ids=["local", "process"])
def test_a_sum_of_sound_answers_that_nobody_can_take_names_all_who_gave_them(engine):
    federation = weights_star(Scaffold(local=B16))
    made = engine(federation, network=Patient)
    with pytest.raises(Stalled, match=r"made of 'update' of round 3 from c0, c1, c2$"):
        made.run(9)
    (found,) = (row for row in made.ledger.incidents if row["incident"] == "unsound")
    assert found["node"] == "server"
    begin = "'global' of round 4 from server: control: 0.weight: holds 1.21e+15, the limit is 1e+15; made of "
    assert found["detail"] == begin + "'update' of round 3 from c0, c1, c2"


def test_the_newest_mail_of_a_node_is_that_which_was_sent_to_it_and_not_refused():
    ledger = Ledger()
    for kind, round, sender, receiver, status in (
        ("up", 1, "a", "s", "sent"),
        ("up", 2, "b", "s", "sent"),
        ("up", 2, "a", "s", "sent"),
        ("up", 2, "c", "s", "sent"),
        ("up", 2, "d", "s", "withheld"),
        ("up", 3, "a", "t", "sent"),
        ("down", 0, "root", "s", "sent"),
    ):
        ledger.add([{"kind": kind, "round": round, "from": sender, "to": receiver, "status": status}])
    ledger.incident(0.0, "s", "refused", "'up' of round 2 from c: weights: too long")
    ledger.incident(0.0, "t", "refused", "'up' of round 2 from b: weights: too long")
    assert ledger.newest_mail("s") == {("up", 2): ["a", "b"], ("down", 0): ["root"]}
    assert ledger.newest_mail("nobody") == {}
