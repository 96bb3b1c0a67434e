"""Colours: told apart by most eyes, on white and on dark grey."""

from __future__ import annotations

from collections.abc import Sequence

# Methods. The last is grey: who trains alone is what the others are measured against.
METHODS: dict[str, tuple[str, ...]] = {
    "light": ("#2563a8", "#c8561b", "#1f8a65", "#a8326b", "#6d50b0", "#8a6d0f", "#1d8aa3", "#7f3f2f", "#6b7280"),
    "dark": ("#74aef0", "#f4965f", "#5bc9a1", "#ee82b0", "#b09af0", "#d8bd57", "#66cfe6", "#d99a86", "#a3aab5"),
}
CLASSES: dict[str, tuple[str, ...]] = {
    "light": ("#2563a8", "#d0601f", "#1f8a65", "#b3273f", "#6d50b0", "#7a5230", "#c2478f", "#6b7280", "#93900a",
              "#1798b5"),
    "dark": ("#74aef0", "#f59b62", "#5bc9a1", "#f2788a", "#b09af0", "#c8a07a", "#f08cc8", "#a3aab5", "#d3d04f",
             "#5fd3ea"),
}  # fmt: skip
PAGE: dict[str, dict[str, str]] = {
    "light": {"ink": "#1b1f24", "faint": "#6a7280", "rule": "#e3e6ea", "paper": "#ffffff"},
    "dark": {"ink": "#e8eaed", "faint": "#9aa2ad", "rule": "#333a44", "paper": "#16191e"},
}
SCALES: dict[str, dict[str, tuple[str, ...]]] = {
    "sequential": {
        "light": ("#f4f7fb", "#cfe0f1", "#94bfe0", "#4f93c8", "#2563a8", "#123e73"),
        "dark": ("#1b212b", "#1d3b5c", "#22588d", "#3a82c4", "#74aef0", "#d4e6fb"),
    },
    "diverging": {
        "light": ("#8c2d04", "#e08a52", "#fbeee6", "#ffffff", "#e3eef8", "#5a97cc", "#123e73"),
        "dark": ("#ffb88c", "#b3602f", "#3a2a22", "#1b2027", "#1f3246", "#3a82c4", "#cfe4fb"),
    },
}
GREY = len(METHODS["light"]) - 1
# A shape for each colour, so that no figure needs colours to be read: for plotly, for matplotlib, and in a legend.
SHAPES = (
    ("circle", "o", "\N{BLACK CIRCLE}"),
    ("square", "s", "\N{BLACK SQUARE}"),
    ("triangle-up", "^", "\N{BLACK UP-POINTING TRIANGLE}"),
    ("diamond", "D", "\N{BLACK DIAMOND}"),
    ("cross", "P", "\N{HEAVY GREEK CROSS}"),
    ("triangle-down", "v", "\N{BLACK DOWN-POINTING TRIANGLE}"),
    ("star", "*", "\N{BLACK STAR}"),
    ("x", "X", "\N{HEAVY MULTIPLICATION X}"),
    ("diamond-tall", "d", "\N{BLACK DIAMOND SUIT}"),
    ("hexagon", "h", "\N{BLACK HEXAGON}"),
)
BASELINES = ("solo", "agg", "alone", "IND", "SOLO")


def assign(labels: Sequence[str]) -> dict[str, str]:
    """Return a colour for each label, the same in every figure of a report."""
    found: dict[str, str] = {}
    place = 0
    for label in labels:
        if label in BASELINES and str(GREY) not in found.values():
            found[label] = str(GREY)
        else:
            found[label] = str(place % GREY)
            place += 1
    return found


def color(name: str, theme: str = "light") -> str:
    """Return what a colour's name means."""
    if name in PAGE[theme]:
        return PAGE[theme][name]
    if name.startswith("s"):  # so many hundredths along the sequential scale
        return between(SCALES["sequential"][theme], int(name[1:]) / 100)
    table = CLASSES if name.startswith("k") else METHODS
    shades = table[theme]
    return shades[int(name.lstrip("k")) % len(shades)]


def shape(name: str) -> tuple[str, str, str]:
    """Return the shape that goes with a colour; a circle for colours of the page and of scales."""
    number = name.removeprefix("k")
    return SHAPES[int(number) % len(SHAPES) if number.isdecimal() else 0]


def between(stops: Sequence[str], share: float) -> str:
    """Return the colour that far along a scale."""
    at = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    ends = [[int(stops[i][k : k + 2], 16) for k in (1, 3, 5)] for i in (low, low + 1)]
    mixed = [round(a + (b - a) * (at - low)) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def contrast(shade: str) -> str:
    """Return black or white, whichever can be read better on it."""
    return "#ffffff" if luminance(shade) < 0.2 else "#10141a"


def luminance(shade: str) -> float:
    """Return how light a colour looks, as the web's guidelines count it."""
    parts = [int(shade[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
