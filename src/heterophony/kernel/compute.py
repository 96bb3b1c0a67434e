"""How a federation's work is computed: where, in which precision, by which executor, by how many processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import torch

from heterophony.base.wording import meant

EXECUTORS = ("auto", "eager", "branches", "stacked")
PRECISIONS = ("fp32", "tf32", "bf16")


@dataclass(frozen=True)
class Compute:
    """How work is computed. Methods do not see it.

    Results depend on some of it, as `deciding` says: another device, for example, rounds differently.
    """

    device: str = "cpu"  # where models are trained, and weights in messages stay; all else in messages is on the CPU
    executor: Literal["auto", "eager", "branches", "stacked"] = "auto"  # how pending work is computed together
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    deterministic: bool = True  # a GPU, too, repeats to the bit
    threads: int = 1  # of torch; more than one allows no worker processes
    workers: int = 1  # processes that compute on a CPU, one thread each; the same bits for any number
    resident: float = 0.5  # the share of the device's memory that models of idle nodes may take; the rest is moved out

    def __post_init__(self) -> None:
        try:
            torch.device(self.device)
        except RuntimeError:
            raise ValueError(f"there is no device {self.device!r}; it is cpu, cuda or cuda:NUMBER") from None
        _check_choice("executor", self.executor, EXECUTORS)
        _check_choice("precision", self.precision, PRECISIONS)
        for name, number in (("threads", self.threads), ("workers", self.workers)):
            if number < 1:
                raise ValueError(f"{name} is at least 1, got {number}")
        if not 0 <= self.resident <= 1:
            raise ValueError(f"resident is a share in [0, 1], got {self.resident}")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Build it from plain values, as a run folder keeps them. Unknown names are refused."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(f"compute has no {name!r}{meant(name, known)}; it has {', '.join(known)}")
        return cls(**given)

    def deciding(self) -> dict[str, Any]:
        """Return what results depend on, as plain values.

        The number of worker processes and the memory for idle models are left out: they do not change a bit.
        """
        return {
            "threads": self.threads,
            "device": self.device,
            "executor": self.executor,
            "precision": self.precision,
            "deterministic": self.deterministic,
        }


def _check_choice(name: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ValueError(f"there is no {name} {given!r}; it is {', '.join(choices)}")
