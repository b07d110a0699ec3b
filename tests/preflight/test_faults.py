"""Faults that are seeded into sound launches: each is found, with the override that mends it."""

import json
import shutil
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.preflight.conftest import Usage, mended
from tests.preflight.recipes import PRESETS, overrides_of, write_data
from verl_msgrpo.preflight.memory import CARDS, Card

pytest.importorskip("verl")

from verl_msgrpo.preflight import names, reward
from verl_msgrpo.preflight.plan import as_text, plan
from verl_msgrpo.rewards import search_qa
from verl_msgrpo.rewards.code import isolation

A = "actor_rollout_ref"
ACTOR, ROLLOUT, REF = f"{A}.actor", f"{A}.rollout", f"{A}.ref"
MEG = f"{ACTOR}.megatron"
TP, PP, CP = (
    f"{MEG}.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context")
)
STATIC = (
    f"{ACTOR}.use_dynamic_bsz=False",
    f"{ROLLOUT}.log_prob_use_dynamic_bsz=False",
    f"{REF}.log_prob_use_dynamic_bsz=False",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu=4",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4",
    f"{REF}.log_prob_micro_batch_size_per_gpu=4",
)
MSG = "algorithm.ms_grpo"

# name -> (back end, overrides with the fault, check, part of the message, the override that mends)
FAULTS = {
    # world size against TP x PP x CP
    "tp": ("megatron", [f"{TP}=3", f"{REF}.megatron.tensor_model_parallel_size=3"],
           "parallelism", "3 x 1 x 1 = 3 does not divide nodes x GPUs = 1 x 8 = 8", f"{TP}=2"),
    "pp": ("megatron", [f"{PP}=4", f"{REF}.megatron.pipeline_model_parallel_size=4"],
           "parallelism", "4 x 4 x 1 = 16 does not divide", f"{TP}=2"),
    "cp": ("megatron", [f"{CP}=3"], "parallelism", "4 x 1 x 3 = 12 does not divide", f"{CP}=2"),
    "one GPU": ("megatron", ["trainer.n_gpus_per_node=1"],
                "parallelism", "= 4 does not divide nodes x GPUs = 1 x 1 = 1", f"{TP}=1"),
    "ulysses": ("fsdp", [f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=3"],
                "parallelism", "Ulysses = 3 does not divide",
                f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=2"),
    "fsdp size": ("fsdp", [f"{ACTOR}.fsdp_config.fsdp_size=3"],
                  "parallelism", "fsdp_size = 3", f"{ACTOR}.fsdp_config.fsdp_size=-1"),
    "heads": ("megatron", [f"{TP}=8", f"{REF}.megatron.tensor_model_parallel_size=8"],
              "parallelism", "TP = 8 does not divide the model's 28 attention heads", f"{TP}=4"),
    "layers": ("megatron", [f"{TP}=1", f"{REF}.megatron.tensor_model_parallel_size=1", f"{PP}=8",
                            f"{REF}.megatron.pipeline_model_parallel_size=8"],
               "parallelism", "does not divide the model's 28 layers", f"{PP}=7"),
    "reference": ("megatron", [f"{REF}.megatron.tensor_model_parallel_size=2"],
                  "parallelism", "the actor's is 4",
                  f"{REF}.megatron.tensor_model_parallel_size=4"),
    "virtual": ("megatron", [f"{MEG}.virtual_pipeline_model_parallel_size=2"],
                "parallelism", "needs PP > 1",
                f"{MEG}.virtual_pipeline_model_parallel_size=null"),
    # rollout TP against GPUs
    "rollout tp": ("megatron", [f"{ROLLOUT}.tensor_model_parallel_size=3"],
                   "parallelism", "do not divide 1 x 8 = 8",
                   f"{ROLLOUT}.tensor_model_parallel_size=2"),
    "rollout tp above": ("fsdp", [f"{ROLLOUT}.tensor_model_parallel_size=16"],
                         "parallelism", "= 16 GPUs", f"{ROLLOUT}.tensor_model_parallel_size=4"),
    "rollout heads": ("megatron", [f"{ROLLOUT}.tensor_model_parallel_size=8"],
                      "parallelism", "28 heads", f"{ROLLOUT}.tensor_model_parallel_size=4"),
    # names
    "estimator": ("megatron", ["algorithm.adv_estimator=ms_gpro"],
                  "estimator", "'ms_gpro'", "algorithm.adv_estimator=ms_grpo"),
    "rollout": ("megatron", [f"{ROLLOUT}.name=vlm"], "names", "'vlm'", f"{ROLLOUT}.name=vllm"),
    "trainer mode": ("megatron", ["trainer.v1.trainer_mode=synch"],
                     "names", "'synch'", "trainer.v1.trainer_mode=sync"),
    "logger": ("megatron", ["trainer.logger=[console,wandbb]"],
               "names", "trainer.logger holds 'wandbb'", "trainer.logger=[console,wandb]"),
    "agent": ("megatron", [f"{ROLLOUT}.agent.default_agent_loop=search_tools_agent"],
              "names", "search_tools_agent",
              f"{ROLLOUT}.agent.default_agent_loop=search_tool_agent"),
    "tool format": ("megatron", [f"{ROLLOUT}.multi_turn.format=llama3"],
                    "names", "'llama3'", f"{ROLLOUT}.multi_turn.format="),
    "loss": ("megatron", [f"{ACTOR}.policy_loss.loss_mode=vanila"],
             "estimator", "'vanila'", f"{ACTOR}.policy_loss.loss_mode=vanilla"),
    # Megatron's own settings
    "option": ("megatron", [f"+{MEG}.override_transformer_config.recompute_granularty=full"],
               "megatron", "recompute_granularty: the installed Megatron has no such field",
               f"{MEG}.override_transformer_config.recompute_granularity=full"),
    "option of Megatron": ("megatron", [f"+{MEG}.override_transformer_config.vocab_sise=4"],
                           "megatron", "vocab_sise: the installed Megatron has no such field",
                           f"+{MEG}.override_transformer_config.vocab_size=4"),
    "bridge": ("megatron", [f"{MEG}.use_mbridge=False"],
               "megatron", "bridge", f"{MEG}.use_mbridge=True"),
    "dtype": ("megatron", [f"{MEG}.dtype=float32"], "megatron", "dtype", f"{MEG}.dtype=bfloat16"),
    # lengths
    "model maximum": ("megatron", ["data.max_response_length=32000",
                                   f"{ROLLOUT}.max_model_len=33024"],
                      "lengths", "1024 + 32000 = 33024 is above the model's maximum of 32768",
                      "data.max_response_length=31744"),
    "vllm maximum": ("megatron", [f"{ROLLOUT}.max_model_len=40000"],
                     "lengths", "max_model_len = 40000", f"{ROLLOUT}.max_model_len=32768"),
    "vllm short": ("megatron", [f"{ROLLOUT}.max_model_len=1000"],
                   "lengths", "above actor_rollout_ref.rollout.max_model_len = 1000",
                   f"{ROLLOUT}.max_model_len=5120"),
    "budget": ("megatron", [f"{ACTOR}.ppo_max_token_len_per_gpu=4096"],
               "lengths", "= 4096 is below prompt + response = 1024 + 4096 = 5120",
               f"{ACTOR}.ppo_max_token_len_per_gpu=5120"),
    # batches
    "batch": ("fsdp", ["data.train_batch_size=30", f"{ROLLOUT}.n=5",
                       f"{ACTOR}.ppo_mini_batch_size=30"],
              "batches", "30 x 5 = 150 is not a multiple of the 8 data-parallel ranks (8 / 1)",
              "data.train_batch_size=32"),
    "mini-batch": ("fsdp", [f"{ACTOR}.ppo_mini_batch_size=4", f"{ROLLOUT}.n=3"],
                   "batches", "4 x 3 = 12 is not a multiple", f"{ACTOR}.ppo_mini_batch_size=8"),
    "mini of batch": ("megatron", [f"{ACTOR}.ppo_mini_batch_size=96"],
                      "batches", "96 does not divide data.train_batch_size = 256",
                      f"{ACTOR}.ppo_mini_batch_size=64"),
    "mini above": ("megatron", ["data.train_batch_size=64"],
                   "batches", "128 is above", f"{ACTOR}.ppo_mini_batch_size=64"),
    "dynamic": ("megatron", [f"{ROLLOUT}.log_prob_use_dynamic_bsz=False"],
                "batches", "differs from", f"{ROLLOUT}.log_prob_use_dynamic_bsz=True"),
    "micro": ("megatron", [*STATIC, f"{ACTOR}.ppo_micro_batch_size_per_gpu=3"],
              "batches", "= 3 does not divide the 512 sequences",
              f"{ACTOR}.ppo_micro_batch_size_per_gpu=1"),
    "micro missing": ("megatron", [*STATIC, f"{ACTOR}.ppo_micro_batch_size_per_gpu=null"],
                      "batches", "is not set", f"{ACTOR}.ppo_micro_batch_size_per_gpu=1"),
    # groups and MS-GRPO
    "group of one": ("megatron", [f"{ROLLOUT}.n=1"], "estimator", "n is 1", f"{ROLLOUT}.n=8"),
    "no sampling": ("megatron", [f"{ROLLOUT}.temperature=0"],
                    "estimator", "every advantage is 0", f"{ROLLOUT}.temperature=1.0"),
    "scales": ("megatron", [f"+{MSG}.scales=[2,4,16]"],
               "estimator", "scale 16 is above the size of a group", f"+{MSG}.scales=[2,4,8]"),
    "number of scales": ("megatron", [f"+{MSG}.num_scales=12"],
                         "estimator", "a group of 8 has 7 scales", f"+{MSG}.num_scales=7"),
    "smallest scale": ("megatron", [f"+{MSG}.min_scale=9"],
                       "estimator", "min_scale = 9", f"+{MSG}.min_scale=2"),
    "setting": ("megatron", [f"+{MSG}.num_scales=0"],
                "estimator", "an integer >= 1", f"+{MSG}.num_scales=4"),
    "unknown setting": ("megatron", [f"+{MSG}.subgroup=all"],
                        "estimator", "ms_grpo.subgroup: unknown", f"+{MSG}.subgroups="),
    "too many terms": ("megatron", [f"+{MSG}.subgroups=all", f"{ROLLOUT}.n=32"],
                       "estimator", "different subgroups, and max_terms allows 65536",
                       f"+{MSG}.subgroups=auto"),
    "filter": ("megatron", ["algorithm.filter_groups.enable=True",
                            "algorithm.filter_groups.max_num_gen_batches=10",
                            "algorithm.filter_groups.metric=null"],
               "estimator", "without a metric", "algorithm.filter_groups.metric=acc"),
    # numbers
    "steps": ("megatron", ["trainer.total_training_steps=many"],
              "numbers", "'many'", "trainer.total_training_steps=100"),
    "learning rate": ("megatron", [f"{ACTOR}.optim.lr=1e-6x"],
                      "numbers", "'1e-6x'", f"{ACTOR}.optim.lr=1e-6"),
    "validation": ("megatron", ["data.val_max_samples=all"],
                   "numbers", "'all'", "data.val_max_samples=-1"),
    "nodes": ("megatron", ["trainer.nnodes=0"],
              "numbers", "trainer.nnodes: allowed is an integer >= 1, got '0'", "trainer.nnodes=1"),
    "half a node": ("megatron", ["trainer.nnodes=1.0"],
                    "numbers", "allowed is an integer >= 1, got '1.0'", "trainer.nnodes=1"),
    "endless": ("megatron", [f"{ROLLOUT}.temperature=inf"],
                "numbers", "allowed is a finite number >= 0, got 'inf'",
                f"{ROLLOUT}.temperature=1.0"),
    "nullable": ("megatron", [f"{ROLLOUT}.max_model_len=0"],
                 "numbers", "allowed is an integer >= 1 or null, got '0'",
                 f"{ROLLOUT}.max_model_len=null"),
    "share": ("megatron", [f"{ROLLOUT}.gpu_memory_utilization=60"],
              "numbers", "from 0.01 to 1", f"{ROLLOUT}.gpu_memory_utilization=0.6"),
    "switch": ("megatron", [f"{MEG}.param_offload=maybe"],
               "numbers", "'maybe'", f"{MEG}.param_offload=True"),
    # what verl itself rejects
    "aggregation": ("megatron", [f"{ACTOR}.loss_agg_mode=mean"],
                    "verl", "Invalid loss_agg_mode", f"{ACTOR}.loss_agg_mode=token-mean"),
    "rollout pp": ("megatron", [f"{ROLLOUT}.pipeline_model_parallel_size=2"],
                   "verl", "pipeline_model_parallel_size > 1",
                   f"{ROLLOUT}.pipeline_model_parallel_size=1"),
    "rollout mode": ("megatron", [f"{ROLLOUT}.mode=sync"],
                     "verl", "has been removed", f"{ROLLOUT}.mode=async"),
    # the reward's settings
    "metric": ("megatron", ["reward.custom_reward_function.reward_kwargs.metric=f2"],
               "reward", "f2", "reward_kwargs.metric"),
    "misspelt": ("megatron", ["+reward.custom_reward_function.reward_kwargs.formatbonus=0.1"],
                 "reward", "formatbonus is not a setting",
                 "+reward.custom_reward_function.reward_kwargs.format_bonus=0.1"),
    "function": ("megatron", ["reward.custom_reward_function.name=score"],
                 "reward", "has no score", "reward.custom_reward_function.name=compute_score"),
    # files
    "training file": ("megatron", ["data.train_files=/nonexistent/train.parquet"],
                      "files", "/nonexistent/train.parquet does not exist", "data.train_files="),
    "validation file": ("megatron", ["data.val_files=[/nonexistent/a.parquet]"],
                        "files", "/nonexistent/a.parquet does not exist", "data.val_files="),
    "tool file": ("megatron", [f"{ROLLOUT}.multi_turn.tool_config_path=/nonexistent/t.yaml"],
                  "files", "t.yaml does not exist", f"{ROLLOUT}.multi_turn.tool_config_path="),
    "model": ("megatron", [f"{A}.model.path=/nonexistent/model"],
              "files", "/nonexistent/model does not exist", f"{A}.model.path="),
    "reward file": ("megatron", ["reward.custom_reward_function.path=/nonexistent/r.py"],
                    "reward", "r.py does not exist", "reward.custom_reward_function.path="),
    "resume": ("megatron", ["trainer.resume_mode=resume_path",
                            "trainer.resume_from_path=/nonexistent/global_step_5"],
               "files", "global_step_5", "trainer.resume_mode=auto"),
    "output": ("megatron", ["trainer.default_local_dir=/etc/passwd/checkpoints"],
               "files", "cannot be written", "trainer.default_local_dir="),
    # rows
    "steps of a file": ("megatron", ["data.train_batch_size=512"],
                        "data", "300 training rows are fewer than data.train_batch_size=512",
                        "data.train_batch_size=300"),
    # services
    "loopback": ("megatron", ["trainer.nnodes=2"],
                 "services", "cannot reach a loopback address", "RETRIEVAL_SERVICE_URL="),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name, launches):
    backend, faults, check, message, fix = FAULTS[name]
    report = launches[backend].check(*faults)
    found = [p for p in report.errors if p.check == check and message in p.message]
    assert found, report.problems
    assert fix in found[0].fix
    mending = mended(faults, found[0])
    if mending is not None:
        left = launches[backend].check(*mending).errors
        assert found[0].message not in [problem.message for problem in left]


@pytest.mark.parametrize("backend", ["megatron", "fsdp"])
def test_sound_launch(launches, backend):
    report = launches[backend].check(card=Card("h100", CARDS["h100"]))
    assert report.problems == []
    assert report.notes == []


def test_verl_rejects_what_our_checks_say_first(launches):
    """verl's own sentence is not repeated where ours has the sums."""
    report = launches["megatron"].check(*STATIC, f"{TP}=3")
    assert "parallelism" in {problem.check for problem in report.errors}
    assert "verl" not in {problem.check for problem in report.errors}


OPTIONS = f"{MEG}.override_transformer_config"


@pytest.mark.parametrize("lacking", ["megatron.core", "megatron.bridge"])
def test_options_are_not_checked_without_megatron(launches, monkeypatch, megatron_folder, lacking):
    """Nor with half of it; and the options that verl's own configuration holds need no check."""
    installed = lambda package: [] if package == lacking else [str(megatron_folder / package)]  # noqa: E731
    monkeypatch.setattr(names, "_folders", installed)
    found = launches["megatron"].check(f"+{OPTIONS}.num_layres=4", f"{OPTIONS}.attention_backend=x")
    assert found.problems == []
    (note,) = [note for note in found.notes if "Megatron" in note]
    assert note == f"{OPTIONS}: num_layres, because Megatron is not installed here"
    assert launches["megatron"].check(card=Card("h100", CARDS["h100"])).notes == []
    assert not any("Megatron is not" in note for note in launches["fsdp"].check().notes)


def test_options_are_read_from_the_classes_that_declare_them():
    assert names.installed_options() == {
        *names.VERL_OPTIONS,
        *("sequence_parallel", "num_layers", "moe_router_topk", "vocab_size"),
    }


@pytest.mark.parametrize("subgroups", ["all", "auto"])
@pytest.mark.parametrize("n", [2, 8, 15, 16, 17])
def test_whether_all_subgroups_are_allowed(launches, n, subgroups):
    """A group of n different rewards has 2**n - 1 - n subgroups of two or more; 2**16 may be."""
    found = launches["megatron"].check(f"{ROLLOUT}.n={n}", f"+{MSG}.subgroups={subgroups}")
    messages = [problem.message for problem in found.errors if problem.check == "estimator"]
    fits = 2**n - 1 - n <= 2**16 or subgroups == "auto"
    assert messages == [] if fits else f"has {2**n - 1 - n} different" in messages[0]


def test_without_the_std_every_group_may_take_all_subgroups(launches):
    found = launches["megatron"].check(
        f"{ROLLOUT}.n=64", f"+{MSG}.subgroups=all", f"+{MSG}.normalize_by_std=False"
    )
    assert "estimator" not in {problem.check for problem in found.errors}


# --- Data -----------------------------------------------------------------------------------------


def rewritten(data_dir, tmp_path, change):
    """The training file with its table changed; overrides that train on it."""
    path = tmp_path / "train.parquet"
    pq.write_table(change(pq.read_table(data_dir / "train.parquet")), path)
    return f"data.train_files={path}"


def agents(table, name):
    column = pa.array([name] * len(table))
    return table.set_column(table.schema.get_field_index("agent_name"), "agent_name", column)


@pytest.mark.parametrize(
    ("change", "extra", "message", "fix"),
    [
        (lambda t: t.drop_columns(["agent_name"]), ["single_turn_agent"],
         "has no column agent_name", f"{ROLLOUT}.agent.default_agent_loop=search_tool_agent"),
        (lambda t: agents(t, "single_turn_agent"), [], "never calls a tool", "verl-msgrpo prepare"),
        (lambda t: agents(t, "serach_tool_agent"), [], "serach_tool_agent", "=search_tool_agent"),
        (lambda t: agents(t, "search_r1_agent"), [], "which wins over",
         f"{ROLLOUT}.agent.default_agent_loop=search_r1_agent"),
        (lambda t: t.drop_columns(["reward_model"]), [], "reward_model: the column is missing",
         "verl-msgrpo check-data"),
        (lambda t: t.drop_columns(["prompt"]), [], "prompt: the column is missing", "check-data"),
        (lambda t: t.slice(0, 10), [], "10 training rows are fewer than data.train_batch_size=256",
         "data.train_batch_size=10"),
    ],
    ids=["no agent", "no tools", "unknown agent", "other agent", "no reward", "no prompt", "few"],
)  # fmt: skip
def test_rows(launches, data_dir, tmp_path, change, extra, message, fix):
    overrides = [f"{ROLLOUT}.agent.default_agent_loop={name}" for name in extra]
    file = rewritten(data_dir, tmp_path, change)
    report = launches["megatron"].check(file, *overrides)
    found = [p for p in report.errors if p.check == "data" and message in p.message]
    assert found, report.problems
    assert fix in found[0].fix


def test_rows_without_agent_are_fine_where_the_default_searches(launches, data_dir, tmp_path):
    """The script's default loop runs rows that name none."""
    file = rewritten(data_dir, tmp_path, lambda t: t.drop_columns(["agent_name"]))
    assert launches["megatron"].check(file).errors == []


def test_damaged_file(launches, tmp_path):
    path = tmp_path / "train.parquet"
    path.write_bytes(b"PAR1 no parquet")
    report = launches["megatron"].check(f"data.train_files={path}")
    (found,) = [p for p in report.errors if p.check == "data"]
    assert f"{path} cannot be read" in found.message


def test_json_lines_are_read(launches, data_dir, tmp_path):
    path = tmp_path / "train.jsonl"
    rows = pq.read_table(data_dir / "train.parquet").to_pylist()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = launches["megatron"].check(f"data.train_files={path}")
    assert report.errors == []
    assert [file.rows for file in report.files] == [300, 3]


def test_an_array_of_json_objects_is_read(launches, data_dir, tmp_path):
    """As verl's loader reads it."""
    path = tmp_path / "train.json"
    rows = pq.read_table(data_dir / "train.parquet").to_pylist()
    path.write_text(json.dumps(rows, indent=1))
    found = launches["megatron"].check(f"data.train_files={path}")
    assert found.errors == []
    assert [file.rows for file in found.files] == [300, 3]


def test_json_lines_are_counted_without_blank_ones_and_long_lines_are_read(
    launches, data_dir, tmp_path
):
    """LiveCodeBench has all tests of a problem in one line, of 16 MiB and more."""
    path = tmp_path / "train.jsonl"
    rows = pq.read_table(data_dir / "train.parquet").to_pylist()
    rows[0]["extra_info"]["tests"] = "x" * (1 << 25)
    path.write_text("\ufeff" + "\n".join(json.dumps(row) + "\n" for row in rows))
    found = launches["megatron"].check(f"data.train_files={path}")
    assert found.errors == []
    assert [file.rows for file in found.files] == [300, 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt": 1}\n{"prompt": \n', "line 2: broken JSON"),
        ('{"prompt": 1}\n\n3\n', "line 3: not a JSON object"),
        ('[{"prompt": 1}, 3]', "row 1: not a JSON object"),
        ('[{"prompt": 1},', "broken JSON"),
        ('{"prompt": ' + "[" * 100_000, "line 1: broken JSON (RecursionError)"),
    ],
)
def test_damaged_json(launches, tmp_path, content, message):
    path = tmp_path / "train.jsonl"
    path.write_text(content)
    found = launches["megatron"].check(f"data.train_files={path}")
    (problem,) = [p for p in found.errors if p.check == "data"]
    assert f"{path} cannot be read: {message}" in problem.message


def test_short_epochs_warn(launches):
    report = launches["megatron"].check("trainer.total_epochs=2")
    (found,) = report.problems
    assert found.severity == "warning"
    assert "after 2 of 300 steps" in found.message
    assert found.fix == "trainer.total_epochs=300"


def test_without_a_reference_model_its_section_is_not_looked_at(launches):
    """FSDP2, static micro-batches: verl reads those of the reference only where there is one."""
    alone = [line for line in STATIC if not line.startswith(REF)]
    missing = f"{REF}.log_prob_micro_batch_size_per_gpu=null"
    dynamic = f"{REF}.log_prob_use_dynamic_bsz=False"
    with_kl = launches["fsdp"].check(*alone, dynamic, missing)
    assert any("micro_batch_size" in problem.message for problem in with_kl.errors)
    without = launches["fsdp"].check(*alone, dynamic, missing, f"{ACTOR}.use_kl_loss=False")
    assert without.errors == []


def test_names_are_checked_beside_numbers_that_are_none(launches):
    report = launches["megatron"].check("trainer.n_gpus_per_node=0", "trainer.logger=[consol]")
    assert {problem.check for problem in report.errors} == {"numbers", "names"}
    (note,) = report.notes
    assert "the estimator's settings" in note


# --- Reward ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module_xyz", "No module named 'no_such_module_xyz'"),
        ("def compute_score(", "does not load"),
        ("compute_score = 3", "is not a function"),
        ("def compute_score(solution_str, **kw): return 'good'", "returns str"),
        ("def compute_score(solution_str, **kw): return {'acc': 1}", "no key `score`"),
        ("def compute_score(solution_str, **kw): raise KeyError('x')", "raises KeyError"),
        ("def compute_score(solution_str, ground_truth): return 1.0", "takes no data_source"),
    ],
)
def test_reward_function(launches, tmp_path, source, message):
    path = tmp_path / "reward.py"
    path.write_text(source)
    report = launches["megatron"].check(
        f"reward.custom_reward_function.path={path}",
        "~reward.custom_reward_function.reward_kwargs",
    )
    found = [p for p in report.errors if p.check == "reward" and message in p.message]
    assert found, report.problems
    assert found[0].fix.startswith(("reward.custom_reward_function.", "remove"))


