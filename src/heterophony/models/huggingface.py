"""Networks of the `transformers` package over bytes: nothing is downloaded.

`transformers-lm:gpt2` is a small model of that type, `transformers-lm:PATH` that of a local `config.json`,
and `transformers-classifier:...` the same with a classifying head. Both have random weights.
`transformers-pretrained-lm:PATH` and `transformers-pretrained-classifier:PATH` have those of `model.safetensors` in
that folder. What does not fit bytes, or our classes, is random: embeddings of words, and heads. Needs the extra `text`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from heterophony.data.text import BYTES

KINDS = (
    *("transformers-lm", "transformers-classifier"),
    *("transformers-pretrained-lm", "transformers-pretrained-classifier"),
)
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
    if kind not in KINDS:
        raise ValueError(f"network {name!r}: write KIND:TYPE or KIND:FOLDER, where KIND is {', '.join(KINDS)}")
    sequence = kind.endswith("-lm")
    fixed: dict[str, Any] = {"vocab_size": BYTES, "use_cache": False, "pad_token_id": 0}
    fixed |= {"is_decoder": True} if sequence else {"num_labels": classes}
    auto = transformers.AutoModelForCausalLM if sequence else transformers.AutoModelForSequenceClassification
    try:
        if "-pretrained-" in kind:
            return Transformer(_pretrained(auto, Path(what), fixed), sequence)
        if Path(what).exists():
            config = transformers.AutoConfig.from_pretrained(
                what, local_files_only=True, trust_remote_code=False, **fixed
            )
        else:
            room = {"max_position_embeddings": max(size, 16), "intermediate_size": 4 * SMALL["hidden_size"]}
            config = transformers.AutoConfig.for_model(what, **SMALL, **room, **fixed)
        return Transformer(auto.from_config(config), sequence)
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"network {name!r}: {' '.join(str(error).split())[:200]}") from None


def _pretrained(auto: Any, folder: Path, fixed: dict[str, Any]) -> nn.Module:
    """Return the network of a local folder with its weights; what does not fit is drawn anew. No pickle is read."""
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise ValueError(f"{folder} is no folder with config.json and model.safetensors")
    model: nn.Module = auto.from_pretrained(
        folder,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        ignore_mismatched_sizes=True,
        **fixed,
    )
    return model.train()
