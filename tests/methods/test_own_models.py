"""FedBN, Reptile, Per-FedAvg, pFedMe, APFL, MAPPER, experts, FedFomo: limits, golden toys, steps by plain loops."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heterophony import Data, Federation, Model, Regression
from heterophony.engines import local
from heterophony.kernel.topology import complete, star
from heterophony.methods import (
    APFL,
    FedAvg,
    FedFomo,
    FineTune,
    Mapper,
    MixtureOfExperts,
    Mocha,
    PerFedAvg,
    PFedMe,
    Solo,
    fedbn,
    reptile,
)
from heterophony.parts.cohort import Cohort
from heterophony.parts.mixtures import MixedOutputs, MixedWeights
from heterophony.parts.node_optimiser import NodeOptimiser
from heterophony.parts.training import Training
from toys.by_hand import equal, scalar_net, server, squared
from toys.federations import B16, CLIENTS, gated_star, mixed_star, personal_star, weights_star
from toys.world import certain, net, private

WHOLE = Training(batch=None, lr=0.2)
STEP = Training(batch=None, lr=0.5)
QUARTER = Training(batch=None, lr=0.25)
PLAIN = Cohort(weighted=False)


def number(method, y=8.0, rounds=1):
    """Run a method on one client that holds (x = 1, y); its model is one number, from zero on."""
    data = {"c0": {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), y))}}
    models = {role: {"model": scalar_net} for role in ("server", "client")}
    return local(Federation(method, star(["c0"]), models, data)).run(rounds)


def smooth_star(method):
    """A star whose network has gradients that are nowhere torn, as those of ReLU are."""
    return weights_star(method, lambda: nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4)))


def near(a, b):
    """Return whether two sets of named tensors are the same up to rounding."""
    return all(torch.allclose(a[n], b[n], atol=1e-6) for n in b)


# -- FedBN -----------------------------------------------------------------------------------------------------
def test_fedbn_without_batchnorm_is_fedavg():
    common = Model(net(), common=True)
    found = local(weights_star(fedbn(local=B16), replace(common, norms="private"))).run(3)
    plain = local(weights_star(FedAvg(local=B16), common)).run(3)
    for node in ("server", *CLIENTS):
        assert equal(server(found, node), server(plain, node))


def test_fedbn_by_a_plain_loop():
    """Two rounds of full batches: everything is averaged but layer 1, which each client keeps with its statistics."""
    federation = weights_star(fedbn(local=WHOLE, cohort=PLAIN), Model(certain, norms="private", common=True))
    modules, common = {c: federation.node(c).models["model"] for c in CLIENTS}, {}
    for _ in range(2):
        for client, module in modules.items():
            module.load_state_dict({**module.state_dict(), **common})
            data = federation.data[client]["train"]
            F.cross_entropy(module.train()(data.x), data.y).backward()
            torch.optim.SGD(module.parameters(), 0.2).step()
            module.zero_grad()
        states = [module.state_dict() for module in modules.values()]
        common = {n: sum(s[n] for s in states) / 3 for n in states[0] if not n.startswith("1.")}
    found = local(federation).run(2)
    assert near(server(found), common)
    assert set(common) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    for client, module in modules.items():
        assert near(server(found, client), dict(module.state_dict()))
    assert found.ledger.bytes()["global"] == 6 * 4 * (8 * 12 + 12 + 12 * 4 + 4)


# -- Reptile ---------------------------------------------------------------------------------------------------
def test_reptile_at_rate_one_is_finetuning_with_plain_means():
    slots = {"client": ("model", "own")}
    whole = local(personal_star(reptile(local=B16, server=NodeOptimiser(rate=1.0)), **slots)).run(3)
    plain = local(personal_star(FineTune(local=B16, cohort=PLAIN), **slots)).run(3)
    assert whole.digest == plain.digest


def test_golden_reptile_on_one_number():
    """One step at rate 0.5 goes half the way to 8. From 0: 4, of which epsilon = 0.5 takes 2. Then (2 + 8) / 2 = 5,
    half of the way is 3.5."""
    data = {"c0": {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), 8.0))}}
    models = {"server": {"model": scalar_net}, "client": {"model": scalar_net, "own": scalar_net}}

    def loss(nets, batch):
        return squared({"model": next(iter(nets.values()))}, batch)

    for rounds, expected in ((1, 2.0), (2, 3.5)):
        made = Federation(reptile(local=STEP, loss=loss), star(["c0"]), models, data)
        assert server(local(made).run(rounds))["weight"].item() == expected


# -- Per-FedAvg ------------------------------------------------------------------------------------------------
def test_per_fedavg_without_a_step_to_adapt_is_fedavg():
    plain = server(local(weights_star(FedAvg(local=WHOLE))).run(3))
    for variant in ("first-order", "hessian-free"):
        assert near(server(local(weights_star(PerFedAvg(alpha=0.0, variant=variant, local=WHOLE))).run(3)), plain)


@pytest.mark.parametrize(("variant", "expected"), [("first-order", 2.0), ("hessian-free", 1.0)])
def test_golden_per_fedavg_on_one_number(variant, expected):
    """The loss is (w - 8)^2 / 2, alpha = beta = 0.5. From 0, v = 4, so g = -4, and first-order w = 2.
    The Hessian is 1: g - alpha g = -2, and w = 1. Differences are exact for a square, however far apart."""
    method = PerFedAvg(alpha=0.5, delta=0.5, variant=variant, local=STEP, loss=squared)
    assert server(number(method))["weight"].item() == expected


def test_per_fedavg_hessian_free_nears_the_gradient_through_the_step():
    """With full batches, autograd through w - alpha grad f(w) gives the gradient that the differences stand for."""
    method = PerFedAvg(alpha=0.3, delta=1e-2, variant="hessian-free", local=WHOLE, cohort=PLAIN)
    federation = smooth_star(method)
    start, total = federation.node("server"), {}
    for client in CLIENTS:
        data = federation.data[client]["train"]
        module, w = start.models["model"], {n: t.clone().requires_grad_() for n, t in start.weights().items()}

        def loss(weights, module=module, data=data):
            return F.cross_entropy(torch.func.functional_call(module, weights, (data.x,)), data.y)

        inner = torch.autograd.grad(loss(w), list(w.values()), create_graph=True)
        v = {n: t - 0.3 * g for (n, t), g in zip(w.items(), inner, strict=True)}
        outer = torch.autograd.grad(loss(v), list(w.values()))
        for (n, t), g in zip(w.items(), outer, strict=True):
            total[n] = total.get(n, 0) + (t.detach() - 0.2 * g) / 3
    found = server(local(federation).run(1))
    first = server(local(smooth_star(replace(method, variant="first-order"))).run(1))
    for name, tensor in total.items():
        assert torch.allclose(found[name], tensor, atol=1e-5)
        assert not torch.allclose(first[name], tensor, atol=1e-4)


# -- pFedMe ----------------------------------------------------------------------------------------------------
def test_pfedme_in_one_step_with_rate_times_pull_one_is_fedavg():
    plain = server(local(weights_star(FedAvg(local=WHOLE))).run(3))
    assert near(server(local(weights_star(PFedMe(pull=4.0, rate=0.25, inner=1, local=WHOLE))).run(3)), plain)


def test_pfedme_without_a_pull_leaves_the_global_model_as_it_is():
    before = weights_star(PFedMe(local=B16)).node("server").weights()
    found = local(weights_star(PFedMe(pull=0.0, local=B16))).run(2)
    assert near(server(found), before)
    assert not near(server(found, "c0"), before)


def test_golden_pfedme_on_one_number():
    """pull 1, eta 0.5, rate 0.5, one step a batch, two batches. theta = w = 0: the gradient is -8, so theta = 4 and
    w = 0 + 0.5 * 4 = 2. Then it is (4 - 8) + (4 - 2) = -2: theta = 5, w = 2 + 0.5 * 3 = 3.5. The server, beta 0.5,
    goes half of the way."""
    options = {"pull": 1.0, "rate": 0.5, "inner": 1, "local": replace(STEP, epochs=2), "loss": squared}
    found = number(PFedMe(server=NodeOptimiser(rate=0.5), **options))
    assert server(found, "c0")["weight"].item() == 5.0
    assert server(found)["weight"].item() == 1.75


# -- APFL and MAPPER -------------------------------------------------------------------------------------------
def own(result, client, part="own"):
    """Return the weights of one of a client's two models."""
    found = server(result, client)
    return {n.removeprefix(f"{part}."): t for n, t in found.items() if n.startswith(f"{part}.")}


