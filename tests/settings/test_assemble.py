"""From names to a federation: who is there, with which network, and where every option comes from."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from heterophony.catalogue import registry
from heterophony.cli import app
from heterophony.data import DataError
from heterophony.engines import Network, local
from heterophony.settings import Setting, SettingError, assemble, reassemble, shipped
from toys.bytes import formula

DOMAINS = ["M0", "M20", "M40", "M60"]


def setting(**changes):
    """Two rotations of few digits and a small network, so that a round takes no time."""
    text = """
    evaluate = 2
    [data]
    source = "digits-embedded"
    rotations = [0, 20]
    test = 0.1
    validation = 0.1
    public = { fraction = 0.1 }
    test_rows = 50
    [models]
    participants = "mlp"
    [local]
    epochs = 2
    batch = 64
    lr = 0.05
    momentum = 0.9
    [methods.fedavg]
    weighted = false
    lr = 0.03
    """
    return Setting.read(text, "small", "small.toml").changed(changes)


def networks(federation):
    """node -> slot -> name of the network."""
    return {
        node: {slot: type(model).__name__ for slot, model in federation.node(node).models.items()}
        for node in federation.topology.roles
    }


def same_weights(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# -- nodes and networks ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["solo", "agg"])
def test_methods_without_a_server_have_peers(method):
    federation = assemble(method, "rotated-mnist")
    assert federation.topology.roles == dict.fromkeys(DOMAINS, "peer")
    assert federation.homes == {name: name for name in DOMAINS}
    assert federation.evaluate == Setting.load("rotated-mnist").evaluate
    assert networks(federation) == {name: {"model": "LeNet5"} for name in DOMAINS}


@pytest.mark.parametrize("method", ["fedavg", "fedprox"])
def test_methods_with_a_server_have_a_star(method):
    federation = assemble(method, "rotated-mnist", seed=3)
    assert federation.topology.roles == {"server": "server", **dict.fromkeys(DOMAINS, "client")}
    assert federation.topology.links("server").children == tuple(DOMAINS)
    assert "server" not in federation.homes
    assert federation.seed == 3
    assert set(federation.data["server"]) == {"public"}
    assert networks(federation) == {name: {"model": "LeNet5"} for name in ["server", *DOMAINS]}


def test_a_list_of_networks_is_dealt_round():
    three = setting(**{"data.clients": 2, "models.participants": ["mlp", "lenet5", "cnn1-3x3"]})
    assert networks(assemble("solo", three)) == {
        "M0.0": {"model": "MLP"},
        "M0.1": {"model": "LeNet5"},
        "M20.0": {"model": "CNN1"},
        "M20.1": {"model": "MLP"},
    }


def test_the_global_network_travels():
    mixed = setting(**{"models.participants": ["mlp", "cnn1-3x3"], "models.global": "lenet5"})
    assert networks(assemble("fml", mixed)) == {
        "server": {"model": "LeNet5"},
        "M0": {"model": "MLP", "meme": "LeNet5"},
        "M20": {"model": "CNN1", "meme": "LeNet5"},
    }
    first = networks(assemble("fml", mixed.changed({"models.global": None})))
    assert first["server"] == {"model": "MLP"}
    assert first["M20"] == {"model": "CNN1", "meme": "MLP"}


def test_networks_take_the_form_of_the_data():
    federation = assemble("solo", setting(**{"data.side": 32, "data.channels": 3}))
    assert federation.node("M0").models["model"](torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_views_and_tests_reach_the_nodes():
    federation = assemble("fml", setting(**{"data.private_test": True, "data.clients": 2}))
    node = federation.node("M20.1")
    assert set(node.data) == {"train", "own", "all", "public", "mine", "validation"}
    assert len(node.data["public"]) == 200
    assert torch.equal(federation.node("server").data["public"].x, node.data["public"].x)
    assert [(name, split) for name, split, _ in federation.test_sets("M20.1")] == [
        *((name, split) for name in ("M0", "M20") for split in ("test", "validation")),
        ("M20.1", "private-test"),
    ]
    assert federation.homes["M20.1"] == "M20"


def test_a_setting_may_be_a_name_a_file_or_an_object(tmp_path):
    path = tmp_path / "rotated-mnist.toml"
    path.write_text('name = "rotated-mnist"\n' + shipped()["rotated-mnist"])
    by_name, by_file, by_object = (
        assemble("solo", which).identity() for which in ("rotated-mnist", str(path), Setting.load("rotated-mnist"))
    )
    assert by_name == by_file == by_object


# -- different tasks -------------------------------------------------------------------------------------------
def tasks(store, **changes):
    """Two participants: ten classes with LeNet5, and a hundred with CNN1; the body of CNN2 is shared."""
    store("cifar10", shape=(32, 32, 3), names=[f"n{i}" for i in range(10)])
    root = store("cifar100", train=200, test=100, shape=(32, 32, 3), classes=100, names=[f"k{i}" for i in range(100)])
    tiny = {"data.domains.cifar10.rows": 20, "data.domains.cifar100.rows": 50, "data.side": 16, "data.test_rows": 20}
    return Setting.load("fml-tasks").changed({**tiny, "local.epochs": 1, **changes}), root


def watched(seen):
    class Watching(Network):
        def arrivals(self, message, *rest):
            seen.append(message)
            return super().arrivals(message, *rest)

    return Watching


def test_clients_with_different_tasks_share_a_body_and_nothing_else(store, tmp_path):
    small, root = tasks(store)
    federation = assemble("fml", small, root=root)
    image = torch.zeros(1, 3, 16, 16)
    outputs = {
        node: {slot: model(image).shape[1] for slot, model in federation.node(node).models.items()}
        for node in federation.topology.roles
    }
    assert outputs == {
        "server": {"model": 10},
        "cifar10": {"model": 10, "meme": 10},
        "cifar100": {"model": 100, "meme": 100},
    }
    assert networks(federation)["cifar100"] == {"model": "CNN1", "meme": "CNN2"}
    seen = []
    result = local(federation, network=watched(seen)).run(2)
    assert {(m.sender, m.receiver) for m in seen} == {
        pair for name in ("cifar10", "cifar100") for pair in (("server", name), (name, "server"))
    }
    body = {name for name in federation.node("server").weights() if name.startswith("body.")}
    assert all(set(m.body["weights"]) == body for m in seen)
    assert not any("head" in name for name in body)
    tested = {(row["node"], row["set"]) for row in result.table if row["quantity"] == "accuracy"}
    assert tested == {("cifar10", "cifar10"), ("cifar100", "cifar100")}  # neither the other's, nor the server
    metrics = result.metrics()
    assert metrics.acc == metrics.wdp is not None
    assert metrics.cdp is None
    assert formula(federation, 2) == result.ledger.bytes()


def test_a_model_of_another_task_is_exported_with_its_own_classes(store, tmp_path):
    from heterophony.runs import exported

    small, root = tasks(store)
    assemble("fml", small, root=root).run(1, tmp_path / "run")
    for node, classes in (("cifar10", 10), ("cifar100", 100)):
        exported.save(tmp_path / "run", node, tmp_path / "model", "meme")
        module, about = exported.load(tmp_path / "model")
        assert about["network"]["classes"] == classes
        assert module(torch.zeros(1, 3, 16, 16)).shape == (1, classes)
    recipe = json.loads(json.dumps(assemble("fml", small, root=root).recipe))
    assert reassemble(recipe, root).identity() == assemble("fml", small, root=root).identity()


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedmd", "fedmd-global", "fccl", "feddf"])
def test_methods_for_one_label_space_refuse_several_in_one_line(store, method):
    small, root = tasks(store, **{"models.same": "cnn2"})
    with pytest.raises(SettingError) as caught:
        assemble(method, small, root=root)
    text = str(caught.value)
    assert "\n" not in text
    for part in (method, "cifar10 has 10 classes", "cifar100 has 100 classes", "label space"):
        assert part in text


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedbuff"])
def test_a_result_of_which_a_part_is_never_learnt_is_refused(method):
    with pytest.raises(SettingError, match=r"models\.share = 'body' leaves the rest of the server's model"):
        assemble(method, setting(**{"models.share": "body"}))
    assemble(method, setting(**{"models.share": ("body", "head")}))  # which is all of it
    assemble("ditto", setting(**{"models.share": "body"}))  # whose result are the participants' models


@pytest.mark.parametrize(("share", "named"), [("", "the whole of cnn2"), ("head", "'head' of cnn2")])
def test_outputs_cannot_be_shared_between_tasks(store, share, named):
    small, root = tasks(store, **{"models.share": share})
    with pytest.raises(SettingError) as caught:
        assemble("fml", small, root=root)
    assert "\n" not in str(caught.value)
    assert all(part in str(caught.value) for part in (named, "cifar100 has 100 classes", "models.share", '"body"'))
    # nor where they happen to be as many, but of other things
    store("usps", shape=(32, 32, 3))
    both = {"a": {"source": "usps"}, "b": {"source": "cifar10"}}
    with pytest.raises(SettingError, match="cannot be shared"):
        assemble("fml", small.changed({"data.domains": both}), root=root)


def test_everyone_alone_may_have_a_task_of_its_own(store):
    small, root = tasks(store, **{"models.share": ""})
    result = assemble("solo", small, root=root).run(1)
    assert result.ledger.rows == []
    tested = {(row["node"], row["set"]) for row in result.table if row["quantity"] == "accuracy"}
    assert tested == {("cifar10", "cifar10"), ("cifar100", "cifar100")}


@pytest.mark.parametrize("part", ["body", "head"])
def test_a_part_that_is_shared_in_one_label_space(part):
    federation = assemble("fml", setting(**{"models.share": part, "models.global": "lenet5"}))
    seen = []
    result = local(federation, network=watched(seen)).run(1)
    assert {name.split(".")[0] for m in seen for name in m.body["weights"]} == {part}
    products = {row["product"] for row in result.table if row["quantity"] == "accuracy"}
    assert products == {"personalised"}  # the server's other part has learnt nothing


# -- FCCL ------------------------------------------------------------------------------------------------------
def digit_domains(store, **changes):
    """The shipped digits, made small: tiny sets under their names."""
    store("mnist", shape=(28, 28, 1))
    store("usps", shape=(16, 16, 1))
    store("svhn", shape=(32, 32, 3))
    root = store("mnistm", train=30, test=15, shape=(32, 32, 3), train_index=np.arange(30), test_index=np.arange(15))
    rows = {f"data.domains.{name}.rows": 20 for name in ("mnist", "usps", "svhn", "mnistm")}
    few = {"data.test_rows": 10, "data.public.rows": 12, "models.participants": ["mlp", "lenet5"], "local.epochs": 1}
    return Setting.load("digits").changed({**rows, **few, **changes}), root


@pytest.mark.parametrize("source", ["cifar100", "fashion-mnist", "folder:excerpt"])
def test_public_data_for_the_digits(store, tmp_path, source):
    """CIFAR-100, Fashion-MNIST and a folder of images, as in FCCL's Figure 7."""
    small, root = digit_domains(store, **{"data.public.source": source})
    if source == "cifar100":
        store(source, train=200, shape=(32, 32, 3), classes=100, names=[f"k{i}" for i in range(100)])
    elif source == "fashion-mnist":
        store(source, shape=(28, 28, 1), names=[f"f{i}" for i in range(10)])
    else:
        image = pytest.importorskip("PIL.Image")
        for place in range(15):
            path = tmp_path / "excerpt" / f"n{place % 4}" / f"{place}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(np.random.default_rng(place).integers(0, 256, (50 + place, 60, 3), dtype=np.uint8)).save(
                path
            )
    federation = assemble("fccl", small, root=root)
    public = federation.node("usps").data["public"]
    assert set(public.columns) == {"x", "domain"}
    assert public.x.shape == (12, 3, 32, 32)
    assert public.x.std() > 0.05
    result = federation.run(1)
    assert result.ledger.bytes()["logits"] == 4 * 12 * 10 * 4
    assert all(row["sum"] is not None for row in result.table)


