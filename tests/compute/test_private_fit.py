"""Private steps are the plain loop over rows: clip each gradient, add them up, add noise, divide by the usual size."""

import pytest
import torch
from torch import nn

pytest.importorskip("dp_accounting")

from heterophony import Federation, Fit, Node, Privacy, PrivateSteps
from heterophony.base.noise import Seeded
from heterophony.compute import private_fit
from heterophony.compute.batched import Batched
from heterophony.compute.eager import Eager, Job, fit
from heterophony.engines import local, process
from heterophony.kernel.accountant import composed, epsilon_of
from heterophony.kernel.node import Slot
from heterophony.kernel.optimisers import sgd
from heterophony.kernel.privacy import Charge
from heterophony.kernel.topology import star
from heterophony.methods import FD, FedAvg
from heterophony.parts import Training, task_loss
from toys import world

DATA = world.points("private steps", 40)
PRIVATE = PrivateSteps(clip=0.7, noise=0.9)


def node(module=None):
    torch.manual_seed(1)
    return Node("a", "client", slots={"model": Slot(module or world.net(6)())}, data={"train": DATA}, seed=3)


def order(**changes):
    given = {"batch": 10, "epochs": 2, "optimiser": sgd(0.5, momentum=0.9), "private": PRIVATE, "source": Seeded(7)}
    return Fit("model", task_loss, **{**given, **changes})


def by_hand(model, steps, source, clip, noise):
    """Algorithm 1 of Abadi et al., row by row, with heavy-ball steps."""
    moments = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(steps):
        drawn = (source.uniform(len(DATA)) < 10 / len(DATA)).nonzero().flatten()
        total = [torch.zeros_like(p) for p in model.parameters()]
        for row in drawn:
            model.zero_grad()
            nn.functional.cross_entropy(model(DATA.x[row : row + 1]), DATA.y[row : row + 1]).backward()
            length = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
            for sum_, p in zip(total, model.parameters(), strict=True):
                sum_ += p.grad * min(1.0, clip / length.item())
        drawn_noise = noise * clip * source.normal(sum(p.numel() for p in model.parameters()))
        parts = torch.split(drawn_noise, [p.numel() for p in model.parameters()])
        with torch.no_grad():
            for p, moment, sum_, part in zip(model.parameters(), moments, total, parts, strict=True):
                moment.mul_(0.9).add_((sum_ + part.view(p.shape).float()) / 10)
                p -= 0.5 * moment


def test_private_steps_are_the_plain_loop_over_rows():
    here = node()
    there = node().models["model"]
    fitted = fit(here, order())
    by_hand(there, 8, Seeded(7), 0.7, 0.9)
    assert fitted.steps == 8
    for ours, theirs in zip(here.models["model"].parameters(), there.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert here.epochs == {"train": 2}  # so that training before the first round knows that it was


def test_gradients_of_rows_are_those_that_opacus_takes():
    opacus = pytest.importorskip("opacus")
    model = world.net(6)()
    given = order()
    moved = dict(model.named_parameters())
    sums, terms = private_fit.summed(model, given, moved, DATA, 0.7)
    theirs = opacus.GradSampleModule(world.net(6)())
    theirs._module.load_state_dict(model.state_dict())
    loss = nn.functional.cross_entropy(theirs(DATA.x), DATA.y)
    loss.backward()
    each = {n: p.grad_sample for n, p in theirs._module.named_parameters()}
    length = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
    share = (0.7 / length).clamp(max=1.0)
    for name, gradient in each.items():
        expected = torch.einsum("i,i...->...", share, gradient)
        assert torch.allclose(sums[name], expected, atol=1e-5)
    assert sum(terms["model"].values()).item() == pytest.approx(loss.item(), abs=1e-5)


# By opacus 1.6.0: `GradSampleModule(node().models["model"])` on `DATA`; each row's gradient cut to at most 0.7, and
# added up. For each parameter its length, and its first three numbers. All 40 rows are clipped.
FROZEN = {
    "0.weight": (3.04744, [-0.11162, 0.16604, -0.94849]),
    "0.bias": (1.49905, [-0.59299, -0.26983, 0.32839]),
    "2.weight": (2.11017, [0.16107, -0.46153, -0.73881]),
    "2.bias": (6.12773, [-1.19646, 5.25954, -2.34809]),
}


def test_gradients_of_rows_are_those_that_opacus_once_took():
    model = node().models["model"]
    sums, _ = private_fit.summed(model, order(), dict(model.named_parameters()), DATA, 0.7)
    for name, (length, first) in FROZEN.items():
        assert sums[name].norm().item() == pytest.approx(length, abs=1e-3)
        assert sums[name].flatten()[:3].tolist() == pytest.approx(first, abs=1e-3)


def test_a_parameter_that_is_one_number_has_gradients_of_rows_too():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.scale = nn.Linear(8, 4), nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return self.scale * self.inner(x)

    here = node(Scaled())
    fit(here, order(epochs=1))
    assert here.models["model"].scale.item() != 2.0


def test_without_clipping_or_noise_all_rows_give_the_gradient_of_the_batch():
    here, there = node(), node()
    still = PrivateSteps(clip=1e6, noise=1e-12)
    fit(here, order(batch=None, epochs=3, private=still))
    fit(there, order(batch=None, epochs=3, private=None))
    pairs = zip(here.models["model"].parameters(), there.models["model"].parameters(), strict=True)
    assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in pairs)


