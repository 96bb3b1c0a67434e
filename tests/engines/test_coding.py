"""Weights in few bits: bytes by a closed formula, the same bits on all engines, and liars refused by name."""

import math
from dataclasses import replace

import pytest
import torch

from deploy.direct import Direct, engine, node_servers
from heterophony import Attack, Compression, Federation, Model, Privacy, Weights
from heterophony.base.seeds import generator
from heterophony.engines import local, process
from heterophony.kernel.compression import WHOLE, Coded, coded_kinds
from heterophony.kernel.fields import Refused, Shape
from heterophony.kernel.message import Message
from heterophony.kernel.topology import star, tree
from heterophony.methods import FML, FedAsync, FedAvg, FedBuff, FedProto, hierfavg
from heterophony.parts import Cohort, Training
from heterophony.settings import Setting, assemble
from toys import world
from toys.deployed import CASES

NAMES = ("a", "b", "c")
SIZES = [6, 48, 4, 24]  # of the toy's tensors, in the order of their names
NUMBERS = sum(SIZES)
DGC = Compression(keep=0.1, bits=8, delta=True, feedback=True, momentum=0.5, warmup=2, block=16)
TRAINING = Training(batch=16, lr=0.1)


def federation(compress, method=None, topology=None, model=None, **options):
    model = model or {"model": world.net(6)}
    topology = topology or star(NAMES)
    leaves = [node for node, links in topology.static.items() if not links.children]
    views = {name: {"train": own["train"]} for name, own in world.private(leaves).items()}
    models = dict.fromkeys(topology.roles.values(), model)
    method = method or FedAvg(local=TRAINING)
    return Federation(method, topology, models, views, tests=world.TESTS, seed=5, compress=compress, **options)


def digests(result):
    return [result.host.digest(node).hex() for node in ("server", *NAMES)]


def vector(count=NUMBERS):
    return torch.randn(count, generator=generator("numbers"))


# -- numbers and codes -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bits", [16, 8, 4])
def test_rounding_is_to_one_of_the_two_next_levels_and_right_on_average(bits):
    how, numbers, draw = Compression(bits=bits, block=32), vector(33), generator("draw")
    found = [how.decoded(how.coded(numbers, [33], 0, draw), 33) for _ in range(400)]
    for place, number in enumerate(numbers.tolist()):
        block = numbers[:32] if place < 32 else numbers[32:]
        step = float(block.abs().max()) / (2 ** (bits - 1) - 1)
        values = [float(each[place]) for each in found]
        assert all(abs(value - number) < step * 1.001 for value in values)
        assert abs(sum(values) / 400 - number) < 4 * step / 2 / math.sqrt(400) + 1e-6


def test_zeros_stay_zeros_and_an_odd_number_of_half_bytes_is_no_trouble():
    how = Compression(bits=4, block=2)
    numbers = torch.tensor([0.0, 0.0, 1.0, -1.0, 0.0])
    coded = how.coded(numbers, [5], 0, generator("draw"))
    assert len(coded["codes"]) == 3
    assert torch.equal(how.decoded(coded, 5), numbers)


def test_the_largest_numbers_of_each_tensor_are_sent_and_warm_up_is_that_of_the_paper():
    how = Compression(keep=0.5, delta=True)
    coded = how.coded(torch.tensor([1.0, -9.0, 3.0, 0.1, 0.2, -0.3]), [3, 3], 0, generator("draw"))
    assert coded["positions"].tolist() == [1, 2, 4, 5]
    assert coded["codes"].tolist() == pytest.approx([-9.0, 3.0, 0.2, -0.3])
    slow = Compression(keep=0.001, delta=True, warmup=4)  # sparsity 75 %, 93.75 %, 98.4375 %, 99.6 %, 99.9 %
    assert [slow.share(round) for round in range(6)] == pytest.approx(
        [0.25, 0.0625, 0.015625, 0.0039, 0.001, 0.001], rel=0.03
    )