def test_fccl_between_participants_with_the_same_network():
    federation = assemble("fccl-homogeneous", setting())
    server, *clients = (federation.node(name) for name in ("server", "M0", "M20"))
    for client in clients:  # all start alike: the mean of different starts would mean nothing
        assert same_weights(server.weights(), client.weights())
    assert networks(federation)["M0"] == dict.fromkeys(("model", "previous", "pretrained"), "MLP")
    assert networks(assemble("fccl", setting()))["server"] == {}
    assert federation.run(1).ledger.bytes() == formula(federation, 1)
    with pytest.raises(SettingError, match=r"fccl-homogeneous averages parameters.*models\.same"):
        assemble("fccl-homogeneous", "rotated-mnist-mixed")
    mixed = assemble("fccl-homogeneous", "rotated-mnist-mixed", changes={"models.same": "lenet5"})
    assert set(networks(mixed)["M60"].values()) == {"LeNet5"}


def test_only_what_travels_need_be_alike():
    """Heads alone, or a part that the setting shares; of other networks one line says which shapes there are."""
    mixed = assemble("lg-fedavg", setting(**{"models.participants": ["mlp", "lenet5"]}), changes={"width": 64})
    assert networks(mixed) == {"server": {"model": "MLP"}, "M0": {"model": "MLP"}, "M20": {"model": "LeNet5"}}
    head = 4 * 10 * 65
    assert mixed.run(1).ledger.bytes() == {"global": 2 * head, "update": 2 * (head + 8)}
    unlike = r"head\.weight is 10 x 84 at server, M0, 10 x 200 at M20, 10 x 120 at M40 and 10 x 64 at M60"
    with pytest.raises(
        SettingError, match=rf"lg-fedavg averages heads of one shape; .* {unlike}: set width to at most 64"
    ):
        assemble("lg-fedavg", Setting.load("rotated-mnist-mixed").model_copy(update={"methods": {}}))
    with pytest.raises(SettingError, match="fedper averages parameters, so that all must have the same network"):
        assemble("fedper", "rotated-mnist-mixed")
    heads = {"models.participants": ["wrn-10-1", "wrn-16-1"], "models.share": "head"}
    assert networks(assemble("ditto", "rotated-mnist-mixed", changes=heads))["M20"]["model"] == "WideResNet"
    with pytest.raises(SettingError, match="ditto averages parameters"):
        assemble("ditto", "rotated-mnist-mixed", changes=heads | {"models.share": ""})


