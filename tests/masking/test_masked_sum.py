"""Sums of masked numbers open to the sums of the numbers, and to nothing else; what a member refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heterophony import Counts, NotSummable, PerClass, Secure
from heterophony.kernel.fields import Refused
from heterophony.kernel.message import Kind, Send
from heterophony.kernel.sum import Sum
from heterophony.masking import gatherer, member
from heterophony.masking.fixed_point import encoded
from heterophony.masking.protocol import (
    BUNDLE,
    GATHERED,
    KEPT,
    NEAR,
    PROTOCOL,
    SURVIVORS,
    TALLY,
    in_common,
    neighbourhoods,
    octets,
)
from toys.members import BY_EXAMPLES, PHASES, PLAIN, UPDATE, Round, mail

FIVE = ("a", "b", "c", "d", "e")
NARROW = Secure(bits=32, range=16.0)


def bodies(names, draw, size=7):
    """Weights and examples of each, as a generator says."""
    rng = np.random.default_rng(draw)
    tensors = {n: torch.tensor(rng.normal(size=size), dtype=torch.float32) for n in names}
    return {n: ({"w": w[:4].reshape(2, 2), "b": w[4:]}, float(rng.integers(1, 40))) for n, w in tensors.items()}


def by_hand(rule, how, given, present, members):
    """The same by whole numbers of Python: no masks, no modulus."""
    total = None
    for name in present:
        weights, count = given[name]
        by = count if rule.weighted else 1.0
        scale = how.scale(members, rule.weighted)
        numbers = [round(float(v) * by * scale) for t in weights.values() for v in t.double().flatten()]
        numbers.append(int(count))
        total = numbers if total is None else [a + b for a, b in zip(total, numbers, strict=True)]
    return total


def opened_numbers(how, found):
    """The numbers that a round has opened, in place of their means."""
    return found.view(f"<i{how.bits // 8}").astype(object).tolist()


@settings(max_examples=25, deadline=None)
@given(
    lost=st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from(PHASES), max_size=2),
    draw=st.integers(0, 2**31),
    how=st.sampled_from([Secure(), NARROW, Secure(neighbours=4), Secure(threshold=0.6)]),
    weighted=st.booleans(),
)
def test_masked_sums_open_to_the_sum_of_the_whole_numbers(lost, draw, how, weighted):
    """Whoever is lost, and whenever: the sum is exact, over those who have sent their numbers."""
    rule, given_ = BY_EXAMPLES if weighted and how.bits == 64 else PLAIN, bodies("abcdefg", draw)
    round_ = Round(how, given_, rule, lost)
    found = {}

    def kept(how, opening, answers, plain=gatherer._unmasked):
        found["total"] = plain(how, opening, answers)
        return found["total"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gatherer, "_unmasked", kept)
        try:
            summed = round_.run()
        except gatherer.Failed:
            assert how.neighbours is not None or how.threshold > 0.5  # too few of a neighbourhood are left
            return
    asked = list("abcdefg")
    present = [n for n in asked if PHASES.index(lost.get(n, "opening")) >= PHASES.index("masked")]
    assert list(summed.senders) == present
    assert opened_numbers(how, found["total"]) == by_hand(rule, how, given_, present, len(asked))
    step = how.step(len(asked), rule.weighted, min(given_[n][1] for n in present))
    by = {n: given_[n][1] if rule.weighted else 1.0 for n in present}
    for key in ("w", "b"):
        true = sum(given_[n][0][key].double() * by[n] for n in present) / sum(by.values())
        assert (summed.total.weights[key].double() - true).abs().max() <= step + 1e-6


def test_nothing_of_one_message_is_in_what_leaves():
    """What leaves a member is uniform over all words, whatever the message: of zeros, too."""
    zeros = {n: ({"w": torch.zeros(500)}, 0.0) for n in FIVE}
    round_ = Round(Secure(), zeros)
    round_.run()
    words = np.concatenate([round_.seen["masked", n].body["words"].numpy() for n in FIVE]).view(np.uint8)
    shares = np.bincount(words, minlength=256) / len(words)
    assert abs(words.astype(float).mean() - 127.5) < 4 * 74 / np.sqrt(len(words))
    assert shares.max() < 1 / 256 + 6 * np.sqrt(1 / 256 / len(words))


def test_pads_are_new_for_each_message():
    """Two messages of one round, which a server may ask for, and the same message in two rounds."""
    given_ = bodies(FIVE, 1)
    one, other = Round(Secure(), given_), Round(Secure(), given_)
    other.members = one.members  # the same nodes once more
    one.run(), other.run()
    for name in FIVE:
        first, second = (each.seen["masked", name].body["words"] for each in (one, other))
        assert not torch.equal(first, second)
        assert not torch.equal(*(each.seen["keys", name].body["keys"] for each in (one, other)))


def test_a_neighbourhood_is_as_many_before_as_after_and_everybody_is_a_neighbour_of_its_own():
    keys = {f"n{i}": bytes([i]) * 64 for i in range(40)}
    near = neighbourhoods(keys, Secure().degree(40))
    assert {len(names) for names in near.values()} == {Secure().degree(40) + 1} == {25}
    for name, names in near.items():
        assert names[12] == name
        assert all(name in near[other] for other in names)
        for other in names:
            assert set(in_common(names, name, other, 40)) == set(in_common(near[other], other, name, 40))


def test_what_a_member_sends_grows_with_the_logarithm_of_the_cohort():
    assert [Secure().degree(n) for n in (3, 10, 17, 100, 1000, 10**6)] == [2, 9, 16, 28, 40, 80]


# -- what a member refuses -----------------------------------------------------------------------------------------
@pytest.fixture
def round_():
    return Round(Secure(), bodies(FIVE, 3))


def refused(send, node, *words):
    assert send.withheld
    assert all(word in node.refusals[-1] for word in words), node.refusals


def asked_of(sends, name):
    return next(mail(send, "server", name) for send in sends if send.to == (name,))


def test_a_cohort_that_is_too_small_is_refused(round_):
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    near = dict(list(asked_of(sends, "a").keys.items())[:2]) | {"a": asked_of(sends, "a").keys["a"]}
    short = NEAR(["a"], keys={n: near[n] for n in list(near)[:2] if n != "a"} | {"a": near["a"]}, members=2)
    node = round_.members["a"]
    refused(member.share(round_.how, node, mail(short, "server", "a")), node, "a sum of 2", "at least 3")


def test_an_owner_may_ask_for_larger_cohorts(round_):
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    node = round_.members["b"]
    node.vault = type("Careful", (type(node.vault),), {"least": 6})()
    refused(member.share(round_.how, node, asked_of(sends, "b")), node, "a sum of 5", "at least 6")


def test_one_member_under_two_names_is_refused(round_):
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    keys = dict(asked_of(sends, "a").keys)
    keys["e"] = keys["d"]
    node = round_.members["a"]
    refused(member.share(round_.how, node, mail(NEAR(["a"], keys=keys, members=5), "server", "a")), node, "same keys")


def test_a_question_that_was_answered_is_refused(round_):
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    node = round_.members["a"]
    assert not member.share(round_.how, node, asked_of(sends, "a")).withheld
    refused(member.share(round_.how, node, asked_of(sends, "a")), node, "answered that already")


def test_a_key_of_no_use_is_refused(round_):
    """A point of low order would let the server know what is agreed upon."""
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    keys = dict(asked_of(sends, "a").keys) | {"d": octets(bytes(64))}
    node = round_.members["a"]
    refused(member.share(round_.how, node, mail(NEAR(["a"], keys=keys, members=5), "server", "a")), node, "'near'")


def masked(round_):
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    sends = gatherer.forward(round_.how, round_.server, round_.answers(sends, "shares"))
    return gatherer.add_up(round_.how, round_.server, round_.answers(sends, "masked"))


def test_survivors_that_differ_between_two_members_are_refused(round_):
    """A server that tells one that `e` is in the sum, and others that it is lost, would open `e` alone."""
    sends = masked(round_)
    near = list(round_.members["a"].vars[KEPT]["near"])
    without = torch.tensor([name != "e" for name in near], dtype=torch.uint8)
    told = [SURVIVORS(["a"], alive=without) if send.to == ("a",) else send for send in sends]
    tallies = gatherer.pass_on(round_.how, round_.server, round_.answers(told, "votes"))
    for name in ("a", "b"):
        node = round_.members[name]
        refused(member.reveal(round_.how, node, asked_of(tallies, name)), node, "was told of other survivors")


def test_too_few_survivors_are_refused(round_):
    masked(round_)
    near = list(round_.members["a"].vars[KEPT]["near"])
    few = torch.tensor([name in "ab" for name in near], dtype=torch.uint8)
    node = round_.members["a"]
    question = mail(SURVIVORS(["a"], alive=few), "server", "a")
    refused(member.agree(round_.how, node, question), node, "2 of its neighbourhood of 5 are left")


def test_too_few_votes_are_refused(round_):
    sends = masked(round_)
    tallies = gatherer.pass_on(round_.how, round_.server, round_.answers(sends, "votes"))
    one = dict(list(asked_of(tallies, "a").votes.items())[:1])
    node = round_.members["a"]
    refused(member.reveal(round_.how, node, mail(TALLY(["a"], votes=one), "server", "a")), node, "2 of its neighb")


def test_both_secrets_of_one_member_are_never_given(round_):
    """Neither with a second question nor with another round's."""
    sends = masked(round_)
    tallies = gatherer.pass_on(round_.how, round_.server, round_.answers(sends, "votes"))
    node = round_.members["a"]
    question = asked_of(tallies, "a")
    assert not member.reveal(round_.how, node, question).withheld
    refused(member.reveal(round_.how, node, question), node, "answered that already")
    refused(member.agree(round_.how, node, asked_of(sends, "a")), node, "answered that already")
    later = replace(question, round=1)
    refused(member.reveal(round_.how, node, later), node, "nothing to add to a sum of this round")


