"""Networks of torchvision, timm and transformers by name.

What only concerns how they are found and split is tested with small packages that are written here and have the same
functions. The real ones are tested where they are installed.
"""

from __future__ import annotations

import importlib
import sys

import pytest
import safetensors.torch
import torch
from torch import nn

from heterophony.models import create
from heterophony.models.registry import imports, reads

SHAPE = {"in_channels": 3, "size": 32}

VISION = """
import torch
from torch import nn
class Small(nn.Module):
    def __init__(self, num_classes=1000, width=4):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, stride=2)
        self.bn1 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, num_classes)
    def forward(self, x):
        return self.fc(self.bn1(self.conv1(x)).relu().mean((2, 3)))
class Sized(Small):
    def __init__(self, num_classes=1000, image_size=224):
        super().__init__(num_classes)
        self.place = nn.Parameter(torch.zeros(image_size))
class Scaled(Small):
    def forward(self, x):
        return super().forward(x).softmax(-1)
class Convolved(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.classifier = nn.Conv2d(3, num_classes, 1)
    def forward(self, x):
        return self.classifier(x).mean((2, 3))
class Boxes(Small):
    def forward(self, x):
        return {"boxes": x}
NETWORKS = {"small18": Small, "vit_small": Sized, "scaled": Scaled, "convolved": Convolved, "boxes": Boxes}
def list_models(module=None):
    return list(NETWORKS)
def get_model(name, weights=None, **config):
    assert weights is None
    return NETWORKS[name](**config)
"""

