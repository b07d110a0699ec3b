"""What a request may hold and how an answer is spelt."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from verl_msgrpo.search.server.backends import Hit
from verl_msgrpo.search.server.options import Limits
from verl_msgrpo.search.server.protocol import (
    AnswerTooLarge,
    RequestError,
    RetrieveRequest,
    dump_response,
    parse_request,
)

LIMITS = Limits(default_topk=3, max_topk=10, max_queries=4, max_results=20, max_query_chars=20)


def body(**fields):
    return json.dumps(fields).encode()


def test_a_request_with_everything_and_with_the_least():
    full = parse_request(body(queries=["a", "b"], topk=5, return_scores=True, other=1), LIMITS)
    assert (full.queries, full.topk, full.return_scores) == (["a", "b"], 5, True)
    least = parse_request(body(queries=["a"]), LIMITS)
    assert (least.queries, least.topk, least.return_scores) == (["a"], 3, False)
    assert parse_request(body(queries=[], topk=None), LIMITS).topk == 3


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        (body(queries=["a"], topk=0), 400, "at least 1"),
        (body(queries=["a"], topk=-3), 400, "at least 1"),
        (body(queries=["a"], topk=11), 422, "limit of 10"),
        (body(queries=["a"], topk=10**400), 422, "topk"),
        (body(queries=["a"], topk=-(10**400)), 400, "at least 1"),
        (body(queries=["a"], topk=-(10**4000)), 400, "at least 1"),
        (body(queries=["a"], topk="many"), 422, "topk"),
        (body(queries=["a"], topk="2"), 422, "topk"),
        (body(queries=["a"], topk=True), 422, "topk"),
        (body(queries=["a"] * 5), 422, "takes 4"),
        (body(queries=["a"] * 3, topk=7), 422, "gives 20 results"),
        (body(queries=["a" * 21]), 422, "21 characters"),
        (body(queries="who"), 422, "queries"),
        (body(queries=["a", None]), 422, "queries.1"),
        (body(queries=[["a"]]), 422, "queries.0"),
        (body(query="a"), 422, "queries"),
        (b"[]", 422, "the body"),
        (b"", 422, "not JSON"),
        (b"\xff\xfe\x00", 422, "not JSON"),
        (b'{"queries": ["a"', 422, "not JSON"),
        (b"[" * 100_000, 422, "not JSON"),
        (b'{"queries": ["a"], "topk": ' + b"9" * 10_000 + b"}", 422, "not JSON"),
    ],
)
def test_bad_requests_get_a_status_and_one_line(content, status, reason):
    with pytest.raises(RequestError, match=reason) as caught:
        parse_request(content, LIMITS)
    assert caught.value.status == status
    assert "\n" not in caught.value.reason
    assert len(caught.value.reason) < 300


def test_only_the_first_bad_query_is_looked_at():
    """An error object for each of many bad queries costs seconds and hundreds of megabytes."""
    with pytest.raises(RequestError, match=r"^700000 queries, this server takes 4 a request$"):
        parse_request(body(queries=[1] * 700_000), LIMITS)
    with pytest.raises(ValidationError) as caught:
        RetrieveRequest.model_validate({"queries": ["a", 1, 2, 3]})
    assert [error["loc"] for error in caught.value.errors()] == [("queries", 1)]


def test_queries_times_topk_may_reach_the_limit():
    assert parse_request(body(queries=["a"] * 4, topk=5), LIMITS).topk == 5
    wide = Limits(default_topk=6, max_results=20)
    with pytest.raises(RequestError, match="topk of 6"):
        parse_request(body(queries=["a"] * 4), wide)


def test_lone_surrogates_are_replaced():
    assert parse_request(b'{"queries": ["\\ud800 x", "\\ud83e\\udd80"]}', LIMITS).queries == [
        "? x",
        "🦀",
    ]


def outcome(content):
    """ "request", or the status with which it is refused; any other exception fails the test."""
    try:
        request = parse_request(content, LIMITS)
    except RequestError as error:
        return error.status
    return "request" if 1 <= request.topk <= LIMITS.max_topk else request.topk


@settings(deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_request_error(content):
    assert outcome(content) in ("request", 400, 422)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, derandomize=True)
@given(JSON, JSON, JSON)
def test_any_values_are_a_request_or_a_request_error(queries, topk, scores):
    content = json.dumps({"queries": queries, "topk": topk, "return_scores": scores}).encode()
    assert outcome(content) in ("request", 400, 422)


def test_answers_are_spelt_as_search_r1_spells_them():
    hits = [
        Hit(b'{"id": "1", "contents": "T\\nx"}', 2.5),
        Hit(b'{"id": "2", "contents": ""}', -1e-9),
    ]
    first, second = {"id": "1", "contents": "T\nx"}, {"id": "2", "contents": ""}
    assert json.loads(dump_response([hits, []], return_scores=True, max_bytes=100)) == {
        "result": [[{"document": first, "score": 2.5}, {"document": second, "score": -1e-9}], []]
    }
    assert json.loads(dump_response([hits, []], return_scores=False, max_bytes=100)) == {
        "result": [[first, second], []]
    }
    assert json.loads(dump_response([], return_scores=True, max_bytes=0)) == {"result": []}


def test_answers_are_bounded_by_the_bytes_of_their_documents():
    results = [[Hit(b"{}", 1.0)] * 2, [], [Hit(b"[1,2]", 1.0)]]  # 2 + 2 + 5 bytes
    assert json.loads(dump_response(results, False, 9)) == {"result": [[{}, {}], [], [[1, 2]]]}
    with pytest.raises(AnswerTooLarge, match="larger than this server's 8 bytes") as caught:
        dump_response(results, False, 8)
    assert caught.value.status == 422