def test_too_small_a_bundle_is_refused(round_):
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    bundles = gatherer.forward(round_.how, round_.server, round_.answers(sends, "shares"))
    one = dict(list(asked_of(bundles, "a").shares.items())[:1])
    node, steps = round_.members["a"], []
    generator = member.add_masks(round_.rule, round_.how, node, mail(BUNDLE(["a"], shares=one), "server", "a"))
    try:
        steps.append(next(generator))
    except StopIteration as stop:
        refused(stop.value, node, "2 of its neighbourhood of 5 are left")
    assert not steps


# -- what remains --------------------------------------------------------------------------------------------------
def test_two_sums_whose_members_differ_by_one_tell_that_ones_message():
    """A server that chooses cohorts can ask for both. Masks do not help: only noise does, or a larger difference."""
    given_ = bodies(FIVE, 11)
    alone, count = given_["e"]
    whole = Round(Secure(), given_).run().total
    rest = Round(Secure(), {name: given_[name] for name in "abcd"}).run().total
    found = (whole.weights["w"] * whole.examples - rest.weights["w"] * rest.examples) / (whole.examples - rest.examples)
    assert whole.examples - rest.examples == count
    assert (found - alone["w"]).abs().max() < 1e-4


def test_a_class_that_one_participant_alone_has_is_opened_alone():
    """The sum over one member is that member's: here the mean features of a class of which nobody else has rows."""
    kind = Kind("prototypes", to="parent", means=PerClass(rows="counts"), counts=Counts)
    rule = Sum(kind, ("means",), "counts")
    draw = torch.Generator().manual_seed(1)
    tables = {name: torch.rand(3, 4, generator=draw) for name in FIVE}
    counts = {name: torch.tensor([2.0, 3.0, 4.0 if name == "c" else 0.0]) for name in FIVE}
    round_ = Round(Secure(), {name: ({}, 1.0) for name in FIVE}, rule)
    round_.bodies = {name: kind(means=tables[name], counts=counts[name]) for name in FIVE}
    found = round_.run().total
    assert found.counts.tolist() == [10, 15, 4]
    assert torch.allclose(found.means[2], tables["c"][2])
    assert not torch.allclose(found.means[0], tables["c"][0], atol=1e-2)


