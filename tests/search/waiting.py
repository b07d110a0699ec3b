"""Waiting for what another thread or process does: for a condition, never for a time.

The limit is what a machine with other work may need; a test that passes never gets near it.
"""

import asyncio
import time

LIMIT_S = 120.0
_POLL_S = 0.01


def until(condition, what="the condition did not come true"):
    """Returns once `condition()` is true."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(_POLL_S)


async def until_async(condition, what="the condition did not come true"):
    """The same while the event loop goes on."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(_POLL_S)
