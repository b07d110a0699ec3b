"""`verl-msgrpo evaluate`: avg@k, pass@k and maj@k from a validation dump or any scored samples."""

import argparse
import math
from pathlib import Path

from verl_msgrpo.common.numbers import integer, not_allowed
from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.compare import compare
from verl_msgrpo.evaluation.dumps import Samples, read_samples
from verl_msgrpo.evaluation.plot import plot_differences, plot_summaries
from verl_msgrpo.evaluation.prompt_rows import PromptRows
from verl_msgrpo.evaluation.quantities import Request, by_prompt, by_source
from verl_msgrpo.evaluation.table import (
    DIFFERENCE_COLUMNS,
    SUMMARY_COLUMNS,
    difference_rows,
    difference_text,
    summary_rows,
    summary_text,
    write_csv,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "samples",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="a file of verl's trainer.validation_data_dir, or JSON lines "
        '{"prompt" or "uid", "acc" or "score", "pred", "data_source", ...}, a sample each',
    )
    parser.add_argument(
        "--compare",
        type=Path,
        nargs=2,
        metavar=("A", "B"),
        help="paired difference B - A of two such files",
    )
    parser.add_argument(
        "--data",
        type=Path,
        nargs="+",
        default=[],
        metavar="PARQUET",
        help="verl's validation data (data.val_files): gives each prompt its data_source",
    )
    parser.add_argument(
        "--k",
        default="",
        metavar="1,4,8",
        help="of pass@k and maj@k (default: 1 and the size of the largest group)",
    )
    parser.add_argument(
        "--metric", metavar="KEY", help="result of a sample (default: acc where it is, else score)"
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=1.0,
        help="a sample with at least this result is right (default: 1)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the bootstrap of the intervals (default: 0)"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the table to a CSV file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the table")


def run(args: argparse.Namespace) -> int:
    """Prints the table; raises UserError for bad input."""
    if (args.samples is None) == (args.compare is None):
        raise UserError("name one file, or two with --compare A B")
    try:
        integer("--seed", args.seed, 0)
        if not math.isfinite(args.threshold):
            raise not_allowed("--threshold", "a finite number", args.threshold)
        request = Request(parse_ks(args.k), args.metric, args.threshold)
    except ValueError as error:
        raise UserError(str(error)) from None
    data = PromptRows(args.data) if args.data else None
    if args.compare is None:
        return _evaluate(args, request, read_samples(args.samples, data))
    first, second = (read_samples(path, data) for path in args.compare)
    return _compare(args, request, first, second)


def parse_ks(text: str) -> tuple[int, ...]:
    """Distinct numbers, ascending, from "1,4,8"; nothing from "".

    Raises:
        ValueError: the text is something else.
    """
    try:
        ks = sorted({int(part) for part in text.split(",")}) if text else []
        if ks and ks[0] < 1:
            raise ValueError
    except ValueError:
        raise not_allowed("--k", "a list of integers >= 1 such as 1,4,8", text) from None
    return tuple(ks)


def _evaluate(args: argparse.Namespace, request: Request, samples: Samples) -> int:
    summaries = by_source(by_prompt(samples, request), args.seed)
    print(f"{_about(samples)}\n\n{summary_text(summaries)}")
    if any(r.short_groups for r in summaries):
        print(
            "\nshort groups: avg@n takes what is there; pass@k and maj@k leave out groups below k"
        )
    if args.csv is not None:
        write_csv(args.csv, SUMMARY_COLUMNS, summary_rows(summaries))
    if args.plot is not None:
        plot_summaries(summaries, args.plot)
    return 0


def _compare(args: argparse.Namespace, request: Request, first: Samples, second: Samples) -> int:
    comparison = compare(first, second, request, args.seed)
    print(f"A: {_about(first)}\nB: {_about(second)}")
    print(
        f"{comparison.pairs} prompts in both, {comparison.only_first} only in A, "
        f"{comparison.only_second} only in B\n\n{difference_text(comparison.differences)}"
    )
    if args.csv is not None:
        write_csv(args.csv, DIFFERENCE_COLUMNS, difference_rows(comparison.differences))
    if args.plot is not None:
        plot_differences(comparison.differences, args.plot)
    return 0


def _about(samples: Samples) -> str:
    parts = [f"{samples.path}:"]
    if samples.step is not None:
        parts.append(f"step {samples.step},")
    parts.append(
        f"{samples.rows} rows, {len(samples.prompts)} samples, {len(samples.keys)} prompts"
    )
    if samples.unmatched:
        parts.append(f"({samples.unmatched} not in --data)")
    if samples.unseen:
        parts.append(f"({samples.unseen} prompts of --data have no sample)")
    return " ".join(parts)
