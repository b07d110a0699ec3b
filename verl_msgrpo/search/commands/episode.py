"""`verl-msgrpo episode`: one rollout in the terminal, as a training would make it."""

import argparse
import asyncio
import contextlib
import io
import itertools
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TextIO, cast

from verl_msgrpo.common.numbers import integer_argument, real_argument
from verl_msgrpo.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
    from verl.workers.rollout.replica import TokenOutput

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
    parser.add_argument(
        "--topk", type=integer_argument(1), default=3, help="passages per query (3)"
    )
    parser.add_argument(
        "--max-turns", type=integer_argument(1), default=5, help="turns of the model (5)"
    )
    parser.add_argument(
        "--max-tokens", type=integer_argument(1), default=2048, help="of the response (2048)"
    )
    parser.add_argument(
        "--temperature", type=real_argument(0), default=0.0, help="0 is greedy (default)"
    )
    parser.add_argument("--seed", type=integer_argument(0, 2**32 - 1), default=0)  # as NumPy's
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, ...")
    parser.add_argument(
        "--tokens", action="store_true", help="one line per token: mask, log-prob, text"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the rollout and prints it. Raises UserError for what cannot run."""
    if not os.path.isdir(args.model):
        raise UserError(f"--model {args.model}: there is no such folder")
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
    except ImportError as error:
        raise UserError(f"an episode needs torch and transformers: {error}") from None
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


class TransformersClient:
    """A model of `transformers` in the place of verl's LLM client.

    Generates with `model.generate`, and takes the sampling params that verl gives to vLLM.
    """

    def __init__(self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> None:
        self._model = model
        self._tokenizer = tokenizer
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        self._ends = [*dict.fromkeys(i for i in (*ends, tokenizer.eos_token_id) if i is not None)]

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: Mapping[str, object],
        **_: object,
    ) -> "TokenOutput":
        """One turn, with the log-prob of each token under the model (temperature 1)."""
        return await asyncio.to_thread(self._generate, prompt_ids, sampling_params)

    def _generate(self, prompt_ids: list[int], params: Mapping[str, object]) -> "TokenOutput":
        import torch
        from verl.workers.rollout.replica import TokenOutput

        ids = torch.tensor([prompt_ids], device=self._model.device)
        temperature = cast(float, params.get("temperature", 1.0))
        options: dict[str, object] = {"do_sample": temperature > 0}
        if temperature > 0:
            options.update(
                temperature=temperature,
                top_p=params.get("top_p", 1.0),
                top_k=max(cast(int, params.get("top_k", 0)), 0),
            )
        if params.get("stop"):
            options.update(stop_strings=params["stop"], tokenizer=self._tokenizer)
        stop_ids = cast(list[int], params.get("stop_token_ids") or [])
        with torch.inference_mode():
            made = self._model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=params["max_tokens"],
                eos_token_id=[*self._ends, *stop_ids],
                pad_token_id=self._ends[0],
                return_dict_in_generate=True,
                output_logits=True,
                **options,
            )
        tokens = made.sequences[0, len(prompt_ids) :]
        log_probs = torch.stack(made.logits)[:, 0].float().log_softmax(-1)
        chosen = log_probs.gather(1, tokens[:, None].to(log_probs.device))[:, 0]
        return TokenOutput(token_ids=tokens.tolist(), log_probs=chosen.tolist(), num_preempted=0)


def coloured(tokenizer: object, ids: list[int], mask: list[int], stream: TextIO) -> Iterator[str]:
    """The text of the response by parts, coloured where `stream` is a terminal."""
    colour = stream.isatty() and "NO_COLOR" not in os.environ
    pairs = zip(ids, mask, strict=True)
    for value, part in itertools.groupby(pairs, key=lambda pair: pair[1]):
        text = tokenizer.decode([token for token, _ in part])  # type: ignore[attr-defined]
        text = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
        yield f"{_COLOURS[value]}{text}{_PLAIN}" if colour else text
