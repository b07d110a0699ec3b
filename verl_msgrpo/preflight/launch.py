"""What the checks need of a launch: the shape of its model, its layout over GPUs, its batches."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omegaconf import DictConfig

from verl_msgrpo.common.json_lines import parsed
from verl_msgrpo.preflight.settings import (
    ACTOR,
    FSDP,
    MEGATRON,
    MODEL,
    ROLLOUT,
    local_path,
    text,
    value,
    whole,
)

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
    except (ImportError, ValueError):  # ValueError: not a name of the hub
        return None
    return _from_file(Path(found)) if isinstance(found, str) else None


def _from_file(path: Path) -> ModelFacts | None:
    try:
        with path.open("rb") as file:
            content, _ = parsed(file.read(MAX_CONFIG_BYTES))
    except OSError:
        return None
    if isinstance(content, dict) and isinstance(content.get("text_config"), dict):
        content = {**content, **content["text_config"]}  # the language model of a multimodal one
    return from_config(content, str(path)) if isinstance(content, dict) else None


def from_config(content: Mapping[str, object], source: str) -> ModelFacts | None:
    """Facts out of a config.json; None where it lacks a number that they need."""

    def size(*names: str) -> int:
        for name in names:
            found = content.get(name)
            if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                return found
        return 0

    heads, hidden = size("num_attention_heads"), size("hidden_size")
    model_type = str(content.get("model_type", ""))
    facts = ModelFacts(
        source=source,
        model_type=model_type,
        layers=size("num_hidden_layers"),
        hidden=hidden,
        ffn=size("intermediate_size"),
        heads=heads,
        kv_heads=size("num_key_value_heads") or heads,
        head_dim=size("head_dim") or (hidden // heads if heads else 0),
        vocab=size("vocab_size"),
        max_positions=size("max_position_embeddings"),
        tied=content.get("tie_word_embeddings") is True,
        qkv_bias=model_type == "qwen2" or content.get("attention_bias") is True,
        experts=size("num_experts", "num_local_experts", "n_routed_experts") > 1,
    )
    needed = (facts.layers, facts.hidden, facts.ffn, facts.heads, facts.vocab, facts.max_positions)
    return facts if all(needed) else None


@dataclass(frozen=True)
class Launch:
    """A composed configuration whose numbers are numbers, and what is known of its model."""

    config: DictConfig
    model: ModelFacts | None

    @cached_property
    def strategy(self) -> str:
        """ "megatron", "fsdp", "fsdp2", or an engine of verl's that is not looked into."""
        return text(self.config, f"{ACTOR}.strategy") or ""

    @property
    def is_megatron(self) -> bool:
        return self.strategy == "megatron"

    @property
    def is_fsdp(self) -> bool:
        return self.strategy in ("fsdp", "fsdp2")

    @cached_property
    def nodes(self) -> int:
        return whole(self.config, "trainer.nnodes")

    @cached_property
    def gpus_per_node(self) -> int:
        return whole(self.config, "trainer.n_gpus_per_node")

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @cached_property
    def tp(self) -> int:
        return whole(self.config, f"{MEGATRON}.tensor_model_parallel_size")

    @cached_property
    def pp(self) -> int:
        return whole(self.config, f"{MEGATRON}.pipeline_model_parallel_size")

    @cached_property
    def cp(self) -> int:
        """Ranks that share one sequence: context parallel, or Ulysses under FSDP."""
        if self.is_megatron:
            return whole(self.config, f"{MEGATRON}.context_parallel_size")
        keys = (f"{FSDP}.ulysses_sequence_parallel_size", f"{ACTOR}.ulysses_sequence_parallel_size")
        return max(whole(self.config, key) for key in keys)

    @property
    def model_parallel(self) -> int:
        """GPUs that share one copy of a sequence's computation."""
        return self.tp * self.pp * self.cp if self.is_megatron else self.cp

    @property
    def dp(self) -> int:
        return max(1, self.gpus // self.model_parallel)

    @cached_property
    def rollout_tp(self) -> int:
        return whole(self.config, f"{ROLLOUT}.tensor_model_parallel_size")

    @cached_property
    def rollout_world(self) -> int:
        """GPUs of one rollout replica."""
        dp = whole(self.config, f"{ROLLOUT}.data_parallel_size")
        return self.rollout_tp * dp * whole(self.config, f"{ROLLOUT}.pipeline_model_parallel_size")

    @property
    def replicas(self) -> int:
        return self.gpus // self.rollout_world

    @cached_property
    def n(self) -> int:
        """Responses per prompt."""
        return whole(self.config, f"{ROLLOUT}.n")

    @cached_property
    def prompts(self) -> int:
        """Prompts per step."""
        return whole(self.config, "data.train_batch_size")

    @cached_property
    def mini_prompts(self) -> int:
        """Prompts per update."""
        return whole(self.config, f"{ACTOR}.ppo_mini_batch_size")

    @property
    def updates(self) -> int:
        """Updates per step."""
        epochs = whole(self.config, f"{ACTOR}.ppo_epochs")
        return -(-self.prompts // self.mini_prompts) * epochs

    @cached_property
    def prompt_length(self) -> int:
        return whole(self.config, "data.max_prompt_length")

    @cached_property
    def response_length(self) -> int:
        return whole(self.config, "data.max_response_length")

    @property
    def sequence_length(self) -> int:
        """Tokens of the longest sequence."""
        return self.prompt_length + self.response_length

    @property
    def model_path(self) -> str:
        return text(self.config, f"{MODEL}.path") or ""

    @property
    def dynamic(self) -> bool:
        """Whether micro-batches are cut by tokens."""
        return value(self.config, f"{ACTOR}.use_dynamic_bsz") is True

    @property
    def has_reference(self) -> bool:
        """As verl's need_reference_policy."""
        return bool(
            value(self.config, "algorithm.use_kl_in_reward")
            or value(self.config, f"{ACTOR}.use_kl_loss")
        )
