"""Trees from settings: written out, by domain, in pairs, by clustering; and the options that differ by level."""

import json

import pytest
import torch
from typer.testing import CliRunner

from heterophony.catalogue.registry import OptionError
from heterophony.cli import app
from heterophony.engines import local
from heterophony.settings import Setting, SettingError, assemble, reassemble

SMALL = """
evaluate = 1
[data]
source = "digits-embedded"
rotations = [0, 20]
test = 0.1
test_rows = 30
public = { fraction = 0.1, test = 0.5 }
clients = 2
[models]
participants = "mlp"
[local]
batch = 64
lr = 0.05
"""


def setting(more="", **changes):
    return Setting.read(SMALL + more, "small", "small.toml").changed(changes)


def families(federation):
    """Internal nodes and their children."""
    return {node: links.children for node, links in federation.topology.static.items() if links.children}


@pytest.mark.parametrize("wrong", [{"root": {"edge": 3}}, {"root": 3}, {"root": {"edge": "M0.0"}}, {"root": [1]}])
def test_a_tree_that_is_none_is_said(wrong):
    with pytest.raises(SettingError, match=r"topology: below '\w+' there is a list of names or a table, got"):
        assemble("bhfl", setting(**{"topology.tree": wrong}))


# -- shapes ----------------------------------------------------------------------------------------------------
def test_rotated_mnist_has_a_tree_of_two_subtrees_of_two_domains():
    federation = assemble("bhfl", "rotated-mnist")
    assert families(federation) == {"root": ("edge0", "edge1"), "edge0": ("M0", "M20"), "edge1": ("M40", "M60")}
    assert set(federation.data["root"]) == {"train"}
    assert "edge0" not in federation.data
    nodes = [federation.node(n).weights() for n in ("root", "edge1", "M40")]
    assert all(torch.equal(node[name], nodes[0][name]) for node in nodes for name in nodes[0])


def test_domains_with_several_clients_are_subtrees():
    assert families(assemble("hierfavg", setting())) == {
        "root": ("edge-M0", "edge-M20"),
        "edge-M0": ("M0.0", "M0.1"),
        "edge-M20": ("M20.0", "M20.1"),
    }


def test_clients_of_one_domain_are_paired():
    one = setting(**{"data.rotations": [], "data.clients": 5})
    assert families(assemble("bhfl", one)) == {
        "root": ("edge0", "edge1"), "edge0": ("c0", "c1", "c2"), "edge1": ("c3", "c4"),
    }  # fmt: skip


def test_a_tree_is_written_out_and_comes_back_from_a_recipe():
    more = """
    [topology]
    kind = "tree"
    residuals = [["root", "low"], ["root", "M20.1"]]
    proxy = ["inner"]
    [topology.tree.root]
    "M0.1" = {}
    [topology.tree.root.high]
    low = ["M0.0", "M20.0"]
    far = ["M20.1"]
    """
    federation = assemble("bhfl", setting(more))
    assert families(federation) == {
        "root": ("M0.1", "high"), "high": ("low", "far"), "low": ("M0.0", "M20.0"), "far": ("M20.1",),
    }  # fmt: skip
    assert federation.topology.links("root").descendants == ("low", "M20.1")
    assert {n for n in ("root", "high", "low", "far") if n in federation.data} == {"high", "low", "far"}
    recipe = json.loads(json.dumps(federation.recipe))
    assert recipe["parents"]["M20.1"] == "far"
    assert reassemble(recipe).identity() == federation.identity()


def test_clusters_hold_those_with_similar_labels():
    """Ten clients of two classes each: whoever is in one subtree has a class in common, unlike neighbours by id."""
    changes = {"data.rotations": [], "data.clients": 10, "topology.clusters": 5}
    shards = setting(**changes, **{"data.partition": {"kind": "pathological", "classes_per_client": 2}})
    federation = assemble("bhfl", shards)
    groups = [set(children) for node, children in families(federation).items() if node != "root"]
    assert sorted(client for group in groups for client in group) == sorted(federation.homes)

    def classes(client):
        return set(federation.node(client).data["train"].y.tolist())

    def common(groups):
        return sum(bool(classes(a) & classes(b)) for group in groups for a in group for b in group if a < b)

    in_order = assemble("bhfl", shards.changed({"topology.by": "order"}))
    blocks = [set(children) for node, children in families(in_order).items() if node != "root"]
    assert [len(group) for group in blocks] == [2] * 5
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    assert common(groups) == pairs  # all who are together have a class in common
    assert common(blocks) < 5
    assert families(assemble("bhfl", shards, seed=1)) != families(federation)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ('[topology.tree]\nroot = ["M0.0", "M0.1", "M20.0"]', "participant 'M20.1' is no leaf"),
        ('[topology.tree]\nroot = ["M0.0", "M0.1", "M20.0", "M20.1", "x"]', "leaf 'x' is no participant"),
        ('[topology.tree]\nroot = ["M0.0", "M0.1", "M20.0", "M20.1", "M0.0"]', "twice"),
        ("[topology]\nclusters = 9", "9 clusters of 4"),
        ("[topology]\nclusters = 2\ntree = { root = [] }", "either a tree or clusters"),
        ('[topology]\nresiduals = [["root", "x"]]', "no node 'x'"),
        ('[topology]\nproxy = ["edge9"]', "'edge9'"),
        ('[topology]\nkind = "bush"', "topology.kind"),
    ],
)
def test_a_tree_that_cannot_be_is_one_line(more, text):
    with pytest.raises(SettingError, match=text) as caught:
        assemble("bhfl", setting(more))
    assert "\n" not in str(caught.value)


