"""A tiny Qwen2 and two groups of rollouts, for the tests of Megatron's engine."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 96
PROMPT, RESPONSE = 6, 10  # tokens, with padding


@dataclass(frozen=True)
class Case:
    """What differs between two models, and between verl's two ways to feed Megatron."""

    tied: bool  # the embedding is the output layer: Megatron sums its gradient across the pipeline
    packed: bool  # `use_remove_padding`: sequences end to end ("thd"), not rows ("bshd")


CASES = {"untied": Case(tied=False, packed=True), "tied": Case(tied=True, packed=False)}


@dataclass(frozen=True)
class Layout:
    """Tensor and pipeline parallel sizes."""

    tp: int
    pp: int


LAYOUTS = {"tp1": Layout(1, 1), "tp2": Layout(2, 1), "pp2": Layout(1, 2)}


def write_model(folder: Path, tied: bool) -> None:
    """A Hugging Face folder; heads and layers divide by two."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        initializer_range=0.2,  # log-probs that differ from token to token
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # else all 0 and all 1
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="w0", eos_token="w1", unk_token="w0"
    ).save_pretrained(folder)


def write_batch(path: Path) -> None:
    """Eight rollouts of two prompts: prompts padded on the left, responses on the right.

    Some have tokens in the middle that a tool wrote; the reward lies on the last token.
    """
    generator = torch.Generator().manual_seed(1)
    group = torch.arange(8) // 4
    rewards = [0.0, 0.3, 1.0, 0.0, 1.0, 0.5, 0.5, 0.0]
    prompt_lengths = torch.tensor([6, 4])[group]
    response_lengths = torch.tensor([10, 7, 9, 3, 5, 10, 8, 6])
    prompts = torch.randint(2, VOCABULARY, (2, PROMPT), generator=generator)[group]
    responses = torch.randint(2, VOCABULARY, (8, RESPONSE), generator=generator)
    prompt_mask = torch.arange(PROMPT) >= PROMPT - prompt_lengths[:, None]
    attended = torch.arange(RESPONSE) < response_lengths[:, None]
    response_mask = attended.clone()
    response_mask[::2, 2:4] = False
    reward = torch.zeros(8, RESPONSE)
    reward[torch.arange(8), response_lengths - 1] = torch.tensor(rewards)
    attention_mask = torch.cat([prompt_mask, attended], dim=1).long()
    save_file(
        {
            "prompts": prompts * prompt_mask,
            "responses": responses * attended,
            "input_ids": torch.cat([prompts * prompt_mask, responses * attended], dim=1),
            "attention_mask": attention_mask,
            "position_ids": (attention_mask.cumsum(1) - 1).clamp(min=0),
            "response_mask": response_mask.long(),
            "token_level_rewards": reward,
            "group": group,
        },
        path,
    )


def reference_log_probs(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(bs, T) by Hugging Face's model."""
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
    logits = model(**inputs).logits[:, PROMPT - 1 : -1]
    return logits.log_softmax(-1).gather(-1, batch["responses"].unsqueeze(-1)).squeeze(-1)


def furthest(a: torch.Tensor, b: torch.Tensor, batch: dict[str, torch.Tensor]) -> float:
    """Largest absolute difference of two (bs, T) in the tokens of the responses."""
    attended = batch["attention_mask"][:, PROMPT:].bool()
    return (a - b)[attended].abs().max().item()