def test_a_member_can_spoil_a_sum_and_nobody_sees_who():
    """What is masked cannot be looked at: whoever sends other words moves the mean by up to the range."""
    round_ = Round(Secure(), bodies(FIVE, 12))
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    sends = gatherer.forward(round_.how, round_.server, round_.answers(sends, "shares"))
    answers = round_.answers(sends, "masked")
    wrong = answers[0].body["words"] + torch.tensor([2**60] * 4 + [0] * 4)
    answers[0] = replace(answers[0], body=type(answers[0].body)({"words": wrong}))
    sends = gatherer.add_up(round_.how, round_.server, answers)
    sends = gatherer.pass_on(round_.how, round_.server, round_.answers(sends, "votes"))
    summed = gatherer.opened(round_.rule, round_.how, round_.server, round_.answers(sends, "opening"))
    assert float(summed.total.weights["w"].abs().max()) > 1000
    assert not any(node.refusals for node in round_.members.values())


# -- values --------------------------------------------------------------------------------------------------------
def test_values_beyond_the_range_are_counted_noted_and_said(caplog):
    given_ = bodies(FIVE, 5)
    given_["b"][0]["w"][0, 0] = 5000.0
    given_["b"][0]["b"][1] = -5000.0
    round_ = Round(Secure(), given_)
    round_.run()
    assert [(note.quantity, note.value) for note in round_.notes] == [(member.BEYOND, 2)]
    assert [record.getMessage() for record in caplog.records] == ["b: 2 values beyond secure.range = 1024 were cut off"]


