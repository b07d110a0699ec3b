"""Another server that speaks Search-R1's protocol."""

import json
import math
from collections.abc import Sequence

import httpx

from verl_msgrpo.errors import UserError
from verl_msgrpo.search.server.backends import BackendBroken, BackendUnavailable, Hit

_MAX_ANSWER_BYTES = 256 << 20


class RemoteBackend:
    """Asks a Search-R1-compatible server, one request a batch."""

    name = "remote"
    passages: int | None = None

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """`url`: the whole address, as in http://127.0.0.1:8000/retrieve."""
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise UserError(f"--remote {url}: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UserError(f"--remote {url}: not a URL like http://127.0.0.1:8000/retrieve")
        self._url = parsed
        self._client = httpx.Client(timeout=timeout_seconds)  # safe to use from several threads

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        body = {"queries": list(queries), "topk": k, "return_scores": True}
        try:
            with self._client.stream("POST", self._url, json=body) as response:
                if response.status_code != 200:
                    raise BackendUnavailable(f"{self._url} answered {response.status_code}")
                content = b""
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > _MAX_ANSWER_BYTES:
                        raise BackendBroken(f"{self._url} answered more than 256 MiB")
        except httpx.HTTPError as error:
            raise BackendUnavailable(f"{self._url}: {error or type(error).__name__}") from None
        try:
            results = json.loads(content)["result"]
            hits = [[_read_hit(item) for item in items[:k]] for items in results]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BackendBroken(f"{self._url} does not answer in Search-R1's protocol") from None
        if len(hits) != len(queries):
            raise BackendBroken(f"{self._url}: {len(hits)} results for {len(queries)} queries")
        return hits

    def close(self) -> None:
        self._client.close()


def _read_hit(item: dict[str, object]) -> Hit:
    document, score = item["document"], float(item["score"])  # type: ignore[arg-type]
    if not isinstance(document, dict) or not isinstance(document.get("contents"), str):
        raise TypeError("a document without contents")
    if not math.isfinite(score):
        raise ValueError("a score that is no number")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Hit(text.encode("utf-8", "replace"), score)