def reward_file(tmp_path, source):
    """Overrides for a reward function of one's own."""
    path = tmp_path / "reward.py"
    path.write_text(source)
    return (
        f"reward.custom_reward_function.path={path}",
        "~reward.custom_reward_function.reward_kwargs",
    )


# Answers in turn; None is none at all.
IN_TURN = """
import itertools, threading
calls = itertools.count()
answers = {answers}
def compute_score(solution_str, **kw):
    answer = answers[next(calls)]
    return threading.Event().wait() if answer is None else answer
compute_score.__module__ = {module!r}
"""


def check_in_turn(launch, tmp_path, monkeypatch, answers, seconds, module="x"):
    """Problems of a reward whose first call takes some seconds by its clock."""
    times = iter([0.0, seconds])
    monkeypatch.setattr(reward, "monotonic", lambda: next(times))
    source = IN_TURN.format(answers=answers, module=module)
    return launch.check(*reward_file(tmp_path, source)).problems


def test_a_reward_that_hangs_is_a_warning(launches, tmp_path, monkeypatch):
    monkeypatch.setattr(reward, "START_LIMIT_S", 0.1)
    (found,) = check_in_turn(launches["megatron"], tmp_path, monkeypatch, [None], 0.0)
    assert (found.check, found.severity) == ("reward", "warning")
    assert found.message == (
        "on the first row it does not end within 0.1 s, the start of its workers included"
    )


