"""Networks of the `transformers` package over bytes, with random weights: nothing is downloaded.

`transformers-lm:gpt2` is a small model of that type, `transformers-lm:PATH` the one that a local `config.json`
describes; `transformers-classifier:...` the same with a classifying head. Needs the extra `text`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from heterophony.data.text import BYTES

# What a type without a file is made of. Names that a type does not know mean nothing to it.
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}


class Transformer(nn.Module):
    """Bytes (rows, places) to logits: (rows, classes, places) of a language model, (rows, classes) of a classifier."""

    def __init__(self, inner: nn.Module, sequence: bool) -> None:
        super().__init__()
        self.inner, self.sequence = inner, sequence

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(input_ids=x).logits
        return logits.movedim(-1, 1) if self.sequence else logits


def build(name: str, *, in_channels: int, size: int, classes: int) -> nn.Module:
    """Build the network of that name. Its weights are drawn from torch's generator."""
    try:
        import transformers
    except ImportError:
        raise ValueError(f"network {name!r} needs transformers: pip install 'heterophony[text]'") from None
    kind, _, what = name.partition(":")
    sequence = kind == "transformers-lm"
    if kind not in ("transformers-lm", "transformers-classifier"):
        raise ValueError(f"network {name!r}: write transformers-lm:TYPE or transformers-classifier:TYPE")
    fixed: dict[str, Any] = {"vocab_size": BYTES, "use_cache": False, "pad_token_id": 0}
    fixed |= {} if sequence else {"num_labels": classes}
    try:
        if Path(what).exists():
            config = transformers.AutoConfig.from_pretrained(
                what, local_files_only=True, trust_remote_code=False, **fixed
            )
        else:
            room = {"max_position_embeddings": max(size, 16), "intermediate_size": 4 * SMALL["hidden_size"]}
            config = transformers.AutoConfig.for_model(what, **SMALL, **room, **fixed)
        auto = transformers.AutoModelForCausalLM if sequence else transformers.AutoModelForSequenceClassification
        return Transformer(auto.from_config(config), sequence)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"network {name!r}: {' '.join(str(error).split())[:200]}") from None