def test_a_run_of_fccl_records_how_everyones_outputs_correlate(tmp_path):
    options = ["--set", "data.test_rows=20", "--set", "models.participants=mlp", "--rounds", "1"]
    for method in ("fccl", "solo"):
        command = ["run", method, "--on", "rotated-mnist", *options, "--out", str(tmp_path / method)]
        assert CliRunner().invoke(app, command).exit_code == 0
    assert not (tmp_path / "solo" / "correlation.json").exists()
    found = json.loads((tmp_path / "fccl" / "correlation.json").read_text())
    assert found["round"] == 0
    assert set(found["participants"]) == set(DOMAINS)
    for own in found["participants"].values():
        assert set(own) == {"public", "private"}
        cells = torch.tensor([own["public"], own["private"]])
        assert cells.shape == (2, 10, 10)
        assert cells.abs().max() <= 1
        assert cells.std() > 0.05
        assert not torch.equal(cells[0], cells[1])


# -- the same network for all, and the weakest ------------------------------------------------------------------
def test_one_network_for_methods_that_average_parameters():
    mixed = {"models.participants": ["mlp", "cnn1-3x3"], "models.same": "lenet5"}
    assert networks(assemble("fedavg", setting(**mixed))) == {n: {"model": "LeNet5"} for n in ("server", "M0", "M20")}
    assert networks(assemble("solo", setting(**mixed))) == {"M0": {"model": "MLP"}, "M20": {"model": "CNN1"}}
    with pytest.raises(ValueError, match="perhaps you meant 'lenet5'"):
        assemble("solo", setting(**{"models.same": "lenet6"}))


