"""Files that the run reads, and the folder that it writes to."""

import os
from collections.abc import Iterator

from omegaconf import DictConfig

from verl_msgrpo.preflight.problems import WARNING, Problem
from verl_msgrpo.preflight.run import ROLLOUT
from verl_msgrpo.preflight.settings import A, local_path, text, texts, whole

CHECK = "files"
# key -> what makes such a file, or where an example is
READ = {
    "data.custom_cls.path": "null",
    f"{ROLLOUT}.multi_turn.tool_config_path": "null",
    f"{ROLLOUT}.multi_turn.function_tool_path": "null",
    f"{ROLLOUT}.agent.agent_loop_config_path": "null",
    "trainer.v1.sampler.custom_sampler.path": "null",
    f"{A}.model.lora_adapter_path": "null",
}


def check_files(config: DictConfig) -> Iterator[Problem]:
    """Paths that do not exist. Names of the hub and addresses of other storage are passed over."""
    for key in ("data.train_files", "data.val_files"):
        paths = texts(config, key)
        if not paths:
            yield Problem(CHECK, f"{key} names no file", f"{key}=<a .parquet file>")
        for path in paths:
            yield from _data_file(key, path)
    for key, otherwise in READ.items():
        path = text(config, key) or ""
        local = local_path(path) if path else None
        if local is not None and not os.path.exists(local):
            fix = f"{key}={otherwise}, or the path of a file that exists"
            yield Problem(CHECK, f"{key}: {path} does not exist", fix)
    yield from _model(config)
    yield from _resume(config)
    yield from _output(config)


def _data_file(key: str, path: str) -> Iterator[Problem]:
    local = local_path(path)
    if local is None:
        return
    if not os.path.isfile(local):
        fix = f"verl-msgrpo prepare <task> --out <folder>; then {key}=<folder>/<file>.parquet"
        yield Problem(CHECK, f"{key}: {path} does not exist", fix)
    elif not path.endswith((".parquet", ".json", ".jsonl")):
        yield Problem(
            CHECK, f"{key}: verl reads .parquet, .json and .jsonl", f"{key}={path}.parquet"
        )


def _model(config: DictConfig) -> Iterator[Problem]:
    """A folder that was meant, or a name of the hub: owner/name."""
    key = f"{A}.model.path"
    path = text(config, key)
    if path is None:
        yield Problem(CHECK, f"{key} is not set", f"{key}=Qwen/Qwen2.5-7B-Instruct")
        return
    local = local_path(path)
    if local is None or os.path.isdir(local):
        if local is not None and not os.path.isfile(os.path.join(local, "config.json")):
            message = f"{key}: {path} has no config.json"
            yield Problem(CHECK, message, f"{key}=<a folder in Hugging Face's format>")
    elif path.startswith(("/", ".", "~")) or path.count("/") > 1:
        message = f"{key}: {path} does not exist"
        yield Problem(CHECK, message, f"{key}=<a folder that exists, or owner/name of the hub>")


def _resume(config: DictConfig) -> Iterator[Problem]:
    mode = text(config, "trainer.resume_mode")
    if mode not in ("auto", "disable", "resume_path"):
        message = f"trainer.resume_mode is {mode!r}: auto, disable or resume_path"
        yield Problem(CHECK, message, "trainer.resume_mode=auto")
    if mode == "resume_path":
        path = text(config, "trainer.resume_from_path")
        local = local_path(path) if path else None
        if path is None or "global_step_" not in path or (local and not os.path.isdir(local)):
            message = f"trainer.resume_from_path is {path!r}: no folder .../global_step_<N>"
            yield Problem(CHECK, message, "trainer.resume_mode=auto")
    folder = local_path(text(config, "trainer.default_local_dir") or "")
    if mode == "auto" and folder is not None:
        step = latest_step(folder)
        total = whole(config, "trainer.total_training_steps", default=0)
        if step is not None:
            end = f", and total_training_steps={total} is reached" if 0 < total <= step else ""
            message = f"{folder} holds step {step}: the run goes on from there{end}"
            yield Problem(CHECK, message, "trainer.resume_mode=disable", WARNING)


def latest_step(folder: str) -> int | None:
    """The step of the latest checkpoint in a folder, None without one."""
    try:
        path = os.path.join(folder, "latest_checkpointed_iteration.txt")
        with open(path, encoding="utf-8") as file:
            return int(file.read(20))
    except (OSError, ValueError):
        return None


def _output(config: DictConfig) -> Iterator[Problem]:
    key = "trainer.default_local_dir"
    folder = local_path(text(config, key) or "")
    if folder is None:
        return
    parent = existing_parent(folder)
    if not os.path.isdir(parent) or not os.access(parent, os.W_OK):
        message = f"{key}: {folder} cannot be written: {parent} is no folder that you may write to"
        yield Problem(CHECK, message, f"{key}=<a folder that you may write to>")


def existing_parent(path: str) -> str:
    """The path itself, or the nearest folder above it that exists."""
    path = os.path.abspath(path or ".")
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
