"""Where the settings of a run are kept, and what is hidden in them."""

import json

import pytest

from verl_msgrpo.verl_plugin.settings_file import (
    HIDDEN,
    metrics_file,
    settings_file,
    without_secrets,
    write_settings,
)

SECRETS = {
    "env": {"HF_TOKEN": "s3", "x_api_key": "s3", "x-access-key": 53, "token": "s3"},
    "tools": [{"headers": {"Authorization": "Bearer s3"}}, {"Passwords": ["s3", {"of": "s3"}]}],
    "proxy": "http://me:s3@host:80/s4@5",
    "max_tokens": 5,
    "dp_token": True,
    "hf_token": None,
    "loss_agg_mode": "token-mean",
}
WITHOUT_SECRETS = {
    **SECRETS,
    "env": dict.fromkeys(SECRETS["env"], HIDDEN),
    "tools": [{"headers": {"Authorization": HIDDEN}}, {"Passwords": [HIDDEN, {"of": HIDDEN}]}],
    "proxy": f"http://{HIDDEN}@host:80/s4@5",
}


def test_where_verl_writes(monkeypatch, tmp_path):
    assert str(metrics_file("p", "e", {"VERL_FILE_LOGGER_PATH": "/x/m.jsonl"})) == "/x/m.jsonl"
    tracking = pytest.importorskip("verl.utils.tracking")
    monkeypatch.delenv("VERL_FILE_LOGGER_PATH", raising=False)
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(tmp_path))
    logger = tracking.FileLogger("p", "e")
    logger.finish()
    environ = {"VERL_FILE_LOGGER_ROOT": str(tmp_path)}
    assert str(metrics_file("p", "e", environ)) == logger.filepath


def test_secrets_in_the_query_of_a_url_are_hidden():
    url = "http://10.0.0.5:8000/retrieve?topk=3&api_key=abc123&access_token=x.y#top"
    assert without_secrets({"url": url}) == {
        "url": "http://10.0.0.5:8000/retrieve?topk=3&api_key=(hidden)&access_token=(hidden)#top"
    }


def test_secrets_are_not_written(tmp_path):
    metrics = tmp_path / "folder" / "metrics.jsonl"
    write_settings(metrics, SECRETS)
    written = settings_file(metrics).read_text()
    assert "s3" not in written
    assert "53" not in written
    assert json.loads(written) == WITHOUT_SECRETS