def test_the_weakest_by_their_networks_never_make_it():
    """By the line-up's sizes, whatever network the method gives to all; of equals the first."""
    lineup = ["lenet5", "mlp", "wrn-10-1", "wrn-10-1"]  # 62k, 199k, 78k and 78k parameters
    crowd = setting(**{"data.clients": 2, "models.participants": lineup, "models.same": "mlp"})
    for share, out in ((0.0, set()), (0.25, {"M0.0"}), (0.5, {"M0.0", "M20.0"}), (0.75, {"M0.0", "M20.0", "M20.1"})):
        federation = assemble("fedavg", crowd, changes={"dropout.weakest": share})
        assert set(federation.dropout.always) == out
    both = assemble("fedavg", crowd, changes={"dropout.weakest": 0.25, "dropout.always": ["M0.1", "M0.0"]})
    assert list(both.dropout.always) == ["M0.1", "M0.0"]
    result = assemble("fedavg", crowd, changes={"dropout.weakest": 0.5}).run(2)
    heard = {row["from"] for row in result.ledger.messages if row["kind"] == "update" and row["status"] == "sent"}
    assert heard == {"M0.1", "M20.1"}


@pytest.mark.parametrize(("share", "out"), [(0.4, 8), (0.6, 12)])
def test_the_shipped_baseline_has_the_papers_weak_clients(store, share, out):
    """60 % participation: twelve of twenty clients, without the eight with the shallowest networks."""
    store("cifar10", train=400, shape=(32, 32, 3), names=[f"n{i}" for i in range(10)])
    coarse = {"train_y_coarse": np.arange(100) % 20, "test_y_coarse": np.arange(30) % 20}
    names = {"names": [f"k{i}" for i in range(100)], "classes_coarse": np.array([f"g{i}" for i in range(20)])}
    root = store("cifar100", train=100, shape=(32, 32, 3), classes=100, **coarse, **names)
    small = Setting.load("cifar10-dirichlet").changed({"data.public.rows": 50, "data.partition": {"kind": "iid"}})
    federation = assemble("fedavg", small, root=root, changes={"dropout.weakest": share})
    assert list(federation.dropout.always) == [f"c{i}" for i in range(out)]
    counts = {sum(p.numel() for p in federation.node(n).models["model"].parameters()) for n in ("server", "c0", "c19")}
    assert len(counts) == 1


# -- initial models --------------------------------------------------------------------------------------------
def test_initial_models_are_the_same_for_solo_and_agg_and_differ_between_participants():
    solo, agg, other = (assemble(m, setting(), seed=s) for m, s in (("solo", 4), ("agg", 4), ("solo", 5)))
    for name in ("M0", "M20"):
        assert same_weights(solo.node(name).weights(), agg.node(name).weights())
        assert same_weights(solo.node(name).weights(), solo.node(name).weights())
        assert not same_weights(solo.node(name).weights(), other.node(name).weights())
    assert not same_weights(solo.node("M0").weights(), solo.node("M20").weights())
    # One participant's weights do not hang on the others' networks.
    mixed = assemble("solo", setting(**{"models.participants": ["lenet5", "mlp"]}), seed=4)
    assert same_weights(mixed.node("M20").weights(), solo.node("M20").weights())