def pairs(method, kind, ys):
    """Return clients that hold (x = 1, y); both of their models are one number, from zero on. The loss is (w - y)^2."""
    targets = {f"c{i}": torch.full((1, 1), y) for i, y in enumerate(ys)}
    data = {c: {"train": Data(x=torch.ones(1, 1), y=y, task=Regression())} for c, y in targets.items()}
    pair = Model(lambda: kind(scalar_net(), scalar_net()), share="common")
    models = {"server": {"model": scalar_net}, "client": {"model": pair}}
    return Federation(method, star(list(data)), models, data)


def test_apfl_at_its_ends_is_solo_and_fedavg():
    """The global model is FedAvg's whatever alpha is; with alpha = 1 own models are solo's, from the same start."""
    common = {"model": Model(net(), common=True)}
    plain = local(weights_star(FedAvg(local=B16), common["model"])).run(3)
    alone = local(Federation(Solo(local=B16), complete(CLIENTS), {"peer": common}, private(CLIENTS))).run(3)
    for alpha in (0.0, 0.3, 1.0):
        found = local(mixed_star(APFL(alpha=alpha, local=B16))).run(3)
        assert equal(server(found), server(plain))
        for client in CLIENTS:
            assert equal(own(found, client, "common"), server(plain, client))
            assert equal(own(found, client), server(alone, client)) == (alpha == 1.0)


