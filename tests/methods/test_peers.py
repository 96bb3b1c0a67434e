"""Peers that share weights: limits, golden toys, a plain loop, what mixing matrices are."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from heterophony import Data, Federation, Model, Profile
from heterophony.engines import local
from heterophony.kernel.topology import complete, graph, random_regular, ring, torus
from heterophony.methods import DPSGD, Epidemic, FedAvg, Gossip, Solo, Swarm, dfedavgm
from heterophony.parts.cohort import Cohort
from heterophony.parts.mixing import metropolis
from heterophony.parts.training import Training
from toys.by_hand import equal, scalar_net, server, squared
from toys.federations import B16, CLIENTS, FOUR, alike_peers, weights_star
from toys.world import certain, net, private

WHOLE = Training(batch=None, lr=0.2)
PLAIN = Cohort(weighted=False)


def path(peers=("a", "b", "c")):
    return graph(itertools.pairwise(peers))


def matrix(topology):
    names, links = list(topology.roles), topology.links
    w = torch.zeros(len(names), len(names), dtype=torch.float64)
    for i, name in enumerate(names):
        near = links(name).peers
        own, *others = metropolis(len(near), [len(links(other).peers) for other in near])
        w[i, i] = own
        for other, share in zip(near, others, strict=True):
            w[i, names.index(other)] = share
    return w


@pytest.mark.parametrize("topology", [complete(5), path("abcd"), ring(5), torus(6), random_regular(8, 3, seed=2)])
def test_metropolis_matrices_are_symmetric_with_rows_of_sum_one_and_mix_everyone(topology):
    w = matrix(topology)
    assert torch.equal(w, w.T)
    assert torch.allclose(w.sum(1), torch.ones(len(w), dtype=w.dtype))
    assert w.diagonal().min() > 0
    second = torch.linalg.eigvalsh(w).abs().sort().values[-2]
    assert second < 1 - 1e-6  # what is not in common to all shrinks with each mixing


@pytest.mark.parametrize("factory", [net(), certain])
def test_d_psgd_on_a_complete_graph_is_fedavg_with_plain_means(factory):
    common = Model(factory, common=True)
    average = local(weights_star(FedAvg(local=B16, cohort=PLAIN), common)).run(3)
    peers = local(alike_peers(DPSGD(local=B16), factory=factory, names=CLIENTS)).run(3)
    for peer in CLIENTS:
        mine, shared = server(peers, peer), server(average)
        assert all(torch.equal(mine[n], shared[n]) for n in shared if shared[n].is_floating_point())


def test_swarm_is_fedavg_and_epidemic_to_all_is_d_psgd():
    average = local(weights_star(FedAvg(local=B16), Model(net(), common=True))).run(4)
    swarm = local(alike_peers(Swarm(local=B16), names=CLIENTS)).run(4)
    assert all(equal(server(swarm, peer), server(average)) for peer in CLIENTS)
    told = local(alike_peers(Epidemic(local=B16, fanout=9))).run(3)
    mixed = local(alike_peers(DPSGD(local=B16))).run(3)
    assert all(equal(server(told, peer), server(mixed, peer)) for peer in FOUR)


def test_swarm_needs_a_complete_graph():
    with pytest.raises(ValueError, match="Swarm needs a complete graph"):
        alike_peers(Swarm(local=B16), ring)


def test_golden_d_psgd_on_one_number():
    """On a path a - b - c of degrees 1, 2, 1, neighbours have a share of 1/3: a = 2/3 a + 1/3 b, b = (a + b + c) / 3.
    Rows (1, y), y = 0, 6, 12; the loss is (w - y)^2 / 2, and a step at rate 0.5 goes half the way.
    Train, then mix: from 0 to (0, 3, 6), mixed to (1, 3, 5). Trained again (0.5, 4.5, 8.5): mixed to
    (11/6, 4.5, 43/6).
    Mix beside the step: from 0 nothing is mixed, so (0, 3, 6). Then mixed (1, 3, 5) plus steps
    (0, 1.5, 3): (1, 4.5, 8).
    The distances of (0, 3, 6) from (1, 3, 5), which the table has after the first round, are 1, 0, 1.
    """
    data = {
        name: {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), y))}
        for name, y in (("a", 0.0), ("b", 6.0), ("c", 12.0))
    }
    for first, rounds, expected in (
        ("train", 1, (1, 3, 5)),
        ("train", 2, (11 / 6, 4.5, 43 / 6)),
        ("mix", 1, (0, 3, 6)),
        ("mix", 2, (1, 4.5, 8)),
    ):
        method = DPSGD(local=Training(batch=None, lr=0.5), loss=squared, first=first)
        result = local(Federation(method, path(), {"peer": {"model": scalar_net}}, data)).run(rounds)
        found = [server(result, name)["weight"].item() for name in "abc"]
        assert found == pytest.approx(expected)
        if (first, rounds) == ("train", 1):
            rows = result.table.select(quantity="consensus.distance").rows
            assert [row["sum"] for row in rows] == pytest.approx([1, 0, 1])


def test_d_psgd_on_a_ring_by_a_plain_loop():
    """Full batches; on a ring of four each neighbour has a share of 1/3, and what is left is one's own."""
    federation = alike_peers(DPSGD(local=WHOLE), ring)
    models = {name: federation.node(name).models["model"] for name in FOUR}
    for _ in range(3):
        states = {}
        for name, model in models.items():
            rows = federation.data[name]["train"]
            model.zero_grad()
            F.cross_entropy(model(rows.x), rows.y).backward()
            states[name] = {n: p.detach() - 0.2 * p.grad for n, p in model.named_parameters()}
        for i, name in enumerate(FOUR):
            near = [states[FOUR[(i + step) % 4]] for step in (-1, 0, 1)]
            models[name].load_state_dict({n: sum(state[n] for state in near) / 3 for n in near[0]})
    found = local(federation).run(3)
    for name, model in models.items():
        assert all(torch.allclose(server(found, name)[n], p, atol=1e-6) for n, p in model.state_dict().items())