@pytest.mark.parametrize("count", [0.5, -1.0, 2.0**21])
def test_counts_that_are_none_or_too_many_are_told(count):
    with pytest.raises(Refused, match=r"takes whole numbers from 0 to secure\.most = 1048576"):
        encoded(BY_EXAMPLES, Secure(), {"weights": {"w": torch.zeros(2)}, "examples": count}, 3)


def test_a_message_of_another_form_is_in_no_sum(round_):
    round_.bodies["c"] = UPDATE(weights={"w": torch.zeros(3)}, examples=1.0)
    assert "c" not in round_.run().senders


def test_words_of_another_length_are_in_no_sum(round_):
    sends = gatherer.introduce(round_.how, round_.server, round_.keys())
    sends = gatherer.forward(round_.how, round_.server, round_.answers(sends, "shares"))
    answers = round_.answers(sends, "masked")
    answers[1] = replace(answers[1], body=type(answers[1].body)({"words": answers[1].body["words"][:-1]}))
    gatherer.add_up(round_.how, round_.server, answers)
    assert len(round_.server.vars[GATHERED]["alive"]) == 4


def test_a_sum_leaves_no_field_out():
    with pytest.raises(NotSummable, match="'examples' of 'update' is read beside the means"):
        Sum(UPDATE, ("weights",))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"least": 2}, "secure.least is at least 3, got 2"),
        ({"threshold": 0.4}, "secure.threshold is a share from 0.5"),
        ({"neighbours": 1}, "secure.neighbours is a number >= 2"),
        ({"bits": 16}, "secure.bits is 32 or 64"),
        ({"range": 0.0}, "secure.range is a number > 0"),
        ({"wait": 0.0}, "secure.wait is a number of virtual seconds > 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words.replace("(", ".")):
        Secure(**wrong)


def test_a_withheld_message_is_the_answer_absent():
    round_ = Round(Secure(), bodies(FIVE, 6))
    sent = Send(UPDATE, ("server",), 0, round_.bodies["a"].body, withheld=True)
    assert member.keep(BY_EXAMPLES, round_.members["a"], sent).withheld


def test_the_protocol_has_kinds_of_its_own():
    assert len({kind.name for kind in PROTOCOL}) == len(PROTOCOL) == 9
    assert isinstance(PROTOCOL[0], Kind)