def test_the_start_of_workers_does_not_count(launches, tmp_path, monkeypatch):
    """A first call that takes long is followed by a second one, which is judged."""
    monkeypatch.setattr(reward, "START_LIMIT_S", 240.0)
    launch = launches["megatron"]
    assert check_in_turn(launch, tmp_path, monkeypatch, [0.5, 1.0], 121.0) == []
    (found,) = check_in_turn(launch, tmp_path, monkeypatch, [0.5, "good"], 121.0)
    assert found.message == "it returns str, not a number or a dict"
    assert check_in_turn(launch, tmp_path, monkeypatch, [0.5, "good"], 119.0) == []


def test_a_reward_that_is_slow_without_starting_anything_is_a_warning(
    launches, tmp_path, monkeypatch
):
    monkeypatch.setattr(reward, "TRIAL_LIMIT_S", 0.1)
    (found,) = check_in_turn(launches["megatron"], tmp_path, monkeypatch, [1.0, None], 1.0)
    assert (found.check, found.severity) == ("reward", "warning")
    assert found.message == (
        "on the first row it takes longer than 0.1 s, though its workers have started"
    )


TIMEOUT = {"score": 0.0, "timeout": 1.0}


@pytest.mark.parametrize(
    ("answers", "module", "said"),
    [
        ([TIMEOUT, {"score": 0.0, "timeout": 0.0}], "verl_msgrpo.rewards.x", []),
        (
            [TIMEOUT, TIMEOUT],
            "verl_msgrpo.rewards.x",
            ["it cannot score the first row: timeout = 1.0"],
        ),
        ([TIMEOUT], "x", []),
    ],
    ids=["once", "twice", "of others"],
)
def test_a_trial_of_ours_that_times_out_twice_is_an_error(
    launches, tmp_path, monkeypatch, answers, module, said
):
    """Once may be the start of its workers; what others mean by `timeout` is theirs."""
    found = check_in_turn(launches["megatron"], tmp_path, monkeypatch, answers, 0.0, module)
    assert [problem.message for problem in found] == said
    assert {problem.severity for problem in found} <= {"error"}