def test_dfedavgm_without_momentum_is_d_psgd():
    plain = local(alike_peers(DPSGD(local=B16), ring)).run(2)
    assert local(alike_peers(dfedavgm(local=B16), ring)).run(2).digest == plain.digest
    assert dfedavgm().local.momentum == 0.9


def test_gossip_of_one_is_solo_and_of_two_merges_by_age():
    """a has two rows and b one: a takes two steps a round, b one, so that their first models have ages of 2 and 1.
    The loss is (w - y)^2 / 2, y = 8 for a and 0 for b; steps at rate 0.5 go half the way: a = 6, b = 0.
    b is done after 1.5 seconds and goes on alone, to 0 again. a is done after 2, and has heard b: (2 * 6 + 1 * 0) / 3 =
    4. Then a goes to 6 and 7.
    """
    alone = alike_peers(Gossip(local=B16), names=["p0"])
    solo = Federation(Solo(local=B16), alone.topology, alone.models, alone.data)
    assert equal(server(local(alone).run(3), "p0"), server(local(solo).run(3), "p0"))

    def rows(y, n):
        return {"train": Data(x=torch.ones(n, 1), y=torch.full((n, 1), y))}

    method = Gossip(local=Training(batch=1, lr=0.5), loss=squared)
    speeds = {"a": Profile(seconds_per_sample=1.0), "b": Profile(seconds_per_sample=1.5)}
    data, models = {"a": rows(8.0, 2), "b": rows(0.0, 1)}, {"peer": {"model": scalar_net}}
    result = local(Federation(method, complete(["a", "b"]), models, data, profiles=speeds)).run(2)
    assert [server(result, name)["weight"].item() for name in "ab"] == pytest.approx([7, 0])
    assert [result.state(name)["vars"]["age"] for name in "ab"] == [4, 2]


def test_mixing_alone_brings_peers_to_consensus():
    """Peers that learn next to nothing and begin apart: the distance from consensus falls in every round."""
    still = Training(batch=None, lr=1e-9)
    models = {"peer": {"model": net()}}  # each draws weights of its own
    result = local(Federation(DPSGD(local=still), torus(FOUR), models, private(FOUR))).run(4)
    apart = [
        sum(row["sum"] ** 2 for row in result.table.select(quantity="consensus.distance", round=round).rows)
        for round in range(4)
    ]
    assert all(later < before / 2 for before, later in itertools.pairwise(apart))
