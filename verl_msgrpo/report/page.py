"""A report as one HTML page that needs nothing else and asks for nothing.

Everything from files is escaped (jinja2's autoescape); a content security policy forbids scripts
and requests besides, so that the page stays quiet even if something were not.
"""

import base64
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from verl_msgrpo.evaluation.table import shown
from verl_msgrpo.report.clean_text import clean
from verl_msgrpo.report.differences import Difference
from verl_msgrpo.report.extra import from_extra
from verl_msgrpo.report.figures import Section
from verl_msgrpo.report.final_numbers import LAST_STEPS, FinalNumber
from verl_msgrpo.report.intervals import Mean
from verl_msgrpo.report.methods import Method
from verl_msgrpo.report.plot import COLOURS
from verl_msgrpo.report.segments import Segment, segments
from verl_msgrpo.report.trajectories import Extremes

TEMPLATE = Path(__file__).with_name("page.html.jinja")
MAX_DIFFERENCES = 100
MAX_VALUE_CHARS = 200
MAX_TEXT_CHARS = 4000  # of one segment
MAX_SEGMENTS = 40  # of one response; its first and last ones


@dataclasses.dataclass(frozen=True)
class Report:
    """What a page shows, from top to bottom.

    dumps: of a method, or of a file that was named.
    without_dump: methods of whose trajectories nothing is shown, for want of a dump.
    """

    warnings: list[str]
    differences: list[Difference]
    methods: list[Method]
    finals: list[FinalNumber]
    sections: list[Section]
    absent: list[str]
    dumps: list[tuple[str, Extremes]]
    without_dump: list[str]


def render(report: Report) -> str:
    """The page; it can be encoded as UTF-8.

    Raises:
        UserError: jinja2 is missing.
    """
    jinja2 = from_extra("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "name": lambda text: shown(text).strip(),
        "value": lambda text: clean(text, MAX_VALUE_CHARS),
        "text": lambda text: clean(text, MAX_TEXT_CHARS),
        "number": lambda number: f"{number:.4g}",
        "mean": _mean,
        "difference": _difference,
        "interval": _interval,
        "paired": _paired,
        "data_uri": _data_uri,
        "parts": _parts,
    }
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        report=report,
        colours=COLOURS,
        last_steps=LAST_STEPS,
        max_differences=MAX_DIFFERENCES,
    )


def _mean(mean: Mean | None) -> str:
    return "–" if mean is None else f"{mean.value:.4g}"


def _difference(mean: Mean | None) -> str:
    return "–" if mean is None else f"{mean.value:+.3g}"


def _interval(mean: Mean | None, form: str = ".3g") -> str:
    """Nothing where there is none."""
    if mean is None or math.isnan(mean.low):
        return ""
    return f"({mean.low:{form}} .. {mean.high:{form}})"


def _paired(mean: Mean | None) -> str:
    if mean is None:
        return ""
    return "1 pair" if mean.count == 1 else f"{_interval(mean, '+.3g')}, {mean.count} pairs"


def _data_uri(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def _parts(response: str) -> Sequence[Segment | None]:
    """The segments of a response; None where some are left out."""
    parts: list[Segment | None] = [*segments(response)]
    if len(parts) <= MAX_SEGMENTS:
        return parts
    half = MAX_SEGMENTS // 2
    return [*parts[:half], None, *parts[-half:]]