@pytest.mark.parametrize("setting", ["max_answers=0", "format_bonus=2", "format_bonus=-1"])
def test_settings_that_score_every_response_alike(launches, setting):
    search_qa._ALARM.forget()  # it warns once
    key = f"reward.custom_reward_function.reward_kwargs.{setting.partition('=')[0]}"
    (found,) = launches["megatron"].check(f"+{key}={setting.partition('=')[2]}").errors
    assert found.check == "reward"
    assert f"{setting.partition('=')[0]}: allowed is " in found.message
    assert found.fix == f"~{key}, or a value that it allows"


PROGRAMS = "pkg://verl_msgrpo.rewards.{}"


@pytest.mark.parametrize(
    ("name", "settings", "programs"),
    [
        ("code_tests", "{isolation:limits}", "limits, server None"),
        ("dispatch", "{code_tests:{isolation:limits}}", "limits, server None"),
        ("dispatch", "{}", "auto, server None"),
        (
            "dispatch",
            "{code_tests:{sandbox_fusion_url:'http://x:1'}}",
            "auto, server http://x:1",
        ),
        ("search_qa", "{}", None),
    ],
)
def test_what_isolates_programs_is_said(launches, monkeypatch, name, settings, programs):
    """With the settings that the reward itself gets."""
    monkeypatch.setattr(isolation, "in_force", lambda way, url: f"{way}, server {url}")
    kwargs = "reward.custom_reward_function.reward_kwargs"
    path = "reward.custom_reward_function.path"
    found = launches["megatron"].check(
        f"{path}={PROGRAMS.format(name)}", f"~{kwargs}", f"+{kwargs}={settings}"
    )
    assert found.programs == programs
    assert plan(found)["programs"] == programs
    lines = [line for line in as_text(found) if line.startswith("programs")]
    assert lines == ([f"{'programs':<20}{programs}"] if programs else [])