# -- options ---------------------------------------------------------------------------------------------------
def test_changes_go_where_they_belong():
    changes = dict(
        registry.parse(text)
        for text in (
            "data.clients=2",
            "data.public.fraction=0.2",
            "data.leaky=true",
            "models.participants=cnn1-3x3",
            "fraction=0.5",
            "lr=0.5",
            "local.epochs=7",
            "batch=16",
        )
    )
    federation = assemble("fedavg", setting(), changes=changes)
    assert list(federation.homes) == ["M0.0", "M0.1", "M20.0", "M20.1"]
    assert len(federation.node("M0.0").data["public"]) == 400
    assert networks(federation)["M20.1"] == {"model": "CNN1"}
    method = federation.method
    assert (method.cohort.fraction, method.local.lr, method.local.epochs, method.local.batch) == (0.5, 0.5, 7, 16)
    # What changes the setting becomes part of it; the rest is kept as it was given.
    assert set(federation.recipe["changes"]) == {"fraction", "lr", "local.epochs", "batch"}
    assert federation.recipe["setting"]["data"]["clients"] == 2
    assert federation.recipe["setting"]["data"]["leaky"] is True


def test_defaults_come_from_local_then_the_methods_own_table_then_the_user():
    fedavg = assemble("fedavg", setting()).method
    assert (fedavg.local.epochs, fedavg.local.batch, fedavg.local.momentum) == (2, 64, 0.9)
    assert (fedavg.cohort.weighted, fedavg.local.lr) == (False, 0.03)
    fedavg = assemble("fedavg", setting(), changes={"weighted": True, "local.lr": 0.4}).method
    assert (fedavg.cohort.weighted, fedavg.local.lr) == (True, 0.4)
    # Other methods do not see that table; what the setting does not say of the optimiser is the same for all.
    solo, fml = (assemble(method, setting()).method for method in ("solo", "fml"))
    assert solo.local.lr == fml.local.lr == 0.05
    assert solo.local == fml.local
    assert assemble("agg", setting()).method.local.data == "all"


def test_short_and_long_names_are_one_option():
    for first, second in ((("lr", 0.1), ("local.lr", 0.2)), (("local.lr", 0.1), ("lr", 0.2))):
        assert assemble("solo", setting(), changes=dict([first, second])).method.local.lr == 0.2


@pytest.mark.parametrize(
    ("changes", "error", "parts"),
    [
        ({"data.colour": 1}, SettingError, ["data.colour"]),
        ({"models.colour": 1}, SettingError, ["models.colour"]),
        ({"data.clients": "many"}, SettingError, ["data.clients"]),
        ({"weightd": True}, registry.OptionError, ["'weightd'", "weighted"]),
        ({"lr": "fast"}, registry.OptionError, ["local.lr", "fast"]),
        ({"local.lr.x": 1}, registry.OptionError, ["local.lr.x"]),
        ({"data.source": "nowhere"}, DataError, ["nowhere"]),
    ],
)
def test_wrong_changes_are_refused_in_one_line(changes, error, parts):
    with pytest.raises(error) as caught:
        assemble("fedavg", setting(), changes=changes)
    assert "\n" not in str(caught.value)
    assert all(part in str(caught.value) for part in parts)


def test_an_unknown_method_is_answered_with_the_nearest():
    with pytest.raises(registry.OptionError, match="perhaps you meant 'fedavg'"):
        assemble("fedavgg", setting())


def test_wrong_values_in_the_setting_are_refused():
    with pytest.raises(SettingError, match=r"local\.lr"):
        assemble("solo", setting(**{"local.lr": "fast"}))
    with pytest.raises(SettingError, match="weightd"):
        assemble("fedavg", setting(**{"methods.fedavg.weightd": True}))
    # The table of a method that is not used does no harm.
    assert assemble("solo", setting(**{"methods.fedavg.weightd": True}))


def test_a_misspelt_local_default_is_refused():
    with pytest.raises(ValueError, match="epochz"):
        assemble("solo", setting(**{"local.epochz": 3}))


def test_a_misspelt_method_table_is_refused():
    with pytest.raises(ValueError, match="fedavgg"):
        assemble("fedavg", setting(**{"methods.fedavgg": {"weighted": True}}))


