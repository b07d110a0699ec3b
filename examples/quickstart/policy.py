"""The policy: a Qwen2 of 0.44 million parameters and its tokenizer, warm-started on demonstrations.

The vocabulary is bytes, the fixed phrases of the task, and one token for each name. Any text can be
encoded, and a whole episode with two searches stays below 100 tokens.
"""

import time
from collections.abc import Iterable, Sequence
from itertools import islice

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

Message = dict[str, str]
Example = tuple[list[int], list[int]]  # token ids, and labels: -100 where the policy does not write

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Ordinary tokens: a special token would vanish when verl decodes a response.
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
TAGS += ["<answer>", "</answer>"]
ROLES = ["user\n", "assistant\n", "tool\n", "system\n"]
# ChatML. The schemas that verl passes as `tools` are left out: the demonstrations teach the format.
CHAT_TEMPLATE = """{%- for m in messages -%}
<|im_start|>{{ m['role'] + '\\n' }}
{%- if m['role'] == 'tool' %}<tool_response>{{ m['content'] }}</tool_response>
{%- else %}{{ m['content'] }}{% endif -%}
<|im_end|>{{ '\\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}<|im_start|>{{ 'assistant\\n' }}{% endif -%}"""
HIDDEN = 128
MAX_POSITIONS = 512
IGNORED = -100


def build_tokenizer(phrases: Sequence[str], names: Sequence[str]) -> PreTrainedTokenizerFast:
    """Byte-level, without merges: "\\n" is one token, and phrases and names are added whole."""
    vocabulary = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    whole = dict.fromkeys([*TAGS, *ROLES, *phrases, *names])
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in whole])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_POSITIONS,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2ForCausalLM:
    """A fresh float32 model; the same seed gives the same weights."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config).float()
    # Larger than the default 0.02: a name that is copied must stand out among the tied output
    # embeddings from the first step on.
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=HIDDEN**-0.5)
    return model


def encode(
    tokenizer: PreTrainedTokenizerFast,
    conversations: Sequence[list[Message]],
    copied: frozenset[int] = frozenset(),
) -> list[Example]:
    """Ids and labels of each conversation.

    A label is the token's id where the policy writes, from an assistant's first token to its
    `<|im_end|>`, and -100 elsewhere. Tokens of `copied` are also labelled wherever they repeat one
    that stood before: that is how the model learns to copy names in a few hundred steps.
    """
    start, end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assistant = tokenizer.convert_tokens_to_ids("assistant\n")
    texts = tokenizer.apply_chat_template(conversations, tokenize=False)
    examples = []
    for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]:
        labels = [
            token if token in copied and token in ids[:i] else IGNORED
            for i, token in enumerate(ids)
        ]
        for turn in (i for i, token in enumerate(ids) if token == start):
            if ids[turn + 1] == assistant:
                stop = ids.index(end, turn) + 1
                labels[turn + 2 : stop] = ids[turn + 2 : stop]
        examples.append((ids, labels))
    return examples


def batch(examples: Sequence[Example], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and labels (B, T), padded on the right. Causal attention never sees the padding."""
    length = max(len(ids) for ids, _ in examples)
    ids = [ids + [pad] * (length - len(ids)) for ids, _ in examples]
    labels = [labels + [IGNORED] * (length - len(labels)) for _, labels in examples]
    return torch.tensor(ids), torch.tensor(labels)


def warm_start(
    model: Qwen2ForCausalLM,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    steps: int,
    learning_rate: float = 5e-3,
) -> None:
    """Supervised training, one step a batch; the rate rises for 50 steps, then falls to zero."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 50, 1 - step / (steps + 1))
    )
    model.train()
    began = told = time.monotonic()
    for step, (ids, labels) in enumerate(islice(batches, steps), start=1):
        # Logits only where there is a label: most of a conversation is observation.
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        target = labels[:, 1:]
        chosen = target != IGNORED
        loss = functional.cross_entropy(model.lm_head(hidden[chosen]), target[chosen])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        now = time.monotonic()
        if now - told > 5 or step == steps:
            told = now
            print(f"warm start {step}/{steps}  loss {loss:.3f}  {now - began:.0f} s", flush=True)
    model.eval()
