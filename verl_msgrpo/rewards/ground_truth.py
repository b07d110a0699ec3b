"""The accepted answers in a row's ground truth, in whatever form data sets keep them."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from numbers import Number


class GroundTruthError(ValueError):
    """A row that nothing can be scored against; the message says what is wrong with it."""


def accepted_answers(ground_truth: object) -> list[str]:
    """The accepted answers, as they are written, at least one.

    A string or a number is one answer; a list or an array holds several; a mapping holds them under
    `target`, as Search-R1's rows do, and so does the JSON of such a mapping, which lets every row
    have the same type. Raises GroundTruthError where there is none.
    """
    if isinstance(ground_truth, str) and ground_truth.startswith('{"target":'):
        with contextlib.suppress(ValueError, RecursionError):
            ground_truth = json.loads(ground_truth)
    if isinstance(ground_truth, Mapping):
        ground_truth = ground_truth.get("target")
    if hasattr(ground_truth, "ravel"):  # an array; numpy need not be imported for that
        ground_truth = ground_truth.ravel().tolist()
    several = isinstance(ground_truth, Iterable) and not isinstance(ground_truth, str | bytes)
    items = list(ground_truth) if several else [ground_truth]  # type: ignore[call-overload]
    texts = [str(item).strip() for item in items if isinstance(item, str | Number)]
    if not any(texts):
        raise GroundTruthError(f"no answer in the ground truth, which is a {type(ground_truth)}")
    return [text for text in texts if text]