def test_a_star_does_not_mind_a_setting_with_a_tree():
    federation = assemble("fedavg", "bhfl-figure1")
    assert set(federation.topology.roles.values()) == {"server", "client"}


# -- proxy data ------------------------------------------------------------------------------------------------
def test_held_out_public_rows_are_nobodys_training_data():
    federation = assemble("bhfl", setting())
    proxy = federation.tests["M0"]["proxy"]
    train = federation.node("root").data["train"]
    assert (len(proxy), len(train)) == (50, 100)  # of 100 public digits a domain, in two rotations
    held = {row.numpy().tobytes() for row in proxy.x}
    assert len(held) == 50
    everything = [train, *(federation.node(leaf).data[view] for leaf in federation.homes for view in ("train", "all"))]
    assert not any(row.numpy().tobytes() in held for data in everything for row in data.x)
    without = assemble("bhfl", setting(**{"data.public": {"fraction": 0.1}}))
    assert set(without.tests["M0"]) == {"test"}


def test_held_out_rows_of_another_source_are_refused():
    with pytest.raises(SettingError, match="test goes with a fraction"):
        setting(**{"data.public": {"source": "mnist", "test": 0.5}})


def test_without_labelled_public_data_no_server_trains():
    federation = assemble("bhfl", setting(**{"data.public": {"fraction": 0.1, "labelled": False}}))
    assert "root" not in federation.data


# -- options by level --------------------------------------------------------------------------------------------
def test_options_differ_by_level_from_a_file_and_from_the_command_line():
    more = """
    [methods.bhfl]
    turns = { inner = 2, "*" = 1 }
    down.rate = { "edge-M0" = 0.1, 1 = 0.2, "*" = 0.5 }
    up = { kind = { root = "adam", "*" = "sgd" }, tau = 0.1 }
    """
    method = assemble("bhfl", setting(more), changes={"fraction": {"inner": 0.5, "*": 1.0}}).method
    assert method.turns == {"inner": 2, "*": 1}
    assert method.down.rate == {"edge-M0": 0.1, "1": 0.2, "*": 0.5}
    assert (method.up.kind, method.up.tau, method.up.rate) == ({"root": "adam", "*": "sgd"}, 0.1, 1.0)
    assert method.cohort.fraction == {"inner": 0.5, "*": 1.0}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"turns": {"edge-M9": 2, "*": 1}}, "turns: no node, level or role is called 'edge-M9'"),
        ({"turns": {"3": 2, "*": 1}}, "'3'"),
        ({"turns": {"leaf": 2}}, "turns has no value for root"),
        ({"turns": {"*": "often"}}, "turns"),
        ({"up.kind": "newton"}, "up.kind"),
        ({"up.rate": {"*": -1.0}}, "rate >= 0"),
    ],
)
def test_tables_with_mistakes_are_one_line(changes, text):
    with pytest.raises((OptionError, SettingError, ValueError), match=text) as caught:
        assemble("bhfl", setting(), changes=changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["fedavgm", "fedadam", "fedyogi", "fedadagrad", "fedasync", "fedbuff", "hierfavg"])
def test_every_relative_runs_by_its_name(method):
    changes = {"buffer": 2} if method == "fedbuff" else {}
    result = local(assemble(method, setting(), changes=changes)).run(1)
    assert result.metrics("global" if "server" in result.nodes else "root").acc is not None


def test_rates_of_server_optimisers_can_be_set_and_their_rule_cannot():
    assert assemble("fedadam", setting(), changes={"server.rate": 0.3}).method.server.rate == 0.3
    assert assemble("fedadam", setting(), changes={"server.rate": 0.3}).method.server.kind == "adam"
    with pytest.raises(OptionError, match=r"server\.kind"):
        assemble("fedadam", setting(), changes={"server.kind": "sgd"})


# -- the shipped system, and what is shown ------------------------------------------------------------------------
def test_the_example_system_of_the_paper():
    federation = assemble("bhfl", "bhfl-figure1")
    shape = families(federation)
    assert (shape["root"], shape["m0"], shape["m1"]) == (("m0", "m1"), ("e0", "e30"), ("e60", "e90"))
    assert len(federation.homes) == 16
    assert federation.topology.links("root").descendants == ("e0", "e30", "e60", "e90")
    assert [node for node in ("root", "m0", "m1", "e0") if node in federation.data] == ["root"]
    assert {federation.method.up.kind, federation.method.down.kind} == {"momentum"}
    assert (federation.method.largest, federation.method.per_link, federation.method.turns) == (1, True, 1)


def test_a_run_shows_the_models_of_every_level(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    folder = str(tmp_path / "run")
    command = ["run", "bhfl", "--on", str(path), "--rounds", "1", "--out", folder]
    said = CliRunner().invoke(app, [*command, "--set", 'turns={inner=2, "*"=1}'])
    assert said.exit_code == 0, said.output
    assert "models of each level" in said.stdout
    found = json.loads(CliRunner().invoke(app, ["show", folder, "--json"]).stdout.splitlines()[-1])["levels"]
    assert [row["level"] for row in found] == ["leaf", "level 1", "root"]
    assert all(0 <= row[column] <= 1 for row in found for column in ("own", "subtree", "union", "proxy"))
    assert found[2]["own"] == pytest.approx(found[2]["union"])  # one model, and equally large test sets
