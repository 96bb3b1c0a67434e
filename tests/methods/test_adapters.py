"""Low-rank adapters: layers against peft, limits, golden toys, different ranks, language models, privacy."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from heterophony import Attack, Capacity, Data, Federation, Model
from heterophony.engines import local
from heterophony.kernel.privacy import PrivateSteps
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg, FedSALoRA, FLoRA, HetLoRA, ffa_lora, flexlora, rbla
from heterophony.models import create
from heterophony.parts import Adapt, Training, mean, mean_by_coordinate, ranks
from heterophony.parts.adapters import adapted, factored, merge_into_base, padded, products, stacked, strength
from heterophony.parts.axes import CannotSlice
from toys.by_hand import equal, server
from toys.federations import B16, CLIENTS, RANKS, SOME, sliced_star, weights_star
from toys.world import halves, net

ORACLE = json.loads((Path(__file__).parent / "peft_oracle.json").read_text())
EQUAL = {"": Capacity(rank=3)}


def ordered(*shape):
    """Numbers that anyone can make again: 0.1 * sin(1), 0.1 * sin(2), ..."""
    count = torch.Size(shape).numel()
    return (0.1 * torch.sin(torch.arange(1, count + 1, dtype=torch.float64))).view(shape)


# -- layers ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["linear", "conv1d", "conv2d"])
def test_adapted_layers_give_what_peft_gives(name):
    """`tools/make_peft_oracle.py` has the rule of the numbers, and wrote what peft made of them."""
    layer, x = {
        "linear": (nn.Linear(3, 4), ordered(2, 3)),
        "conv1d": (nn.Conv1d(2, 4, 3, padding=1), ordered(2, 2, 5)),
        "conv2d": (nn.Conv2d(2, 4, 3, stride=2), ordered(2, 2, 5, 5)),
    }[name]
    made = adapted(nn.Sequential(layer.double()), rank=2, scale=1.5)
    with torch.no_grad():
        for tensor in (made[0].weight, made[0].bias, made[0].down, made[0].up):
            tensor.copy_(ordered(*tensor.shape))
    known = ORACLE[name]
    outputs = made(x)
    outputs.square().sum().backward()
    assert torch.allclose(outputs, torch.tensor(known["outputs"], dtype=torch.float64), atol=1e-9)
    assert torch.allclose(made[0].down.grad.flatten(), torch.tensor(known["down"], dtype=torch.float64), atol=1e-9)
    assert torch.allclose(made[0].up.grad.flatten(), torch.tensor(known["up"], dtype=torch.float64), atol=1e-9)
    assert made[0].weight.grad is None


def test_a_network_begins_as_it_was_with_all_but_its_adapters_frozen():
    torch.manual_seed(0)
    plain = create("wrn-10-1", in_channels=1, size=16, classes=4).eval()
    torch.manual_seed(0)
    made = Adapt(rank=2)(create("wrn-10-1", in_channels=1, size=16, classes=4), Capacity(), Capacity()).eval()
    x = torch.randn(2, 1, 16, 16)
    assert torch.allclose(made(x), plain(x), atol=1e-6)
    assert made.state_dict().keys() > plain.state_dict().keys()
    free = {name.rpartition(".")[2] for name, p in made.named_parameters() if p.requires_grad}
    assert free == {"down", "up"}


def test_adapters_of_a_low_rank_are_the_first_of_a_high_one():
    def build(own):
        torch.manual_seed(1)
        return Adapt()(net()(), Capacity(rank=own), Capacity(rank=4))

    high, low = build(4), build(2)
    assert torch.equal(high[0].down[:2], low[0].down)
    assert low[0].up.shape == (12, 2)


@pytest.mark.parametrize(
    ("cut", "build", "words"),
    [
        (Adapt(), nn.Flatten, "has none"),
        (Adapt(also=("tail",)), net(), "also names 'tail'"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_one_line(cut, build, words):
    with pytest.raises(CannotSlice, match=words):
        cut(build(), Capacity(), Capacity())


def test_merged_factors_are_in_the_weights():
    torch.manual_seed(0)
    made = adapted(nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(6, 2)), rank=2, scale=0.5)
    with torch.no_grad():
        for layer in (made[0], made[2]):
            layer.up.normal_()
    x = torch.randn(4, 2, 4)
    before = made(x)
    factors = {n: p.detach().clone() for n, p in made.named_parameters() if n.rpartition(".")[2] in ("up", "down")}
    merge_into_base(made, factors)
    with torch.no_grad():
        for layer in (made[0], made[2]):
            layer.up.zero_()
    assert torch.allclose(made(x), before, atol=1e-6)


# -- factors -----------------------------------------------------------------------------------------------------------
def of_rank(rank, seed):
    draw = torch.Generator().manual_seed(seed)
    return {"a.down": torch.randn(rank, 5, generator=draw), "a.up": torch.randn(4, rank, generator=draw)}


def test_stacked_factors_come_to_the_mean_of_products():
    items, shares = [of_rank(1, 0), of_rank(3, 1)], [1.0, 3.0]
    found = stacked(items, shares)
    assert found["a.down"].shape == (4, 5)
    mean = (products(items[0])["a."] + 3 * products(items[1])["a."]) / 4
    assert torch.allclose(products(found)["a."], mean, atol=1e-6)


def test_factors_of_enough_ranks_have_the_product_that_they_are_of():
    matrix = products(of_rank(3, 2))
    assert torch.allclose(products(factored(matrix, of_rank(3, 0)))["a."], matrix["a."], atol=1e-5)
    nearest = products(factored(matrix, of_rank(1, 0)))["a."]
    left, values, right = torch.linalg.svd(matrix["a."])
    assert torch.allclose(nearest, values[0] * left[:, :1] @ right[:1], atol=1e-5)


def test_padding_keeps_what_factors_come_to():
    small = of_rank(2, 3)
    assert torch.allclose(products(padded(small, of_rank(4, 0)))["a."], products(small)["a."], atol=1e-6)
    assert strength(small) == pytest.approx(float(products(small)["a."].norm()), rel=1e-5)


# -- methods -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", [HetLoRA(by="examples", local=B16, cohort=SOME), rbla(local=B16, cohort=SOME)])
def test_with_equal_ranks_it_is_fedavg_of_the_adapters_to_the_bit(method):
    def build():
        return Adapt()(net()(), Capacity(rank=3), Capacity(rank=3))

    model = Model(build, share=("*.down", "*.up"), common=True)
    plain = weights_star(FedAvg(local=B16, cohort=SOME), model)
    assert equal(server(local(sliced_star(method, None, EQUAL)).run(3)), server(local(plain).run(3)))


def test_with_equal_ranks_that_suffice_flexlora_merges_the_mean_of_products():
    result = local(sliced_star(flexlora(cut=Adapt(rank=12), local=B16), None, {"": Capacity(rank=12)})).run(1)
    states = {name: result.state(name)["models"]["model"] for name in CLIENTS}
    rows = {"c0": 40, "c1": 48, "c2": 56}
    for layer in ("0.", "2."):
        mean = sum(n * states[c][f"{layer}up"] @ states[c][f"{layer}down"] for c, n in rows.items()) / 144
        found = server(result)
        assert torch.allclose(found[f"{layer}up"] @ found[f"{layer}down"], mean, atol=1e-5)


def test_golden_ranks():
    """One layer of two inputs and one output, of ranks 1 and 2.

    The first rank of both is (down, up) = (1 0), 2 and (3 0), 4. The second is of one client alone: (0 1), 6. Padding
    halves it, as if the other had sent zeros: (0 0.5), 3. By coordinate it stays.
    """
    like = {"0.down": torch.zeros(2, 2), "0.up": torch.zeros(1, 2)}
    one = {"0.down": torch.tensor([[1.0, 0.0]]), "0.up": torch.tensor([[2.0]])}
    two = {"0.down": torch.tensor([[3.0, 0.0], [0.0, 1.0]]), "0.up": torch.tensor([[4.0, 6.0]])}
    by_zeros = mean([padded(one, like), padded(two, like)])
    assert by_zeros["0.down"].tolist() == [[2, 0], [0, 0.5]]
    assert by_zeros["0.up"].tolist() == [[3, 3]]
    slices = [(item, {n: ranks(n, like[n], rank) for n in item}) for item, rank in ((one, 1), (two, 2))]
    by_rank = mean_by_coordinate(like, slices)
    assert by_rank["0.down"].tolist() == [[2, 0], [0, 1]]
    assert by_rank["0.up"].tolist() == [[3, 6]]


def test_frozen_factors_are_the_same_for_all_and_never_move():
    federation = sliced_star(ffa_lora(local=B16), None, RANKS)
    result = local(federation).run(2)
    start = federation.node("server").models["model"].state_dict()
    for name, rank in (("server", 3), ("c0", 3), ("c1", 1), ("c2", 2)):
        own = result.state(name)["models"]["model"]
        assert torch.equal(own["0.down"], start["0.down"][:rank])
    assert result.ledger.bytes()["update"] == 2 * (4 * (3 + 1 + 2) * (12 + 4) + 3 * 8)


def test_one_factor_stays_at_home():
    result = local(sliced_star(FedSALoRA(local=B16), None, RANKS)).run(2)
    states = [result.state(name)["models"]["model"] for name in ("server", "c0", "c1")]
    assert not states[0]["0.up"].any()
    assert states[1]["0.up"].any()
    assert states[2]["0.up"].any()


def test_a_stack_is_merged_once_by_everyone():
    """Also by a client that was not asked for some rounds. All have the server's weights, but for round-off."""
    result = local(sliced_star(FLoRA(local=B16, cohort=SOME), None, RANKS)).run(6)
    whole = server(result)
    for name in CLIENTS:
        own, node = result.state(name)["models"]["model"], result.state(name)
        missing = result.state("server")["vars"]["merged"] - node["vars"]["merged"]
        if missing == 1:  # it trained in the last round, whose stack it has not got yet
            last = list(result.state("server")["vars"]["stacks"].values())[-1]
            made = own["0.weight"] + last["0.up"] @ last["0.down"]
            assert torch.allclose(made, whole["0.weight"], atol=1e-5)
    assert len(result.state("server")["vars"]["stacks"]) < 6