def test_settings_of_dispatch_stand_under_a_task(launches):
    kwargs = "reward.custom_reward_function.reward_kwargs"
    (found,) = (
        launches["megatron"]
        .check(
            "reward.custom_reward_function.path=pkg://verl_msgrpo.rewards.dispatch",
            f"~{kwargs}",
            f"+{kwargs}.format_bonus=0.1",
        )
        .errors
    )
    assert "reward_kwargs.format_bonus is not a setting" in found.message
    tasks = "math_answer | multiple_choice | code_tests | search_qa"
    assert found.fix == f"+{kwargs}.<{tasks}>.format_bonus=0.1"


# --- Services, disk, memory -----------------------------------------------------------------------


def test_closed_port(launches, monkeypatch):
    from verl_msgrpo.search import client

    monkeypatch.setattr(client, "_PROBE_PAUSE_S", 0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/retrieve"
    env = "ray_kwargs.ray_init.runtime_env.env_vars.RETRIEVAL_SERVICE_URL"
    report = launches["megatron"].check(f"{env}='{url}'")
    (found,) = report.errors
    assert found.check == "services"
    assert url in found.message
    assert found.fix.startswith(f"+{env}=")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tools: 3", "needs a list under `tools:`"),
        ("tools: [{class_name: verl_msgrpo.search.SearchTool}]", "needs `class_name:`"),
        ("tools: [", "while parsing"),
        (
            "tools: [{class_name: verl_msgrpo.search.SearchTool, config: {url: x}}]",
            "unknown key url",
        ),
    ],
)
def test_tool_file(launches, tmp_path, content, message):
    path = tmp_path / "tools.yaml"
    path.write_text(content)
    key = f"{ROLLOUT}.multi_turn.tool_config_path"
    report = launches["megatron"].check(f"{key}={path}")
    (found,) = [p for p in report.errors if p.check == "services"]
    assert message in found.message
    assert found.fix.startswith(key)


