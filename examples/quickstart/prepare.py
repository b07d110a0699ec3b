"""Write all that the quickstart trains on: model, corpus, training and validation questions.

    python examples/quickstart/prepare.py --out DIR --seed 0

The same seed gives the same files, down to the last bit of the weights.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
from knowledge_base import Country, load_countries, names, passages
from policy import batch, build_model, build_tokenizer, encode, warm_start
from questions import FROM_MEMORY, Behaviour, Question, demonstrations, phrases, split
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

HELD_OUT_COUNTRIES = 25
VALIDATION_QUESTIONS = 200
THREADS = 2  # fixed: another number would sum in another order
BATCH_SIZE = 32
DEMONSTRATIONS_PER_WORLD = 256

# First the skill, then carelessness: what reinforcement has to undo.
SKILL: dict[Behaviour, float] = {"solved": 0.95, "memory": 0.05}
HABITS: dict[Behaviour, float] = {
    "solved": 0.32,
    "wrong lookup": 0.14,
    "one search": 0.19,
    "blind": 0.19,
    "unanswered": 0.06,
    "memory": 0.10,
}
SKILL_STEPS, HABIT_STEPS = 256, 96


def training_batches(
    countries: list[Country], tokenizer: PreTrainedTokenizerFast, rng: random.Random
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless batches; each made-up world gives a few."""
    copied = frozenset(tokenizer.convert_tokens_to_ids(names(countries)))
    step = 0
    while True:
        mixture = SKILL if step < SKILL_STEPS else HABITS
        made_up = demonstrations(countries, mixture, DEMONSTRATIONS_PER_WORLD, rng)
        examples = encode(tokenizer, made_up, copied)
        for start in range(0, len(examples), BATCH_SIZE):
            yield batch(examples[start : start + BATCH_SIZE], tokenizer.pad_token_id)
            step += 1


def row(question: Question, index: int, source: str, agent: str, prompt: str) -> dict[str, object]:
    """One row in verl's format."""
    return {
        "data_source": source,
        "agent_name": agent,
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "multi-hop question answering",
        "reward_model": {"style": "rule", "ground_truth": question.answer},
        "extra_info": {"index": index, "bridge": question.bridge},
    }


def prepare(out: Path, seed: int, agent: str, steps: int = SKILL_STEPS + HABIT_STEPS) -> None:
    """Write `model/`, `corpus.jsonl`, `train.parquet` and `val.parquet` into `out`."""
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    out.mkdir(parents=True, exist_ok=True)
    countries = load_countries()
    train, held_out = split(
        countries, random.Random(f"split {seed}"), HELD_OUT_COUNTRIES, VALIDATION_QUESTIONS
    )
    with (out / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for passage in passages(countries):
            file.write(json.dumps(passage, ensure_ascii=False) + "\n")
    search, memory = ("quickstart/search", agent), ("quickstart/no_search", "single_turn_agent")
    rows = [row(q, i, *search, q.text) for i, q in enumerate(train)]
    pd.DataFrame(rows).to_parquet(out / "train.parquet")
    # Every held-out question twice: as it is, and to be answered without the tool.
    rows = [row(q, i, *search, q.text) for i, q in enumerate(held_out)]
    rows += [row(q, i, *memory, FROM_MEMORY + q.text) for i, q in enumerate(held_out)]
    pd.DataFrame(rows).to_parquet(out / "val.parquet")
    print(f"{len(countries)} countries, {len(train)} training, {len(held_out)} held-out questions")

    tokenizer = build_tokenizer(phrases(), names(countries))
    model = build_model(tokenizer, seed)
    batches = training_batches(countries, tokenizer, random.Random(f"demonstrations {seed}"))
    warm_start(model, batches, steps)
    transformers_logging.disable_progress_bar()  # one that is full at once
    model.save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agent", default="search_tool_agent", help="agent loop that searches")
    args = parser.parse_args()
    began = time.monotonic()
    prepare(args.out, args.seed, args.agent)
    print(f"prepared {args.out} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
