"""RCFL: label by label by hand, its limit DS-FL, its loss by loops, and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch

from heterophony import Data
from heterophony.base.seeds import generator
from heterophony.engines import Network, local
from heterophony.methods import DSFL, RCFL
from heterophony.methods.rcfl import label_by_label
from heterophony.parts.training import Training
from heterophony.settings import SettingError, assemble
from toys.federations import B16, CLIENTS, LABELS, logits_star, unlike_star
from toys.world import PUBLIC


def test_the_global_update_by_hand():
    """A has labels 0 and 1 and is right three times in four, B has 1 and 2 and is right once in four.

    Label 0 is A's alone: 0.4. Label 2 is B's alone: 0.8. Label 1 is 3/4 of A's 0.6 and 1/4 of B's 0.2: 0.5. Nobody has
    label 3. The three add up to 1.7. If nobody is ever right, both count alike: label 1 is 0.4.
    """
    scores = [torch.tensor([[0.4, 0.6, 0.0, 0.0]]), torch.tensor([[0.0, 0.2, 0.8, 0.0]])]
    held = torch.tensor([[True, True, False, False], [False, True, True, False]])
    found = label_by_label(scores, held, [0.75, 0.25])
    assert torch.allclose(found, torch.tensor([[0.4, 0.5, 0.8, 0.0]]) / 1.7)
    assert torch.allclose(label_by_label(scores, held, [0.0, 0.0]), torch.tensor([[0.4, 0.4, 0.8, 0.0]]) / 1.6)


def test_votes_for_labels_that_one_claims_not_to_have_count_for_nothing():
    liar = [torch.tensor([[0.0, 1.0]])]
    assert label_by_label(liar, torch.tensor([[True, False]]), [1.0]).tolist() == [[0.5, 0.5]]


def test_with_all_labels_and_no_weights_it_is_ds_fl():
    """Scores are then plain means, and alpha = 0 distils them: DS-FL's simple aggregation, half a round further on."""
    early = {"local": replace(B16, initial=1), "distil": B16}
    ours = local(logits_star(RCFL(alpha=0.0, confidence="one", **early))).run(2)
    theirs = local(logits_star(DSFL(aggregation="sa", global_model=False, local=B16, distil=B16))).run(2)
    for row in theirs.table.select(product="distilled", quantity="loss").rows:
        place = {key: row[key] for key in ("round", "node", "set")}
        (same,) = ours.table.select(product="distilled", quantity="loss", **place).rows
        assert same["sum"] == pytest.approx(row["sum"], rel=1e-5)
    weighted = local(logits_star(RCFL(alpha=0.0, **early))).run(2)
    assert weighted.digest != ours.digest  # the public points have labels


def scores_of(federation, rounds=1):
    """What was sent, by kind and sender, in the last of so many rounds."""
    said = {}

    class Heard(Network):
        def arrivals(self, message, *rest):
            said[message.kind, message.sender] = message.body
            return super().arrivals(message, *rest)

    local(federation, network=Heard).run(rounds)
    return said


def test_scores_are_of_ones_own_labels_and_accuracy_is_on_rows_of_them():
    said = scores_of(unlike_star(RCFL(local=B16, distil=B16)))
    for client in CLIENTS:
        body, mine = said["scores", client], torch.zeros(4, dtype=torch.bool)
        mine[list(LABELS[client])] = True
        assert body["held"].tolist() == mine.float().tolist()
        assert not body["scores"][:, ~mine].any()
        right = (body["scores"].argmax(-1) == PUBLIC.y)[mine[PUBLIC.y]]
        assert body["accuracy"] == pytest.approx(float(right.float().mean()))


def with_views(federation, **views):
    data = {c: {**own, **views} for c, own in federation.data.items()}
    return replace(federation, data=data)


