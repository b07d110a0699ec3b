"""`verl-msgrpo episode` with a tiny model that has learnt nothing."""

import argparse
import io

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests.search.fakes import build_tokenizer, retrieval_server
from verl_msgrpo.errors import UserError
from verl_msgrpo.search.commands import episode


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
    )
    directory = tmp_path_factory.mktemp("model")
    Qwen2ForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def run(*words):
    parser = argparse.ArgumentParser()
    episode.add_arguments(parser)
    return episode.run(parser.parse_args([str(word) for word in words]))


@pytest.mark.parametrize("loop", episode.LOOPS)
def test_tokens_with_their_log_probs(model_dir, capsys, loop):
    with retrieval_server() as server:
        options = ("--retrieval", server.url, "--loop", loop, "--max-tokens", 40, "--tokens")
        assert run("Who wrote Dune?", "--model", model_dir, *options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 1 <= len(lines) <= 40
    assert lines[0].startswith("1 ")
    for line in lines:  # whatever the model writes: it may ask, and get an observation
        mask, log_prob, _ = line.split(maxsplit=2)
        assert (mask == "1" and -20 < float(log_prob) <= 0) or (mask, float(log_prob)) == ("0", 0.0)


def test_what_cannot_run_is_told_in_a_line(model_dir, tmp_path):
    with retrieval_server() as server:
        with pytest.raises(UserError, match=f"--model {tmp_path}"):
            run("x", "--model", tmp_path, "--retrieval", server.url)
        with pytest.raises(UserError, match="--model /nonexistent: there is no such folder"):
            run("x", "--model", "/nonexistent", "--retrieval", server.url)
        with pytest.raises(UserError, match="Unknown tool parser: no"):
            run("x", "--model", model_dir, "--retrieval", server.url, "--format", "no")
    with pytest.raises(UserError, match=r"retrieval_service_url: allowed is .*, got 'x'"):
        run("x", "--model", model_dir, "--retrieval", "x")


def test_the_parts_are_coloured_and_harmless():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    tokenizer = build_tokenizer()
    ids = tokenizer.encode("ab\x1b[2Jc")
    mask = [1, 1] + [0] * (len(ids) - 2)
    parts = list(episode.coloured(tokenizer, ids, mask, Terminal()))
    assert parts == ["\x1b[36mab\x1b[0m", "\x1b[33m\ufffd[2Jc\x1b[0m"]
    assert "".join(episode.coloured(tokenizer, ids, mask, io.StringIO())) == "ab\ufffd[2Jc"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("--seed=-1", "argument --seed: allowed is an integer from 0 to 4294967295, got '-1'"),
        ("--seed=4294967296", "allowed is an integer from 0 to 4294967295, got '4294967296'"),
        ("--max-turns=0", "argument --max-turns: allowed is an integer >= 1, got '0'"),
        ("--max-tokens=0", "argument --max-tokens: allowed is an integer >= 1, got '0'"),
        ("--temperature=nan", "argument --temperature: allowed is a finite number >= 0, got 'nan'"),
        ("--topk=0", "argument --topk: allowed is an integer >= 1, got '0'"),
    ],
)
def test_numbers_out_of_range_are_refused_by_their_flag(capsys, word, reason):
    with pytest.raises(SystemExit):
        run("x", "--model", "m", "--retrieval", "u", word)
    assert reason in capsys.readouterr().err
