"""A report as one HTML page that needs nothing else and asks for nothing.

Everything from files is escaped (jinja2's autoescape); a content security policy forbids scripts
and requests besides, so that the page stays quiet even if something were not.
"""

import base64
import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path

from verl_msgrpo.common.text import encodable
from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.intervals import Mean
from verl_msgrpo.evaluation.table import shown
from verl_msgrpo.report.figures import COLOURS, Section
from verl_msgrpo.report.final_numbers import LAST_STEPS, FinalNumber
from verl_msgrpo.report.methods import Method, SettingDifference
from verl_msgrpo.report.trajectories import Extremes, Segment, segments

TEMPLATE = Path(__file__).with_name("page.html.jinja")
MAX_DIFFERENCES = 100
MAX_VALUE_CHARS = 200
MAX_TEXT_CHARS = 4000  # of one segment
MAX_SEGMENTS = 40  # of one response; its first and last ones

# Control characters, and marks that turn the direction of what follows.
_UNSAFE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclasses.dataclass(frozen=True)
class Page:
    """What a page shows, from top to bottom.

    dumps: of a method, or of a file that was named.
    without_dump: methods of whose trajectories nothing is shown, for want of a dump.
    """

    warnings: list[str]
    differences: list[SettingDifference]
    methods: list[Method]
    finals: list[FinalNumber]
    sections: list[Section]
    absent: list[str]
    dumps: list[tuple[str, Extremes]]
    without_dump: list[str]


def render(page: Page) -> str:
    """The page; it can be encoded as UTF-8.

    Raises:
        UserError: jinja2 is missing.
    """
    try:
        import jinja2
    except ImportError:
        raise UserError("needs jinja2: pip install 'verl-msgrpo[report]'") from None
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
        report=page,
        colours=COLOURS,
        last_steps=LAST_STEPS,
        max_differences=MAX_DIFFERENCES,
    )


def clean(text: str, limit: int) -> str:
    """Text from a file as a page can hold it: nothing invisible in it, and not endless.

    U+FFFD for what is unsafe, "?" for lone surrogates; of more than `limit` characters the middle
    is left out.
    """
    if len(text) > limit:
        half = limit // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"
    return _UNSAFE.sub("\ufffd", encodable(text))


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
