"""A secure method ends as the same method does that sums whole numbers in the open; what cannot be secure says why."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from heterophony import (
    Attack,
    Dropout,
    NotSummable,
    Privacy,
    Secure,
    by_sender,
    secure,
    senders,
)
from heterophony.engines import local, process
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.accountant import composed, epsilon_of
from heterophony.kernel.mailbox import Summed, SumOnly, Total
from heterophony.kernel.message import Body
from heterophony.kernel.method import MethodError, derived
from heterophony.kernel.privacy import Charge
from heterophony.methods import (
    CFL,
    FCCL,
    FD,
    IFCA,
    Cronus,
    FedAvg,
    FedBuff,
    FedH2L,
    FedMD,
    FedProto,
    Scaffold,
    bhfl_async,
    fedtgp,
    hierfavg,
)
from heterophony.methods.bhfl import BHFL
from heterophony.parts.cohort import Cohort
from heterophony.parts.training import Training
from toys.federations import FIVE, METHODS, secured_hierarchy, secured_own_star, secured_star
from toys.members import node
from toys.nosy import Nosy, Patiently
from toys.summed import InTheOpen
from toys.world import net

TREE = {"root": {"e0": ["l0", "l1", "l2", "l3"], "e1": ["l4", "l5", "l6", "l7"]}}
SOME = Secure()
EDGES = Secure(at=("inner",))
SENT = ("keys", "shares", "masked", "votes", "opening")
BATCH = Training(batch=16)


def fedavg(cohort, how, **options):
    return secured_star(FedAvg(local=BATCH, cohort=cohort), how, **options)


def hierarchy(cohort, how, **options):
    return secured_hierarchy(hierfavg(turns=1, local=BATCH, cohort=cohort), how, TREE, **options)


def prototypes(cohort, how, **options):
    return secured_own_star(FedProto(local=BATCH, cohort=cohort), how, **options)


def logits(cohort, how, **options):
    return secured_own_star(FedMD(local=BATCH, distil=BATCH, half=False, cohort=cohort), how, net, **options)


@dataclass(frozen=True)
class Case:
    name: str
    build: Any
    members: dict
    how: Secure = SOME
    weighted: bool = True

    def masked(self, lost):
        """The secure method; whoever is lost withholds all that comes after one kind."""
        egress = {node: SENT[: SENT.index(last) + 1] for node, last in lost.items()}
        return self.build(Cohort(weighted=self.weighted), self.how, egress=egress)

    def open(self, lost):
        """The method itself on whole numbers. Whoever is lost before its numbers are sent withholds them."""
        cohort = InTheOpen(weighted=self.weighted, how=self.how, members=self.members)
        egress = {node: () for node, last in lost.items() if last in ("keys", "shares")}
        return self.build(cohort, None, egress=egress)


CASES = (
    Case("fedavg", fedavg, {"server": 5}),
    Case("plain", fedavg, {"server": 5}, Secure(bits=32, range=16.0), weighted=False),
    Case("hierfavg", hierarchy, {"e0": 4, "e1": 4}, EDGES),
    Case("fedproto", prototypes, {"server": 5}),
    Case("fedmd", logits, {"server": 5}),
)
ON_LEAVES = {"hierfavg": {"c1": "l1", "c3": "l6"}}


def lost_in(case, lost):
    return {ON_LEAVES.get(case.name, {}).get(node, node): last for node, last in lost.items()}


LOST = [{}, *({"c1": phase} for phase in SENT[:-1]), {"c1": "masked", "c3": "shares"}, {"c1": "keys", "c3": "votes"}]
AS_TEXT = ["nobody", *SENT[:-1], "masked-and-shares", "keys-and-votes"]


@pytest.mark.parametrize("lost", LOST, ids=AS_TEXT)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_secure_method_ends_as_whole_numbers_in_the_open_do(case, lost):
    """Over the same survivors, to the bit: masks cancel, whoever is lost and whenever."""
    lost = lost_in(case, lost)
    found, wanted = local(case.masked(lost)).run(2), local(case.open(lost)).run(2)
    assert found.digest == wanted.digest
    assert not [row for row in found.ledger.incidents if row["incident"] != "refused"]


def test_processes_end_the_same():
    lost = LOST[-1]
    assert process(CASES[0].masked(lost)).run(2).digest == local(CASES[0].open(lost)).run(2).digest


def test_too_few_left_is_a_skipped_round_and_is_told():
    """Three of five are lost after their numbers: nobody can open the sum, and the model stays."""
    lost = {"c0": "masked", "c1": "masked", "c2": "masked"}
    result = local(CASES[0].masked(lost)).run(2)
    assert result.digest == local(fedavg(Cohort(), None, egress=dict.fromkeys(FIVE, ()))).run(2).digest
    said = [row["detail"] for row in result.ledger.incidents if row["node"] == "server"]
    assert said == [f"the sum of round {r}: 2 have voted, and a sum takes 3" for r in (0, 1)]


def test_a_secure_sum_is_near_the_mean():
    """Rounding to fixed points is all that differs from the method in the open."""
    found, plain = (local(fedavg(Cohort(), how)) for how in (True, None))
    found.run(2), plain.run(2)
    weights = [engine.host.nodes["server"].weights() for engine in (found, plain)]
    assert all((weights[0][name] - weights[1][name]).abs().max() < 1e-5 for name in weights[0])
    assert found.host.nodes["server"].weights().keys() == weights[1].keys()


NOT_NEAR = {
    "fedcs": "it chooses two of three",
    "fccl-code": "Adam makes a whole step of the last bit of a gradient",
}


def summable(row):
    """Whether a row's method says that a sum is enough, and all its windows are of three or more."""
    method = row.build().method
    try:
        return method.sums() is not None and not method.masked and not getattr(method.cohort, "fraction", 1.0) < 1
    except NotSummable:
        return False


