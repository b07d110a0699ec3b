"""`verl-msgrpo preflight` on the command line."""

import json

import pytest

pytest.importorskip("verl")

from verl_msgrpo.cli import main


def test_text(launches, capsys):
    assert main(["preflight", "--gpu", "h100", "--", *launches["megatron"].overrides]) == 0
    shown = capsys.readouterr().out
    assert "tp 4, pp 1, cp 1, dp 2" in " ".join(shown.split())
    assert "sequences 2048, tokens at most 10,485,760" in " ".join(shown.split())
    assert shown.splitlines()[-1] == "0 error(s), 0 warning(s)"


def test_json_and_errors(launches, capsys):
    arguments = ["preflight", "--json", "--gpu-memory-gib", "80", "--"]
    assert main([*arguments, *launches["fsdp"].overrides, "trainer.nnodes=two"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    (problem,) = found["problems"]
    assert problem["fix"] == "trainer.nnodes=1"
    assert found["plan"] == {}
    assert "once the numbers are right" in found["not_checked"][0]


def test_json_plan(launches, capsys):
    assert main(["preflight", "--json", "--", *launches["fsdp"].overrides]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    assert found["plan"]["layout"]["engine"] == "fsdp2"
    assert found["plan"]["layout"]["dp"] == 8
    assert found["plan"]["step"]["sequences"] == 2048
    assert found["plan"]["step"]["steps_per_epoch"] == 1
    assert found["plan"]["memory_gib_per_gpu"]["kv_bytes_per_token"] == 57344
    assert any("--gpu" in note for note in found["not_checked"])


@pytest.mark.parametrize("gib", ["0", "-1", "nan", "1e9"])
def test_no_card(gib, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["preflight", f"--gpu-memory-gib={gib}"])
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"--gpu-memory-gib: allowed is a number from 1 to 10000, got {gib!r}")