def test_golden_apfl_on_one_number():
    """alpha = 0.5, and a step halves the way to 8. From 0: w = 4; v moves by alpha times the mixture's gradient, to 2.
    The mixture is 3. Then w = 6, v = 2 + 0.5 * 0.5 * 5 = 3.25."""
    made = pairs(APFL(local=QUARTER), MixedWeights, [8.0])
    for rounds, w, v in ((1, 4.0, 2.0), (2, 6.0, 3.25)):
        found = local(made).run(rounds)
        assert (server(found)["weight"].item(), own(found, "c0")["weight"].item()) == (w, v)
    # The second round's gradient of alpha, at v = 2, w = 4, is 2 (3 - 8) (2 - 4) = 20: far beyond 0.
    learnt = local(replace(made, method=APFL(local=QUARTER, adaptive=True))).run(2)
    assert [row["sum"] for row in learnt.table.select(quantity="alpha")] == [0.5, 0.0]


def test_mapper_at_its_ends_is_solo_and_fedavg():
    common = {"model": Model(net(), common=True)}
    plain = local(weights_star(FedAvg(local=WHOLE), common["model"])).run(3)
    alone = local(Federation(Solo(local=WHOLE), complete(CLIENTS), {"peer": common}, private(CLIENTS))).run(3)
    assert near(server(local(mixed_star(Mapper(share=0.0, local=WHOLE))).run(3)), server(plain))
    found = local(mixed_star(Mapper(share=1.0, local=WHOLE))).run(3)
    for client in CLIENTS:
        assert near(own(found, client), server(alone, client))


def test_golden_mapper_on_one_number():
    """lambda = 0.5, and a step goes half of 8 less what is predicted, times lambda. From 0 the own model goes to 2.
    Then the sum is 1, and the global model goes 0.5 * 0.5 * 7 = 1.75."""
    found = local(pairs(Mapper(share=0.5, local=QUARTER), MixedOutputs, [8.0])).run(1)
    assert (own(found, "c0")["weight"].item(), server(found)["weight"].item()) == (2.0, 1.75)


def test_mapper_chooses_the_own_model_where_clients_want_opposite_things():
    found = local(pairs(Mapper(local=QUARTER), MixedOutputs, [-8.0, 8.0])).run(8)
    chosen = [row["sum"] for row in found.table.select(quantity="lambda")]
    assert chosen[:2] == [0.1, 0.1]  # both models are the same at first
    assert chosen[-2:] == [0.9, 0.9]


# -- FedFomo ---------------------------------------------------------------------------------------------------
def test_fedfomo_without_downloads_is_solo():
    found = local(weights_star(FedFomo(downloads=0, local=B16), common := Model(net(), common=True))).run(3)
    peers = {"peer": {"model": common}}
    alone = local(Federation(Solo(local=B16), complete(CLIENTS), peers, private(CLIENTS))).run(3)
    for client in CLIENTS:
        assert equal(server(found, client), server(alone, client))


def test_golden_fedfomo_on_one_number():
    """Targets 4, 6 and 8; a step halves the way. After a round the models are 2, 3 and 4. At 2 the first client's loss
    is 4. That of 3 is 1 and that of 4 is 0, so weights are 3 / 1 and 4 / 2, and shares 0.6 and 0.4: 2.6 + 0.8 = 3.4.
    Training halves the way to 4. The last one's losses grow towards 2 and 3, so that it only trains: 6.
    """
    ys = {"c0": 4.0, "c1": 6.0, "c2": 8.0}
    data = {c: {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), y), task=Regression())} for c, y in ys.items()}
    models = {role: {"model": scalar_net} for role in ("server", "client")}
    found = local(Federation(FedFomo(local=QUARTER), star(list(ys)), models, data)).run(2)
    assert server(found, "c0")["weight"].item() == pytest.approx(3.7, rel=1e-6)
    assert server(found, "c2")["weight"].item() == 6.0
    liked = found.state("server")["vars"]["liked"]
    assert liked["c0"] == pytest.approx({"c1": 0.6, "c2": 0.4}, rel=1e-6)
    assert liked["c2"] == {"c0": 0.0, "c1": 0.0}