def test_devices_dropouts_and_newcomers_reach_the_federation():
    changes = {
        "dropout.rate": 0.5,
        "dropout.always": ["M0"],
        "profiles.client.latency": 2,
        "joins.M20": 3,
        "egress.M0": ["update"],
        "evaluate": 4,
        "models.buffers": "private",
    }
    federation = assemble("fedavg", setting(), changes=changes)
    assert (federation.dropout.rate, list(federation.dropout.always)) == (0.5, ["M0"])
    assert federation.profile("M20").latency == 2
    assert federation.profile("server").latency == 0
    assert (federation.joins, federation.evaluate) == ({"M20": 3}, 4)
    assert list(federation.egress["M0"]) == ["update"]
    assert federation.recipe["changes"] == {}
    shared = assemble("ditto", setting(), changes={"models.share": "body"})
    assert all(name.startswith("body.") for name in shared.node("M0").weights())
    assert reassemble(json.loads(json.dumps(federation.recipe))).identity() == federation.identity()
    for wrong in ({"joins.M9": 1}, {"dropout.always": ["M9"]}, {"profiles.M9.latency": 1}, {"egress.M0": ["gossip"]}):
        with pytest.raises(ValueError, match=r"M9|gossip"):
            assemble("fedavg", setting(), changes=wrong)


def test_parts_of_a_method_may_be_tables():
    """TOML reads `local.lr = 0.2` in [methods.fml] as a table in a table."""
    flat, nested = ({"local.lr": 0.2}, {"local": {"lr": 0.2}})
    for own in (flat, nested):
        method = assemble("fml", setting(methods={"fml": own})).method
        assert (method.local.lr, method.local.epochs) == (0.2, 2)


# -- refused ---------------------------------------------------------------------------------------------------
def test_averaging_refuses_different_networks_in_one_line():
    for method in ("fedavg", "fedprox"):
        with pytest.raises(SettingError) as caught:
            assemble(method, "rotated-mnist-mixed")
        text = str(caught.value)
        assert "\n" not in text
        for part in (method, "rotated-mnist-mixed", "models.participants", "lenet5", "mlp"):
            assert part in text
        assert assemble(method, "rotated-mnist-mixed", changes={"models.participants": "mlp"})
    # A list of one name only is the same network for everyone.
    assert assemble("fedavg", setting(**{"models.participants": ["mlp", "mlp"]}))


def test_views_that_need_public_data_are_refused_without_them():
    for method, changes in (("agg", {}), ("solo", {"local.data": "own"}), ("fedavg", {"local.data": "all"})):
        with pytest.raises(SettingError) as caught:
            assemble(method, setting(**{"data.public": None}), changes=changes)
        assert "public data" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert assemble("solo", setting(**{"data.public": None}))


def test_training_on_unlabelled_public_data_is_refused(store):
    root = store("usps", train=50)
    unlabelled = setting(**{"data.public": {"source": "usps", "labelled": False}})
    with pytest.raises(SettingError, match="label"):
        assemble("agg", unlabelled, root=root)


@pytest.mark.parametrize("method", ["fedmd", "fedmd-global", "fccl", "feddf"])
def test_methods_that_speak_about_public_data_are_refused_without_them(method):
    with pytest.raises(SettingError, match="public"):
        assemble(method, setting(**{"data.public": None}))


def test_an_unknown_network_is_refused_at_once():
    with pytest.raises(ValueError, match="perhaps you meant 'lenet5'"):
        assemble("solo", setting(**{"models.participants": "lenet6"}))


def test_a_domain_called_server_is_refused(store):
    root = store("usps")
    both = {"server": {"source": "usps"}, "b": {"source": "usps", "degrees": 9}}
    with pytest.raises(ValueError, match="server"):
        assemble("fedavg", setting(data={"domains": both}), root=root)


def test_a_leaky_run_says_so(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(
        '[data]\nsource = "digits-embedded"\nrotations = [0, 20]\ntest = 0.15\nleaky = true\n'
        '[models]\nparticipants = "mlp"\n'
    )
    ran = CliRunner().invoke(app, ["run", "solo", "--on", str(path), "--rounds", "1"])
    assert ran.exit_code == 0
    assert "leak" in ran.output.lower().replace(str(path), "")


def test_classes_that_nobody_trains_on_are_named(tmp_path):
    small = '[data]\nsource = "digits-embedded"\ntest = 0.15\nrows = 12\n[models]\nparticipants = "mlp"\n'
    (tmp_path / "small.toml").write_text(small)
    ran = CliRunner().invoke(app, ["run", "solo", "--on", str(tmp_path / "small.toml"), "--rounds", "1", "--json"])
    assert ran.exit_code == 0, ran.output
    (line,) = json.loads(ran.stdout.splitlines()[-1])["untrained"]
    federation = assemble("solo", str(tmp_path / "small.toml"))
    trained = set(federation.node(next(iter(federation.homes))).data["train"].y.tolist())
    missing = sorted(set(range(10)) - trained)
    assert missing
    assert line == f"of mnist these classes are tested, but nobody trains on them: {', '.join(map(str, missing))}"


# -- again from the recipe -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("solo", {}),
        ("agg", {"lr": 0.02}),
        ("fedavg", {"data.clients": 2, "data.partition": {"kind": "dirichlet", "alpha": 0.5}, "fraction": 0.5}),
        ("fedprox", {"mu": 0.1, "data.leaky": True}),
        ("fml", {"models.participants": ["mlp", "lenet5"], "models.global": "cnn1-3x3", "data.private_test": True}),
    ],
)
def test_a_recipe_gives_the_same_federation(method, changes):
    first = assemble(method, setting(**{"local.epochs": 1}), seed=7, changes=changes)
    recipe = json.loads(json.dumps(first.recipe))
    again = reassemble(recipe)
    assert again.identity() == first.identity()
    assert json.loads(json.dumps(again.identity())) == json.loads(json.dumps(first.identity()))
    one, two = first.run(1), again.run(1)
    assert one.digest == two.digest
    assert one.table.rows == two.table.rows
    assert reassemble({**recipe, "seed": 8}).run(1).digest != one.digest


