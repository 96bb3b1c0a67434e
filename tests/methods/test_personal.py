"""Ditto, fine-tuning, IFCA, FedPer, LG-FedAvg and FedRep: the limits that they must equal, and golden toys."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heterophony import Data, Federation, Model, Refused
from heterophony.engines import local
from heterophony.engines.local_host import ReactionError
from heterophony.kernel.fields import Family, Part, Shape, family, members_of, within
from heterophony.kernel.profile import Dropout
from heterophony.kernel.topology import complete, star
from heterophony.methods import IFCA, Ditto, FedAvg, FedPer, FineTune, Solo, fedrep, lg_fedavg
from heterophony.models.blocks import Halves
from heterophony.parts.cohort import Cohort
from heterophony.parts.heads import grouped
from heterophony.parts.training import Training
from heterophony.tables.metrics import measure
from toys.by_hand import equal, scalar_net, squared
from toys.bytes import formula
from toys.federations import B16, CLIENTS, headed_star, personal_star, weights_star
from toys.world import halves, net, private, wide

MOMENTUM = Training(batch=16, momentum=0.9)


def ditto(**options):
    return local(personal_star(Ditto(local=MOMENTUM, **options), client=("model", "fork"))).run(3)


def model(result, node, slot="model"):
    return result.state(node)["models"][slot]


# -- Ditto -----------------------------------------------------------------------------------------------------
def test_ditto_without_a_pull_is_solo_for_the_own_models_and_fedavg_for_the_global_one():
    found = ditto(pull=0.0)
    alone = Federation(Solo(local=MOMENTUM), complete(CLIENTS), {"peer": {"model": net()}}, private(CLIENTS))
    solo, avg = local(alone).run(3), local(weights_star(FedAvg(local=MOMENTUM))).run(3)
    for client in CLIENTS:
        assert equal(model(found, client), model(solo, client))
    assert equal(model(found, "server"), model(avg, "server"))


def test_dittos_own_models_are_nearer_to_the_global_one_the_stronger_the_pull():
    def distance(pull):
        found = ditto(pull=pull)
        return sum(
            float((model(found, c)[n] - w).detach().pow(2).sum())
            for c in CLIENTS
            for n, w in model(found, "server").items()
        )

    assert distance(0.0) > distance(0.1) > distance(0.5)


def test_golden_ditto_on_one_number():
    """The loss is (v - y)^2 / 2, one full-batch step at rate 0.5 and pull 1: v - (v - y)/2 - (v - w)/2 = (y + w)/2.

    With y = 0 and 8, equal weights, w starts at 0: w is 2, 3, 3.5 (see FedAvg's toy) after each round; the own models
    of the second client use w = 0, 2, 3: 4, 5, 5.5, the first one's 0, 1, 1.5.
    """
    data = {c: {"train": Data(x=torch.ones(1, 1), y=torch.full((1, 1), y))} for c, y in (("c0", 0.0), ("c1", 8.0))}
    models = {"server": {"model": scalar_net}, "client": {"model": scalar_net, "fork": scalar_net}}

    def loss(nets, batch):
        return {name: {"l2": squared({"model": n}, batch)} for name, n in nets.items()}

    method = Ditto(pull=1.0, local=Training(batch=None, lr=0.5), loss=loss)
    for rounds, expected in enumerate(((2.0, 0.0, 4.0), (3.0, 1.0, 5.0), (3.5, 1.5, 5.5)), start=1):
        found = local(Federation(method, star(["c0", "c1"]), models, data)).run(rounds)
        assert tuple(model(found, n)["weight"].item() for n in ("server", "c0", "c1")) == expected


# -- fine-tuning -----------------------------------------------------------------------------------------------
def finetune(rounds=3, **options):
    made = FineTune(**{"local": B16, **options})
    return local(personal_star(made, client=("model", "own"))).run(rounds)


def test_finetuning_without_epochs_is_fedavg_everywhere():
    found = finetune(adapt=0)
    avg = local(weights_star(FedAvg(local=B16))).run(3)
    assert equal(model(found, "server"), model(avg, "server"))
    for client in CLIENTS:
        assert equal(model(found, client, "own"), model(avg, "server"))  # the merged model of the last round


def test_finetuning_is_plain_training_of_the_last_global_model():
    """One epoch of plain SGD from the server's final model, in the last order that was drawn from the rows."""
    found = finetune(adapt_lr=0.3, every=3)
    federation = personal_star(FineTune(), client=("model", "own"))
    for client in CLIENTS:
        node = federation.node(client)
        node.load(model(found, "server"), "own")
        node.epochs = {"train": 3}
        module, data = node.models["own"], node.data["train"]
        optimiser = torch.optim.SGD(module.parameters(), 0.3)
        for rows in node.order("train", len(data)).split(16):
            optimiser.zero_grad()
            F.cross_entropy(module(data.x[rows]), data.y[rows]).backward()
            optimiser.step()
        assert equal(model(found, client, "own"), dict(module.state_dict()))


def test_everyone_is_personalised_although_only_a_cohort_trains():
    found = finetune(rounds=4, cohort=Cohort(fraction=0.34), every=2)
    marked = [(row["round"], row["node"]) for row in found.table.select(product="personalised", quantity="loss")]
    assert {(r, c) for r in (1, 3) for c in CLIENTS} == set(marked)
    with pytest.raises(ValueError, match="needs every >= 1"):
        FineTune(every=0)


# -- IFCA ------------------------------------------------------------------------------------------------------
def test_ifca_with_one_cluster_is_fedavg():
    found = local(weights_star(IFCA(clusters=1, local=B16))).run(3)
    avg = local(weights_star(FedAvg(local=B16))).run(3)
    assert found.digest == avg.digest
    assert found.clock == avg.clock


def opposed(clients=4):
    """Half of the clients hold y = 1, the other half y = -1; models start at 0.1 and -0.2."""
    ids = [f"c{i}" for i in range(clients)]
    data = {c: {"train": Data(x=torch.ones(2, 2), y=torch.full((2,), i % 2))} for i, c in enumerate(ids)}

    def start(lean):
        def build():
            module = torch.nn.Linear(2, 2, bias=False)
            with torch.no_grad():
                module.weight.copy_(torch.tensor([[-lean, 0.0], [lean, 0.0]]))
            return module

        return build

    models = {"server": {"model": start(0.1), "model-1": start(-0.2)}, "client": {"model": start(0.0)}}
    return ids, data, models


def test_golden_ifca_tells_two_groups_apart():
    """The first model leans to class 1, the second to class 0; so from the first round on odd and even part, each model
    is the mean of the two of its group, which are equal, and so is that of its group alone."""
    ids, data, models = opposed()
    made = Federation(IFCA(local=Training(batch=None)), star(ids), models, data)
    found = local(made).run(3)
    choices = found.table.select(product="note", quantity="cluster")
    assert [(r["node"], r["sum"]) for r in choices] == [(c, float(i % 2 == 0)) for i, c in enumerate(ids)] * 3
    assert {r["quantity"]: r["sum"] for r in found.table.last() if r["quantity"].endswith("size")} == {
        "cluster-0.size": 2.0,
        "cluster-1.size": 2.0,
    }
    for slot, group in (("model", ["c1", "c3"]), ("model-1", ["c0", "c2"])):
        alone = {"server": {"model": models["server"][slot]}, "client": models["client"]}
        own = {c: data[c] for c in group}
        avg = local(Federation(FedAvg(local=Training(batch=None)), star(group), alone, own)).run(3)
        assert equal(model(found, "server", slot), model(avg, "server"))


def test_a_model_that_nobody_chose_stays_as_it_is():
    ids, data, models = opposed()
    everyone = dict.fromkeys(ids, data["c1"])
    made = Federation(IFCA(local=Training(batch=None)), star(ids), models, everyone)
    found = local(made).run(2)
    assert equal(model(found, "server", "model-1"), dict(made.node("server").models["model-1"].state_dict()))
    assert [r["sum"] for r in found.table.select(quantity="cluster-1.size")] == [0.0, 0.0]


def test_a_family_is_checked_model_by_model():
    weights = [{"w": torch.ones(2)}, {"w": torch.zeros(2)}]
    field = Family("model", many="clusters")
    shape = Shape({"model": {"w": ((2,), torch.float32)}}, setting=lambda name: {"clusters": 2}[name])
    packed = field.freeze(family(weights))
    field.sound(packed)
    field.fits(packed, shape)
    assert field.payload(packed) == 16
    assert equal(members_of(packed)[1], weights[1])
    with pytest.raises(Refused, match="models \\[0\\], expected 2"):
        field.fits(family(weights[:1]), shape)
    with pytest.raises(Refused, match="shape"):
        field.fits(family([weights[0], {"w": torch.ones(3)}]), shape)


# -- FedPer and LG-FedAvg --------------------------------------------------------------------------------------
ALIKE = Model(halves(), common=True)


def shared(method, rounds=3):
    return local(weights_star(method, ALIKE)).run(rounds)


def test_fedper_of_the_whole_is_fedavg_and_of_either_half_keeps_the_other():
    avg, whole = shared(FedAvg(local=B16)), shared(FedPer(local=B16, part=""))
    assert equal(model(whole, "server"), model(avg, "server"))
    start = weights_star(FedPer(), ALIKE).node("server").weights()
    for method, travels in ((FedPer(local=B16), "body"), (lg_fedavg(local=B16), "head")):
        found = shared(method)
        for name, tensor in model(found, "server").items():
            others = [model(found, client)[name] for client in CLIENTS]
            assert torch.equal(tensor, start[name]) == (not name.startswith(travels))  # the rest is nobody's there
            assert not torch.equal(others[0], others[1])
    made = [weights_star(method, ALIKE) for method in (FedPer(), lg_fedavg(), FedAvg())]
    body, head, both = (formula(federation, 3)["global"] for federation in made)
    assert body + head == both


def test_fedpers_options_are_fedavgs_where_all_travels():
    """With the whole network as the part that travels: by examples or not, after epochs alone, marked when trained."""
    early, plain, some = replace(B16, initial=2), Cohort(weighted=False), Cohort(fraction=0.67)
    for how, cohort in ((B16, plain), (early, Cohort()), (B16, some)):
        avg, whole = (
            local(weights_star(kind(local=how, cohort=cohort, **more), ALIKE)).run(3)
            for kind, more in ((FedAvg, {}), (FedPer, {"part": ""}))
        )
        assert equal(model(avg, "server"), model(whole, "server"))
    federation = weights_star(FedPer(local=B16), ALIKE)
    found = local(federation).run(1)
    rows = [row for row in found.table.rows if row["node"] == "c0" and row["product"] == "personalised"]
    node = federation.node("c0")
    node.load(found.state("c0")["models"]["model"])
    for row in (row for row in rows if row["quantity"] == "accuracy" and row["split"] == "test"):
        data = next(data for name, split, data in federation.test_sets("c0") if (name, split) == (row["set"], "test"))
        right = int((node.models["model"](data.x).argmax(1) == data.y).sum())
        assert row["sum"] == right


PAIRS = {"c0": [(1.0, 2.0), (2.0, -1.0)], "c1": [(-1.0, 0.5)]}  # rows (x, y) of two clients


def two_numbers(method):
    """A body a and a head b of one number each, in double precision; what everyone has of them at first."""

    def build():
        made = Halves(nn.Linear(1, 1, bias=False), 1, 1).double()
        nn.init.zeros_(made.head.bias)
        made.head.bias.requires_grad_(False)
        return made

    def column(values):
        return torch.tensor([[value] for value in values]).double()

    data = {c: {"train": Data(x=column(x for x, _ in own), y=column(y for _, y in own))} for c, own in PAIRS.items()}
    models = {role: {"model": Model(build, common=True)} for role in ("server", "client")}
    federation = Federation(method, star(list(PAIRS)), models, data)
    start = federation.node("server").models["model"]
    return federation, {c: {"body": start.body.weight.item(), "head": start.head.weight.item()} for c in PAIRS}


@pytest.mark.parametrize("travels", ["body", "head"])
def test_golden_fedper_and_lg_fedavg_by_loops(travels):
    """A body a and a head b of one number each: outputs b a x, the loss (b a x - y)^2 / 2, full batches, by loops."""
    rate, rows = 0.2, PAIRS
    federation, own = two_numbers(FedPer(part=travels, local=Training(batch=None, lr=rate), loss=squared))
    common = own["c0"][travels]
    for _ in range(3):
        for c, weights in own.items():
            weights[travels] = common
            a, b = weights["body"], weights["head"]
            weights["body"] -= rate * sum((b * a * x - y) * b * x for x, y in rows[c]) / len(rows[c])
            weights["head"] -= rate * sum((b * a * x - y) * a * x for x, y in rows[c]) / len(rows[c])
        common = sum(len(rows[c]) * weights[travels] for c, weights in own.items()) / 3
    found = local(federation).run(3)
    assert model(found, "server")[f"{travels}.weight"].item() == pytest.approx(common, rel=1e-12)
    for c, weights in own.items():
        for part, value in weights.items():
            assert model(found, c)[f"{part}.weight"].item() == pytest.approx(value, rel=1e-12)


def test_fedrep_of_the_whole_is_fedavg():
    """Nothing stays, so that there is nothing to train alone, however long."""
    avg = shared(FedAvg(local=MOMENTUM))
    for alone in (0, 3):
        assert equal(model(shared(fedrep(alone=alone, part="", local=MOMENTUM)), "server"), model(avg, "server"))
    with pytest.raises(ValueError, match="alone is a number of epochs >= 0"):
        fedrep(alone=-1)


@pytest.mark.parametrize("travels", ["body", "head"])
def test_golden_fedrep_by_loops(travels):
    """A body a and a head b of one number each, the loss (b a x - y)^2 / 2, full batches with momentum and decay: two
    steps of what stays, then three of what travels, by loops; each has its optimiser, and decays only then."""
    rate, momentum, decay, rows = 0.1, 0.5, 0.05, PAIRS
    training = Training(epochs=3, batch=None, lr=rate, momentum=momentum, weight_decay=decay)
    federation, own = two_numbers(fedrep(alone=2, part=travels, local=training, loss=squared))
    common = own["c0"][travels]
    stays = "head" if travels == "body" else "body"
    for _ in range(3):
        for c, weights in own.items():
            weights[travels] = common
            for part, steps in ((stays, 2), (travels, 3)):
                speed = 0.0
                for _ in range(steps):
                    a, b = weights["body"], weights["head"]
                    slope = sum((b * a * x - y) * (b if part == "body" else a) * x for x, y in rows[c]) / len(rows[c])
                    speed = momentum * speed + slope + decay * weights[part]
                    weights[part] -= rate * speed
        common = sum(len(rows[c]) * weights[travels] for c, weights in own.items()) / 3
    found = local(federation).run(3)
    assert model(found, "server")[f"{travels}.weight"].item() == pytest.approx(common, rel=1e-12)
    for c, weights in own.items():
        for part, value in weights.items():
            assert model(found, c)[f"{part}.weight"].item() == pytest.approx(value, rel=1e-12)


def test_the_head_is_trained_for_epochs_also_where_the_body_is_for_steps():
    """It comes first, so that it ends the same however many steps the body takes."""
    one, two = (shared(fedrep(alone=2, local=replace(MOMENTUM, steps=steps)), rounds=1) for steps in (1, 2))
    for client in CLIENTS:
        parts = [{part: within(model(run, client), part) for part in ("body", "head")} for run in (one, two)]
        assert equal(parts[0]["head"], parts[1]["head"])
        assert not equal(parts[0]["body"], parts[1]["body"])


def test_a_head_that_is_frozen_stays_as_it_is():
    def build():
        made = halves()()
        made.head.requires_grad_(False)
        return made

    found = local(weights_star(fedrep(alone=2, local=B16), Model(build, common=True))).run(2)
    start = weights_star(fedrep(), Model(build, common=True)).node("server").models["model"].head
    for client in CLIENTS:
        assert torch.equal(model(found, client)["head.weight"], start.weight)


def test_a_part_must_fit_the_receivers_part():
    form = {"body.w": ((2,), torch.float32), "head.w": ((3,), torch.float32)}
    shape, field = Shape({"model": form}, setting={"part": "body"}.get), Part("model", part="part")
    field.fits({"body.w": torch.zeros(2)}, shape)
    for bad, text in (
        ({"head.w": torch.zeros(3)}, "names do not match"),
        ({"body.w": torch.zeros(2), "head.w": torch.zeros(3)}, "names do not match"),
        ({"body.w": torch.zeros(3)}, "shape"),
    ):
        with pytest.raises(Refused, match=text):
            field.fits(bad, shape)
    assert within(form, "") == form
    with pytest.raises(ReactionError, match="part = 'body', but only 0, 2 of the network may travel: set part"):
        local(weights_star(FedPer(local=B16))).run(1)


# -- rounds that ask only some --------------------------------------------------------------------------------------
@pytest.mark.parametrize("changed", [{"cohort": Cohort(fraction=0.34)}, {}])
def test_figures_of_partial_rounds_do_not_depend_on_how_often_models_are_evaluated(changed):
    """Who is not asked in the last round has its figures from when it last was: they are of its last model."""
    dropout = Dropout() if changed else Dropout(rate=0.5)
    found = []
    for evaluate in (1, 4):
        method = Ditto(local=MOMENTUM, **changed)
        federation = personal_star(method, client=("model", "fork"), dropout=dropout, evaluate=evaluate)
        result = local(federation).run(8)
        figures = measure(result.table, dict.fromkeys(CLIENTS, "here"), "personalised")
        found.append((result.digest, figures))
    assert found[0] == found[1]
    assert found[0][1].acc is not None


# -- networks that differ where nothing travels ----------------------------------------------------------------
def test_heads_are_averaged_whatever_bodies_there_are():
    found = local(headed_star(lg_fedavg(local=B16))).run(3)
    heads = [{k: t for k, t in model(found, c).items() if k.startswith("head")} for c in CLIENTS]
    sizes = [40.0, 48.0, 56.0]
    for name, tensor in heads[0].items():
        expected = sum(s * h[name].double() for s, h in zip(sizes, heads, strict=True)) / sum(sizes)
        assert torch.allclose(model(found, "server")[name].double(), expected, atol=1e-6)
        assert not torch.equal(tensor, heads[1][name])


def test_a_head_of_groups_is_averaged_for_networks_of_different_widths():
    """To each network it gives what the mean gives of the means of groups of its features."""
    method = lg_fedavg(local=B16, width=4)
    found, after = (headed_star(method, wide).run(n) for n in (2, 3))
    common = found.state("server")["vars"]["head"]
    assert common["head.weight"].shape == (4, 4)
    parts = [grouped(loaded(method, found, c).head, 4) for c in CLIENTS]
    mean = sum(s * p.double() for s, p in zip((40.0, 48.0, 56.0), parts, strict=True)) / 144
    assert torch.allclose(
        torch.cat([common["head.weight"], common["head.bias"].unsqueeze(1)], 1).double(), mean, atol=1e-6
    )
    assert after.ledger.bytes() == formula(headed_star(method, wide), 3)


def loaded(method, result, client):
    node = headed_star(method, wide).node(client)
    node.restore(result.state(client))
    return node.models["model"]


@pytest.mark.parametrize("method", [lg_fedavg(local=B16), FedPer(local=B16), FedAvg(local=B16), Ditto(local=B16)])
def test_weights_that_cannot_be_averaged_are_one_line_before_anything_runs(method, tmp_path):
    made = headed_star(method, wide)
    if isinstance(method, Ditto):
        made = replace(made, models={n: own | {"fork": own["model"]} for n, own in made.models.items()})
    name = "head.weight is 4 x 8 at server, c0, 4 x 12 at c1 and 4 x 16 at c2: set width to at most 8, or"
    if getattr(method, "part", "") != "head":
        name = "body.0.weight is 8 x 8 at server, c0, 12 x 8 at c1 and 16 x 8 at c2: give all one network"
    for run in (lambda: made.run(2, tmp_path / "run"), lambda: local(made).run(2)):
        with pytest.raises(ValueError, match=f"averages weights of one shape, but {name}") as caught:
            run()
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_width_goes_with_a_head_alone():
    for options in ({"part": "body", "width": 4}, {"part": "head", "width": 0}):
        with pytest.raises(ValueError, match="width is a number >= 1 of groups that a head reads"):
            FedPer(**options)
