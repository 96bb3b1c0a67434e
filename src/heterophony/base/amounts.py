"""Amounts in words, as lists, tables and pages write them."""

from __future__ import annotations


def percent(value: float | None) -> str:
    """Return a share as "12.3 %", and "-" where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    """Return a number with two digits after the point, and "-" where there is none."""
    return "-" if value is None else f"{value:.2f}"


def counted(n: int, what: str) -> str:
    """Return "1 round", "2 rounds" and so on."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def size(n: float) -> str:
    """Return bytes with a unit: "1.5 MB"."""
    for unit in ("B", "kB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} GB"
