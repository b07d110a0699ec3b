"""What the checks need of a run: its layout over GPUs, its batches, its lengths."""

from dataclasses import dataclass
from functools import cached_property

from omegaconf import DictConfig

from verl_msgrpo.preflight.model_facts import ModelFacts
from verl_msgrpo.preflight.settings import A, text, value, whole

ACTOR = f"{A}.actor"
REF = f"{A}.ref"
ROLLOUT = f"{A}.rollout"
MEGATRON = f"{ACTOR}.megatron"
FSDP = f"{ACTOR}.fsdp_config"


@dataclass(frozen=True)
class Run:
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
        return text(self.config, f"{A}.model.path") or ""

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
