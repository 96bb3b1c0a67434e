"""FedGKT, CFD, FedMD-NFDP and FCCL+: limits, labels in few bits, and rounds taken by plain loops."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heterophony.base.seeds import generator
from heterophony.engines import local
from heterophony.methods import CFD, DSFL, FCCLPlus, FedGKT, FedMD, fedmd_nfdp
from heterophony.parts import soft_codes
from heterophony.parts.deep import DeepHead, readable
from heterophony.parts.public import PublicRows
from heterophony.parts.seen import SeenRows, privacy_of
from heterophony.parts.soft_codes import packed, quantised, unpacked
from heterophony.parts.training import Training
from toys.by_hand import equal, server
from toys.federations import B16, CLIENTS, GENTLE, edge_star, logits_star, own_star, similar_star
from toys.watched import sent
from toys.world import PUBLIC, halves

WHOLE = Training(batch=None, lr=0.2)
STILL = Training(epochs=0)


# -- FedGKT ----------------------------------------------------------------------------------------------------
def test_fedgkt_without_kl_leaves_clients_alone():
    found = local(edge_star(FedGKT(alpha=0.0, local=B16, large=GENTLE))).run(3)
    alone = local(own_star(FedMD(), halves)).federation  # the same networks and rows
    for client in CLIENTS:
        module, rows = alone.node(client).models["model"], alone.node(client).data["train"]
        node = alone.node(client)
        optimiser = torch.optim.SGD(module.parameters(), 0.1)
        for _ in range(3):
            for batch in node.order("train", len(rows)).split(16):
                optimiser.zero_grad()
                F.cross_entropy(module(rows.x[batch]), rows.y[batch]).backward()
                optimiser.step()
        assert all(torch.allclose(t, server(found, client)[n], atol=1e-6) for n, t in module.state_dict().items())


def test_fedgkt_by_a_plain_loop():
    """Two rounds of full batches. The server's network is one layer, so that its order of rows does not matter."""
    federation = edge_star(FedGKT(alpha=0.5, temperature=2.0, local=WHOLE, large=WHOLE))
    models = {**federation.models, "server": {"model": lambda: nn.Linear(6, 4)}}
    federation = replace(federation, models=models)
    nodes = {name: federation.node(name) for name in ("server", *CLIENTS)}
    nets, said = {name: node.models["model"] for name, node in nodes.items()}, {}

    def soft(teacher, student):
        return 4 * F.kl_div((student / 2).log_softmax(1), (teacher / 2).softmax(1), reduction="batchmean")

    def step(net, x, y, taught):
        out = net(x)
        loss = F.cross_entropy(out, y) + (0.5 * soft(taught, out) if taught is not None else 0)
        for weight, slope in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
            weight.data -= 0.2 * slope

    for _ in range(2):
        rows = {c: nodes[c].data["train"] for c in CLIENTS}
        for c in CLIENTS:
            step(nets[c], rows[c].x, rows[c].y, said.get(c))
        with torch.no_grad():
            features = {c: nets[c].body(rows[c].x) for c in CLIENTS}
            logits = torch.cat([nets[c](rows[c].x) for c in CLIENTS])
        step(nets["server"], torch.cat(list(features.values())), torch.cat([rows[c].y for c in CLIENTS]), logits)
        said = {c: nets["server"](features[c]).detach() for c in CLIENTS}
    found = local(federation).run(2)
    for name, net in nets.items():
        for key, weight in net.state_dict().items():
            assert torch.allclose(server(found, name)[key], weight, atol=1e-6)
    for c in CLIENTS:
        assert torch.allclose(found.state("server")["vars"]["said"][c], said[c], atol=1e-5)


def test_what_a_servers_network_cannot_read_is_left_out():
    network = DeepHead(halves()())
    features, logits, labels = torch.randn(3, 6), torch.randn(3, 4), torch.tensor([0, 3, 1])
    assert readable(network, features, logits, labels)
    assert not readable(network, features[:, :5], logits, labels)
    assert not readable(network, features, logits[:, :3], labels)
    assert not readable(network, features, logits, labels + 1)
    assert not readable(network, features[:0], logits[:0], labels[:0])
    assert not readable(network, features.double(), logits, labels)


# -- labels in few bits ----------------------------------------------------------------------------------------
def drawn(name, rows=40, classes=5):
    return (2 * torch.randn(rows, classes, generator=generator("codes", name))).softmax(-1)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_levels_are_the_nearest_of_all_that_sum_to_one(bits):
    steps, labels = 2**bits - 1, drawn("nearest", 12, 3)
    all_levels = [w for w in itertools.product(range(steps + 1), repeat=3) if sum(w) == steps]
    every = torch.tensor(all_levels, dtype=torch.float64) / steps
    least = torch.cdist(labels.double(), every).min(1).values
    levels = quantised(labels, bits)
    assert torch.allclose((levels / steps - labels).double().norm(dim=1), least, atol=1e-6)
    assert levels.sum(-1).tolist() == [steps] * 12


