"""Overrides that verl does not know, and what quoting does to paths."""

import subprocess

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from tests.preflight.recipes import ROOT, overrides_of

pytest.importorskip("verl")

from verl_msgrpo.preflight.compose import closest_key, compose_config
from verl_msgrpo.preflight.settings import quoted

ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("overrides", "message", "fix"),
    [
        (
            [f"{ACTOR}.megatron.tensor_model_paralel_size=2"],
            "verl has no key",
            f"{ACTOR}.megatron.tensor_model_parallel_size=2",
        ),
        (
            [f"{ACTOR}.fsdp_config.param_offload=True"],
            "verl has no key",
            f"{ACTOR}.megatron.param_offload=True",
        ),
        (["+data.train_batch_size=4"], "exists already", "data.train_batch_size=4"),
        (["data.train_files=/a b/c=d"], "is not a Hydra override", "data.train_files='/a b/c=d'"),
        (["trainer.nnodes"], "is not a Hydra override", "trainer.nnodes=<value>"),
    ],
)
def test_unknown_override(overrides, message, fix):
    config, (problem,) = compose_config(["model_engine=megatron", *overrides])
    assert message in problem.message
    assert problem.fix == fix
    assert config.actor_rollout_ref.actor.strategy == "megatron"  # the others are checked too


def test_several_at_once():
    _, problems = compose_config(["data.trian_batch_size=4", "trainer.nnode=2", "data.seed=1"])
    assert [problem.fix for problem in problems] == ["data.train_batch_size=4", "trainer.nnodes=2"]


def test_unknown_engine():
    _, (problem,) = compose_config(["model_engine=megatorn"])
    assert problem.fix == "model_engine=megatron"
    assert "dp, megatron" in problem.message


def test_interpolation_that_leads_nowhere():
    config, (problem,) = compose_config(["trainer.experiment_name=${trainer.nothing}"])
    assert config is None
    assert "trainer.nothing" in problem.message


def test_closest_key():
    known = ["a.b.size", "a.c.size", "a.c.depth"]
    assert closest_key("a.d.size", known) == "a.b.size"
    assert closest_key("a.c.szie", known) == "a.c.size"
    assert closest_key("zzzzzz", known) is None


def as_hydra_reads(text):
    found = OverridesParser.create().parse_override(f"a={text}").value()
    return OmegaConf.create({"a": str(found)}).a


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1))
@example("NULL")
@example("True")
@example("1e3")
@example("-inf")
@example("nan")
def test_quoting_keeps_a_text(text):
    if "\\${" not in text:  # OmegaConf cannot spell a backslash before a reference
        assert as_hydra_reads(quoted(text)) == text


def test_bash_quotes_alike():
    texts = [
        "/a/b.parquet",
        "it's",
        "a\\",
        "a\\'b\\\\",
        "${HOME}",
        "\\${x}",
        "é",
        "Null",
        "-inf",
        "1e3",
    ]
    texts += ["pkg://a.b", "a b", "a,b", "$(id)", "`id`", '"', "a=b", "~", "%", "{x}", "*"]
    script = 'source "$0"; for text in "$@"; do quoted "$text"; echo; done'
    path = ROOT / "examples" / "common" / "quoted.sh"
    done = subprocess.run(["bash", "-c", script, path, *texts], capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == [quoted(text) for text in texts]


@pytest.mark.parametrize(
    "name", ["plain-1.2_b", "a b", "it's", "a=b", "a,b", "(x)", "${HOME}", "50%", "é", "a\\b", 'q"']
)
def test_the_scripts_quote_their_paths(tmp_path, name):
    overrides = overrides_of("medicine_medqa", tmp_path, DATA_DIR=f"/data/{name}")
    (file,) = [one for one in overrides if one.startswith("data.train_files=")]
    assert as_hydra_reads(file.partition("=")[2]) == f"/data/{name}/train.parquet"
    assert (ROOT / "examples" / "medicine_medqa").is_dir()
