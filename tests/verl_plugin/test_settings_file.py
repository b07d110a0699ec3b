"""Where the settings of a run are kept, and what is hidden in them."""

import pytest

from verl_msgrpo.verl_plugin.settings_file import metrics_file, without_secrets


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
