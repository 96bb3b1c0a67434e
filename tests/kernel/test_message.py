"""Kinds and their checks: what is declared passes, everything else is refused in one line."""

import pickle
from copy import copy, deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heterophony import Kind, Logits, Probabilities, Refused, Rows, Scalar, Weights
from heterophony.kernel.fields import Shape
from heterophony.kernel.message import Body, Message, ask_together
from heterophony.kernel.node import Node, Slot

UPDATE = Kind("update", to="parent", weights=Weights("model"), examples=Scalar(low=0))
SHAPE = Shape({"model": {"w": ((2, 3), torch.float32), "b": ((3,), torch.float32)}}, {"public": (5, 4)}.get)


def weights(**changes):
    return {"w": torch.zeros(2, 3), "b": torch.zeros(3), **changes}


def refusal(kind, **body):
    with pytest.raises(Refused) as caught:
        kind.check(Body(body), SHAPE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_fitting_message_passes():
    UPDATE.check(UPDATE(weights=weights(), examples=3).body, SHAPE)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"weights": weights(), "examples": -1.0}, r"examples: -1.0 is outside"),
        ({"weights": weights(), "examples": float("nan")}, "finite number"),
        ({"weights": weights(), "examples": True}, "finite number"),
        ({"weights": weights(w=torch.full((2, 3), float("inf"))), "examples": 1.0}, "weights: w: holds values"),
        ({"weights": weights(w=torch.zeros(2, 3, dtype=torch.int64)), "examples": 1.0}, "float tensor"),
        ({"weights": weights(w=torch.zeros(3, 2)), "examples": 1.0}, r"w has shape \(3, 2\), expected \(2, 3\)"),
        ({"weights": {"w": torch.zeros(2, 3)}, "examples": 1.0}, "names do not match the receiver's 'model': b"),
        ({"weights": torch.zeros(2), "examples": 1.0}, "named tensors"),
        ({"weights": weights()}, "carries"),
        ({"weights": weights(), "examples": 1.0, "secret": 2.0}, "carries"),
    ],
)
def test_anything_else_is_refused(body, text):
    import re

    assert re.search(text, refusal(UPDATE, **body))


def test_rows_and_classes_must_fit_the_receivers_data():
    logits = Kind("logits", to="parent", logits=Logits("public"))
    logits.check(logits(logits=torch.zeros(5, 4)).body, SHAPE)
    assert "6 rows" in refusal(logits, logits=torch.zeros(6, 4))
    assert "3 classes" in refusal(logits, logits=torch.zeros(5, 3))
    assert "2 dimensions" in refusal(logits, logits=torch.zeros(5))
    rows = Kind("rows", to="peers", rows=Rows("public"))
    rows.check(rows(rows=torch.tensor([0, 4])).body, SHAPE)
    assert "row 5 is beyond" in refusal(rows, rows=torch.tensor([5]))
    assert "negative" in refusal(rows, rows=torch.tensor([-1]))
    soft = Kind("soft", to="peers", soft=Probabilities)
    soft.check(soft(soft=torch.full((2, 4), 0.25)).body, SHAPE)
    assert "no probabilities" in refusal(soft, soft=torch.full((2, 4), 0.3))


def test_a_kind_over_its_limit_is_refused():
    small = Kind("small", to="parent", limit=10, weights=Weights)
    assert "the limit of 'small' is 10" in refusal(small, weights=weights())


def test_a_kind_checks_its_own_use():
    with pytest.raises(TypeError, match=r"carries \['examples', 'weights'\], got \['weights'\]"):
        UPDATE(weights=weights())
    with pytest.raises(ValueError, match="goes to 'server'"):
        Kind("x", to="server")
    with pytest.raises(ValueError, match="cannot be called sender"):
        Kind("x", to="parent", sender=Scalar)


def test_a_sent_body_is_a_copy():
    live = weights()
    sent = UPDATE(weights=live, examples=1)
    live["w"].add_(1)
    assert float(sent.body["weights"]["w"].sum()) == 0


@given(st.text("abc-", min_size=1), st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 9), st.integers(1, 40))
def test_encoding_a_message(name, round, activation, index, size):
    body = Body({"weights": {"w": torch.arange(float(size))}, "examples": 2.5})
    message = Message("update", name, "server", round, (activation, index), body)
    data = message.encode()
    assert message.wire == len(data)
    back = Message.decode(data)
    assert (back.kind, back.sender, back.receiver, back.round, back.id) == (
        "update", name, "server", round, (activation, index),
    )  # fmt: skip
    assert torch.equal(back.weights["w"], body["weights"]["w"])
    assert back.examples == 2.5