TIMM = """
from torch import nn
def list_models():
    return ["tiny"]
def is_model(name):
    return name == "tiny"
def create_model(name, pretrained=False, num_classes=1000, in_chans=3):
    assert not pretrained
    return nn.Sequential(nn.Conv2d(in_chans, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, num_classes))
"""


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Packages of these names that are found before any others."""
    for package, module, text in (("torchvision", "models", VISION), ("timm", "__init__", TIMM)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / f"{module}.py").write_text(text)
        for loaded in [name for name in sys.modules if name.partition(".")[0] == package]:
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("torchvision", "torchvision.models", "timm"):
        sys.modules.pop(name, None)


def refusal(name, **more):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (its text is looked at)
        create(name, **{**SHAPE, "classes": 7, **more})
    assert "\n" not in str(error.value)
    return str(error.value)


def test_packages_need_no_trust_and_read_images():
    for name in ("torchvision:resnet18", "timm:resnet18", "transformers:vit"):
        assert imports(name) == []
        assert reads(name) == "images"


@pytest.mark.parametrize("name", ["torchvision:small18", "torchvision:vit_small", "timm:tiny"])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_a_network_of_a_package_is_body_and_head_for_the_task(stand_ins, name, channels):
    torch.manual_seed(0)
    network = create(name, in_channels=channels, size=32, classes=7)
    x = torch.randn(4, channels, 32, 32)
    assert [child for child, _ in network.named_children()] == ["body", "head"]
    assert isinstance(network.head, nn.Linear)
    assert network(x).shape == (4, 7)
    network.eval()
    assert torch.equal(network(x), network.head(network.body(x)))
    network(x).square().sum().backward()
    assert all(p.grad is not None for name, p in network.named_parameters() if "place" not in name)


def test_networks_that_are_told_their_size_are(stand_ins):
    assert create("torchvision:vit_small", **SHAPE, classes=7).body.inner.place.shape == (32,)


def test_grey_images_are_shown_as_colours_so_that_weights_fit(stand_ins):
    torch.manual_seed(0)
    network = create("torchvision:small18", in_channels=1, size=32, classes=7).eval()
    torch.manual_seed(0)
    colours = create("torchvision:small18", in_channels=3, size=32, classes=7).eval()
    x = torch.randn(2, 1, 32, 32)
    assert torch.equal(network(x), colours(x.repeat(1, 3, 1, 1)))


def test_weights_of_the_package_are_taken_with_a_new_head_and_parts_are_frozen(stand_ins, tmp_path):
    vision = importlib.import_module("torchvision.models")
    torch.manual_seed(4)
    theirs = vision.get_model("small18").state_dict()  # for a thousand classes
    torch.save(theirs, tmp_path / "w.pth")
    parts = ("body.inner.conv1", "body.inner.bn1")
    network = create("torchvision:small18", **SHAPE, classes=7, weights=str(tmp_path / "w.pth"), frozen=parts)
    assert torch.equal(network.body.inner.conv1.weight, theirs["conv1.weight"])
    assert network.head.weight.shape == (7, 4)
    assert [name for name, p in network.named_parameters() if p.requires_grad] == ["head.weight", "head.bias"]
    # what was made here fits too
    torch.save(network.state_dict(), tmp_path / "ours.pt")
    again = create("torchvision:small18", **SHAPE, classes=7, weights=str(tmp_path / "ours.pt"))
    assert all(
        torch.equal(a, b) for a, b in zip(again.state_dict().values(), network.state_dict().values(), strict=True)
    )
    torch.save({**theirs, "conv1.weight": torch.zeros(4, 1, 3, 3)}, tmp_path / "w.pth")
    assert "tensor 'conv1.weight' is 4 x 1 x 3 x 3, in network 'torchvision:small18' it is 4 x 3 x 3 x 3" in refusal(
        "torchvision:small18", weights=str(tmp_path / "w.pth")
    )


@pytest.mark.parametrize(
    ("name", "more", "text"),
    [
        ("torchvision:smal18", {}, "unknown network 'torchvision:smal18', perhaps you meant 'torchvision:small18'"),
        (
            "timm:hf-hub:somebody/model",
            {},
            "unknown network 'timm:hf-hub:somebody/model', perhaps you meant 'timm:tiny'",
        ),
        ("torchvision:scaled", {}, "its last layer must be linear"),
        ("torchvision:convolved", {}, "its last layer must be linear"),
        ("torchvision:boxes", {}, "gives a dict, not a tensor of outputs"),
        ("torchvision:small18", {"size": 2}, "cannot read images of 3 x 2 x 2 (RuntimeError: "),
        ("torchvision:small18", {"shape": (6, 30)}, "reads images (channels, height, width)"),
    ],
)
def test_what_a_package_has_not_is_refused_in_one_line(stand_ins, name, more, text):
    assert text in refusal(name, **more)


def test_a_package_that_is_missing_or_broken_is_said_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # as if it were not there
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "needs torchvision: pip install 'heterophony[vision]', with torchvision of the same build" in refusal(
        "torchvision:resnet18"
    )
    assert "needs transformers: pip install 'heterophony[text]'" in refusal("transformers:vit")
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    assert "timm is there, but importing it raised RuntimeError: operator torchvision::nms" in refusal("timm:resnet18")


# -- the real ones ---------------------------------------------------------------------------------------------
def real(package):
    """The package, or a skip where it is missing or of another build than torch."""
    try:
        return importlib.import_module(package)
    except Exception as error:
        pytest.skip(f"{package}: {error}")


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "googlenet", "vit_b_16"])
def test_torchvision_itself(name, tmp_path):
    real("torchvision")
    from torchvision.models import get_model

    theirs = get_model(name, weights=None, **({"aux_logits": False} if name == "googlenet" else {}))
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    side = 224 if name == "vit_b_16" else 64
    network = create(f"torchvision:{name}", in_channels=3, size=side, classes=7, weights=str(tmp_path / "w.pth"))
    x = torch.randn(2, 3, side, side)
    own = network.state_dict()
    kept = {f"body.inner.{key}": tensor for key, tensor in theirs.state_dict().items() if f"body.inner.{key}" in own}
    assert len(kept) >= len(own) - 2
    assert all(torch.equal(own[key], tensor) for key, tensor in kept.items())
    assert network(x).shape == (2, 7)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_timm_itself(name):
    real("timm")
    network = create(f"timm:{name}", in_channels=1, size=32, classes=7).eval()
    x = torch.randn(2, 1, 32, 32)
    assert torch.equal(network(x), network.head(network.body(x)))


def test_transformers_itself_by_type_and_by_a_folder_with_weights(tmp_path):
    transformers = real("transformers")
    torch.manual_seed(0)
    assert create("transformers:vit", in_channels=1, size=28, classes=7)(torch.randn(2, 1, 28, 28)).shape == (2, 7)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, patch_size=8, image_size=32
    )
    theirs = transformers.AutoModelForImageClassification.from_config(config).eval()
    theirs.save_pretrained(tmp_path / "tiny")
    weights = str(tmp_path / "tiny" / "model.safetensors")
    network = create(
        f"transformers:{tmp_path / 'tiny'}", **SHAPE, classes=7, weights=weights, frozen=("body.inner.vit",)
    ).eval()
    x = torch.randn(2, 3, 32, 32)
    states = theirs.vit(pixel_values=x).last_hidden_state[:, 0]
    torch.testing.assert_close(network.body(x), states)
    assert network(x).shape == (2, 7)
    assert {name for name, p in network.named_parameters() if p.requires_grad} == {"head.weight", "head.bias"}
    tensors = safetensors.torch.load_file(weights)
    name = f"transformers:{tmp_path / 'tiny'}"
    for change, text in (
        ({"vit.layernorm.bias": torch.zeros(3)}, "tensor 'vit.layernorm.bias' is 3, in network"),
        ({"more": torch.zeros(3)}, "has a tensor 'more'"),
        ({"vit.layernorm.bias": None}, "has no tensor 'vit.layernorm.bias'"),
    ):
        changed = {key: tensor for key, tensor in {**tensors, **change}.items() if tensor is not None}
        torch.save(changed, tmp_path / "w.pt")
        assert text in refusal(name, weights=str(tmp_path / "w.pt"))
    assert "network 'transformers:nonsense'" in refusal("transformers:nonsense")