def test_one_bit_is_the_most_likely_class():
    labels = drawn("one")
    assert torch.equal(quantised(labels, 1).argmax(-1), labels.argmax(-1))


@pytest.mark.parametrize("bits", [1, 2, 8])
@pytest.mark.parametrize("classes", [5, 300])
def test_packed_labels_are_unpacked_to_the_same(bits, classes):
    levels, before = quantised(drawn("new", 40, classes), bits), quantised(drawn("old", 40, classes), bits)
    for known in (None, before, levels):
        code = packed(levels, bits, known)
        assert torch.equal(unpacked(code, 40, classes, bits, known), levels)


def test_labels_that_have_not_changed_cost_next_to_nothing():
    levels = quantised(drawn("same", 4000), 2)
    assert len(packed(levels, 2, levels)) < 50 < len(packed(levels, 2))


def test_bytes_that_are_no_labels_are_found_out():
    levels = quantised(drawn("sound"), 2)
    code = packed(levels, 2)
    wrong = [code[:0], code[:-3], code.clone(), packed(levels[:39], 2), packed(quantised(drawn("sound"), 3), 3)]
    wrong[2][0] = 7  # no such coding
    wrong.append(packed(levels, 2, levels))  # differences from labels that nobody knows
    wrong.append(torch.randint(0, 256, (60,), generator=generator("noise")).to(torch.uint8))
    wrong.append(packed(quantised(drawn("other", 40, 4), 1), 1))
    assert [unpacked(each, 40, 5, 2) for each in wrong] == [None] * len(wrong)
    assert unpacked(packed(quantised(drawn("wide", 40, 9), 1), 1), 40, 5, 1) is None


# -- CFD -------------------------------------------------------------------------------------------------------
def test_delta_coding_changes_bytes_and_nothing_else():
    runs = [local(logits_star(CFD(local=B16, distil=GENTLE, up=2, down=2, delta=d))).run(3) for d in (True, False)]
    for node in ("server", *CLIENTS):
        assert equal(server(runs[0], node), server(runs[1], node))
    coded, whole = (run.ledger.bytes() for run in runs)
    assert coded["predictions"] < whole["predictions"]
    assert coded["labels"] < whole["labels"]


def test_the_ledger_counts_the_bytes_that_are_sent():
    federation = logits_star(CFD(local=B16, distil=B16))
    messages, ledger = sent(federation, "predictions", 2), local(federation).run(2).ledger.bytes()
    assert ledger["predictions"] == sum(len(m.body["codes"]) + 8 for m in messages)
    assert ledger["predictions"] < 6 * 32 * 4 * 4 / 10  # ds-fl sends 32 rows of four float32


def test_cfd_with_fine_labels_is_near_to_ds_fl():
    """Eight bits round by 1/255 at most; then both learn the mean of all softmax outputs."""
    fine = local(logits_star(CFD(up=8, down=8, dual=False, local=B16, distil=B16))).run(2)
    exact = local(logits_star(DSFL(aggregation="sa", global_model=False, local=B16, distil=B16))).run(2)
    coarse = local(logits_star(CFD(up=1, down=1, dual=False, local=B16, distil=B16))).run(2)
    for client in CLIENTS:
        gaps = [
            max((a - server(exact, client)[n]).abs().max().item() for n, a in server(run, client).items())
            for run in (fine, coarse)
        ]
        assert gaps[0] < 0.02 < gaps[1]


def test_whoever_missed_labels_is_sent_them_whole():
    node = logits_star(CFD()).node("c0")
    rows, first, second = PublicRows(), quantised(drawn("a", 32, 4), 2), quantised(drawn("b", 32, 4), 2)
    other = logits_star(CFD()).node("c1")
    assert soft_codes.last(node) == soft_codes.known(other, "c0") == soft_codes.NEVER
    code = soft_codes.encoded(node, rows, first, 2, soft_codes.NEVER)
    assert torch.allclose(soft_codes.decoded(other, rows, "c0", code, 2), first / 3)
    node.round = other.round = 1
    assert len(soft_codes.encoded(node, rows, first, 2, soft_codes.known(other, "c0"))) < len(code)  # lost on its way
    node.round = other.round = 2
    code = soft_codes.encoded(node, rows, second, 2, soft_codes.known(other, "c0"))
    assert code[0] == soft_codes.PLAIN
    assert torch.allclose(soft_codes.decoded(other, rows, "c0", code, 2), second / 3)