def test_a_recipe_does_not_hang_on_the_shipped_file():
    """The whole setting is in the recipe, so that a later version cannot change an old run."""
    recipe = json.loads(json.dumps(assemble("solo", "rotated-mnist").recipe))
    recipe["setting"]["name"] = "gone"
    assert reassemble(recipe).homes


def test_a_run_resumes_from_its_folder_alone(tmp_path):
    from heterophony.runs.run import Run

    small = setting(**{"local.epochs": 1})
    assemble("fml", small, seed=2).run(1, tmp_path / "run")
    assert {"population.json", "features.json"} <= {path.name for path in (tmp_path / "run").iterdir()}
    again = reassemble(Run.spec(tmp_path / "run")["recipe"])
    assert again.resume(tmp_path / "run", 2).digest == assemble("fml", small, seed=2).run(2).digest


# -- peers ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "near"),
    [
        ("complete", {"M0": {"M20", "M40", "M60"}, "M20": {"M0", "M40", "M60"}}),
        ("ring", {"M0": {"M20", "M60"}, "M20": {"M0", "M40"}}),
        ("edges", {"M0": {"M20"}, "M20": {"M0", "M40", "M60"}}),
    ],
)
def test_peers_are_linked_as_the_setting_says(kind, near):
    changes = {"topology.kind": kind}
    if kind == "edges":
        changes["topology.edges"] = [["M0", "M20"], ["M20", "M40"], ["M60", "M20"]]
    federation = assemble("fedh2l", "rotated-mnist", changes=changes)
    assert {name: set(federation.topology.links(name).peers) for name in near} == near
    recipe = json.loads(json.dumps(federation.recipe))
    assert reassemble(recipe).identity() == federation.identity()


def test_random_pairs_are_drawn_each_round():
    topology = assemble("fedh2l", "rotated-mnist", changes={"topology.kind": "pairs"}).topology
    assert len({topology.links("M0", round).peers for round in range(20)}) == 3


@pytest.mark.parametrize(
    ("method", "changes", "parts"),
    [
        ("fedavg", {"topology.kind": "ring"}, ("topology.kind", "'ring'", "fedavg", "server")),
        ("fedh2l", {"topology.kind": "edges"}, ("topology", "edges", "together")),
        ("fedh2l", {"topology.kind": "ring", "topology.edges": [["M0", "M20"]]}, ("topology", "edges", "together")),
        (
            "fedh2l",
            {"topology.kind": "edges", "topology.edges": [["M0", "M1"]]},
            ("topology.edges", "M1", "no participant"),
        ),
        ("fedh2l", {"topology.kind": "edges", "topology.edges": [["M0", "M20"]]}, ("topology.edges", "M40", "no edge")),
        ("fedh2l", {"topology.kind": "web"}, ("topology.kind", "pairs")),
        ("fedh2l", {"data.public": None}, ("fedh2l", "public data")),
        ("fedh2l", {"data.public.labelled": False, "local.data": "all"}, ("fedh2l", "labels", "local.data=own")),
        ("fedh2l", {"data.validation": 0.0, "confidence": "validation"}, ("fedh2l", "data.validation")),
    ],
)
def test_peers_that_cannot_be_linked_or_taught_are_refused(method, changes, parts):
    with pytest.raises(SettingError) as caught:
        assemble(method, "rotated-mnist", changes=changes)
    text = str(caught.value)
    assert "\n" not in text
    assert all(part.lower() in text.lower() for part in parts), text


def test_unlabelled_public_data_leave_local_training_its_own():
    changes = {"data.public.labelled": False, "evaluate": 1, "models.participants": "mlp"}
    federation = assemble("fedh2l", "rotated-mnist", changes=changes)
    node = federation.node("M20")
    assert "y" not in node.data["public"].columns
    assert len(node.data["own"]) == 750
    table = federation.run(1).table
    assert {row["quantity"] for row in table.select(product="training", set="public")} == {"model.kl"}


