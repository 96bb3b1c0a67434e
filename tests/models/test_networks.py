"""Every built-in network: shapes, parameter counts, gradients, body and head, repeatability."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from heterophony.models import create, names
from heterophony.models.registry import reads

torch.set_num_threads(1)

ALL = [name for name, _ in names() if reads(name) == "images"]
NAMES = [name for name in ALL if name not in ("resnet101", "resnet152")]  # which are resnet50 with more blocks

# The least image side each family can take.
SMALLEST = {
    "linear": 1,
    "mlp": 1,
    "lenet5": 16,
    "lenet-caffe": 16,
    "cnn1": 16,
    "cnn1-3x3": 10,
    "cnn2": 8,
    "fedavg-cnn": 16,
    "moderate-cnn": 8,
    "wrn-10-1": 5,
    "resnet18": 9,
    "resnet50": 9,
    "mobilenetv2": 9,
    "efficientnet-b0": 17,
    "googlenet": 5,
    "alexnet": 15,
    "vgg11": 17,
}


def images(channels: int, size: int, count: int = 2) -> Tensor:
    return torch.randn(count, channels, size, size, generator=torch.Generator().manual_seed(0))


def seeded(name: str, *, in_channels: int = 3, size: int = 32, classes: int = 10) -> nn.Module:
    torch.manual_seed(1)
    return create(name, in_channels=in_channels, size=size, classes=classes)


def count(name: str, *, in_channels: int = 3, size: int = 32, classes: int = 10) -> int:
    with torch.device("meta"):
        network = create(name, in_channels=in_channels, size=size, classes=classes)
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(("channels", "size", "classes"), [(1, 28, 10), (3, 28, 7), (3, 32, 100), (3, 64, 65)])
@pytest.mark.parametrize("name", NAMES)
def test_logits_have_one_column_per_class(name: str, channels: int, size: int, classes: int) -> None:
    network = seeded(name, in_channels=channels, size=size, classes=classes).eval()
    with torch.inference_mode():
        logits = network(images(channels, size))
    assert logits.shape == (2, classes)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_forward_is_head_after_body(name: str) -> None:
    network, x = seeded(name).eval(), images(3, 32)
    with torch.inference_mode():
        features = network.body(x)
        assert isinstance(network.head, nn.Linear)
        assert features.shape == (2, network.head.in_features)
        assert torch.equal(network(x), network.head(features))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_body_and_head_and_the_body_does_not_depend_on_the_classes(name: str) -> None:
    with torch.device("meta"):
        ten, hundred = (create(name, in_channels=3, size=32, classes=c) for c in (10, 100))
    assert [child for child, _ in ten.named_children()] == ["body", "head"]
    halves = {"head"} if name == "linear" else {"body", "head"}  # its body only flattens
    assert {key.split(".")[0] for key in ten.state_dict()} == halves
    shapes = [{k: v.shape for k, v in net.body.state_dict().items()} for net in (ten, hundred)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_gets_a_finite_gradient(name: str) -> None:
    network = seeded(name)
    nn.functional.cross_entropy(network(images(3, 32)), torch.tensor([0, 1])).backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_weights_and_same_answer_in_eval_mode(name: str) -> None:
    one, two = seeded(name).eval(), seeded(name).eval()
    for (key, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert torch.equal(a, b), key
    x = images(3, 32)
    before = x.clone()
    with torch.inference_mode():
        assert torch.equal(one(x), one(x))
        assert torch.equal(one(x), two(x))
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("alexnet", "moderate-cnn")])
def test_only_networks_with_dropout_draw_random_numbers_while_training(name: str) -> None:
    network = seeded(name)
    state = torch.random.get_rng_state()
    network(images(3, 32))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_dropout_is_where_it_is_asked_for() -> None:
    from heterophony.models.alexnet import AlexNet
    from heterophony.models.efficientnet import EfficientNetB0

    with torch.device("meta"):
        rates = [
            [layer.p for layer in network.modules() if isinstance(layer, nn.Dropout)]
            for network in (
                AlexNet(in_channels=3, size=32, classes=10),
                EfficientNetB0(in_channels=3, size=32, classes=10),
                EfficientNetB0(in_channels=3, size=32, classes=10, dropout=0.2),
            )
        ]
    assert rates == [[0.5, 0.5], [], [0.2]]


@pytest.mark.parametrize(("name", "smallest"), SMALLEST.items())
def test_smallest_image_works_in_training_with_one_image_and_a_smaller_one_is_refused(name: str, smallest: int) -> None:
    assert seeded(name, size=smallest)(images(3, smallest, count=1)).isfinite().all()
    with pytest.raises(ValueError, match=f"at least {smallest}x{smallest} pixels") as error:
        create(name, in_channels=3, size=smallest - 1, classes=10)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", [{"in_channels": 0}, {"classes": 0}])
@pytest.mark.parametrize("name", SMALLEST)
def test_no_channel_or_no_class_is_refused(name: str, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one channel and one class"):
        create(name, **{"in_channels": 3, "size": 32, "classes": 10, **wrong})


@pytest.mark.parametrize("side", [2, 3, 4, 5, 7, 8])
def test_alexnets_last_pooling_is_an_adaptive_one(side: int) -> None:
    from heterophony.models.alexnet import AlexNet

    with torch.device("meta"):
        network = AlexNet(in_channels=3, size=8 * side, classes=10)
    last = [layer for layer in network.modules() if isinstance(layer, nn.MaxPool2d)][-1]
    x = images(1, side)
    assert torch.equal(last(x), nn.functional.adaptive_max_pool2d(x, 2))


# FedMD+Global, Table 1: thousands of parameters with 30 classes.
@pytest.mark.parametrize(("depth", "thousands"), [(10, 79), (16, 177), (22, 274), (28, 372), (34, 469), (40, 567)])
def test_wide_resnets_have_the_papers_counts(depth: int, thousands: int) -> None:
    assert round(count(f"wrn-{depth}-1", classes=30) / 1000) == thousands


def test_wide_resnet_counted_by_hand() -> None:
    # A convolution k x k from a to b has k*k*a*b + b parameters, a BatchNorm of c channels 2c.
    #   first   3 -> 16                                                               448
    #   group 1 bn 16, 16 -> 16, bn 16, 16 -> 16: 32 + 2320 + 32 + 2320              4,704
    #   group 2 bn 16, 16 -> 32, bn 32, 32 -> 32, 1x1: 32 + 4640 + 64 + 9248 + 544  14,528
    #   group 3 bn 32, 32 -> 64, bn 64, 64 -> 64, 1x1: 64 + 18496 + 128 + 36928 + 2112  57,728
    #   last bn 64: 128, head 64 * 30 + 30 = 1950                                    2,078
    assert count("wrn-10-1", classes=30) == 448 + 4_704 + 14_528 + 57_728 + 2_078
    # Six layers more are one block more a group, of equal width:
    #   2 * (32 + 2320) + 2 * (64 + 9248) + 2 * (128 + 36928)
    assert count("wrn-16-1", classes=30) - count("wrn-10-1", classes=30) == 4_704 + 18_624 + 74_112


BY_HAND = [
    # 784*10 + 10
    ("linear", 1, 28, 7_850),
    # 784*200 + 200, 200*200 + 200, 200*10 + 10
    ("mlp", 1, 28, 156_800 + 200 + 40_000 + 200 + 2_010),
    # 3072*200 + 200, then the same
    ("mlp", 3, 32, 614_400 + 200 + 40_000 + 200 + 2_010),
    # 25*1*6 + 6, 25*6*16 + 16, 400*120 + 120, 120*84 + 84, 84*10 + 10: the well-known 61,706
    ("lenet5", 1, 28, 156 + 2_416 + 48_120 + 10_164 + 850),
    # 25*3*6 + 6, then the same
    ("lenet5", 3, 32, 456 + 2_416 + 48_120 + 10_164 + 850),
    # 25*1*20 + 20, 25*20*50 + 50, 28 -> 24 -> 12 -> 8 -> 4: 50*16*500 + 500, 500*10 + 10: Caffe's 431,080
    ("lenet-caffe", 1, 28, 520 + 25_050 + 400_500 + 5_010),
    # As LeNet-5 (32 -> 28 -> 14 -> 10 -> 5) without the layer of 84: 120*10 + 10
    ("cnn1", 3, 32, 456 + 2_416 + 48_120 + 1_210),
    # 9*3*6 + 6, 9*6*16 + 16, 32 -> 30 -> 15 -> 13 -> 6: 16*36*120 + 120, 120*10 + 10
    ("cnn1-3x3", 3, 32, 168 + 880 + 69_240 + 1_210),
    # 9*3*128 + 128, twice 9*128*128 + 128, 128*4*4*10 + 10
    ("cnn2", 3, 32, 3_584 + 2 * 147_584 + 20_490),
    # 25*3*32 + 32, 25*32*64 + 64, 32 -> 28 -> 14 -> 10 -> 5: 64*25*512 + 512, 512*10 + 10
    ("fedavg-cnn", 3, 32, 2_432 + 51_264 + 819_712 + 5_130),
    # 3-32-64-128-128-256-256 by 3x3, 256*4*4*512 + 512, 512*512 + 512, 512*10 + 10
    ("moderate-cnn", 3, 32, 896 + 18_496 + 73_856 + 147_584 + 295_168 + 590_080 + 2_097_664 + 262_656 + 5_130),
    # 3-64-192-384-256-256 by 3x3, 1024*4096 + 4096, 4096*4096 + 4096, 4096*10 + 10
    (
        "alexnet",
        3,
        32,
        1_792 + 110_784 + 663_936 + 884_992 + 590_080 + 4_198_400 + 16_781_312 + 40_970,
    ),
    # 9*(3*64 + 64*128 + 128*256 + 256*256 + 256*512 + 3*512*512), BatchNorm 2*(64 + 128 + 2*256 + 4*512),
    # 512*10 + 10
    ("vgg11", 3, 32, 9 * 1_024_192 + 2 * 2_752 + 5_130),
]


@pytest.mark.parametrize(("name", "channels", "size", "expected"), BY_HAND)
def test_counted_by_hand(name: str, channels: int, size: int, expected: int) -> None:
    assert count(name, in_channels=channels, size=size) == expected


def test_googlenet_counted_from_the_papers_table() -> None:
    # inputs: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection (Table 1); each with BatchNorm, no biases
    table = [
        (192, 64, 96, 128, 16, 32, 32),
        (256, 128, 128, 192, 32, 96, 64),
        (480, 192, 96, 208, 16, 48, 64),
        (512, 160, 112, 224, 24, 64, 64),
        (512, 128, 128, 256, 24, 64, 64),
        (512, 112, 144, 288, 32, 64, 64),
        (528, 256, 160, 320, 32, 128, 128),
        (832, 256, 160, 320, 32, 128, 128),
        (832, 384, 192, 384, 48, 128, 128),
    ]
    expected = 27 * 192 + 2 * 192 + 1024 * 10 + 10
    for inputs, one, reduce3, three, reduce5, five, pool in table:
        expected += inputs * (one + reduce3 + reduce5 + pool) + 9 * reduce3 * three + 25 * reduce5 * five
        expected += 2 * (one + reduce3 + three + reduce5 + five + pool)
    assert count("googlenet") == expected == 5_871_914


# Strides and pooling have no parameters, so the ImageNet forms' counts, which torchvision's pages print,
# hold here too; only the ResNets' first kernel is 3x3 instead of 7x7, which is 3*64*(49 - 9) less.
@pytest.mark.parametrize(
    ("name", "imagenet", "first_layer"),
    [
        ("mobilenetv2", 3_504_872, 0),
        ("efficientnet-b0", 5_288_548, 0),
        ("resnet18", 11_689_512, 7_680),
        ("resnet34", 21_797_672, 7_680),
        ("resnet50", 25_557_032, 7_680),
        ("resnet101", 44_549_160, 7_680),
        ("resnet152", 60_192_808, 7_680),
    ],
)
def test_counts_of_the_imagenet_forms(name: str, imagenet: int, first_layer: int) -> None:
    assert count(name, classes=1000) == imagenet - first_layer


def test_short_resnets_differ_by_their_blocks() -> None:
    # A block of equal width c: twice 9*c*c + 2c. ResNet18 has one of each width more than ResNet10, ResNet12
    # one of 64.
    block = {c: 2 * (9 * c * c + 2 * c) for c in (64, 128, 256, 512)}
    assert count("resnet12") - count("resnet10") == block[64]
    assert count("resnet18") - count("resnet10") == sum(block.values())


@pytest.mark.parametrize("name", [*(n for n in ALL if not n.startswith("wrn")), "wrn-10-1", "wrn-40-1"])
def test_docstrings_tell_the_count(name: str) -> None:
    with torch.device("meta"):
        network = create(name, in_channels=3, size=32, classes=10)
    assert f"{count(name):,}" in (network.__doc__ or "")