def test_without_labels_on_public_rows_accuracy_is_one_or_that_on_validation_data():
    bare, held_back = Data(x=PUBLIC.x, classes=4), Data(x=PUBLIC.x[:8], y=torch.zeros(8, dtype=torch.int64), classes=4)
    options = {"local": B16, "distil": B16}
    said = scores_of(with_views(logits_star(RCFL(**options)), public=bare))
    assert [said["scores", c]["accuracy"] for c in CLIENTS] == [1.0] * 3
    method = RCFL(confidence="validation", **options)
    said = scores_of(with_views(logits_star(method), public=bare, validation=held_back))
    zeros = [float((said["scores", c]["scores"][:8].argmax(-1) == 0).float().mean()) for c in CLIENTS]
    assert [said["scores", c]["accuracy"] for c in CLIENTS] == pytest.approx(zeros)
    assert len(set(zeros)) > 1


def test_the_distillation_by_loops():
    """Cross-entropy among the labels that one has; outputs of others get no gradient."""
    draw = generator("rcfl loss")
    logits = torch.randn(5, 4, generator=draw, dtype=torch.float64).requires_grad_()
    known = torch.tensor([True, False, True, True]).expand(5, 4)
    target = torch.rand(5, 4, generator=draw, dtype=torch.float64) * known
    batch = Data(x=torch.zeros(5, 1), target=target, known=known)
    loss = RCFL().follow({"model": lambda x: logits}, batch)["model"]["kd"]
    total = 0.0
    for z, wanted in zip(logits.tolist(), target.tolist(), strict=True):
        parts = [math.exp(z[k]) for k in (0, 2, 3)]
        total -= sum(wanted[k] * math.log(math.exp(z[k]) / sum(parts)) for k in (0, 2, 3))
    assert float(loss.detach()) == pytest.approx(total / 5, rel=1e-12)
    loss.backward()
    assert not logits.grad[:, 1].any()
    assert logits.grad[:, 0].all()


@pytest.mark.parametrize("alpha", [None, 0.0, 2.0])
def test_what_is_learnt_joins_the_global_scores_of_ones_labels_with_ones_own(alpha, monkeypatch):
    """(global + alpha own) / (1 + alpha), where nothing is said of labels that one does not have."""
    targets = {}
    fit = Training.fit

    def seen(self, models, loss, **more):
        if "target" in more.get("extra", {}):
            targets[len(targets)] = more["extra"]["target"]
        return fit(self, models, loss, **more)

    monkeypatch.setattr(Training, "fit", seen)
    federation = unlike_star(RCFL(local=B16, distil=B16, alpha=alpha))
    said = scores_of(federation)
    for client, target in zip(CLIENTS, targets.values(), strict=True):
        mine = torch.zeros(4)
        mine[list(LABELS[client])] = 1.0
        agreed = said["global", "server"]["scores"] * mine
        agreed = agreed / agreed.sum(-1, keepdim=True)
        weight = len(federation.data[client]["train"]) / len(PUBLIC) if alpha is None else alpha
        wanted = (agreed + weight * said["scores", client]["scores"]) / (1 + weight)
        assert torch.allclose(target, wanted, atol=1e-6)


def test_one_without_rows_has_no_labels_says_so_and_learns_all():
    made = unlike_star(RCFL(local=B16, distil=B16))
    empty = made.data["c1"]["train"].take(torch.arange(0))
    made = replace(made, data={**made.data, "c1": {**made.data["c1"], "train": empty}})
    said = scores_of(made, rounds=2)
    assert not said["scores", "c1"]["held"].any()
    assert said["scores", "c1"]["scores"].all()


def test_a_label_table_of_another_length_is_left_out():
    """Its sender is not answered; the others go on without it."""

    class Short(Network):
        def arrivals(self, message, *rest):
            if message.kind == "scores" and message.sender == "c0":
                message.body["held"] = torch.ones(2)
                message.body.versions = message.body._versions()
            return super().arrivals(message, *rest)

    result = local(logits_star(RCFL(local=B16, distil=B16)), network=Short).run(2)
    answered = {m["to"] for m in result.ledger.messages if m["kind"] == "global"}
    assert answered == {"c1", "c2"}


def test_misfits_are_refused():
    for alpha in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="alpha is a weight >= 0"):
            RCFL(alpha=alpha)
    changes = {"data.validation": 0.0, "confidence": "validation"}
    with pytest.raises(SettingError, match="confidence = 'validation' needs validation data"):
        assemble("rcfl", "rotated-mnist-mixed", changes=changes)
