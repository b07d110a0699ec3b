"""Which queries a tool call holds, whatever the model wrote."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_msgrpo.search.calls import MAX_QUERIES, MAX_QUERY_CHARS, CallError, read_queries


@pytest.mark.parametrize(
    ("arguments", "queries"),
    [
        ({"query_list": ["a b", " c "]}, ["a b", "c"]),
        ({"query_list": "Who wrote Dune?"}, ["Who wrote Dune?"]),
        ({"query": "Who wrote Dune?"}, ["Who wrote Dune?"]),
        ({"query": ["a", "b"]}, ["a", "b"]),
        ("Who wrote Dune?", ["Who wrote Dune?"]),
        (["a", None, "", "b"], ["a", "b"]),
        ({"query_list": None, "query": "a"}, ["a"]),
        ({"query_list": ["a"], "topk": 99}, ["a"]),
        ({"query_list": ["\ud800x"]}, ["?x"]),
    ],
)
def test_one_string_is_one_query(arguments, queries):
    assert read_queries(arguments) == queries


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"q": "a"},
        {"query_list": []},
        {"query_list": None},
        {"query_list": "  "},
        {"query_list": [None]},
        {"query_list": [1]},
        {"query_list": {"a": "b"}},
        {"query_list": ["a"] * (MAX_QUERIES + 1)},
        {"query_list": ["a" * (MAX_QUERY_CHARS + 1)]},
        None,
        3,
        "",
    ],
)
def test_no_query_is_an_error_that_says_so(arguments):
    with pytest.raises(CallError) as error:
        read_queries(arguments)
    assert 10 < len(str(error.value)) < 80
    assert "\n" not in str(error.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(_JSON | st.fixed_dictionaries({"query_list": _JSON}))
def test_any_json_gives_queries_or_an_error(arguments):
    try:
        queries = read_queries(arguments)
    except CallError:
        return
    assert queries
    assert all(query.strip() for query in queries)
    json.dumps(queries).encode()
