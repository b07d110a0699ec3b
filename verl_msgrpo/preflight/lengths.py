"""Lengths of prompts and responses against the model and the tokens that a GPU takes at once."""

from collections.abc import Iterator

from verl_msgrpo.preflight.problems import WARNING, Problem
from verl_msgrpo.preflight.run import ACTOR, REF, ROLLOUT, Run
from verl_msgrpo.preflight.settings import whole

CHECK = "lengths"
RESPONSE = "data.max_response_length"
MODEL_LENGTH = f"{ROLLOUT}.max_model_len"


def check_lengths(run: Run) -> Iterator[Problem]:
    """Prompt + response against the model's maximum, vLLM's, and the micro-batches."""
    total = f"prompt + response = {run.prompt_length} + {run.response_length}"
    longest = run.model.max_positions if run.model else None
    limit = whole(run.config, MODEL_LENGTH, default=0)
    if longest is not None and run.sequence_length > longest:
        room = longest - run.prompt_length
        fix = f"{RESPONSE}={room}" if room > 0 else f"data.max_prompt_length={longest // 2}"
        message = f"{total} = {run.sequence_length} is above the model's maximum of {longest}"
        yield Problem(CHECK, message, fix)
    if longest is not None and limit > longest:
        message = f"{MODEL_LENGTH} = {limit} is above the model's maximum of {longest}"
        yield Problem(CHECK, message, f"{MODEL_LENGTH}={longest}")
    if limit and limit < run.sequence_length:
        message = f"{total} = {run.sequence_length} is above {MODEL_LENGTH} = {limit}: cut short"
        severity = WARNING if limit > run.prompt_length else "error"
        yield Problem(CHECK, message, f"{MODEL_LENGTH}={run.sequence_length}", severity)
    for key, name in ((f"{ROLLOUT}.response_length", RESPONSE), (f"{ROLLOUT}.prompt_length", "")):
        name = name or "data.max_prompt_length"
        if whole(run.config, key) != whole(run.config, name):
            message = f"{key} = {whole(run.config, key)} differs from {name}"
            yield Problem(CHECK, message, f"{key}={whole(run.config, name)}", WARNING)
    if run.dynamic:
        yield from _token_budgets(run, total)


def _token_budgets(run: Run, total: str) -> Iterator[Problem]:
    """A sequence is never split: it has to fit one micro-batch."""
    keys = [f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"]
    if run.has_reference:
        keys.append(f"{REF}.log_prob_max_token_len_per_gpu")
    needed = -(-run.sequence_length // run.cp)
    for key in keys:
        budget = whole(run.config, key, default=0)
        if budget < needed:
            shared = f" shared by {run.cp} ranks" if run.cp > 1 else ""
            message = f"{key} = {budget} is below {total} = {run.sequence_length}{shared}"
            yield Problem(CHECK, message, f"{key}={needed}")