def test_a_batch_without_rows_is_a_step_of_noise_alone():
    class Never(Seeded):
        def uniform(self, n):
            return torch.ones(n, dtype=torch.float64)

    here = node()
    before = [p.detach().clone() for p in here.models["model"].parameters()]
    fitted = fit(here, order(source=Never(7), steps=1))
    assert fitted.steps == 1
    noise = 0.9 * 0.7 * Seeded(7).normal(sum(p.numel() for p in before)) / 10
    pairs = zip(before, here.models["model"].parameters(), strict=True)
    moved = torch.cat([(old - new.detach()).flatten() for old, new in pairs])
    assert torch.allclose(moved, 0.5 * noise.float(), atol=1e-6)


def test_other_executors_give_the_same():
    answers = []
    for executor in (Eager(), Batched()):
        here = node()
        executor([Job(here, order(), "1")])
        answers.append([p.detach().clone() for p in here.models["model"].parameters()])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*answers, strict=True))


# -- in a federation ---------------------------------------------------------------------------------------------
def federation(method, privacy=None, model=None):
    slots = {"model": model or world.net(6)}
    data = {"a": {"train": DATA}, "b": {"train": world.points("other rows", 24)}}
    both = {"client": slots, "server": slots}
    return Federation(method, star(["a", "b"]), both, data, tests=world.TESTS, privacy=privacy or {})


LOCAL = Training(batch=10, epochs=2, private=PRIVATE)


def test_engines_agree_and_steps_are_charged_by_how_often_a_row_is_drawn():
    made = federation(FedAvg(local=LOCAL))
    here, there = local(made).run(1), process(made).run(1)
    assert [here.host.digest(n) for n in ("server", "a", "b")] == [there.host.digest(n) for n in ("server", "a", "b")]
    charges = {n: [tuple(one) for one in here.host.state(n)["account"]["charges"]] for n in "ab"}
    assert charges == {"a": [("training", 0.9, 10 / 40, 8)], "b": [("training", 0.9, 10 / 24, 6)]}


def test_noise_may_differ_from_node_to_node_and_who_is_left_out_is_named():
    by_node = PrivateSteps(clip=0.7, noise={"a": 0.9, "client": 2.0})
    run = local(federation(FedAvg(local=Training(batch=10, private=by_node)))).run(1)
    assert [run.host.state(n)["account"]["charges"][0][1] for n in "ab"] == [0.9, 2.0]
    with pytest.raises(ValueError, match=r"local.private\.noise has no value for b"):
        federation(FedAvg(local=Training(private=PrivateSteps(clip=1.0, noise={"a": 1.0}))))
    with pytest.raises(ValueError, match=r"private\.noise: no node, level or role is called 'c'"):
        federation(FedAvg(local=Training(private=PrivateSteps(clip=1.0, noise={"c": 1.0, "*": 1.0}))))


def test_training_that_would_overdraw_is_not_done_and_its_reaction_sends_nothing():
    once = epsilon_of(composed([Charge("training", 0.9, 10 / 40, 8)]), 1e-3)
    privacy = Privacy(kinds=(), delta=1e-3, budget=once * 1.01)
    run = local(federation(FedAvg(local=LOCAL), {"a": privacy})).run(3)
    status = [(r["from"], r["status"]) for r in run.ledger.rows if r["kind"] == "update" and r["from"] == "a"]
    assert [s for _, s in status] == ["sent", "withheld", "withheld"]
    assert run.rounds == 3


def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise():
    def told(multiplier, rate, steps):
        return epsilon_of(composed([Charge("training", multiplier, rate, steps)]), 1e-4)

    assert told(1.0, 0.1, 10) < told(1.0, 0.1, 50) < told(1.0, 0.3, 50)
    assert told(2.0, 0.1, 50) < told(1.0, 0.1, 50)


def test_the_second_opinion_of_another_accountant_is_the_same():
    prv = pytest.importorskip("prv_accountant")
    accountant = prv.Accountant(
        noise_multiplier=1.0, sampling_probability=0.1, delta=1e-5, max_compositions=200, eps_error=0.05
    )
    low, _, high = accountant.compute_epsilon(num_compositions=100)
    assert low <= epsilon_of(composed([Charge("training", 1.0, 0.1, 100)]), 1e-5) <= high * 1.02


# By prv-accountant 0.2.0 with eps_error 0.02 and delta_error delta / 1000: multiplier, rate, steps, delta; least, most.
@pytest.mark.parametrize(
    ("case", "least", "most"),
    [
        ((1.0, 0.1, 100, 1e-5), 7.02683, 7.06774),
        ((1.5, 0.1, 20, 1e-5), 1.67257, 1.71286),
        ((2.0, 0.02, 500, 1e-4), 0.74183, 0.78199),
    ],
)
def test_the_second_opinion_that_was_once_had_is_the_same(case, least, most):
    multiplier, rate, steps, delta = case
    assert least <= epsilon_of(composed([Charge("training", multiplier, rate, steps)]), delta) <= most * 1.01


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: PrivateSteps(noise=1.0), "clip is the longest gradient of a row"),
        (lambda: PrivateSteps(clip=1.0, noise=-0.1), "noise is a multiple of the clip > 0, got -0.1"),
        (lambda: federation(FedAvg(local=LOCAL), model=world.normed), "model 'model' has BatchNorm .*GroupNorm"),
        (lambda: federation(FD(local=LOCAL), model=world.net(6)), "means of 'means' is made of rows without noise"),
        (lambda: Fit(("model", "other"), task_loss, private=PRIVATE), "private steps are those of one model"),
    ],
)
def test_what_cannot_be_private_is_refused_when_built(made, why):
    with pytest.raises((ValueError, TypeError), match=why):
        made()
