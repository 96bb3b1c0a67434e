"""Write what peft makes of fixed numbers to tests/methods/peft_oracle.json. Needs peft, in any environment.

All tensors have the entries 0.1 * sin(1), 0.1 * sin(2), ... in their order. The rank is 2, and the scale 1.5.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

OUT = Path(__file__).resolve().parents[1] / "tests" / "methods" / "peft_oracle.json"


def ordered(*shape: int) -> Tensor:
    """Return a tensor of the rule's numbers."""
    count = torch.Size(shape).numel()
    return (0.1 * torch.sin(torch.arange(1, count + 1, dtype=torch.float64))).view(shape)


def made(layer: nn.Module, x: Tensor) -> dict[str, object]:
    """Return outputs of an adapted layer, and gradients of the sum of their squares."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, lora_alpha=3, target_modules=["0"], lora_dropout=0.0, bias="none")
    inner = get_peft_model(nn.Sequential(layer.double()), config).base_model.model[0]
    down, up = inner.lora_A["default"].weight, inner.lora_B["default"].weight
    down.data, up.data = down.data.double(), up.data.double()
    base = inner.base_layer
    with torch.no_grad():
        for tensor in (base.weight, base.bias):
            tensor.copy_(ordered(*tensor.shape))
        for tensor in (down, up):
            tensor.copy_(ordered(tensor.shape[0], tensor[0].numel()).view_as(tensor))
    outputs = inner(x)
    outputs.square().sum().backward()
    gradients = {"down": down.grad.flatten().tolist(), "up": up.grad.flatten().tolist()}
    return {"outputs": outputs.tolist(), **gradients}


def main() -> None:
    found = {
        "linear": made(nn.Linear(3, 4), ordered(2, 3)),
        "conv1d": made(nn.Conv1d(2, 4, 3, padding=1), ordered(2, 2, 5)),
        "conv2d": made(nn.Conv2d(2, 4, 3, stride=2), ordered(2, 2, 5, 5)),
    }
    OUT.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