@pytest.mark.parametrize("row", [row for row in METHODS if summable(row)], ids=lambda row: row.name)
def test_every_method_that_says_so_is_near_itself(row):
    """After a round, models differ from those of the method in the open by what rounding makes of them."""
    federation = row.build()
    topology = federation.topology
    if topology.static.get("root"):
        pytest.skip("its edge servers have two leaves each")
    if row.name in NOT_NEAR:
        pytest.skip(NOT_NEAR[row.name])
    engines = local(replace(federation, method=secure(federation.method))), local(federation)
    for engine in engines:
        assert not engine.run(1).ledger.incidents
    for name, plain in engines[1].host.nodes.items():
        for slot, module in plain.models.items():
            found = engines[0].host.nodes[name].models[slot].state_dict()
            for key, wanted in module.state_dict().items():
                assert torch.allclose(found[key], wanted, atol=1e-3), (name, slot, key)


def test_every_parent_of_a_tree_can_take_sums():
    """Three edge servers with three leaves each, and a root that adds up what the edge servers have summed."""
    spec = {"root": {f"e{i}": [f"l{3 * i + j}" for j in range(3)] for i in range(3)}}
    members = {"root": 3, "e0": 3, "e1": 3, "e2": 3}
    found = secured_hierarchy(hierfavg(turns=2, local=BATCH), Secure(), spec)
    cohort = InTheOpen(how=Secure(), members=members)
    wanted = secured_hierarchy(hierfavg(turns=2, local=BATCH, cohort=cohort), Secure(at=("inner",)), spec)
    wanted = replace(wanted, method=hierfavg(turns=2, local=BATCH, cohort=cohort))
    result = local(found).run(2)
    assert result.digest == local(wanted).run(2).digest
    assert not any(row["kind"] == "up" for row in result.ledger.messages)


