"""`--on module:callable`: a world that is made in Python runs, is chosen on and leaves its run as a setting does."""

import json
import sys
from functools import partial
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from heterophony import Data, Participants, Profile, Regression, cli
from heterophony.settings import Setting, assemble, reassemble
from toys.world import points

NAME = "world_of_a_test"


def net(shape, classes):
    return nn.Sequential(nn.Linear(*shape, 6), nn.ReLU(), nn.Linear(6, classes))


def small(width=6):
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 4))


def views(name, rows=24, **more):
    return {"train": points(name, rows), "test": points(f"{name} test", 12), **more}


def people(*names, **options):
    return {"data": {name: views(name) for name in names or ("anna", "ben", "cleo")}, "models": net, **options}


@pytest.fixture
def on(monkeypatch):
    """Puts `Participants` of these arguments behind the name `world_of_a_test:world`, and returns the name."""

    def put(**given):
        module = ModuleType(NAME)
        module.net, module.small, module.world = net, small, lambda: Participants(**given)
        for each in (net, small):
            monkeypatch.setattr(each, "__module__", NAME)
        monkeypatch.setitem(sys.modules, NAME, module)
        return f"{NAME}:world"

    return put


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def done(*words):
    answer = call(*words)
    assert answer.exit_code == 0, answer.stderr
    return answer


def test_a_world_of_python_is_run_resumed_exported_and_predicts(on, tmp_path):
    name, run, model = on(**people()), tmp_path / "run", tmp_path / "anna.safetensors"
    done("run", "fedavg", "--on", name, "--rounds", 2, "--set", "lr=0.05", "--out", run, "--track", "none")
    answer = call("resume", run, "--rounds", 3, "--track", "none")
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert f"names world '{name}', which would import and run {NAME}" in answer.stderr
    found = json.loads(done("resume", run, "--rounds", 3, "--trust", "--track", "none", "--json").stdout)
    whole = assemble("fedavg", name, changes={"lr": 0.05}).run(3)
    assert found["digest"] == whole.digest
    done("export", run, "--node", "anna", "--to", model)
    np.savez(tmp_path / "new.npz", x=points("new", 5).x.numpy())
    answer = call("predict", model, tmp_path / "new.npz")
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    labels = json.loads(done("predict", model, tmp_path / "new.npz", "--trust", "--json").stdout)["labels"]
    module = net((8,), 4)
    module.load_state_dict(whole.state("anna")["models"]["model"])
    assert labels == module(points("new", 5).x).argmax(-1).tolist()


