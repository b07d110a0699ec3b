"""`verl-msgrpo index`: builds a search index from a corpus."""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from verl_msgrpo.arguments import positive
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.corpus import read_passages
from verl_msgrpo.search.server.index_dir import LANGUAGES, Settings, building, write_manifest
from verl_msgrpo.search.server.passages import PassageStore, write_passages

BACKENDS = ("bm25", "dense", "hybrid")


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
    parser.add_argument("--backend", choices=BACKENDS, default="bm25", help="(default: bm25)")
    parser.add_argument(
        "--language",
        choices=LANGUAGES,
        default="english",
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
    dense.add_argument("--device", default="cpu", help="where passages are encoded (default: cpu)")
    dense.add_argument(
        "--batch-size", type=positive, default=64, help="passages at once (default: 64)"
    )


def run(args: argparse.Namespace) -> int:
    """Builds the index; raises UserError for bad input."""
    wants_dense = args.backend in ("dense", "hybrid")
    if wants_dense != (args.model is not None):
        raise UserError(
            f"--backend {args.backend} needs --model"
            if wants_dense
            else "--model is for --backend dense or hybrid"
        )
    missing = [str(path) for path in args.corpus if not path.is_file()]
    if missing:
        raise UserError(f"{missing[0]}: no such corpus file")
    with building(args.output) as directory:
        size = sum(path.stat().st_size for path in args.corpus)
        with _progress("reading the corpus", size, "B") as bar:
            count = write_passages(directory, read_passages(args.corpus, bar.update))
        store = PassageStore(directory)
        try:
            backends = _build_backends(args, directory, store)
        finally:
            store.close()
        write_manifest(directory, count, backends, [path.name for path in args.corpus])
    print(f"{args.output}: {count} passages, {args.backend}")
    return 0


def _build_backends(
    args: argparse.Namespace, directory: Path, store: PassageStore
) -> dict[str, Settings]:
    backends: dict[str, Settings] = {}
    if args.backend in ("bm25", "hybrid"):
        from verl_msgrpo.search.server.backends import bm25

        # bm25s holds about 50 bytes for each pair of a passage and a word in it; English text has
        # one such pair for every 8 to 12 bytes.
        gib = store.text_bytes / 10 * 50 / 2**30
        print(f"bm25: about {gib:.1f} GiB of memory at the peak", file=sys.stderr)
        (directory / "bm25").mkdir()
        with _progress("bm25", len(store), "passages") as bar:
            backends["bm25"] = bm25.build(directory / "bm25", store, args.language, bar.update)
    if args.backend in ("dense", "hybrid"):
        from verl_msgrpo.search.server.backends import dense

        (directory / "dense").mkdir()
        encoder = dense.Encoder(
            args.model,
            args.device,
            dense.prefixes(args.model, args.query_prefix, args.passage_prefix),
        )
        gib = len(store) * encoder.dimension * 4 / 2**30
        print(f"dense: {gib:.1f} GiB on disk, memory-mapped when served", file=sys.stderr)
        with _progress("dense", len(store), "passages") as bar:
            backends["dense"] = dense.build(
                directory / "dense", store, encoder, args.batch_size, bar.update
            )
    return backends


def _new_path(text: str) -> Path:
    if not text:  # Path("") is the working directory
        raise argparse.ArgumentTypeError("an empty name")
    return Path(text)


def _progress(what: str, total: int, unit: str) -> tqdm:
    scale = unit == "B"
    # One line every few seconds where nobody watches: a log, not a terminal.
    interval = 0.5 if sys.stderr.isatty() else 10
    return tqdm(total=total, desc=what, unit=unit, unit_scale=scale, mininterval=interval)
