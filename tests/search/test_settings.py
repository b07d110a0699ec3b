"""What the configuration of the search tool may say."""

import pytest

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.settings import read_settings

URL = "http://127.0.0.1:8000/retrieve"


def test_the_config_of_the_removed_class_is_taken():
    settings = read_settings(
        {
            "retrieval_service_url": URL,
            "num_workers": 120,
            "rate_limit": 50,
            "timeout": 30,
            "topk": 5,
            "enable_global_rate_limit": True,
            "type": "native",
        }
    )
    assert settings.client.url == URL
    assert settings.client.topk == 5
    assert settings.client.max_in_flight == 50
    assert settings.client.deadline == 90.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"retrieval_url": URL}, "unknown key retrieval_url; known: retrieval_service_url"),
        ({"retrieval_service_url": None}, f"_url: allowed is a URL like {URL}, got 'None'"),
        ({"retrieval_service_url": "127.0.0.1:8000"}, "got '127.0.0.1:8000'"),
        ({"retrieval_service_url": "http://host:99999/"}, "got 'http://host:99999/'"),
        ({"topk": 0}, "topk: allowed is an integer from 1 to 1000000000, got '0'"),
        ({"topk": 2.5}, "topk: allowed is an integer from 1 to 1000000000, got '2.5'"),
        ({"topk": 10**9 + 1}, "got '1000000001'"),
        ({"timeout": float("nan")}, "timeout: allowed is a number from 0.01 to 1e+09, got 'nan'"),
        ({"timeout": float("inf")}, "got 'inf'"),
        ({"timeout": "30"}, "got '30'"),
        ({"max_retries": True}, "max_retries: allowed is an integer from 0 to"),
        ({"max_observation_tokens": 5}, "max_observation_tokens: allowed is an integer from 32"),
        ({"probe": "no"}, "probe: allowed is true or false, got 'no'"),
    ],
)
def test_a_wrong_key_is_named(change, said):
    with pytest.raises(UserError) as error:
        read_settings({"retrieval_service_url": URL, **change})
    assert said in str(error.value)
    assert "\n" not in str(error.value)