def test_methods_are_compared_tuned_and_reported_on_it(on, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = on(**people())
    done("compare", "solo", "fedavg", "--on", name, "--rounds", 1, "--seeds", 1)
    found = json.loads(done("report", f"runs/compare/{NAME}.world", "--figures", "figures", "--json").stdout)
    assert found["runs"] == 2
    assert {"curves", "domains", "features"} <= set(found["figures"])
    page = (tmp_path / "runs" / "compare" / f"{NAME}.world" / "report.html").read_text()
    assert f"--on {name}" in page
    grid = ("--grid", "lr=0.01,0.2", "--budget", 2, "--rounds", 1)
    answer = call("tune", "fedavg", "--on", name, *grid)
    assert (answer.exit_code, answer.stderr.strip().count("\n")) == (2, 0)
    assert "has no validation data to choose on: set data.validation" in answer.stderr
    done("tune", "fedavg", "--on", name, *grid, "--set", "data.validation=0.25")
    done("run", "fedavg", "--on", name, "--rounds", 1, "--tuned", "tuned/tuned.toml")


def test_a_file_says_the_rest_of_a_world_of_python(on, tmp_path):
    name = on(**people())
    text = f'rounds = 2\ndata.world = "{name}"\nlocal = {{ batch = 8, lr = 0.05 }}\nmodels.participants = "mlp"\n'
    (tmp_path / "ours.toml").write_text(text)
    federation = assemble("fedavg", str(tmp_path / "ours.toml"))
    assert (federation.method.local.batch, federation.recipe["networks"]["anna"]) == (8, {"model": "mlp"})
    with pytest.raises(ValueError, match="clients means nothing beside world"):
        Setting.load(name).changed({"data.clients": 4})
    with pytest.raises(ValueError, match="module:callable"):
        Setting.load(name).changed({"data.world": "world"})


def test_the_seed_of_the_run_is_told_to_a_function_that_asks(on, monkeypatch):
    name = on(**people())
    monkeypatch.setattr(sys.modules[NAME], "world", lambda seed: Participants(**people(f"p{seed}", "other")))
    assert "p7" in assemble("solo", name, seed=7).homes


def test_private_rows_are_divided_by_the_seed_where_a_share_is_for_choosing(on):
    name = on(**people())
    made = [assemble("solo", name, seed=seed, changes={"data.validation": 0.25}) for seed in (0, 0, 1)]
    kept = [each.node("anna").data["train"] for each in made]
    assert [len(kept[0]), len(made[0].tests["anna"]["validation"])] == [18, 6]
    assert torch.equal(kept[0].x, kept[1].x)
    assert not torch.equal(kept[0].x, kept[2].x)
    rows = torch.cat([kept[0].x, made[0].tests["anna"]["validation"].x])
    assert torch.equal(rows.sum(1).sort().values, points("anna", 24).x.sum(1).sort().values)


@pytest.mark.parametrize(
    "models",
    [net, [net, partial(small, width=3)], {"anna": small, "ben": "mlp", "cleo": nn.Linear(8, 4)}],
    ids=["one", "list", "by name"],
)
def test_networks_are_one_for_all_a_list_or_by_participant(on, models):
    federation = assemble("solo", on(**people(models=models)))
    built = [federation.node(who).models["model"] for who in ("anna", "ben", "cleo")]
    shapes = [tuple(next(module.parameters()).shape) for module in built]
    expected = {True: [(6, 8)] * 3, False: [(6, 8), (3, 8), (6, 8)]}
    assert shapes == (expected[models is net] if not isinstance(models, dict) else [(6, 8), (200, 8), (4, 8)])


def test_public_rows_make_the_views_that_methods_need(on):
    everyone = points("public", 10)
    for method in ("fedmd", "fedh2l", "feddf", "cronus"):
        federation = assemble(method, on(**people(public=everyone)))
        assert federation.run(1).rounds == 1
    data = federation.node("anna").data
    assert (len(data["public"]), len(data["own"]), len(data["all"])) == (10, 34, 34)
    with pytest.raises(ValueError, match="needs public data"):
        assemble("fedmd", on(**people()))


def test_a_tree_and_profiles_come_from_python(on):
    shape = {"root": {"north": ["anna"], "south": ["ben", "cleo"]}}
    name = on(**people(tree=shape, profiles={"anna": Profile(seconds_per_sample=2.0)}))
    federation = assemble("bhfl", name)
    assert federation.topology.static["south"].children == ("ben", "cleo")
    assert federation.profile("anna").seconds_per_sample == 2.0
    assert assemble("fedavg", name).profile("ben").seconds_per_sample == 1e-3


def test_tests_by_domain_and_participants_at_home_in_them(on):
    sets = {"north": points("north", 12), "south": {"test": points("south", 12), "validation": points("choose", 9)}}
    homes = {"anna": "north", "ben": "south", "cleo": "south"}
    federation = assemble("solo", on(**people(tests=sets, homes=homes)))
    result = federation.run(1)
    assert {row["set"] for row in result.table if row["split"] == "test"} == {"north", "south"}
    assert {row["set"] for row in result.table if row["split"] == "private-test"} == {"anna", "ben", "cleo"}
    assert len(federation.node("ben").data["validation"]) == 9


def test_numbers_are_learned_exported_and_predicted(on, tmp_path):
    def own(name):
        rows = points(name, 24)
        return Data(x=rows.x, y=rows.x[:, :2] @ torch.tensor([[1.0, 0.5], [0.0, 2.0]]), task=Regression(2))

    data = {who: {"train": own(who), "test": own(f"{who} test")} for who in ("anna", "ben")}
    name, run, model = on(data=data, models=net), tmp_path / "run", tmp_path / "m.safetensors"
    found = json.loads(
        done("run", "ditto", "--on", name, "--rounds", 2, "--out", run, "--track", "none", "--json").stdout
    )
    assert "rmse" in json.dumps(found)
    done("export", run, "--node", "anna", "--to", model)
    np.savez(tmp_path / "new.npz", x=points("new", 5).x.numpy())
    values = json.loads(done("predict", model, tmp_path / "new.npz", "--trust", "--json").stdout)["values"]
    assert (len(values), len(values[0])) == (5, 2)


def test_a_network_without_a_name_runs_and_is_not_exported(on, tmp_path):
    name = on(**people(models=lambda shape, classes: net(shape, classes)))
    done("run", "solo", "--on", name, "--rounds", 1, "--out", tmp_path / "run", "--track", "none")
    answer = call("export", tmp_path / "run", "--node", "anna", "--to", tmp_path / "m.safetensors")
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert "'<lambda>' has no name by which it can be built again" in answer.stderr
    assert not (tmp_path / "m.safetensors").exists()
    assert reassemble(assemble("solo", name).recipe, trust=True).run(1).rounds == 1


X, Y = torch.zeros(6, 8), torch.tensor([0, 1, 2, 3, 0, 1])
HOLE = X.clone().index_fill_(0, torch.tensor([4]), float("nan"))
WRONG = {
    "another thing": (lambda: 3, "gave a int, not Participants"),
    "nobody": ({"data": {}}, "data must be a table of participants"),
    "a tuple": ({"data": {"anna": (X, Y)}}, "data of anna is a tuple, not Data: write Data"),
    "an array": ({"data": {"anna": np.zeros(3)}}, "data of anna is a ndarray, not Data: write Data"),
    "a torch data set": (
        {"data": {"anna": {"train": torch.utils.data.TensorDataset(X, Y)}}},
        "train of anna is a TensorDataset, not Data: Data.of",
    ),
    "an unknown view": ({"data": {"anna": {"trian": points("a")}}}, "no view 'trian', perhaps you meant 'train'"),
    "no train": ({"data": {"anna": {"test": points("a")}}}, "data of anna has no view 'train'"),
    "nothing to test on": ({"data": {"anna": points("a")}}, "there is nothing to test anna on"),
    "no rows": ({"data": {"anna": views("a", test=Data(x=X[:0], y=Y[:0]))}}, "test of anna has no rows"),
    "no x": ({"data": {"anna": views("a", test=Data(y=Y))}}, "test of anna has no column x"),
    "no y": ({"data": {"anna": views("a", test=Data(x=X))}}, "test of anna has no column y"),
    "NaN": ({"data": {"anna": views("a", test=Data(x=HOLE, y=Y))}}, "test of anna: row 4 of x has a value"),
    "float64": ({"data": {"anna": views("a", test=Data(x=X.double(), y=Y))}}, "test of anna: x is float64"),
    "another width": (
        {"data": {"anna": views("a"), "ben": views("b", test=Data(x=X[:, :7], y=Y))}},
        r"test of ben: x has rows of \(7,\) float32, but train of anna has rows of \(8,\) float32",
    ),
    "float labels": (
        {"data": {"anna": views("a", test=Data(x=X, y=Y.float()))}},
        "test of anna: y: labels are whole numbers .* or task=Regression",
    ),
    "a label too large": (
        {"data": {"anna": views("a", test=Data(x=X, y=Y + 3, classes=4))}},
        "test of anna: y: row 1 has the label 6|test of anna: y: row . has the label",
    ),
    "two tasks": (
        {"data": {"anna": views("a", test=Data(x=X, y=X, task=Regression(8)))}},
        "train of anna is Classification",
    ),
    "tests are training rows": (
        {"data": {"anna": points("a")}, "tests": points("a")},
        "each of its rows is also a training row",
    ),
    "an unknown home": ({"homes": {"ana": "x"}}, "homes: there is no participant 'ana', perhaps you meant 'anna'"),
    "a home without tests": ({"tests": {"n": points("n"), "s": points("s")}}, "which test set is that of anna"),
    "a missing network": ({"models": {"anna": net, "ben": net}}, "models: there is no network for cleo"),
    "no network at all": ({"models": []}, "models: give a network for all"),
    "no network": ({"models": 3}, "models: a network is a function, a class, a module or a name, not 3"),
    "a network that cannot be built": (
        {"models": partial(nn.Linear, 8)},
        "network 'Linear' cannot be built: TypeError",
    ),
    "a network that cannot read the rows": ({"models": nn.Linear(5, 4)}, r"network 'Linear' cannot read arrays of 8"),
    "too few outputs": ({"models": nn.Linear(8, 3)}, r"gives \(2, 3\) for 2 arrays; with 4 classes it is \(2, 4\)"),
}


@pytest.mark.parametrize(("wrong", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_line_before_anything_runs(on, monkeypatch, tmp_path, wrong, text):
    given = {} if callable(wrong) else wrong
    name = on(**{**people(), **given})
    if callable(wrong):
        monkeypatch.setattr(sys.modules[NAME], "world", wrong)
    with pytest.raises(ValueError, match=text):
        assemble("solo", name)
    answer = call("run", "solo", "--on", name, "--out", tmp_path / "run")
    assert (answer.exit_code, answer.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "run").exists()