def test_dgc_is_the_papers_algorithm_written_as_plain_loops():
    """Algorithm 4 of Lin et al. 2018, by hand: u = m u + g, v = v + u, send the largest of v, and clear both there."""
    how = Compression(keep=0.25, delta=True, feedback=True, momentum=0.5)
    host = local(federation({"update": how})).host
    node, n = host.node("a"), 8
    speed, lost = [0.0] * n, [0.0] * n
    for round in range(5):
        step = torch.randn(n, generator=generator("gradient", round))
        found = host.coder._coded(node, how, "update/weights", step, [n], round, generator("unused"))
        speed = [0.5 * u + float(g) for u, g in zip(speed, step, strict=True)]
        lost = [v + u for v, u in zip(lost, speed, strict=True)]
        chosen = sorted(sorted(range(n), key=lambda i: -abs(lost[i]))[:2])
        assert found["positions"].tolist() == chosen
        assert found["codes"].tolist() == pytest.approx([lost[i] for i in chosen], rel=1e-5)
        for i in chosen:
            speed[i] = lost[i] = 0.0


# -- runs --------------------------------------------------------------------------------------------------------
def formula(how, round):
    """Count what stands in a message by hand."""
    share = how.keep ** (min(round + 1, how.warmup + 1) / (how.warmup + 1))
    count = sum(math.ceil(share * size) for size in SIZES) if how.keep < 1 else NUMBERS
    codes = -(-count * how.bits // 8)
    scales = 0 if how.bits == WHOLE else 4 * -(-count // how.block)
    return codes + scales + (4 * count if how.keep < 1 else 0) + 8  # the number of examples


@pytest.mark.parametrize(
    "how",
    [Compression(bits=16), Compression(bits=8, block=10), Compression(bits=4), DGC, replace(DGC, bits=WHOLE)],
    ids=lambda how: f"{how.bits} bits, {how.keep}",
)
def test_bytes_in_the_ledger_are_those_of_the_formula_and_of_the_encoded_message(how):
    run = local(federation({"update": how}), encode=True).run(4)
    rows = [row for row in run.ledger.messages if row["kind"] == "update"]
    assert [row["payload"] for row in rows] == [formula(how, row["round"]) for row in rows]
    assert rows[0]["payload"] == how.payload(SIZES, 0) + 8
    assert not run.ledger.incidents
    assert digests(run) == digests(local(federation({"update": how})).run(4))  # through bytes, or not


def test_a_difference_of_which_everything_is_sent_is_the_method_itself_up_to_rounding():
    every = Compression(keep=1 - 1e-9, delta=True)
    model = {"model": Model(world.net(6), common=True)}
    edges = tree({"r": {"x": ["a", "b"], "y": ["c", "d"]}})
    for method, topology, kind, node in (
        (FedAvg(local=TRAINING), star(NAMES), "update", "server"),
        (hierfavg(local=TRAINING, turns=2), edges, "up", "r"),
    ):
        found = [
            local(federation(how, method, topology, model)).run(3).host.node(node).weights()
            for how in ({}, {kind: every})
        ]
        assert all(torch.allclose(found[0][key], found[1][key], atol=1e-5) for key in found[0])


@pytest.mark.parametrize("cohort", [Cohort(), Cohort(fraction=0.6)], ids=["all", "some"])
def test_engines_agree_and_a_resumed_run_ends_on_the_same_bits(tmp_path, cohort):
    both = {"update": DGC, "global": Compression(bits=8)}
    made = federation(both, FedAvg(local=TRAINING, cohort=cohort))
    here = local(made).run(4)
    assert digests(process(made).run(4)) == digests(here)
    made.run(2, tmp_path / "run")
    assert digests(made.resume(tmp_path / "run", 4)) == digests(here)
    assert any(key.startswith("lost/") for key in here.host.node("a").coded)
    without = {**both, "update": replace(DGC, feedback=False, momentum=0.0)}
    assert digests(local(federation(without, made.method)).run(4)) != digests(here)  # what was lost does matter


def test_organisations_code_as_one_process_does(tmp_path):
    case = CASES["hierfavg"]
    own = {"up": {"bits": 8, "keep": 0.3, "delta": True, "feedback": True}, "down": {"bits": 4}}

    class Small:
        """The case with a plan that compresses."""

        def __getattr__(self, name):
            return getattr(case, name)

        def plan(self, **changes):
            return case.plan(compress=own, **changes)

    result = engine(Small(), Direct(node_servers(Small(), tmp_path))).run(case.rounds)
    compress = {name: Compression(**how) for name, how in own.items()}
    here = local(replace(case.federation(), compress=compress)).run(case.rounds)
    assert result.digest == here.digest
    assert result.ledger.bytes() == here.ledger.bytes()
    assert not result.ledger.incidents


def test_changes_of_weights_are_differences_already_and_noise_comes_before_bits():
    pytest.importorskip("dp_accounting")
    kind = next(k.name for k in FedBuff().kinds if any(getattr(f, "change", False) for f in k.fields.values()))
    run = local(federation({kind: replace(DGC, delta=False)}, FedBuff(local=TRAINING, buffer=2))).run(3)
    assert not run.ledger.incidents
    noisy = Privacy(clip=0.5, noise=1.0, delta=1e-3, budget=1e6)
    made = federation({"update": Compression(bits=8, delta=True)}, privacy={"client": noisy})
    assert digests(local(made).run(2)) == digests(process(made).run(2))


def test_a_setting_says_it_as_python_does():
    setting = Setting.load("rotated-mnist")
    made = assemble("fedavg", setting, changes={"compress.update.bits": 8, "compress.update.delta": True})
    assert made.compress == {"update": Compression(bits=8, delta=True)}
    with pytest.raises(ValueError, match="bits is 4, 8, 16, 32, got 5"):
        assemble("fedavg", setting, changes={"compress.update.bits": 5})


# -- what is refused ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("how", "method", "what"),
    [
        ({"nothing": Compression(bits=8)}, None, "FedAvg has no kind 'nothing'"),
        ({"prototypes": Compression(bits=8)}, FedProto(), "carries no weights"),
        ({"update": Compression(keep=0.1)}, None, "set delta = true"),
        ({"global": Compression(bits=8, delta=True)}, None, "goes to children"),
        ({"update": Compression(bits=8, delta=True)}, FedAsync(), "several rounds together"),
        ({"push": Compression(bits=8, delta=True)}, hierfavg(), "several rounds together"),
        ({"delta": Compression(bits=8, delta=True)}, FedBuff(), "leave delta out"),
    ],
)
def test_what_cannot_be_compressed_is_refused_when_it_is_built(how, method, what):
    with pytest.raises(ValueError, match=what):
        coded_kinds(method or FedAvg(), how)


def test_a_federation_of_which_a_kind_cannot_be_compressed_is_refused():
    with pytest.raises(ValueError, match="FedAvg has no kind 'nothing'"):
        federation({"nothing": Compression(bits=8)})


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"bits": 5}, "bits is"),
        ({}, "nothing gets smaller"),
        ({"keep": 0.0}, "keep is"),
        ({"bits": 8, "momentum": 0.9}, "feedback"),
        ({"bits": 8, "warmup": 2}, "warmup"),
        ({"bits": 8, "block": 0}, "block"),
    ],
)
def test_options_that_mean_nothing_are_refused(wrong, what):
    with pytest.raises(ValueError, match=what):
        Compression(**wrong)


