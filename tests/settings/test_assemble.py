"""From names to a federation: who is there, with which network, and where every option comes from."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from heterophony import registry
from heterophony.cli import app
from heterophony.data import DataError
from heterophony.settings import Setting, SettingError, assemble, reassemble, shipped

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
    assert (method.fraction, method.local.lr, method.local.epochs, method.local.batch) == (0.5, 0.5, 7, 16)
    # What changes the setting becomes part of it; the rest is kept as it was given.
    assert set(federation.recipe["changes"]) == {"fraction", "lr", "local.epochs", "batch"}
    assert federation.recipe["setting"]["data"]["clients"] == 2
    assert federation.recipe["setting"]["data"]["leaky"] is True


def test_defaults_come_from_local_then_the_methods_own_table_then_the_user():
    fedavg = assemble("fedavg", setting()).method
    assert (fedavg.local.epochs, fedavg.local.batch, fedavg.local.momentum) == (2, 64, 0.9)
    assert (fedavg.weighted, fedavg.local.lr) == (False, 0.03)
    fedavg = assemble("fedavg", setting(), changes={"weighted": True, "local.lr": 0.4}).method
    assert (fedavg.weighted, fedavg.local.lr) == (True, 0.4)
    # Other methods do not see that table, and keep their own defaults where the setting says nothing.
    solo, fml = (assemble(method, setting()).method for method in ("solo", "fml"))
    assert solo.local.lr == fml.local.lr == 0.05
    assert fml.local.weight_decay == 5e-4
    assert solo.local.weight_decay == 0.0
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
        "models.share": "body",
        "models.buffers": "private",
    }
    federation = assemble("fedavg", setting(), changes=changes)
    assert (federation.dropout.rate, list(federation.dropout.always)) == (0.5, ["M0"])
    assert federation.profile("M20").latency == 2
    assert federation.profile("server").latency == 0
    assert (federation.joins, federation.evaluate) == ({"M20": 3}, 4)
    assert list(federation.egress["M0"]) == ["update"]
    assert all(name.startswith("body.") for name in federation.node("M0").weights())
    assert federation.recipe["changes"] == {}
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
    with pytest.raises(ValueError, match="did you mean 'lenet5'"):
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
    from heterophony.record.run import Run

    small = setting(**{"local.epochs": 1})
    assemble("fml", small, seed=2).run(1, tmp_path / "run")
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


def test_rounds_within_a_number_of_bytes():
    federation = assemble("fedavg", setting())
    once = sum(federation.method.traffic(federation, 1).values())
    assert [federation.rounds_within(n) for n in (0, once - 1, once, 7 * once, 8 * once - 1)] == [0, 0, 1, 7, 7]
    with pytest.raises(ValueError, match="sends nothing"):
        assemble("solo", setting()).rounds_within(10**9)


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
