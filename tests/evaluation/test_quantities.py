import math

import numpy as np
import pytest

from tests.evaluation.files import groups, verl_row, write_rows
from verl_msgrpo.errors import UserError
from verl_msgrpo.evaluation.dumps import read_samples
from verl_msgrpo.evaluation.quantities import ALL, Request, by_prompt, by_source


@pytest.fixture
def evaluated(tmp_path):
    def evaluate(rows, *ks, **request):
        samples = read_samples(write_rows(tmp_path / "rows.jsonl", rows))
        return by_source(by_prompt(samples, Request(ks, **request)), seed=0)

    return evaluate


def values(source_report):
    return {e.quantity: e.value for e in source_report.estimates}


def test_mean_of_means_and_pass(evaluated):
    (only,) = evaluated(groups([1, 0], [1, 1]))
    assert values(only) == {"avg@2": 0.75, "pass@1": 0.75, "pass@2": 1.0}
    assert (only.metric, only.prompts, only.samples, only.short_groups) == ("acc", 2, 4, 0)


def test_short_groups_are_counted(evaluated):
    (only,) = evaluated(groups([1, 0, 0, 0], [1], [0, 1, 1, 1]), 1, 4)
    assert (only.group_size, only.short_groups) == (4, 1)
    estimates = {e.quantity: (e.value, e.prompts) for e in only.estimates}
    # The mean over prompts, not over samples: (1/4 + 1 + 3/4) / 3.
    assert estimates == {
        "avg@4": (pytest.approx(2 / 3), 3),
        "pass@1": (pytest.approx(2 / 3), 3),
        "pass@4": (1.0, 2),
    }


def test_further_numbers_are_averaged(evaluated):
    rows = [
        verl_row("Q", uid, score, session=s, acc=acc, em=acc, f1=f1, truncated=0.0, searches=2.0)
        for uid, s, score, acc, f1 in [("a", 0, 0.9, 1.0, 1.0), ("a", 1, 0.1, 0.0, 0.4)]
    ]
    (only,) = evaluated(rows, 1)
    assert values(only) == pytest.approx(
        {"avg@2": 0.5, "pass@1": 0.5, "score": 0.5, "em": 0.5, "f1": 0.7}
        | {"truncated": 0.0, "searches": 2.0, "output_chars": 9.0}
    )
    (by_f1,) = evaluated(rows, 1, metric="f1", threshold=0.3)
    assert by_f1.metric == "f1"
    assert values(by_f1)["avg@2"] == pytest.approx(0.7)
    assert values(by_f1)["pass@1"] == 1.0


def test_majority_of_the_answers(evaluated):
    preds = [("x", 1), ("x", 1), ("y", 0), ("", 0)]
    rows = [{"uid": 0, "acc": acc, "pred": pred} for pred, acc in preds]
    (only,) = evaluated(rows, 1, 2, 4)
    # Pairs: xx, 2 xy (shared), 2 x-, y-.
    assert values(only)["maj@2"] == pytest.approx((1 + 2 * 0.5 + 2 + 0) / 6)
    assert values(only)["maj@4"] == 1.0
    assert "maj@1" not in values(only)


def test_no_answers_no_majority(evaluated):
    (only,) = evaluated(groups([1, 0], pred=None))
    assert set(values(only)) == {"avg@2", "pass@1", "pass@2"}
    (silent,) = evaluated(groups([0, 0], pred=""))
    assert values(silent)["maj@2"] == 0.0


def test_data_sources_have_a_metric_of_their_own(evaluated):
    rows = groups([1, 0], [0, 0], data_source="a", score=0.5)
    # A scorer that gives a float leaves null under the keys of the others.
    rows += [{"prompt": "b", "acc": None, "data_source": "b", "score": s} for s in (1.0, 0.2)]
    a, b, both = evaluated(rows)
    assert [r.source for r in (a, b, both)] == ["a", "b", ALL]
    assert [r.metric for r in (a, b, both)] == ["acc", "score", "acc or score"]
    assert values(a) == {"avg@2": 0.25, "pass@1": 0.25, "pass@2": 0.5, "score": 0.5}
    assert values(b) == {"avg@2": 0.6, "pass@1": 0.5, "pass@2": 1.0}
    assert values(both)["avg@2"] == pytest.approx((0.5 + 0.0 + 0.6) / 3)
    assert values(both)["score"] == 0.5


def test_data_sources_with_groups_of_their_own_size(evaluated):
    rows = groups([1, 0, 1], data_source="a") + groups([1], [0], data_source="b")
    a, b, both = evaluated(rows)
    assert [r.short_groups for r in (a, b, both)] == [0, 0, 0]
    assert values(b) == {"avg@1": 0.5, "pass@1": 0.5}
    assert values(both)["pass@3"] == values(a)["pass@3"] == 1.0
    assert "avg@n" in values(both)


def test_a_sample_without_a_result_counts_as_wrong(evaluated):
    (only,) = evaluated(groups([1, None], [1, float("nan")]))
    assert only.unscored == 2
    assert values(only)["avg@2"] == 0.5


def test_a_float32_sum_of_one_is_one(evaluated):
    (only,) = evaluated(groups([float(np.float32(0.1) * 10 - 1e-7)]))
    assert values(only)["pass@1"] == 1.0


def test_every_estimate_has_its_interval(evaluated):
    rng = np.random.default_rng(0)
    (only,) = evaluated(groups(*(rng.random((300, 4)) < 0.6).astype(float).tolist()), 1)
    (avg,) = (e for e in only.estimates if e.quantity == "avg@4")
    # Four independent samples a prompt: the mean of a prompt has variance 0.24 / 4.
    half = 1.96 * math.sqrt(0.24 / 4 / 300)
    assert avg.high - avg.value == pytest.approx(half, rel=0.15)
    assert avg.value - avg.low == pytest.approx(half, rel=0.15)


def test_k_above_the_number_of_samples(evaluated):
    with pytest.raises(UserError, match="--k 8, but no prompt has more than 2 samples"):
        evaluated(groups([1, 0], [1]), 1, 8)


def test_no_metric(evaluated):
    with pytest.raises(UserError, match="no numbers under acc or score; there are: 'reward'"):
        evaluated([{"uid": 1, "reward": 1.0, "acc": "yes"}])
    with pytest.raises(UserError, match="no numbers under f2; there are: 'acc'"):
        evaluated(groups([1]), metric="f2")


def test_a_key_with_the_name_of_a_quantity_does_not_replace_it(evaluated):
    (only,) = evaluated([row | {"pass@1": 7} for row in groups([1, 0])])
    assert values(only)["pass@1"] == 0.5