def test_fedfomo_sends_what_was_liked_or_anything():
    node = weights_star(FedFomo()).node("server")
    others, liked = ["a", "b", "c", "d"], {"c": 2.0, "a": 1.0}
    assert FedFomo(downloads=2, explore=0.0).chosen(node, "x", others, liked) == ["c", "a"]
    drawn = set()
    for node.round in range(40):
        drawn.add(tuple(FedFomo(downloads=2, explore=1.0).chosen(node, "x", others, liked)))
    assert len(drawn) > 6


# -- mixture of experts ----------------------------------------------------------------------------------------
def test_the_global_expert_is_fedavgs():
    found = local(gated_star(MixtureOfExperts(local=WHOLE))).run(2)
    plain = local(weights_star(FedAvg(local=WHOLE), Model(net(), common=True))).run(2)
    assert near(server(found), server(plain))


def test_mixture_of_experts_by_a_plain_loop():
    """A round of full batches: the common expert by its own loss, then own expert and gate by that of the mixture."""
    federation = gated_star(MixtureOfExperts(local=WHOLE))
    start, found = federation.node("server").models["model"], local(federation).run(1)

    def step(loss, *networks):
        weights = [weight for network in networks for weight in network.parameters()]
        for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.data -= 0.2 * slope

    for client in CLIENTS:
        node = federation.node(client)
        experts, rows = node.models["model"], node.data["train"]
        experts.common.load_state_dict(start.state_dict())
        step(F.cross_entropy(experts.common(rows.x), rows.y), experts.common)
        share = torch.sigmoid(experts.gate(rows.x)[:, :1])
        mixed = share * experts.own(rows.x).softmax(1) + (1 - share) * experts.common(rows.x).softmax(1)
        step(F.nll_loss(mixed.log(), rows.y), experts.own, experts.gate)
        assert near(server(found, client), experts.state_dict())


# -- MOCHA -----------------------------------------------------------------------------------------------------
def test_mocha_without_a_pull_is_solo():
    found = local(weights_star(Mocha(pull=0.0, local=B16), common := Model(net(), common=True))).run(3)
    alone = local(Federation(Solo(local=B16), complete(CLIENTS), {"peer": {"model": common}}, private(CLIENTS))).run(3)
    for client in CLIENTS:
        assert equal(server(found, client), server(alone, client))


@pytest.mark.parametrize(("relation", "weights"), [("mean", (3.25, 5.75)), ("learned", (2.6, 5.2))])
def test_golden_mocha_on_one_number(relation, weights):
    """Targets 4 and 8; a step halves the way. After a round without a pull the models w are 2 and 4.

    With the mean, R = 1/2 (1, -1; -1, 1). The first client's pull is 1/2 (2 - 4) = -1, and its gradient -4 - 1; the
    second's is -8 + 1. A step is a quarter of them. Learned, W^T W has one axis u = (1, 2) / sqrt 5, and so has Omega,
    with eigenvalue 1. So R w = w / (1 + ridge) = (1.6, 3.2) for a ridge of 1/4: gradients -4 + 1.6 and -8 + 3.2.
    """
    ys = {"c0": 4.0, "c1": 8.0}
    data = {c: {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), y), task=Regression())} for c, y in ys.items()}
    models = {role: {"model": scalar_net} for role in ("server", "client")}
    method = Mocha(pull=1.0, relation=relation, ridge=0.25, local=QUARTER)
    found = local(Federation(method, star(list(ys)), models, data)).run(2)
    assert [server(found, c)["weight"].item() for c in ys] == pytest.approx(weights, rel=1e-6)


def test_no_liar_ends_a_run_of_mocha():
    """The largest values that a door takes are related to the others' without an overflow."""
    models = [{"w": torch.full((9, 9), 9e14)}, {"w": torch.ones(9, 9)}, {"w": -torch.ones(9, 9)}]
    assert Mocha(ridge=1e-3).related(models).isfinite().all()


def test_models_that_point_the_same_way_pull_together_in_mocha():
    """Two clients go the same way and one goes another: R is below zero for the first two alone, and symmetric."""
    models = [{"w": torch.tensor(w)} for w in ([1.0, 0.1], [1.0, -0.1], [0.0, 2.0])]
    found = Mocha(ridge=1e-3).related(models)
    assert torch.allclose(found, found.T)
    assert found[0, 1] < 0
    assert found[0, 1].abs() > 5 * max(found[0, 2].abs(), found[1, 2].abs())