def test_a_method_that_labels_public_rows_itself_needs_no_labels_of_theirs():
    """Private and public rows are one view then, without labels, and the bits are those of labelled data."""
    changes = {"evaluate": 1, "models.participants": "mlp"}
    labelled = assemble("cronus", "rotated-mnist", changes=changes)
    federation = assemble("cronus", "rotated-mnist", changes={**changes, "data.public.labelled": False})
    view = federation.node("M20").data["all"]
    assert set(view.columns) == {"x"}
    assert len(view) == len(labelled.node("M20").data["all"])
    assert federation.run(1).digest == labelled.run(1).digest


def test_a_method_may_count_rounds_its_own_way():
    small = setting(methods={"fedh2l": {"rounds": 40, "evaluate": 20, "local": {"steps": 1}}})
    assert (small.plan("fedh2l"), small.plan("solo")) == ((40, 20), (10, 2))
    federation = assemble("fedh2l", small)
    assert (federation.evaluate, federation.method.local.steps) == (20, 1)
    assert assemble("solo", small).evaluate == 2
    for method in ("fedh2l", "solo"):  # what the user says comes first, also when the run is resumed
        changed = assemble(method, small, changes={"evaluate": 5})
        assert changed.evaluate == 5
        assert reassemble(json.loads(json.dumps(changed.recipe))).identity() == changed.identity()


@pytest.mark.parametrize("key", ["rounds", "evaluate"])
@pytest.mark.parametrize("value", [0, 1.5, "many", True])
def test_a_methods_own_rounds_are_checked(key, value):
    with pytest.raises(SettingError, match=f"methods.fedh2l.{key}"):
        setting(methods={"fedh2l": {key: value}})


def test_the_command_line_runs_a_methods_own_rounds(tmp_path):
    path = tmp_path / "small.toml"
    text = shipped()["rotated-mnist"].replace("rounds = 300", "rounds = 3").replace('"lenet5"', '"mlp"')
    path.write_text(text.replace("evaluate = 50", "evaluate = 3"))
    said = CliRunner().invoke(app, ["run", "fedh2l", "--on", str(path), "--json"])
    found = json.loads(said.stdout.strip().splitlines()[-1])
    assert found["rounds"] == 3
    assert found["bytes"]["teach"] == 3 * 12 * (32 * (4 * 10 + 8) + 8)
    assert {name: own["rounds"] for name, own in found["conflicts"].items()} == dict.fromkeys(DOMAINS, 3)
    said = CliRunner().invoke(app, ["run", "fedh2l", "--on", str(path), "--rounds", "1"])
    assert "went against local gradients in" in said.stdout


# -- FedH2L's settings ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "domains", "line_up"),
    [
        ("pacs", ["photo", "art_painting", "cartoon", "sketch"], ("resnet18", "resnet34", "alexnet", "vgg11")),
        ("office", ["art", "clipart", "product", "real_world"], ("resnet34", "mobilenetv2", "alexnet", "resnet50")),
    ],
)
def test_domain_settings_have_the_papers_line_up(name, domains, line_up):
    chosen = Setting.load(name)
    assert list(chosen.data.all_domains()) == domains
    assert chosen.models.names == line_up
    assert chosen.local["optimiser"] == "amsgrad"
    assert (chosen.data.test, chosen.data.validation, chosen.data.public.fraction) == (0.15, 0.1, 0.1)


def test_office_from_folders_of_images(tmp_path):
    """Two classes, four domains, image files of several sizes: all the way to a round of FedH2L."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for domain in ("Art", "Clipart", "Product", "Real World"):
        for label in ("Alarm_Clock", "Bike"):
            folder = tmp_path / "office-home" / domain / label
            folder.mkdir(parents=True)
            for i in range(20):
                pixels = rng.integers(0, 256, (20 + i, 30, 3), dtype=np.uint8)
                image.fromarray(pixels).save(folder / f"{i:05d}.png")
    small = Setting.load("office").changed({"models.participants": "mlp", "data.side": 16})
    federation = assemble("fedh2l", small, root=tmp_path)
    assert {name: len(federation.node(name).data["train"]) for name in federation.homes} == dict.fromkeys(
        ("art", "clipart", "product", "real_world"), 26
    )
    result = federation.run(2)
    assert result.metrics().acc is not None
    assert result.ledger.bytes()["teach"] == 2 * 12 * (4 * (4 * 2 + 8) + 8)


@pytest.mark.parametrize(("name", "missing"), [("office", "office-home/art"), ("pacs", "pacs/photo")])
def test_domain_settings_say_what_is_missing(tmp_path, name, missing):
    with pytest.raises(DataError) as caught:
        assemble("fedh2l", name, root=tmp_path)
    assert missing in str(caught.value)
    assert "put" in str(caught.value)