def changed(value, **parts):
    return {**value, **parts}


LIES = {
    "too few codes": (lambda v: changed(v, codes=v["codes"][:-1]), "codes: "),
    "too many scales": (lambda v: changed(v, scales=torch.cat([v["scales"], v["scales"]])), "scales: "),
    "a scale that is no number": (lambda v: changed(v, scales=v["scales"] * math.nan), "not finite"),
    "a scale below zero": (lambda v: changed(v, scales=v["scales"] - 1e3), "below zero"),
    "a huge scale": (lambda v: changed(v, scales=v["scales"] + 1e20), "limit"),
    "scales as whole numbers": (lambda v: changed(v, scales=v["scales"].int()), "scales: expected"),
    "a code that nobody makes": (lambda v: changed(v, codes=v["codes"] * 0), "codes: a code is beyond"),
    "a position twice": (lambda v: changed(v, positions=v["positions"].clone().index_fill(0, at(1), 0)), "rise"),
    "a position beyond the end": (lambda v: changed(v, positions=v["positions"] + NUMBERS), "beyond the receiver's"),
    "a position below zero": (lambda v: changed(v, positions=v["positions"] - NUMBERS), "below zero"),
    "no positions": (lambda v: {k: t for k, t in v.items() if k != "positions"}, "expected codes, scales, positions"),
    "none of all": (lambda v: changed(v, **{k: t[:0] for k, t in v.items()}), "positions: 0 of them"),
    "a matrix": (lambda v: changed(v, codes=v["codes"].view(1, -1)), "codes: expected a vector"),
}


