"""`verl-msgrpo index`: builds a search index from a corpus."""

import argparse
from pathlib import Path

from verl_msgrpo.common.numbers import integer_argument
from verl_msgrpo.search.server.index import BACKENDS, LANGUAGES, BuildOptions, build_index


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "--corpus",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help='Search-R1 rows {"id", "contents"} or HotpotQA rows with their contexts; '
        ".jsonl, .json, .jsonl.gz, .parquet",
    )
    parser.add_argument(
        "--output", type=_new_path, required=True, metavar="DIR", help="the new index directory"
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, default=BuildOptions.backend, help="(default: bm25)"
    )
    parser.add_argument(
        "--language",
        choices=LANGUAGES,
        default=BuildOptions.language,
        help="BM25's stop words and stemming (default: english)",
    )
    dense = parser.add_argument_group("dense and hybrid")
    dense.add_argument("--model", metavar="NAME_OR_DIR", help="a sentence-transformers model")
    dense.add_argument(
        "--query-prefix", metavar="TEXT", help='put before a query (default: E5 models "query: ")'
    )
    dense.add_argument(
        "--passage-prefix",
        metavar="TEXT",
        help='put before a passage (default: E5 models "passage: ")',
    )
    dense.add_argument(
        "--device", default=BuildOptions.device, help="where passages are encoded (default: cpu)"
    )
    dense.add_argument(
        "--batch-size",
        type=integer_argument(1),
        default=BuildOptions.batch_size,
        help="passages at once (default: 64)",
    )


def run(args: argparse.Namespace) -> int:
    """Builds the index; raises UserError for bad input."""
    options = BuildOptions(
        backend=args.backend,
        language=args.language,
        model=args.model,
        query_prefix=args.query_prefix,
        passage_prefix=args.passage_prefix,
        device=args.device,
        batch_size=args.batch_size,
    )
    count = build_index(args.corpus, args.output, options)
    print(f"{args.output}: {count} passages, {args.backend}")
    return 0


def _new_path(text: str) -> Path:
    if not text:  # Path("") is the working directory
        raise argparse.ArgumentTypeError("an empty name")
    return Path(text)
