"""Makes sure, before a training starts, that the retrieval server answers."""

import json
import time
import urllib.error
import urllib.request

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.client import ClientSettings, read_answer

ATTEMPTS = 3
_PAUSE_SECONDS = 1.0
_QUERY = "Is this server ready?"
_MAX_BYTES = 1 << 20


def probe(settings: ClientSettings) -> None:
    """One search, tried three times. Raises UserError where no attempt gets a valid answer."""
    body = json.dumps({"queries": [_QUERY], "topk": settings.topk, "return_scores": True})
    request = urllib.request.Request(
        settings.url, body.encode(), {"Content-Type": "application/json"}
    )
    # Like the client: no proxy out of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        try:
            with opener.open(request, timeout=settings.timeout) as response:
                read_answer(response.read(_MAX_BYTES), 1, settings.topk)
            return
        except urllib.error.HTTPError as error:
            reason = f"it answers {error.code}"
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "reason", "")) or str(error) or type(error).__name__
    raise UserError(
        f"retrieval server {settings.url}: {reason}; start it (verl-msgrpo serve) or correct "
        "retrieval_service_url (`probe: false` skips this check)"
    )