def at(place):
    return torch.tensor([place])


@pytest.mark.parametrize("lie", LIES)
def test_a_liar_is_refused_at_the_door_and_named_and_the_others_go_on(lie, monkeypatch):
    change, reason = LIES[lie]
    made = federation({"update": replace(DGC, warmup=0)})
    run = local(made)
    honest = run.host.coder.out

    def out(node, send, number, index):
        found = honest(node, send, number, index)
        if node.id == "b" and send.kind.name == "update":
            body = type(found.body)({**found.body, "weights": change(found.body["weights"])})
            return replace(found, body=body)
        return found

    monkeypatch.setattr(run.host.coder, "out", out)
    result = run.run(2)
    assert result.rounds == 2
    refused = [row["detail"] for row in result.ledger.incidents if row["incident"] == "refused"]
    assert len(refused) == 2
    assert all("from b: weights: " in text and reason in text for text in refused), refused


def test_what_an_attack_makes_is_coded_and_what_is_not_finite_is_refused():
    def broken(lie):
        return {"weights": {name: tensor * math.nan for name, tensor in lie.send.body["weights"].items()}}

    for how in (Compression(bits=4), DGC, replace(DGC, bits=WHOLE)):
        run = local(federation({"update": how}, attack=Attack(["c"], broken))).run(2)
        assert [row["detail"].partition(": ")[0] for row in run.ledger.incidents if row["incident"] == "refused"] == [
            f"'update' of round {round} from c" for round in (0, 1)
        ]


def test_a_door_that_does_not_know_the_model_says_so():
    field = Coded(Weights("other"), Compression(bits=8))
    with pytest.raises(Refused, match="no model 'other'"):
        field.fits({}, Shape())
    with pytest.raises(Refused, match="expected codes"):
        field.sound(vector())


def test_methods_with_several_networks_compress_what_travels():
    kinds = [kind for kind in FML().kinds if any(isinstance(part, Weights) for part in kind.fields.values())]
    assert kinds
    views = {name: {"train": own["train"]} for name, own in world.private(list(NAMES)).items()}
    models = {"client": {"model": world.net(4), "meme": world.net(6)}, "server": {"model": world.net(6)}}
    compress = {kind.name: DGC if kind.to == "parent" else Compression(bits=8) for kind in kinds}
    made = Federation(FML(local=TRAINING), star(NAMES), models, views, tests=world.TESTS, compress=compress)
    assert not local(made).run(2).ledger.incidents


def test_a_message_in_few_bits_is_decoded_from_its_bytes():
    run = local(federation({"update": DGC}))
    kind = run.federation.kinds["update"]
    value = DGC.coded(vector(), SIZES, 0, generator("draw"))
    message = Message("update", "a", "server", 0, (1, 0), kind(weights=value, examples=1.0).body)
    again = Message.decode(message.encode())
    assert all(torch.equal(again.weights[name], value[name]) for name in value)
    assert message.wire == len(message.encode())
