"""`verl-msgrpo report`: a page about one or several runs, as one file or with its parts."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.table import write_csv
from verl_msgrpo.report.curves import absent, is_shown, panels
from verl_msgrpo.report.figures import sections
from verl_msgrpo.report.final_numbers import FinalNumber, final_numbers
from verl_msgrpo.report.methods import Method, differences, group_runs, method_of, warnings
from verl_msgrpo.report.page import Page, render
from verl_msgrpo.report.runs import Run, find_metrics, read_run
from verl_msgrpo.report.trajectories import Extremes, extremes, last_dump

PAGE, FIGURES, TABLE = "index.html", "figures", "final_numbers.csv"
TABLE_COLUMNS = (
    *("metric", "method", "mean", "low", "high", "seeds"),
    *("baseline", "difference", "difference_low", "difference_high", "pairs"),
)
TRAJECTORIES = 2  # of each kind


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.add_argument(
        "runs",
        type=Path,
        nargs="*",
        metavar="RUN",
        help="a folder with metrics.jsonl, or a file that verl's file logger wrote "
        "(trainer.logger='[console,file]'); runs that differ in their seed only are one method, "
        "and the first method is the one that others are compared with",
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME=RUN,RUN",
        help="the runs of one method (before all others; may be given several times)",
    )
    parser.add_argument(
        "--dump",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="take trajectories from these dumps of verl's (default: the last one in rollouts/ or "
        "validation/ beside metrics.jsonl of each method's first run that has one)",
    )
    parser.add_argument(
        "--output",
        "--out",
        type=Path,
        default=Path("report"),
        metavar="PATH",
        help=f"a name that ends in .html: one file with everything in it, to be passed on; else a "
        f"folder for {PAGE}, {FIGURES}/*.png and {TABLE} (default: report)",
    )


def run(args: argparse.Namespace) -> int:
    """Writes the page, as one file or as a folder; raises UserError for bad input."""
    groups = [parse_group(text) for text in args.group]
    paths = [*(path for _, runs in groups for path in runs), *args.runs]
    if not paths:
        raise UserError("name at least one run")
    _check_distinct(paths, [name for name, _ in groups])
    runs = {path: read_run(path, is_shown) for path in paths}
    methods = [method_of(name, [runs[path] for path in own]) for name, own in groups]
    methods += group_runs([runs[path] for path in args.runs])
    is_one_file = args.output.suffix.lower() == ".html"
    # Before the work, as it may fail.
    _make_folder(args.output.parent if is_one_file else args.output / FIGURES)
    report = make_report(methods, args.dump)
    page = render(report)  # before anything is written: without jinja2 nothing is left behind
    path = args.output if is_one_file else args.output / PAGE
    _write_bytes(path, page.encode("utf-8", "replace"))
    if not is_one_file:
        _write_parts(args.output, report)
    drawn = sum(len(section.figures) for section in report.sections)
    print(f"{len(methods)} method(s), {len(paths)} run(s), {drawn} figures")
    for warning in report.warnings:
        print(f"note: {warning}")
    print(path)
    return 0


def parse_group(text: str) -> tuple[str, list[Path]]:
    """A name and paths from "NAME=RUN,RUN".

    Raises:
        UserError: the text is something else.
    """
    name, _, runs = text.partition("=")
    paths = [Path(run.strip()) for run in runs.split(",") if run.strip()]
    if not name.strip() or not paths:
        raise UserError(f"--group {text}: expected NAME=RUN,RUN")
    return name.strip(), paths


def make_report(methods: list[Method], dumps: Sequence[Path]) -> Page:
    """Gathers and draws what a page shows.

    Raises:
        UserError: a dump that was named cannot be used, or matplotlib or scipy is missing.
    """
    named = [(file.name, extremes(file, TRAJECTORIES)) for file in dumps]
    own = [] if named else [(method, _dump_of(method)) for method in methods]
    found = differences(methods)
    shown = panels(methods)
    return Page(
        warnings=warnings(methods, found),
        differences=found,
        methods=methods,
        finals=final_numbers(methods, shown),
        sections=sections(methods, shown),
        absent=absent(methods),
        dumps=named or [dump for _, dump in own if dump],
        without_dump=[method.name for method, dump in own if dump is None],
    )


def _check_distinct(paths: Sequence[Path], names: Sequence[str]) -> None:
    seen: set[Path] = set()
    for path in paths:
        metrics_file = find_metrics(path).resolve()
        if metrics_file in seen:
            raise UserError(f"{path}: named twice")
        seen.add(metrics_file)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--group {name}: given twice; put its runs into one")


def _dump_of(method: Method) -> tuple[str, Extremes] | None:
    """From the first of its runs that has a dump which can be read."""
    for own in method.runs:
        if (extreme := _own_dump(own)) is not None:
            return f"{method.name}: {own.name}", extreme
    return None


def _own_dump(own: Run) -> Extremes | None:
    file = last_dump(own)
    try:
        return extremes(file, TRAJECTORIES) if file else None
    except UserError:
        return None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror})") from None


def _write_bytes(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None


def _write_parts(folder: Path, report: Page) -> None:
    """What the page shows as files of their own: its figures, and the final numbers as CSV."""
    for section in report.sections:
        for figure in section.figures:
            _write_bytes(folder / FIGURES / f"{figure.name}.png", figure.png)
    write_csv(folder / TABLE, TABLE_COLUMNS, table_rows(report.methods, report.finals))


def table_rows(methods: Sequence[Method], finals: Sequence[FinalNumber]) -> list[list[object]]:
    """The rows under TABLE_COLUMNS: one for each metric of each method that has it."""
    rows: list[list[object]] = []
    for final in finals:
        for method, mean, change in zip(methods, final.means, final.differences, strict=True):
            if mean is None:
                continue
            row: list[object] = [final.panel.metric, method.name]
            row += [mean.value, mean.low, mean.high, mean.count]
            if change is None:
                row += [""] * 5
            else:
                row += [methods[0].name, change.value, change.low, change.high, change.count]
            rows.append(row)
    return rows
