"""Where something was run, in words."""

from __future__ import annotations

import os
import platform


def machine(device: str) -> str:
    """Return the processor, its cores or the GPU, and torch's version. A figure's last digits may depend on these."""
    import torch

    here = torch.cuda.get_device_name() if device.startswith("cuda") else f"{os.cpu_count()} cores"
    return f"{platform.machine()}, {here}, torch {torch.__version__.split('+')[0]}"
