"""Write HotpotQA as verl's training and validation rows, for `search_tool_agent`.

    python3 examples/search_hotpotqa/prepare.py --out ~/data/hotpotqa

A source is a data set of the hub or a local .parquet, .jsonl or .json file with HotpotQA's fields
(id, question, answer, type, level, ...). The contexts stay behind: they belong into the index.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import datasets

from verl_msgrpo.errors import UserError

HUB_NAME = "hotpotqa/hotpot_qa"
LOADERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json"}
FIELDS = ("id", "question", "answer", "type", "level")

# The tool itself is described by the chat template.
PROMPT = (
    "Answer the question below. Think step by step. Whenever you are not certain of a fact, look "
    "it up with the search tool, one fact at a time; you may search several times. When you know "
    "the answer, give it between <answer> and </answer>, as short as possible and without an "
    "explanation, for example <answer>Beijing</answer>.\n\nQuestion: {question}"
)


def row(example: Mapping[str, object], index: int) -> dict[str, object]:
    """One row in verl's format: the same fields, and no nulls, in every row.

    Raises:
        UserError: a field that is missing, not text or empty, with the row's number.
    """
    text: dict[str, str] = {}
    for name in FIELDS:
        value = example.get(name)
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"row {index + 1}: {name} is {value!r}; it must be a text")
        text[name] = value.strip()
    return {
        "data_source": HUB_NAME,
        "agent_name": "search_tool_agent",
        "prompt": [{"role": "user", "content": PROMPT.format(question=text["question"])}],
        "ability": "multi-hop question answering",
        # Several accepted answers may stand here: the form of Search-R1's rows.
        "reward_model": {"style": "rule", "ground_truth": {"target": [text["answer"]]}},
        "extra_info": {
            "index": index,
            "id": text["id"],
            "type": text["type"],
            "level": text["level"],
        },
    }


def load(source: str, split: str) -> datasets.Dataset:
    """The rows of a local file, or of a split of a hub data set (config `distractor`).

    Raises:
        UserError: it cannot be read, or lacks fields.
    """
    try:
        loader = LOADERS.get(Path(source).suffix)
        if loader:
            rows = datasets.load_dataset(loader, data_files=source, split="train")
        else:
            rows = datasets.load_dataset(source, "distractor", split=split)
    except Exception as error:  # of files, formats and the network, from several libraries
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{source}: cannot be read: {reason}") from None
    missing = [name for name in FIELDS if name not in rows.column_names]
    if missing:
        raise UserError(f"{source}: has no {', '.join(missing)}; fields: {rows.column_names}")
    return rows


def prepare(source: str, split: str, out: Path) -> int:
    """Writes `out`/`split`.parquet and returns the number of rows; raises UserError."""
    examples = load(source, split).select_columns(list(FIELDS))
    try:
        rows = [row(example, index) for index, example in enumerate(examples)]
    except UserError as error:
        raise UserError(f"{source}, {error}") from None
    if not rows:
        raise UserError(f"{source}: holds no rows")
    out.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_list(rows).to_parquet(out / f"{split}.parquet")
    return len(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--train", default=HUB_NAME, metavar="SOURCE", help=f"({HUB_NAME})")
    parser.add_argument("--validation", default=HUB_NAME, metavar="SOURCE", help=f"({HUB_NAME})")
    args = parser.parse_args()
    try:
        for split in ("train", "validation"):
            count = prepare(getattr(args, split), split, args.out)
            print(f"{args.out / split}.parquet: {count} questions")
    except UserError as error:
        print(f"prepare.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