def test_long_observations_warn(launches):
    report = launches["megatron"].check(
        "data.max_response_length=2048", f"{ROLLOUT}.max_model_len=3072"
    )
    (found,) = report.problems
    assert (found.check, found.severity) == ("services", "warning")
    assert "4 searches may show 2048 tokens" in found.message


def test_disk(launches, monkeypatch):
    """7.6 billion parameters at 14 bytes are 107 GB; three lie there while the third is written."""
    free = 250e9
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(free, 0, free))
    report = launches["megatron"].check()
    (found,) = report.errors
    assert found.check == "disk"
    assert "3 checkpoints of 99 GiB do not fit the 233 GiB" in found.message
    assert found.fix == "trainer.max_actor_ckpt_to_keep=1"
    assert launches["megatron"].check(found.fix).errors == []
    assert launches["megatron"].check("trainer.save_freq=-1").errors == []


@pytest.mark.parametrize(
    ("card", "faults", "message", "fix"),
    [
        ("h100", [f"{MEG}.param_offload=False", f"{MEG}.optimizer_offload=False",
                  f"{ROLLOUT}.gpu_memory_utilization=0.8"],
         "stay beside it", f"{MEG}.param_offload=True {MEG}.optimizer_offload=True"),
        ("rtx4090", [f"{ROLLOUT}.gpu_memory_utilization=0.5"], "not one sequence of 5120",
         f"{ROLLOUT}.gpu_memory_utilization="),
        ("rtx4090", [f"{TP}=1", f"{REF}.megatron.tensor_model_parallel_size=1"],
         "weights, gradients and optimizer take 53 GiB", f"{TP}=2"),
    ],
)  # fmt: skip
def test_memory(launches, card, faults, message, fix):
    report = launches["megatron"].check(*faults, card=Card(card, CARDS[card]))
    found = [p for p in report.errors if p.check == "memory" and message in p.message]
    assert found, report.problems
    assert fix in found[0].fix


