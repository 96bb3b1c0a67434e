"""Write what byzfl makes of a few small tensors, which tests compare ours with: tests/parts/robust_oracle.json.

pip install --target /tmp/byzfl --no-deps byzfl
python tools/make_robust_oracle.py /tmp/byzfl

byzfl's own `__init__` imports torchvision. So its modules of aggregators are loaded without it.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import torch

TARGET = Path(__file__).parents[1] / "tests" / "parts" / "robust_oracle.json"
LIARS = 2


def loaded(folder: Path) -> Any:
    """Return byzfl.aggregators."""
    package = types.ModuleType("byzfl")
    package.__path__ = [str(folder / "byzfl")]
    sys.modules["byzfl"] = package
    utils = types.ModuleType("byzfl.utils")
    utils.__path__ = [str(folder / "byzfl" / "utils")]
    sys.modules["byzfl.utils"] = utils
    sys.path.insert(0, str(folder))
    return importlib.import_module("byzfl.aggregators")


def main() -> None:
    made = loaded(Path(sys.argv[1]))
    draw = torch.Generator().manual_seed(0)
    honest = torch.randn(7, 6, generator=draw, dtype=torch.float64)
    liars = 20 * torch.randn(LIARS, 6, generator=draw, dtype=torch.float64)
    points = torch.cat([honest, liars])
    clipping = made.Clipping(c=2.0)
    rules = {
        "median": made.Median(),
        "trimmed": made.TrMean(f=LIARS),
        "krum": made.Krum(f=LIARS),
        "multi-krum": made.MultiKrum(f=LIARS),
        "geometric-median": made.GeometricMedian(nu=1e-12, T=5000),
        "centred-clipping": made.CenteredClipping(L=3, tau=2.0),  # from zero
        "mixed": made.NNM(f=LIARS),
        "norm-clipping": lambda given: torch.stack([torch.as_tensor(p) for p in clipping(given)]).mean(0),  # at zero
    }
    found = {name: torch.as_tensor(rule(points.clone())).tolist() for name, rule in rules.items()}
    TARGET.write_text(json.dumps({"points": points.tolist(), "liars": LIARS, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
