"""A language model of `transformers` in the place of verl's LLM client, for single rollouts."""

import asyncio
from collections.abc import Mapping
from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from verl.workers.rollout.replica import TokenOutput


class TransformersClient:
    """Generates with `model.generate`; takes the sampling params that verl gives to vLLM."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
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
    ) -> TokenOutput:
        """One turn, with the log-prob of each token under the model (temperature 1)."""
        return await asyncio.to_thread(self._generate, prompt_ids, sampling_params)

    @torch.inference_mode()
    def _generate(self, prompt_ids: list[int], params: Mapping[str, object]) -> TokenOutput:
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
