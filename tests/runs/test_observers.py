"""What a run folder gets beside its tables: counted by hand, and principal components against torch's own."""

import pytest
import torch
from torch import nn

from heterophony.data.table import Data
from heterophony.runs.features import features, principal
from heterophony.runs.folder import Folder
from heterophony.runs.population import population
from heterophony.settings import assemble
from toys.compared import call, said


def test_the_population_is_what_everyone_holds(small, runs):
    federation = assemble("solo", str(small))
    for name, own in population(federation).items():
        labels = federation.node(name).data["train"].y
        assert own["classes"] == [int((labels == label).sum()) for label in range(10)]
        assert (own["domain"], own["network"]) == (name, "mlp")
    assert Folder(runs / "solo/seed-0").extra("population.json")["participants"] == population(federation)


def test_features_are_what_the_last_layer_is_given():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    data = Data(x=torch.randn(700, 2, 3), y=torch.zeros(700, dtype=torch.long), classes=3)  # more than a batch
    assert torch.allclose(features(net, data), net[:3](data.x), atol=1e-6)
    assert features(nn.Flatten(), data) is None
    assert not net[3]._forward_pre_hooks


def test_principal_components_are_torchs():
    torch.manual_seed(1)
    rows = torch.randn(50, 4, dtype=torch.float64) @ torch.diag(torch.tensor([5.0, 2.0, 1.0, 0.1], dtype=torch.float64))
    points, shares = principal(rows)
    values, vectors = torch.linalg.eigh(torch.cov(rows.T))  # ascending
    expected = (rows - rows.mean(0)) @ vectors[:, [3, 2]]
    for i in range(2):
        scaled = expected[:, i] / expected[:, 0].std()
        assert torch.allclose(points[:, i].abs(), scaled.abs())
    assert shares == pytest.approx([float(values[3] / values.sum()), float(values[2] / values.sum())])


def test_principal_components_of_hardly_anything():
    points, shares = principal(torch.tensor([[1.0], [2.0], [4.0]]))
    assert points.shape == (3, 2)
    assert shares == pytest.approx([1.0])
    assert principal(torch.ones(4, 3))[0].isfinite().all()


def test_maps_say_which_domain_and_class_a_point_is_of(runs):
    found = Folder(runs / "fccl/seed-0").extra("features.json")["participants"]
    assert list(found) == ["a", "b"]
    for own in found.values():
        assert len(own["points"]) == len(own["labels"]) == len(own["domains"]) == 2 * 20
        assert set(own["domains"]) == {"a", "b"}


def test_looking_changes_nothing(small, runs, tmp_path, monkeypatch):
    from heterophony.runs import observers

    monkeypatch.setattr(observers, "begin", lambda *_: None)
    monkeypatch.setattr(observers, "end", lambda *_: None)
    blind = said(call("run", "fccl", "--on", small, "--out", tmp_path / "run", "--json"))
    assert blind["digest"] == Folder(runs / "fccl/seed-0").summary.digest
    assert not (tmp_path / "run" / "features.json").exists()