def test_who_sums_and_who_does_not_is_said_by_role():
    """The root of a tree hears from two edge servers: their means come as they are."""
    result = local(CASES[2].masked({})).run(1)
    sent = {(row["from"], row["kind"]) for row in result.ledger.messages}
    assert {node for node, kind in sent if kind == "up"} == {"e0", "e1"}
    assert {node for node, kind in sent if kind == "masked"} == {f"l{i}" for i in range(8)}


# -- what is refused when it is built ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "words"),
    [
        (CFL(), "CFL reads single messages"),
        (IFCA(), "IFCA reads single messages"),
        (FD(), "FD reads single messages"),
        (FCCL(), "FCCL reads single messages"),
        (Scaffold(), "Scaffold reads single messages"),
        (FedBuff(), "FedBuff reads single messages"),
        (FedH2L(), "FedH2L reads single messages"),
        (Cronus(), "cohort.combine = filter looks at single messages"),
        (FedAvg(cohort=Cohort(combine="median")), "cohort.combine = median looks at single messages"),
        (FedAvg(cohort=Cohort(combine="krum")), "cohort.combine = krum looks at single messages"),
        (fedtgp(), "learns from single clients' prototypes"),
        (BHFL(), "residual links take single children's updates"),
        (bhfl_async(far=False), "a buffer merges answers as they come"),
        (hierfavg(cohort=Cohort(fraction=0.5)), "remembers each child's examples"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_reads_single_messages_cannot_be_secure(method, words):
    with pytest.raises(NotSummable) as told:
        secure(method)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_a_method_that_accepts_late_mail_cannot_be_secure():
    with pytest.raises(NotSummable, match="accepts late 'update', which are in no sum"):
        secure(Patiently())


def test_fewer_than_three_cannot_be_secure():
    with pytest.raises(ValueError, match=r"secure\.least is 3, but server can hear from 2 only"):
        fedavg(Cohort(), True, clients=["c0", "c1"])
    with pytest.raises(ValueError, match=r"secure\.least is 3, but server can hear from 2 only"):
        fedavg(Cohort(fraction=0.4), True)
    with pytest.raises(ValueError, match=r"secure\.least is 3, but root can hear from 2 only"):
        hierarchy(Cohort(), True)


def test_a_role_that_merges_nothing_is_told():
    with pytest.raises(NotSummable, match=r"secure\.at: 'leaf' merges nothing"):
        secure(hierfavg(), {"at": ("leaf",)})


def test_few_bits_that_leave_coarse_steps_are_told():
    with pytest.raises(ValueError, match=r"lower secure\.range and secure\.most, or take 64"):
        secure(FedAvg(), {"bits": 32})


def test_nothing_is_secure_unless_it_is_asked_for():
    method = FedAvg()
    assert secure(method, None) is method
    assert secure(method, False) is method
    assert not method.masked


def test_a_derived_method_cannot_be_derived_again():
    with pytest.raises(MethodError, match="is derived already"):
        derived(type(secure(FedAvg())), "Twice", {})


# -- a method that says more than it keeps -------------------------------------------------------------------------
def total():
    return Summed(Total("update", 0, Body({"weights": {"w": torch.ones(2)}, "examples": 3.0})), ["a", "b", "c"])


@pytest.mark.parametrize(
    "reads",
    [list, len, lambda mail: mail[0], lambda mail: "a" in mail, lambda mail: [m.sender for m in mail]],
    ids=["list", "len", "first", "in", "senders"],
)
def test_whoever_reads_single_messages_of_a_sum_is_told(reads):
    with pytest.raises(SumOnly, match="of 'update' only the sum is known here, under `secure`"):
        reads(total())


def test_a_sum_has_no_sender_and_a_mean():
    mail = total()
    assert mail
    with pytest.raises(SumOnly, match="sender: of 'update' only the sum is known"):
        _ = mail.total.sender
    assert torch.equal(Cohort().mean(node("server"), mail)["w"], torch.ones(2))
    assert senders(mail) == ("a", "b", "c")
    assert by_sender(mail, lambda m: m.examples) == {"": 3.0}


def test_a_method_that_declares_a_sum_and_reads_a_sender_fails_where_it_reads():
    federation = replace(fedavg(Cohort(), None), method=secure(Nosy()))
    with pytest.raises(ReactionError, match=r"reaction 'secure_open': .*only the sum is known here"):
        local(federation).run(1)


# -- beside other things -------------------------------------------------------------------------------------------
def test_clip_and_noise_act_before_masks():
    """The sum is that of noised messages, which the same federation in the open has too; each is charged once."""
    pytest.importorskip("dp_accounting")
    noise = {"client": Privacy(clip=1.0, noise=8.0, delta=1e-3, budget=100.0)}
    found = local(replace(CASES[0].masked({}), privacy=noise))
    wanted = local(replace(CASES[0].open({}), privacy=noise))
    assert found.run(2).digest == wanted.run(2).digest
    charges = [engine.host.nodes["c0"].account["charges"] for engine in (found, wanted)]
    assert charges[0] == charges[1] == [["update", 4.0, 1.0, 2]]


def test_a_message_that_would_overdraw_a_budget_is_in_no_sum():
    pytest.importorskip("dp_accounting")
    once = epsilon_of(composed([Charge("update", 4.0)]), 1e-3) * 1.0001
    noise = {"c0": Privacy(clip=1.0, noise=8.0, delta=1e-3, budget=once)}
    result = local(replace(CASES[0].masked({}), privacy=noise)).run(2)
    withheld = [(row["round"], row["kind"]) for row in result.ledger.messages if row["status"] == "withheld"]
    assert withheld == [(1, "keys")]


def test_what_an_owner_lets_out_is_noised_though_the_message_itself_never_leaves():
    """The kinds that leave are those of the protocol: naming only them must not take the noise away."""
    pytest.importorskip("dp_accounting")
    noise = {"client": Privacy(clip=1.0, noise=8.0, delta=1e-3, budget=100.0)}
    free, named = replace(CASES[0].masked({}), privacy=noise), dict.fromkeys(FIVE, SENT)
    assert local(replace(free, egress=named)).run(1).digest == local(free).run(1).digest


def test_central_noise_is_refused_where_nobody_can_clip():
    pytest.importorskip("dp_accounting")
    noise = {"server": Privacy(clip=1.0, noise=8.0, delta=1e-3, budget=10.0, central=True)}
    with pytest.raises(ValueError, match="it gets sums of 'update' only, and central noise clips each by itself"):
        replace(CASES[0].masked({}), privacy=noise)


def test_what_no_door_takes_is_in_no_sum():
    """Nobody can look at a masked value: its sender does, and is absent."""
    federation = CASES[0].masked({})
    data = {**federation.data}
    bad = data["c1"]["train"].x.clone()
    bad[3, 3] = float("nan")
    data["c1"] = {**data["c1"], "train": data["c1"]["train"].with_columns(x=bad)}
    result = local(replace(federation, data=data)).run(1)
    (said,) = [row["detail"] for row in result.ledger.incidents]
    assert said.startswith("'update' of round 0, its own: weights:")
    assert said.endswith("not finite")
    assert {row["from"] for row in result.ledger.messages if row["kind"] == "masked"} == set(FIVE) - {"c1"}


def test_liars_lie_before_masks():
    attack = Attack(["c1"], lambda lie: {"weights": {k: v * 0 for k, v in lie.send.body["weights"].items()}})
    found, wanted = (local(replace(made, attack=attack)) for made in (CASES[0].masked({}), CASES[0].open({})))
    assert found.run(2).digest == wanted.run(2).digest


def test_a_sum_goes_on_without_three_in_ten():
    drops = Dropout(rate=0.3)
    big = [f"c{i}" for i in range(10)]
    result = local(secured_star(clients=big, how=Secure(), dropout=drops, seed=3)).run(4)
    assert result.rounds == 4
    assert any(row["status"] == "dropped" for row in result.ledger.messages)
    assert not result.ledger.incidents
