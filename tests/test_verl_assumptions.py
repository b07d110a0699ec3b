"""What this package assumes of verl's source: a new release of verl fails here, by name.

Nothing of ours runs. Each assumption is a test of its own, so that the report of a failed run reads
as the list of what changed. What an assumption is for stands beside it.
"""

import dataclasses
import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

pytest.importorskip("verl")
import verl  # noqa: F401  loads the plugins

LOOP = "verl.experimental.agent_loop"
V1 = "verl.trainer.ppo.v1.trainer_base"


def look_up(name):
    """The object at "module:a.b"; fails with the name of what is gone."""
    module, _, path = name.partition(":")
    try:
        found = importlib.import_module(module)
        for part in path.split(".") if path else ():
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        pytest.fail(f"verl has no {name} any more: {error}")
    return found


# --- Signatures -----------------------------------------------------------------------------------

# What we call, or define under the same name, with the parameters that we pass or take.
SIGNATURES = {
    # the estimator
    "verl.trainer.ppo.core_algos:register_adv_est": ["name_or_enum"],
    "verl.trainer.ppo.ray_trainer:compute_advantage": ["data", "adv_estimator", "config"],
    "verl.trainer.ppo.v1.utils:compute_advantage_for_multi_trajectories": [
        "data", "batch_keys", "adv_estimator", "config",
    ],
    # the trainers' mixin
    f"{V1}:PPOTrainer.__init__": ["config"],
    f"{V1}:PPOTrainer.prepare_step": [],
    f"{V1}:PPOTrainer._add_prompts_to_generate": ["num_prompts"],
    f"{V1}:PPOTrainer._compute_advantage": ["batch", "metrics"],
    f"{V1}:PPOTrainer._compute_metrics": [
        "batch", "metrics", "timing_raw", "global_steps", "epoch",
    ],
    f"{V1}:get_trainer_cls": ["name"],
    "transfer_queue:kv_batch_get": ["keys", "partition_id", "select_fields"],
    # the agent loops
    f"{LOOP}.agent_loop:register": ["agent_name"],
    f"{LOOP}.agent_loop:AgentLoopBase.__init__": [
        "trainer_config", "server_manager", "tokenizer", "processor", "dataset_cls", "data_config",
    ],
    f"{LOOP}.agent_loop:AgentLoopBase.run": ["sampling_params"],
    f"{LOOP}.agent_loop:AgentLoopBase.ct_build_initial_tokens": ["messages"],
    f"{LOOP}.agent_loop:AgentLoopBase.ct_merge_context_msg": [
        "previous_messages", "updated_messages", "runtime_token_ids", "response_mask",
        "response_logprobs", "tools",
    ],
    f"{LOOP}.agent_loop:AgentLoopBase._cap_text_prompt_length": ["prompt_ids"],
    f"{LOOP}.agent_loop:DictConfigWrap": ["config"],
    f"{LOOP}.agent_loop:ToolListWrap": ["tools"],
    f"{LOOP}.tool_agent_loop:ToolAgentLoop.__init__": ["tools"],
    f"{LOOP}.tool_agent_loop:ToolAgentLoop._handle_generating_state": [
        "agent_data", "sampling_params", "ignore_termination",
    ],
    f"{LOOP}.tool_agent_loop:ToolAgentLoop._handle_processing_tools_state": ["agent_data"],
    f"{LOOP}.tool_agent_loop:ToolAgentLoop._call_tool": ["tool_call", "tools_kwargs", "agent_data"],
    f"{LOOP}.tool_parser:ToolParser.extract_tool_calls": ["responses_ids", "tools"],
    f"{LOOP}.tool_parser:ToolParser.register": ["name"],
    "verl.workers.rollout.llm_server:LLMServerClient.generate": [
        "request_id", "prompt_ids", "sampling_params",
    ],
    # the tool
    "verl.tools.base_tool:BaseTool.__init__": ["config", "tool_schema"],
    "verl.tools.base_tool:BaseTool.create": ["instance_id"],
    "verl.tools.base_tool:BaseTool.execute": ["instance_id", "parameters"],
    "verl.tools.base_tool:BaseTool.release": ["instance_id"],
    "verl.tools.function_tool:function_tool": ["name", "schema"],
    # the reward
    "verl.trainer.ppo.reward:get_custom_reward_fn": ["config"],
    # the CPU platform
    "verl.plugin.platform.platform_manager:PlatformRegistry.register": ["platform"],
    "verl.utils.distributed:initialize_global_process_group_ray": ["timeout_second", "backend"],
    # the preflight
    "verl.utils.config:validate_config": ["config", "use_reference_policy", "use_critic"],
    "verl.utils.config:omega_conf_to_dataclass": ["config", "dataclass_type"],
    "verl.trainer.ppo.utils:need_reference_policy": ["config"],
    "verl.trainer.ppo.utils:need_critic": ["config"],
    "verl.utils.import_utils:load_extern_object": ["module_path", "object_name"],
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    parameters = inspect.signature(look_up(name)).parameters
    missing = [one for one in SIGNATURES[name] if one not in parameters]
    assert not missing, f"{name}({', '.join(parameters)}) has no {', '.join(missing)}"


# --- Fields and attributes ------------------------------------------------------------------------

FIELDS = {
    f"{LOOP}.agent_loop:AgentLoopOutput": [
        "prompt_ids", "response_ids", "response_mask", "response_logprobs", "routed_experts",
        "num_turns", "metrics", "extra_fields",
    ],
    f"{LOOP}.tool_parser:FunctionCall": ["name", "arguments"],
    "verl.workers.rollout.replica:TokenOutput": [
        "token_ids", "log_probs", "routed_experts", "num_preempted", "extra_fields",
    ],
    "verl.tools.schemas:ToolResponse": ["text"],
    "transfer_queue:KVBatchMeta": ["keys", "tags", "partition_id"],
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_fields(name):
    found = look_up(name)
    if dataclasses.is_dataclass(found):
        names = {field.name for field in dataclasses.fields(found)}
    else:
        names = set(found.model_fields)
    missing = [one for one in FIELDS[name] if one not in names]
    assert not missing, f"{name} has no {', '.join(missing)}"


# What a loop of ours finds on `self`, or on the data of a rollout, when verl has made it.
SET_IN = {
    f"{LOOP}.agent_loop:AgentLoopBase.__init__": [
        "self.server_manager", "self.tokenizer", "self.rollout_config",
        "self.continuous_token_builder",
    ],
    f"{LOOP}.tool_agent_loop:ToolAgentLoop.__init__": [
        "self.max_parallel_calls", "self.tool_parser", "self.tools", "self.response_length",
    ],
    f"{LOOP}.tool_agent_loop:AgentData.__init__": [
        "self.response_ids", "self.extra_fields", "self.assistant_turns",
    ],
    f"{LOOP}.tool_agent_loop:ToolAgentLoop.run": ["agent_data._active_tools"],
    f"{V1}:PPOTrainer.__init__": ["self.config", "self.replay_buffer"],
    "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer": ["finished_keys"],
}  # fmt: skip


@pytest.mark.parametrize("name", SET_IN)
def test_attributes(name):
    source = inspect.getsource(look_up(name))
    missing = [one for one in SET_IN[name] if one not in source]
    assert not missing, f"{name} sets no {', '.join(missing)}"


def test_the_end_of_a_rollout_has_its_name():
    assert look_up(f"{LOOP}.tool_agent_loop:AgentState").TERMINATED


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm", "seed", "minimax", "gemma4"])
def test_tool_parsers_name_their_tags(name):
    """`search_tool_agent` ends a turn at the end of a call."""
    registry = look_up(f"{LOOP}.tool_parser:ToolParser")._registry
    assert name in registry, f"verl has no tool parser {name}; it has {sorted(registry)}"
    source = inspect.getsource(registry[name])
    for attribute in ("tool_call_start_token", "tool_call_end_token"):
        assert attribute in source, f"{registry[name].__name__} has no {attribute}"


# --- Registries -----------------------------------------------------------------------------------


def test_trainer_registry():
    from verl_msgrpo.preflight.names import TRAINER_MODES

    assert set(look_up(f"{V1}:TRAINER_REGISTRY")) == set(TRAINER_MODES)


def test_rollout_registry():
    from verl_msgrpo.preflight.names import ROLLOUT_NAMES

    names = {name for name, _ in look_up("verl.workers.rollout.base:_ROLLOUT_REGISTRY")}
    assert names == set(ROLLOUT_NAMES)


def test_loggers():
    from verl_msgrpo.preflight.names import LOGGERS

    assert set(look_up("verl.utils.tracking:Tracking").supported_backend) == set(LOGGERS)


def test_tool_format_registry():
    from verl_msgrpo.preflight.names import TOOL_FORMATS

    assert set(look_up(f"{LOOP}.tool_parser:ToolParser")._registry) == set(TOOL_FORMATS)


def test_agent_loop_registry():
    from verl_msgrpo.preflight.names import OUR_AGENTS, VERL_AGENTS

    registry = set(look_up(f"{LOOP}.agent_loop:_agent_loop_registry"))
    assert registry >= set(VERL_AGENTS + OUR_AGENTS)
    assert registry - set(OUR_AGENTS) == set(VERL_AGENTS)


def test_options_of_the_transformer():
    from verl_msgrpo.preflight.compose import compose_config
    from verl_msgrpo.preflight.names import VERL_OPTIONS, option_names

    config, _ = compose_config(["model_engine=megatron"])
    assert set(option_names(config)) == set(VERL_OPTIONS)


def test_estimator_registry():
    """Every built-in estimator that groups responses is known to the preflight, and no other."""
    from verl_msgrpo.preflight.estimator import GROUP_ESTIMATORS

    registry = look_up("verl.trainer.ppo.core_algos:ADV_ESTIMATOR_REGISTRY")
    names = {str(getattr(name, "value", name)) for name in registry}
    alone = {"gae", "reinforce_plus_plus", "remax"}
    assert names - alone == set(GROUP_ESTIMATORS)


def test_every_abstract_method_of_a_platform_is_there():
    from verl_msgrpo.cpu_platform.platform import CPUPlatform

    look_up("verl.plugin.platform.platform_base:PlatformBase")
    assert not CPUPlatform.__abstractmethods__


# --- Configuration keys ---------------------------------------------------------------------------

A = "actor_rollout_ref"
KEYS = (
    "algorithm.adv_estimator",
    "algorithm.norm_adv_by_std_in_grpo",
    "algorithm.filter_groups.enable",
    "algorithm.filter_groups.metric",
    "algorithm.filter_groups.max_num_gen_batches",
    "algorithm.use_kl_in_reward",
    "data.train_files",
    "data.val_files",
    "data.prompt_key",
    "data.reward_fn_key",
    "data.apply_chat_template_kwargs",
    "data.custom_cls.path",
    "reward.custom_reward_function.path",
    "reward.custom_reward_function.name",
    f"{A}.model.path",
    f"{A}.model.lora_adapter_path",
    f"{A}.actor.strategy",
    f"{A}.actor.policy_loss.loss_mode",
    f"{A}.actor.checkpoint.save_contents",
    f"{A}.rollout.name",
    f"{A}.rollout.do_sample",
    f"{A}.rollout.prompt_length",
    f"{A}.rollout.response_length",
    f"{A}.rollout.full_determinism",
    f"{A}.rollout.agent.default_agent_loop",
    f"{A}.rollout.agent.agent_loop_config_path",
    f"{A}.rollout.multi_turn.tool_config_path",
    f"{A}.rollout.multi_turn.function_tool_path",
    f"{A}.rollout.multi_turn.format",
    f"{A}.rollout.multi_turn.max_tool_response_length",
    "trainer.default_local_dir",
    "trainer.validation_data_dir",
    "trainer.resume_mode",
    "trainer.resume_from_path",
    "trainer.logger",
    "trainer.use_v1",
    "trainer.v1.trainer_mode",
    "trainer.v1.separate_async.parameter_sync_step",
    "trainer.v1.sampler.custom_sampler.path",
    "ray_kwargs.ray_init.runtime_env",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units",
)
MEGATRON_KEYS = (
    f"{A}.actor.megatron.override_transformer_config.recompute_granularity",
    f"{A}.actor.megatron.override_transformer_config.recompute_method",
    f"{A}.actor.megatron.override_transformer_config.recompute_num_layers",
    f"{A}.actor.megatron.use_mbridge",
    f"{A}.actor.megatron.vanilla_mbridge",
    f"{A}.actor.megatron.use_distributed_optimizer",
    f"{A}.actor.megatron.use_dist_checkpointing",
    f"{A}.actor.megatron.dist_checkpointing_path",
    f"{A}.actor.megatron.dtype",
    f"{A}.ref.megatron.param_offload",
)
FSDP_KEYS = (
    f"{A}.actor.fsdp_config.fsdp_size",
    f"{A}.actor.fsdp_config.model_dtype",
    f"{A}.actor.fsdp_config.ulysses_sequence_parallel_size",
    f"{A}.ref.fsdp_config.model_dtype",
    f"{A}.ref.fsdp_config.param_offload",
)


@pytest.fixture(scope="module")
def known():
    """Names of all keys of verl's configuration, for both engines together."""
    from verl_msgrpo.preflight.compose import compose_config, leaves

    found = {}
    for engine in ("megatron", "dp"):
        config, problems = compose_config([f"model_engine={engine}"])
        assert config is not None, f"model_engine={engine}: {problems}"
        found[engine] = set(leaves(config))
    return found


@pytest.mark.parametrize("key", KEYS)
def test_key(key, known):
    for engine, keys in known.items():
        assert key in keys, f"model_engine={engine} has no {key}"


@pytest.mark.parametrize("key", MEGATRON_KEYS)
def test_megatron_key(key, known):
    assert key in known["megatron"], f"model_engine=megatron has no {key}"


@pytest.mark.parametrize("key", FSDP_KEYS)
def test_fsdp_key(key, known):
    assert key in known["dp"], f"model_engine=dp has no {key}"


def test_keys_that_the_preflight_checks_for_their_kind(known):
    from verl_msgrpo.preflight.settings import RULES, SWITCHES

    names = {f"{rule.section}.{name}" for rule in RULES for name in rule.keys.split()}
    gone = sorted((names | set(SWITCHES)) - known["megatron"] - known["dp"])
    assert not gone, f"verl has no {', '.join(gone)}"


# --- What verl's code says ------------------------------------------------------------------------

# Where verl does what we rely on, work around or check before it: (object, text, what for).
SOURCES = {
    "plugins by entry point": ("verl", 'group="verl.plugins"', "how this package is loaded"),
    "plugins by module": ("verl", "VERL_USE_EXTERNAL_MODULES", "what `doctor` advises"),
    "estimator gets uids": (
        "verl.trainer.ppo.ray_trainer:compute_advantage", 'adv_kwargs["index"]', "the groups",
    ),
    "estimator gets the algorithm section": (
        "verl.trainer.ppo.ray_trainer:compute_advantage", '"config": config', "ms_grpo's settings",
    ),
    "sessions are reduced for grpo only": (
        "verl.trainer.ppo.v1.utils:compute_advantage_for_multi_trajectories",
        "adv_estimator != core_algos.AdvantageEstimator.GRPO",
        "the mixin tells our estimator the sessions; if verl does, that can go",
    ),
    "keys of sessions": (
        "verl.trainer.ppo.v1.utils:compute_advantage_for_multi_trajectories",
        'rsplit("_", 2)',
        "our estimator reads `{uid}_{session}_{index}`",
    ),
    "padding rows are tagged": (
        "verl.trainer.ppo.padding_utils:construct_minimal_padding_template", "is_padding=True",
        "metrics leave them out",
    ),
    "generation batches are not limited": (
        f"{V1}:PPOTrainer._resolve_filter_groups_metric", "is ignored by the built-in V1",
        "the mixin limits them; if verl does, that can go",
    ),
    "mini-batches divide": (
        "verl.workers.engine_workers:TrainingWorker.train_mini_batch",
        "mini_batch_size % self.engine.get_data_parallel_size() == 0",
        "preflight, batches",
    ),
    "a batch is filled up": (
        f"{V1}:PPOTrainer._balance_batch", "upsample_batch_to_divisible_size",
        "preflight, batches: what it says verl would do",
    ),
    "dynamic batches agree": (
        "verl.workers.engine_workers:ActorRolloutRefWorker.init_model",
        "self.config.actor.use_dynamic_bsz == self.config.rollout.log_prob_use_dynamic_bsz",
        "preflight, batches",
    ),
    "rollout TP divides the GPUs": (
        "verl.workers.engine_workers:ActorRolloutRefWorker.init_model",
        "self.world_size % infer_world_size == 0",
        "preflight, parallelism",
    ),
    "a sequence fits a micro-batch": (
        "verl.utils.seqlen_balancing:rearrange_micro_batches",
        "max_token_len >= max_seq_len",
        "preflight, lengths",
    ),
    "sequence parallel ranks share a budget": (
        "verl.workers.engine.utils:prepare_micro_batches",
        "max_token_len_per_gpu * sp_size",
        "preflight, lengths",
    ),
    "the reference section is renamed": (
        "verl.workers.engine_workers:ActorRolloutRefWorker.init_model",
        'ref.pop("log_prob_max_token_len_per_gpu", None)',
        "preflight builds it as the worker does",
    ),
    "a row's agent loop wins": (
        "verl.trainer.ppo.v1.agent_loop_tq", "default_agent_loop", "preflight, data",
    ),
    "short data makes no step": (
        f"{V1}:PPOTrainer._init_dataloader",
        "len(self.train_dataset) // self.config.data.train_batch_size",
        "preflight, data",
    ),
    "checkpoints resume": (
        "verl.utils.checkpoint.checkpoint_manager:find_latest_ckpt_path",
        "get_checkpoint_tracker_filename",
        "preflight, files",
    ),
    "checkpoints' file": (
        "verl.utils.checkpoint.checkpoint_manager:get_checkpoint_tracker_filename",
        "latest_checkpointed_iteration.txt",
        "preflight, files",
    ),
    "the CPU's process group": (
        "verl.utils.distributed:initialize_global_process_group_ray", "cpu:gloo",
        "the CPU platform asks for plain gloo",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SOURCES)
def test_source(what):
    name, text, purpose = SOURCES[what]
    found = inspect.getsource(look_up(name))
    assert text in found, f"{name} does not say {text!r} any more ({purpose}): {what}?"


# Read as text: these modules need Megatron, or vLLM, to be imported.
TEXTS = {
    "the bridge is required": (
        "verl", "workers/engine/megatron/transformer_impl.py",
        "assert self.engine_config.use_mbridge", "preflight, megatron",
    ),
    "options go to the provider": (
        "verl", "workers/engine/megatron/transformer_impl.py",
        "for key, value in override_transformer_config.items()", "preflight, megatron",
    ),
    "Megatron's groups are shared": (
        "verl", "workers/engine/megatron/transformer_impl.py",
        "if mpu.is_initialized():", "preflight: reference and actor have one layout",
    ),
    "gradients are reduced in fp32": (
        "verl", "workers/engine/megatron/transformer_impl.py", "grad_reduce_in_fp32",
        "preflight, memory: four bytes a gradient",
    ),
    "vLLM's maximum": (
        "verl", "workers/rollout/vllm_rollout/vllm_async_server.py",
        "self.config.max_model_len > max_position_embeddings", "preflight, lengths",
    ),
    "vLLM's CPU layers": (
        "vllm", "model_executor/layers/utils.py", "def dispatch_cpu_unquantized_gemm",
        "the CPU platform keeps the weights",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TEXTS)
def test_text(what):
    package, path, text, purpose = TEXTS[what]
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"{package} is not installed")
    file = Path(spec.submodule_search_locations[0], path)
    assert file.is_file(), f"{package} has no {path} any more ({purpose})"
    assert text in file.read_text(), f"{package}/{path} does not say {text!r} any more ({purpose})"
