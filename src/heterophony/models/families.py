"""Groups of networks by name, which are dealt round to participants: `models.participants = "family:htfe-img-4"`.

The names that begin with `htfe` and `htm` are those of HtFLlib's groups of image networks. Its networks are here in
their forms for small images, with BatchNorm. What else differs is said in each group's line.
"""

from __future__ import annotations

from heterophony.base.wording import meant

PREFIX = "family:"

_FOUR = ("fedavg-cnn", "googlenet", "mobilenetv2", "resnet18")
_EIGHT = (*_FOUR, "resnet34", "resnet50", "resnet101", "resnet152")

# name: (networks, summary)
_FAMILIES: dict[str, tuple[tuple[str, ...], str]] = {
    "htfe-img-2": (("fedavg-cnn", "resnet18"), "HtFLlib's HtFE-img-2"),
    "htfe-img-3": (("resnet10", "resnet18", "resnet34"), "HtFLlib's HtFE-img-3"),
    "htfe-img-4": (_FOUR, "HtFLlib's HtFE-img-4"),
    "htfe-img-5": (("googlenet", "mobilenetv2", "resnet18", "resnet34", "resnet50"), "HtFLlib's HtFE-img-5"),
    "htfe-img-8": (_EIGHT, "HtFLlib's HtFE-img-8"),
    "htfe-img-9": (
        ("resnet4", "resnet6", "resnet8", "resnet10", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
        "HtFLlib's HtFE-img-9",
    ),
    "htm-img-10": (
        (*_EIGHT, "vit-small", "vit-tiny"),
        "HtFLlib's HtM-img-10, but for two small transformers in place of ViT-B/16 and ViT-B/32",
    ),
    "series-3": (("cnn1d", "lstm", "gru"), "ours, for series and windows of sensors"),
}


def families() -> list[tuple[str, str]]:
    """Return the families, each with one line that says what it is and which networks it has."""
    return [(PREFIX + name, f"{summary}: {', '.join(members)}") for name, (members, summary) in _FAMILIES.items()]


def members(name: str) -> tuple[str, ...]:
    """Return the networks of a family in their order, or the one network that has this name."""
    if not name.startswith(PREFIX):
        return (name,)
    short = name.removeprefix(PREFIX)
    if short not in _FAMILIES:
        known = list(_FAMILIES)
        raise ValueError(f"unknown family {name!r}{meant(short, known)}; there are {', '.join(known)}")
    return _FAMILIES[short][0]