def test_payload_is_the_values_alone():
    assert UPDATE.payload(UPDATE(weights=weights(), examples=1).body) == (6 + 3) * 4 + 8


@given(st.binary(max_size=300))
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(Refused):
        Message.decode(data)


def test_an_unknown_field_is_an_attribute_error():
    message = Message("update", "a", "b", 0, (0, 0), Body({}))
    with pytest.raises(AttributeError, match="message 'update' has no field 'wieghts'"):
        _ = message.wieghts


def test_parts_of_one_tensor_are_checked_together():
    flat = torch.zeros(6)
    flat[4] = float("nan")
    kind = Kind("k", to="parent", weights=Weights)
    with pytest.raises(Refused, match="b: holds values that are not finite"):
        kind.check(Body({"weights": {"a": flat[:3], "b": flat[3:]}}), Shape())
    kind.check(Body({"weights": {"a": flat[:3], "b": flat[:2]}}), Shape())  # the rest of it is nobody's business


def test_many_messages_are_asked_about_at_once():
    kind = Kind("k", to="parent", weights=Weights, examples=Scalar)
    values = [torch.ones(4), torch.tensor([1.0, float("nan")]), torch.full((4,), 1e9), torch.zeros(2)]
    bodies = [Body({"weights": {"a": value}, "examples": 1.0}) for value in values]
    odd = Body({"weights": [1, 2], "examples": 1.0})
    ask_together([(kind, body) for body in (*bodies, bodies[0], odd)])
    assert [body.usable for body in (*bodies, odd)] == [False] * 5  # parts of nothing: too dear to ask
    whole = [(value, value.narrow(0, 0, len(value))) for value in values]
    bodies = [Body({"weights": {"a": part}, "examples": 1.0}) for _, part in whole]
    ask_together([(kind, body) for body in (*bodies, bodies[0], odd)])
    assert [body.usable for body in bodies] == [True, False, False, True]  # one is large, and is looked at alone
    assert [kind.verdict(body) for body in bodies] == ["", "weights: a: holds values that are not finite", "", ""]
    assert kind.verdict(odd).startswith("weights: expected named tensors")


def test_weights_that_nobody_has_looked_into_are_a_dictionary_as_any_other():
    node = Node("a", "client", slots={"model": Slot(nn.Linear(2, 3))})
    plain = {name: tensor.clone() for name, tensor in node.models["model"].state_dict().items()}
    ways = (dict, lambda w: {**w}, lambda w: {} | w, lambda w: w | {}, deepcopy, copy, lambda w: w.copy())
    ways += (lambda w: pickle.loads(pickle.dumps(w)), lambda w: dict(w.items()), lambda w: {n: w[n] for n in w})
    for way in ways:
        found = way(node.weights())
        assert list(found) == list(plain)
        assert all(torch.equal(found[name], plain[name]) for name in plain)
    assert len(node.weights()) == 2
    assert "bias" in node.weights()
    assert node.weights().get("odd") is None
    weights = node.weights()
    assert weights.pop("bias").shape == (3,)
    assert list(weights) == ["weight"]
    assert not weights.untouched
    assert list(pickle.loads(pickle.dumps(weights))) == ["weight"]


def test_weights_that_their_owner_has_changed_since_are_copied_again():
    node = Node("a", "client", slots={"model": Slot(nn.Linear(2, 3))})
    kind = Kind("k", to="parent", weights=Weights("model"))
    first = node.weights()
    assert kind(weights=first).body["weights"]["bias"].data_ptr() == first["bias"].data_ptr()
    live = node.models["model"].bias.detach()
    sent = kind(weights={**first, "bias": live}).body
    assert sent["weights"]["bias"].data_ptr() != live.data_ptr()
    for other in (torch.zeros(4), first["bias"][:1]):  # also a piece of what was there
        body = kind(weights={**first, "bias": other}).body
        changed = node.weights()
        changed["bias"] = other if len(other) == 4 else changed["bias"][:1]
        assert kind.payload(kind(weights=changed).body) == kind.payload(body) == 4 * (6 + len(other))
        with pytest.raises(Refused, match="bias has shape"):
            kind.check(kind(weights=changed).body, node.shape)
    broken = node.weights()
    body = kind(weights=broken).body
    broken["bias"].fill_(1.0)
    assert not body.intact
    body = kind(weights=node.weights()).body
    assert body.intact
    del body["weights"]["bias"]
    assert not body.intact
