"""`verl-msgrpo episode`: one rollout in the terminal, as a training would make it."""

import argparse
import asyncio
import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from verl_msgrpo.errors import UserError

if TYPE_CHECKING:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

LOOPS = ("search_tool_agent", "search_r1_agent")
_COLOURS = {1: "\x1b[36m", 0: "\x1b[33m"}  # the model's text, observations
_PLAIN = "\x1b[0m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument("question")
    parser.add_argument("--model", required=True, metavar="DIR", help="in Hugging Face's format")
    parser.add_argument("--retrieval", required=True, metavar="URL", help=".../retrieve")
    parser.add_argument("--loop", choices=LOOPS, default=LOOPS[0], help=f"(default: {LOOPS[0]})")
    parser.add_argument("--format", default="hermes", help="of tool calls (default: hermes)")
    parser.add_argument("--system", metavar="TEXT", help="a system message")
    parser.add_argument("--topk", type=int, default=3, help="passages a query (3)")
    parser.add_argument("--max-turns", type=int, default=5, help="turns of the model (5)")
    parser.add_argument("--max-tokens", type=int, default=2048, help="of the response (2048)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, ...")
    parser.add_argument(
        "--tokens", action="store_true", help="one line a token: mask, log-prob, text"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the rollout and prints it. Raises UserError for what cannot run."""
    if args.max_turns < 1 or args.max_tokens < 1 or not args.temperature >= 0:
        raise UserError("--max-turns, --max-tokens must be 1 or more, --temperature 0 or more")
    if not 0 <= args.seed < 2**32:  # NumPy's range
        raise UserError(f"--seed {args.seed}: it must be from 0 to {2**32 - 1}")
    if not os.path.isdir(args.model):
        raise UserError(f"--model {args.model}: there is no such folder")
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
    except ImportError as error:
        raise UserError(f"an episode needs torch and transformers: {error}") from None
    from verl_msgrpo.search.transformers_client import TransformersClient

    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
        model = model.to(args.device).eval()
    except Exception as error:  # transformers raises many kinds
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise UserError(f"--model {args.model}: {reason[0]}") from None
    set_seed(args.seed)
    output = asyncio.run(_rollout(args, TransformersClient(model, tokenizer), tokenizer, model))
    ids, mask = output.response_ids, output.response_mask
    if args.tokens:
        probs = output.response_logprobs or [0.0] * len(ids)
        for token, value, prob in zip(ids, mask, probs, strict=True):
            print(f"{value} {prob:9.4f} {tokenizer.decode([token])!r}")
    else:
        for part in coloured(tokenizer, ids, mask, sys.stdout):
            print(part, end="")
        print()
    counts = output.extra_fields["search"]
    print(
        f"{output.extra_fields['search_ended']}: {sum(mask)} tokens by the model, "
        f"{len(mask) - sum(mask)} others, {counts['searches']} searches, "
        f"{counts['failed']} failed, {counts['malformed']} malformed calls",
        file=sys.stderr,
    )
    return 0


async def _rollout(
    args: argparse.Namespace, client: object, tokenizer: object, model: object
) -> "AgentLoopOutput":
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap

    from verl_msgrpo.search.client import close_clients
    from verl_msgrpo.search.search_r1_agent import SearchR1AgentLoop
    from verl_msgrpo.search.search_tool_agent import SearchToolAgentLoop
    from verl_msgrpo.search.tool import SearchTool

    rollout = {
        "name": "vllm",  # whose sampling params the client takes
        "prompt_length": args.max_tokens,
        "response_length": args.max_tokens,
        "max_model_len": getattr(model.config, "max_position_embeddings", None),  # type: ignore[attr-defined]
        "full_determinism": False,
        "multi_turn": {
            "max_assistant_turns": args.max_turns,
            "max_user_turns": None,
            "max_parallel_calls": 1,
            "max_tool_response_length": 256,
            "tool_response_truncate_side": "middle",
            "format": args.format,
        },
    }
    with contextlib.redirect_stdout(io.StringIO()):  # verl prints the schema of a tool
        tool = SearchTool({"retrieval_service_url": args.retrieval, "topk": args.topk})
    loop_class = SearchToolAgentLoop if args.loop == LOOPS[0] else SearchR1AgentLoop
    try:
        loop = loop_class(
            trainer_config=DictConfigWrap(
                OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}})
            ),
            server_manager=client,
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=object,
            data_config=DictConfigWrap(OmegaConf.create({})),
            hf_model_type=model.config.model_type,  # type: ignore[attr-defined]
            tools=ToolListWrap([tool]),
        )
    except ValueError as error:  # an unknown format, a tokenizer that does not fit the model
        raise UserError(str(error)) from None
    messages = [{"role": "user", "content": args.question}]
    if args.system:
        messages.insert(0, {"role": "system", "content": args.system})
    params = {"temperature": args.temperature, "logprobs": True}
    try:
        return await loop.run(params, raw_prompt=messages)
    finally:
        await close_clients()


def coloured(tokenizer: object, ids: list[int], mask: list[int], stream: TextIO) -> Iterator[str]:
    """The text of the response by parts, coloured where `stream` is a terminal."""
    colour = stream.isatty() and "NO_COLOR" not in os.environ
    pairs = zip(ids, mask, strict=True)
    for value, part in itertools.groupby(pairs, key=lambda pair: pair[1]):
        text = tokenizer.decode([token for token, _ in part])  # type: ignore[attr-defined]
        text = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
        yield f"{_COLOURS[value]}{text}{_PLAIN}" if colour else text
