"""Makes sure, before a training starts, that the retrieval server answers."""

import http.client
import json
import queue
import threading
import time
import urllib.error
import urllib.request

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.client import MAX_RESPONSE_BYTES, ClientSettings, read_answer

ATTEMPTS = 3
_PAUSE_SECONDS = 1.0
_QUERY = "Is this server ready?"


def probe(settings: ClientSettings) -> None:
    """One search, tried three times, each `settings.timeout` seconds long at most.

    Raises UserError where no attempt gets a valid answer.
    """
    reason = None
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        reason = _failure_in_time(settings)
        if reason is None:
            return
    raise UserError(
        f"retrieval server {settings.url}: {reason}; start it (verl-msgrpo serve) or correct "
        "retrieval_service_url (`probe: false` skips this check)"
    )


def _failure_in_time(settings: ClientSettings) -> str | None:
    """Why a search failed, None if it did not."""
    found: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    # A socket's timeout starts anew with every byte, and looking up a name has none: a thread,
    # which is left behind when the time is over.
    threading.Thread(target=lambda: found.put(_failure(settings)), daemon=True).start()
    try:
        return found.get(timeout=settings.timeout)
    except queue.Empty:
        return "no answer in time"


def _failure(settings: ClientSettings) -> str | None:
    body = json.dumps({"queries": [_QUERY], "topk": settings.topk, "return_scores": True})
    try:
        request = urllib.request.Request(
            settings.url, body.encode(), {"Content-Type": "application/json"}
        )
        # Like the client: no proxy out of the environment.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=settings.timeout) as response:
            content = response.read(MAX_RESPONSE_BYTES + 1)
        if len(content) > MAX_RESPONSE_BYTES:
            return "the answer is too large"
        read_answer(content, 1, settings.topk)
    except urllib.error.HTTPError as error:
        return f"it answers {error.code}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", "")) or str(error) or type(error).__name__
    except http.client.HTTPException as error:  # its text is what the server sent
        return f"it does not speak HTTP ({type(error).__name__})"
    return None