# -- FedMD-NFDP ------------------------------------------------------------------------------------------------
def test_privacy_of_a_draw():
    assert privacy_of(99, 50, False) == (pytest.approx(math.log(2)), pytest.approx(50 / 99))
    assert privacy_of(2, 3, True) == (pytest.approx(3 * math.log(1.5)), pytest.approx(1 - 1 / 8))


def test_clients_of_fedmd_nfdp_train_on_the_rows_that_they_have_drawn():
    found = local(logits_star(fedmd_nfdp(seen=SeenRows(30), local=B16, distil=STILL))).run(2)
    federation = logits_star(FedMD(local=B16, distil=STILL))
    for client in CLIENTS:
        drawn_rows = found.state(client)["vars"]["seen"]
        assert len(set(drawn_rows.tolist())) == 30
        own = federation.data[client]
        federation.data[client] = {**own, "train": own["train"].take(drawn_rows)}
    plain = local(federation).run(2)
    for client in CLIENTS:
        assert equal(server(found, client), server(plain, client))
    noted = {(row["node"], row["sum"]) for row in found.table.select(quantity="privacy.delta")}
    assert noted == {(c, 30 / n) for c, n in zip(CLIENTS, (40, 48, 56), strict=True)}


def test_who_draws_all_of_its_rows_is_fedmd():
    found = local(logits_star(fedmd_nfdp(seen=SeenRows(1000), local=B16, distil=B16))).run(2)
    plain = local(logits_star(FedMD(local=B16, distil=B16))).run(2)
    assert all(equal(server(found, c), server(plain, c)) for c in CLIENTS)
    assert not found.table.select(quantity="privacy.epsilon")


# -- FCCL+ -----------------------------------------------------------------------------------------------------
def test_fccl_plus_by_a_plain_loop():
    """Two rounds of full batches, with similarities as the authors' code has them: rows without their diagonals."""
    federation = similar_star(FCCLPlus(mu=2.0, tau=0.5, temperature=2.0, collaborate=WHOLE, local=WHOLE))
    nodes = {c: federation.node(c) for c in CLIENTS}
    nets, x = {c: node.models["model"] for c, node in nodes.items()}, PUBLIC.x
    others = ~torch.eye(len(x), dtype=torch.bool)

    def similar(net):
        unit = F.normalize(net.body(x), dim=1)
        return (unit @ unit.T)[others].view(len(x), -1) / 0.5

    def step(net, loss):
        for weight, slope in zip(net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True):
            weight.data -= 0.2 * slope

    previous = {c: {name: tensor.clone() for name, tensor in nets[c].state_dict().items()} for c in CLIENTS}
    for _ in range(2):
        zbar = torch.stack([nets[c](x).detach() for c in CLIENTS]).mean(0)
        alike = torch.stack([similar(nets[c]).detach() for c in CLIENTS]).mean(0)
        for c, net in nets.items():
            out = net(x)
            matrix = torch.corrcoef(torch.cat([out.T, zbar.T]))[:4, 4:]
            diagonal = matrix.diagonal()
            loss = ((diagonal - 1) ** 2).sum() + 0.0051 * (((matrix + 1) ** 2).sum() - ((diagonal + 1) ** 2).sum())
            told = F.kl_div(similar(net).log_softmax(1), alike.softmax(1), reduction="batchmean")
            step(net, loss + 2 * told)
            rows, older = nodes[c].data["train"], halves({"c0": 8, "c1": 12, "c2": 16}[c])()
            older.load_state_dict(previous[c])
            out, rest = net(rows.x), F.one_hot(rows.y, 4) == 0
            new, old = ((each / 2).softmax(1)[rest].view(-1, 3) for each in (out, older(rows.x).detach()))
            step(net, F.cross_entropy(out, rows.y) + 4 * F.kl_div(new.log(), old, reduction="batchmean"))
            previous[c] = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    found = local(federation).run(2)
    for c, net in nets.items():
        assert all(torch.allclose(server(found, c)[n], t, atol=1e-5) for n, t in net.state_dict().items())


def test_batches_of_public_rows_are_compared_among_themselves():
    """In small batches a row is compared with the rows of its batch: what is learnt depends on the batches."""
    runs = [
        local(similar_star(FCCLPlus(collaborate=Training(batch=size, lr=0.1), local=STILL))).run(1) for size in (8, 32)
    ]
    assert not equal(server(runs[0], "c0"), server(runs[1], "c0"))


def test_a_row_is_like_itself():
    made = FCCLPlus(rows=PublicRows(sample=4))
    fits = made.similarities(torch.randn(4, 6))
    assert torch.allclose(fits.diagonal(), torch.full((4,), 1 / made.tau))
    assert fits.shape == (4, 4)
