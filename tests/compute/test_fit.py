"""Work on the CPU: against plain PyTorch, step by step."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heterophony import Data, Fit, Predict
from heterophony.base.seeds import generator, seeded
from heterophony.compute.eager import Eager, Job, WorkError, fit, predict
from heterophony.data.augment import CropFlip
from heterophony.kernel.node import Node, Slot, Views, laid_out
from heterophony.kernel.optimisers import Descent, adam, sgd
from heterophony.parts.losses import cross_entropy
from toys.world import normed, points


def node(module=lambda: nn.Linear(8, 4), rows=10, **slots):
    with seeded("fit test"):
        made = {name: make() for name, make in {"model": module, **slots}.items()}
    return Node("n", "client", slots={n: Slot(m) for n, m in made.items()}, data={"train": points("fit", rows)})


def plain(module, data, epochs, batch, optimiser, seed=0, first=0):
    """The loop that everyone writes, with our batch order."""
    for epoch in range(first, first + epochs):
        order = torch.randperm(len(data), generator=generator(seed, "n", "train", epoch))
        for at in range(0, len(data), batch):
            rows = order[at : at + batch]
            optimiser.zero_grad()
            F.cross_entropy(module(data.x[rows]), data.y[rows]).backward()
            optimiser.step()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def twin(a):
    import copy

    return copy.deepcopy(a)


@pytest.mark.parametrize(("epochs", "batch"), [(1, 10), (3, 4), (2, 3)])
def test_fit_is_the_plain_loop_to_the_bit(epochs, batch):
    n = node()
    other = twin(n.models["model"])
    fitted = fit(n, Fit("model", cross_entropy, epochs=epochs, batch=batch, optimiser=sgd(0.1, 0.9, 1e-3)))
    plain(other, n.data["train"], epochs, batch, torch.optim.SGD(other.parameters(), 0.1, 0.9, weight_decay=1e-3))
    assert same(n.models["model"], other)
    assert fitted.steps == epochs * -(-10 // batch)


def test_a_kept_optimiser_goes_on_and_a_fresh_one_does_not():
    work = Fit("model", cross_entropy, batch=5, optimiser=adam(0.01, amsgrad=True))
    kept, fresh = node(), node()
    once, twice = twin(kept.models["model"]), twin(kept.models["model"])
    optimiser = torch.optim.Adam(once.parameters(), 0.01, amsgrad=True)
    for round in range(3):
        fit(kept, Fit(**{**vars(work), "keep": "mine"}))
        fit(fresh, work)
        plain(once, kept.data["train"], 1, 5, optimiser, first=round)
        plain(twice, kept.data["train"], 1, 5, torch.optim.Adam(twice.parameters(), 0.01, amsgrad=True), first=round)
    assert same(kept.models["model"], once)
    assert same(fresh.models["model"], twice)
    assert not same(once, twice)
    assert list(kept.optimisers) == ["model/mine"]
    assert fresh.optimisers == {}


@pytest.mark.parametrize(
    ("first", "then", "needs"),
    [
        (sgd(0.1, 0.9), adam(0.01), "Adam needs step, exp_avg, exp_avg_sq"),
        (adam(0.01), sgd(0.1, 0.9), "SGD needs momentum_buffer"),
        (adam(0.01), adam(0.01, amsgrad=True), "Adam needs max_exp_avg_sq"),
    ],
)
def test_a_state_of_another_optimiser_is_refused_in_one_line(first, then, needs):
    n = node()
    fit(n, Fit("model", cross_entropy, optimiser=first, keep="k"))
    with pytest.raises(ValueError, match=f"another optimiser's: {needs}"):
        fit(n, Fit("model", cross_entropy, optimiser=then, keep="k"))


def test_a_stateless_optimiser_goes_on_from_any_state():
    for first in (sgd(0.1, 0.9), adam(0.01)):
        n = node()
        fit(n, Fit("model", cross_entropy, optimiser=first, keep="k"))
        other = twin(n.models["model"])
        fit(n, Fit("model", cross_entropy, batch=5, optimiser=sgd(0.1), keep="k"))
        plain(other, n.data["train"], 1, 5, torch.optim.SGD(other.parameters(), 0.1), first=1)
        assert same(n.models["model"], other)


def test_augmented_training_is_the_plain_loop_and_predictions_see_the_images_as_they_are():
    """Row i of an epoch's table is for the image at place i of its order; steps go on in the next epoch's table."""

    def small():
        return nn.Sequential(nn.Flatten(), nn.Linear(75, 4))

    x = torch.randn(7, 3, 5, 5, generator=generator("augmented"))
    data = Data(x=x, y=torch.arange(7) % 4, classes=4).augmented(CropFlip(pad=2))
    n = node(small)
    n.data = Views({"train": data})
    other = twin(n.models["model"])
    before = predict(n.models["model"], data)
    assert torch.equal(before, other(x))
    fit(n, Fit("model", cross_entropy, steps=5, batch=3, optimiser=sgd(0.1)))
    optimiser = torch.optim.SGD(other.parameters(), 0.1)
    for epoch, batches in ((0, (3, 3, 1)), (1, (3, 3))):
        order = torch.randperm(7, generator=generator(0, "n", "train", epoch))
        params = CropFlip(pad=2).draw(7, generator(0, "n", "train", epoch, "augment"))
        at = 0
        for size in batches:
            rows = order[at : at + size]
            changed = CropFlip(pad=2).apply(x[rows], params[at : at + size])
            optimiser.zero_grad()
            F.cross_entropy(other(changed), data.y[rows]).backward()
            optimiser.step()
            at += size
    assert same(n.models["model"], other)
    assert torch.equal(data.x, x)


def test_kept_moments_with_another_rate():
    """The state is kept, the hyper-parameters are those of the present work."""
    n = node()
    other = twin(n.models["model"])
    optimiser = torch.optim.SGD(other.parameters(), 0.1, 0.9)
    for round, lr in enumerate((0.1, 0.01)):
        fit(n, Fit("model", cross_entropy, optimiser=sgd(lr, 0.9), keep="k"))
        optimiser.param_groups[0]["lr"] = lr
        plain(other, n.data["train"], 1, 10, optimiser, first=round)
    assert same(n.models["model"], other)


def test_answers():
    n = node()
    start = {k: v.detach().clone() for k, v in n.models["model"].named_parameters()}
    logits = n.models["model"](n.data["train"].x)
    gradient = torch.autograd.grad(F.cross_entropy(logits, n.data["train"].y), n.models["model"].weight)[0]
    fitted = fit(n, Fit("model", cross_entropy, optimiser=sgd(0.5), answer="gradient"))
    # the batch comes in another order than the rows, so the sums agree to rounding
    assert torch.allclose(fitted.gradient["weight"], gradient, atol=1e-6)
    end = {k: v.detach().clone() for k, v in n.models["model"].named_parameters()}
    assert torch.allclose(start["weight"] - end["weight"], 0.5 * gradient, atol=1e-6)
    moved = fit(n, Fit("model", cross_entropy, epochs=3, optimiser=sgd(0.5), answer="displacement"))
    now = dict(n.models["model"].named_parameters())
    assert torch.equal(moved.displacement["weight"], end["weight"] - now["weight"])
    assert fitted.losses["model"]["ce"] == pytest.approx(F.cross_entropy(logits, n.data["train"].y).item(), rel=1e-5)


def test_steps_take_batches_across_epochs():
    n = node(rows=10)
    work = Fit("model", cross_entropy, steps=5, batch=4)
    assert work.sizes(n) == [4, 4, 2, 4, 4]
    assert fit(n, work).steps == 5
    assert n.epochs["train"] == 2
    assert Fit("model", cross_entropy, steps=1, batch=3).sizes(n) == [3]
    assert Fit("model", cross_entropy, epochs=2, batch=4, drop_last=True).sizes(n) == [4, 4, 4, 4]
    assert Fit("model", cross_entropy, batch=40).sizes(n) == [10]


def test_rows_and_extra_columns_stay_together():
    n = node()
    rows = torch.tensor([7, 1, 4])
    seen = []

    def spy(nets, batch):
        seen.extend(zip(batch.x.tolist(), batch.tag.tolist(), strict=True))
        return cross_entropy({"model": nets["model"]}, batch)

    fit(n, Fit("model", spy, batch=2, rows=rows, extra={"tag": rows.float()}))
    expected = {(tuple(n.data["train"].x[r].tolist()), float(r)) for r in rows.tolist()}
    assert {(tuple(x), tag) for x, tag in seen} == expected


def test_teachers_are_in_evaluation_mode_and_unchanged():
    n = node(normed, teacher=normed)
    before = twin(n.models["teacher"])

    def loss(nets, batch):
        assert not nets["teacher"](batch.x).requires_grad
        return (nets["model"](batch.x) - nets["teacher"](batch.x)).pow(2).mean()

    fit(n, Fit("model", loss, batch=5, teachers=("teacher",)))
    assert same(n.models["teacher"], before)


def test_dropout_follows_from_the_seed_and_leaves_torchs_generator_alone():
    compute = Eager()
    ends = []
    for _ in range(2):
        n = node(normed)
        torch.manual_seed(len(ends))
        before = torch.get_rng_state()
        compute([Job(n, Fit("model", cross_entropy, batch=5), "1.1")])
        assert torch.equal(torch.get_rng_state(), before)
        ends.append(n.models["model"])
    assert same(*ends)
    other = node(normed)
    compute([Job(other, Fit("model", cross_entropy, batch=5), "2.1")])
    assert not same(other.models["model"], ends[0])


def test_predict_is_in_evaluation_mode_and_in_row_order():
    n = node(normed)
    n.models["model"].train()
    rows = torch.tensor([5, 0])
    some = predict(n.models["model"], n.data["train"], rows)
    whole = predict(n.models["model"], n.data["train"], batch=3)
    assert n.models["model"].training
    assert torch.allclose(some, whole[rows], atol=1e-6)
    assert not some.requires_grad
    assert Eager()([Job(n, Predict("model", "train", rows), "1.1")])[0].shape == (2, 4)


def test_frozen_parameters_stay():
    module = nn.Linear(8, 4)
    module.bias.requires_grad_(False)
    n = node(lambda: module)
    before = module.bias.clone()
    fit(n, Fit("model", cross_entropy))
    assert torch.equal(module.bias, before)


@pytest.mark.parametrize("optimiser", [sgd(0.1, 0.9, 0.05), adam(0.01, 0.05)], ids=["sgd", "adam"])
@pytest.mark.parametrize("only", [("0",), ("2.weight",), ("0", "2.bias"), ("",)])
def test_only_a_part_is_trained_and_the_rest_is_neither_moved_nor_decayed(only, optimiser):
    """In turns with the whole, so that moments of the rest are kept meanwhile; the plain loop freezes it by hand."""

    def make():
        return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))

    n = node(make)
    other = twin(n.models["model"])
    inside = [name for name, _ in other.named_parameters() if any(name.startswith(part) for part in only)]
    torchs = optimiser.build(other.parameters())
    for epoch, part in enumerate((None, only, None)):
        for name, parameter in other.named_parameters():
            parameter.requires_grad_(part is None or name in inside)
            parameter.grad = None
        work = Fit("model", cross_entropy, batch=4, optimiser=optimiser, keep="own", only=part, answer="displacement")
        fitted = fit(n, work)
        plain(other, n.data["train"], 1, 4, torchs, first=epoch)
        assert same(n.models["model"], other)
        assert {name for name, moved in fitted.displacement.items() if moved.any()} == (
            set(fitted.displacement) if part is None else set(inside)
        )
        assert all(parameter.requires_grad for parameter in n.models["model"].parameters())


def test_a_part_that_is_trained_alone_must_be_there_and_is_let_go_after_an_error():
    n = node(lambda: nn.Sequential(nn.Linear(8, 4)))
    with pytest.raises(ValueError, match=r"only = \('body',\): the network has no such parameters; it has 0"):
        fit(n, Fit("model", cross_entropy, only=("body",)))
    with pytest.raises(ValueError, match="several models: `only` names parts of one"):
        Fit(("model", "other"), cross_entropy, only=("0",))
    assert not Fit("model", cross_entropy, only=("1",)).trains("10.weight")

    def wrong(nets, batch):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fit(n, Fit("model", wrong, only=("0.weight",)))
    assert all(parameter.requires_grad for parameter in n.models["model"].parameters())


def test_two_models_step_from_the_same_forward_pass():
    n = node(other=lambda: nn.Linear(8, 4))
    alone = twin(n.models["other"])

    def both(nets, batch):
        return {name: F.cross_entropy(net(batch.x), batch.y) for name, net in nets.items()}

    fit(n, Fit(("model", "other"), both, batch=5, optimiser=sgd(0.1)))
    plain(alone, n.data["train"], 1, 5, torch.optim.SGD(alone.parameters(), 0.1))
    assert same(n.models["other"], alone)


def test_errors_say_whose_work_it_was():
    n = node()
    n.data["train"] = Data(x=torch.zeros(3, 9), y=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(WorkError, match=r"node n, round 0, Fit: RuntimeError: mat1 and mat2"):
        Eager()([Job(n, Fit("model", cross_entropy), "1.1")])


def test_no_rows_mean_no_steps():
    n = node()
    n.data["train"] = Data(x=torch.zeros(0, 8), y=torch.zeros(0, dtype=torch.int64))
    assert fit(n, Fit("model", cross_entropy)).steps == 0
    n = node(rows=3)
    assert fit(n, Fit("model", cross_entropy, batch=8, drop_last=True, steps=2)).steps == 0


@given(
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    decay=st.sampled_from([0.0, 1e-3]),
    lr=st.floats(1e-4, 1.0),
    steps=st.integers(1, 5),
    seed=st.integers(0, 2**20),
)
def test_descent_is_torchs_own_to_the_bit(momentum: float, decay: float, lr: float, steps: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    start = [
        torch.randn(5, 3, generator=draw),
        torch.randn(4, 2, 3, 3, generator=draw),
        torch.randn((), generator=draw),
    ]
    start[1] = start[1].to(memory_format=torch.channels_last)
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    plain = sgd(lr, momentum, decay).plain(ours)
    reference = sgd(lr, momentum, decay).build(theirs)
    assert isinstance(plain, Descent)
    for step in range(steps):
        for a, b in zip(ours, theirs, strict=True):
            gradient = torch.randn(a.shape, generator=draw)
            missing = step == 1 and a.dim() == 2  # a parameter that a step does not reach
            a.grad, b.grad = (None, None) if missing else (gradient.clone(), gradient.clone())
        plain.step()
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
        kept, wanted = plain.state.get(a, {}).get("momentum_buffer"), reference.state[b].get("momentum_buffer")
        assert (kept is None and wanted is None) or torch.equal(kept, wanted)


@pytest.mark.parametrize("shape", [(6, 1, 5, 5), (6, 3, 1, 1), (6, 3, 5, 5)])
def test_a_layout_has_its_own_strides_also_where_a_dimension_is_one(shape):
    module = nn.Module()
    module.weight = nn.Parameter(torch.randn(shape).to(memory_format=torch.channels_last))
    values = module.weight.detach().clone()
    laid_out(module, torch.contiguous_format)
    assert module.weight.stride() == torch.empty(shape).stride()
    assert torch.equal(module.weight, values)
    laid_out(module, torch.channels_last)
    odd = 1 in shape
    assert (
        module.weight.stride()
        == (torch.empty(shape) if odd else torch.empty(shape, memory_format=torch.channels_last)).stride()
    )
