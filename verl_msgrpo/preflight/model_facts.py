"""What is known of a model without its weights."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_msgrpo.preflight.settings import local_path

MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class ModelFacts:
    """The shape of a decoder; of one with experts all but the number of parameters."""

    source: str
    model_type: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_positions: int
    tied: bool
    """Whether the embedding is also the output layer."""
    qkv_bias: bool
    experts: bool = False

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: attention, gated feed-forward, two norms."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (queries + 2 * keys) + queries * self.hidden
        bias = queries + 2 * keys if self.qkv_bias else 0
        return attention + bias + 3 * self.hidden * self.ffn + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters; an embedding that is also the output layer counts once."""
        ends = self.embedding_parameters * (1 if self.tied else 2)
        return self.layers * self.layer_parameters + ends + self.hidden


# From the public config.json of the recipes' models; a local config.json always wins.
KNOWN: Mapping[str, ModelFacts] = {
    "Qwen/Qwen2.5-7B-Instruct": ModelFacts(
        "built-in table", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, False, True
    ),
    "meta-llama/Llama-3.2-3B-Instruct": ModelFacts(
        "built-in table", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 131072, True, False
    ),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": ModelFacts(
        "built-in table", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 131072, False, True
    ),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": ModelFacts(
        "built-in table", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 131072, False, True
    ),
}


def model_facts(path: str) -> ModelFacts | None:
    """Facts of a folder, or of a name of the hub that is cached or in the table; else None."""
    folder = local_path(path)
    if folder is not None and os.path.isdir(folder):
        return _from_file(Path(folder) / "config.json")
    return _from_cache(path) or KNOWN.get(path)


def _from_cache(name: str) -> ModelFacts | None:
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json")
    except (ImportError, ValueError):  # ValueError: no name of the hub
        return None
    return _from_file(Path(found)) if isinstance(found, str) else None


def _from_file(path: Path) -> ModelFacts | None:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(content, dict) and isinstance(content.get("text_config"), dict):
        content = {**content, **content["text_config"]}  # the language model of a multimodal one
    return from_config(content, str(path)) if isinstance(content, dict) else None


def from_config(content: Mapping[str, object], source: str) -> ModelFacts | None:
    """Facts out of a config.json; None where it lacks a number that they need."""

    def whole(*names: str) -> int:
        for name in names:
            found = content.get(name)
            if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                return found
        return 0

    heads, hidden = whole("num_attention_heads"), whole("hidden_size")
    model_type = str(content.get("model_type", ""))
    facts = ModelFacts(
        source=source,
        model_type=model_type,
        layers=whole("num_hidden_layers"),
        hidden=hidden,
        ffn=whole("intermediate_size"),
        heads=heads,
        kv_heads=whole("num_key_value_heads") or heads,
        head_dim=whole("head_dim") or (hidden // heads if heads else 0),
        vocab=whole("vocab_size"),
        max_positions=whole("max_position_embeddings"),
        tied=content.get("tie_word_embeddings") is True,
        qkv_bias=model_type == "qwen2" or content.get("attention_bias") is True,
        experts=whole("num_experts", "num_local_experts", "n_routed_experts") > 1,
    )
    needed = (facts.layers, facts.hidden, facts.ffn, facts.heads, facts.vocab, facts.max_positions)
    return facts if all(needed) else None