def test_unknown_model_is_said(launches):
    report = launches["megatron"].check(f"{A}.model.path=somebody/something")
    assert report.errors == []
    assert report.memory is None
    assert "the shape of somebody/something is unknown" in report.notes[0]


def test_local_config_wins(launches, tmp_path):
    """A folder's own config.json, even with the name of a known model."""
    folder = tmp_path / "Qwen2.5-7B-Instruct"
    folder.mkdir()
    shape = {
        "model_type": "qwen2",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
    }
    (folder / "config.json").write_text(json.dumps(shape))
    report = launches["megatron"].check(f"{A}.model.path={folder}")
    messages = " ".join(problem.message for problem in report.errors)
    assert "the model's maximum of 512" in messages
    assert report.launch.model.head_dim == 16


@pytest.mark.parametrize("model", PRESETS[1:])
def test_presets_are_told_apart(tmp_path, model):
    """The knobs of one family do not fit another: TP 8 on two key-value heads."""
    write_data("math_aime24", tmp_path / "data")
    overrides = overrides_of("math_aime24", tmp_path, MODEL_PATH=model, DATA_DIR=tmp_path / "data")
    assert f"{A}.model.path={model}" in overrides
    has_date = any("date_string" in one for one in overrides)
    assert has_date == ("Llama" in model)
    thinks = "data.max_response_length=8192" in overrides
    assert thinks == ("R1" in model)