def test_factors_of_another_rank_are_refused_and_their_sender_named():
    def lie(told):
        weights = told.send.body["weights"]
        return {"weights": {n: t[:1] if n.endswith("down") else t[:, :1] for n, t in weights.items()}}

    attack = Attack(who=("c2",), how=lie)
    result = local(replace(sliced_star(rbla(local=B16), None, RANKS), attack=attack)).run(1)
    refused = [row["detail"] for row in result.ledger.incidents]
    assert len(refused) == 1
    assert "from c2: weights: 0.down has shape (1, 8), expected (2, 8)" in refused[0]


def test_factors_whose_product_is_too_large_are_refused():
    def lie(told):
        return {"weights": {n: torch.full_like(t, 1e13) for n, t in told.send.body["weights"].items()}}

    for method in (flexlora(local=B16), FLoRA(local=B16), HetLoRA(local=B16)):
        attack = Attack(who=("c2",), how=lie)
        result = local(replace(sliced_star(method, None, RANKS), attack=attack)).run(2)
        assert all("from c2: weights: 0: the product" in row["detail"] for row in result.ledger.incidents)
        assert result.ledger.incidents


def test_private_training_of_one_factor():
    method = ffa_lora(local=replace(B16, private=PrivateSteps(clip=1.0, noise=1.0)))
    pytest.importorskip("dp_accounting")
    result = local(sliced_star(method, halves(), RANKS)).run(1)
    assert not result.ledger.incidents


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="one factor alone has no product"):
        HetLoRA(cut=Adapt(train=("up",)))
    with pytest.raises(ValueError, match="whole adapters are stacked"):
        FLoRA(cut=Adapt(also=("head",)))


# -- language models ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_adapters_on_a_language_model_of_a_local_folder(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = transformers.AutoConfig.for_model(
        kind, **sizes, vocab_size=256, intermediate_size=32, max_position_embeddings=32
    )
    config.save_pretrained(tmp_path)
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)

    def build():
        return create(f"transformers-pretrained-lm:{tmp_path}", in_channels=1, size=16, classes=256)

    rows = torch.randint(0, 256, (12, 17), generator=torch.Generator().manual_seed(1))
    data = {c: {"train": Data(x=rows[:, :-1], y=rows[:, 1:], classes=256)} for c in CLIENTS}
    models = {role: {"model": build} for role in ("server", "client")}
    federation = Federation(rbla(local=Training(batch=4, lr=0.5)), star(CLIENTS), models, data, capacity=RANKS)
    result = local(federation).run(2)
    before, after = federation.node("server").models["model"].state_dict(), server(result)
    moved = {name.rpartition(".")[2] for name, tensor in after.items() if not torch.equal(before[name], tensor)}
    assert moved == {"down", "up"}
    assert result.ledger.bytes()["global"] < 3 * 2 * sum(t.nbytes for t in before.values()) / 2
