"""Where something was run, in words."""

from __future__ import annotations

import os
import platform


def machine(device: str) -> str:
    """Processor, cores or GPU, and torch's version: what figures may depend on in their last digits."""
    import torch

    here = torch.cuda.get_device_name() if device.startswith("cuda") else f"{os.cpu_count()} cores"
    return f"{platform.machine()}, {here}, torch {torch.__version__.split('+')[0]}"
