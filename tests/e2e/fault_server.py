"""A retrieval server that fails on demand: a front before a real `verl-msgrpo serve`.

    python fault_server.py --index DIR --address-file FILE

It listens on two free loopback ports, whose addresses it writes to FILE as JSON once it is ready:
`url`, what clients ask, and `control`. There,

    POST /phase {"fault": "slow", "step": 3}    what happens from now on, answered once it holds
    GET /phases                                 what arrived in each phase so far, in order

The faults:

    ok           every request is passed on
    killed       the first request kills the server (SIGKILL): open connections are reset, and
                 further ones refused until the next phase, which starts a new server
    slow         two of three answers do not come as long as the client waits, the third comes
                 after LATE_S
    rubbish      answers that are not in the protocol, or not even HTTP, of each kind in turn
    overloaded   503 with Retry-After
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path

import aiohttp
from aiohttp import web

FAULTS = ("killed", "slow", "rubbish", "overloaded")
LATE_S = 1.0
LONGEST_WAIT_S = 3600.0  # of a client
RETRY_AFTER_S = 1
START_S = 900
_POLL_S = 0.05


def _http(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*head, "", ""]).encode() + body


_START = b'{"result": [[{"document": {"id": "1", "contents": "Title'
RUBBISH = {
    "not JSON": _http(b"<html>504 Gateway Time-out</html>"),
    "another shape": _http(b'{"result": [[{"document": 3, "score": "high"}]]}'),
    "error 500": _http(b"Internal Server Error", "500 Internal Server Error"),
    "cut short": _http(_START, length=4096),
    "no answers": _http(b'{"result": []}'),
    "no result": _http(b'{"detail": "index not loaded"}'),
    "null text": _http(b'{"result": [[{"document": {"contents": null}, "score": 1.0}]]}'),
    "not UTF-8": _http(bytes(range(128, 256))),
    "deep": _http(b"[" * 200_000),
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nothing": b"",
    "too large": _http(b'"' + b"x" * (9 << 20) + b'"'),
}


@dataclass
class Phase:
    """What arrived while a fault was on, and what was answered in full and in time."""

    fault: str
    step: int
    requests: int = 0
    queries: int = 0
    answered: int = 0
    """Queries."""
    rubbish: dict[str, int] = field(default_factory=dict)
    """Answers of each kind."""


class FaultServer:
    """The front; use `start`, then `switch`, then `stop`."""

    def __init__(self, index: Path) -> None:
        self.phases = [Phase("ok", step=0)]
        self._index = index
        self._port = 0
        self._server: asyncio.subprocess.Process | None = None
        self._connections: set[asyncio.Transport] = set()
        self._comes = cycle((False, False, True))
        self._rubbish = cycle(RUBBISH)

    async def start(self) -> dict[str, str]:
        """Starts everything and returns the addresses."""
        self._session = aiohttp.ClientSession()
        front, control = web.Application(), web.Application()
        front.router.add_post("/retrieve", self._retrieve)
        control.router.add_post("/phase", self._switch)
        control.router.add_get("/phases", self._show)
        self._front = web.AppRunner(front, access_log=None, shutdown_timeout=0.1)
        self._control = web.AppRunner(control, access_log=None, shutdown_timeout=0.1)
        await self._front.setup()
        await self._control.setup()
        await self._open()
        await web.TCPSite(self._control, "127.0.0.1", 0).start()
        address = f"http://127.0.0.1:{self._control.addresses[0][1]}"
        return {"url": f"http://127.0.0.1:{self._port}/retrieve", "control": address}

    async def stop(self) -> None:
        """Stops everything."""
        await self._kill()
        await self._control.cleanup()
        await self._front.cleanup()
        await self._session.close()

    async def _open(self) -> None:
        """Starts a server, and listens when it is ready."""
        with tempfile.TemporaryDirectory() as folder:
            port_file = Path(folder) / "port"
            command = ["-m", "verl_msgrpo.cli", "serve", "--index", str(self._index)]
            command += ["--port", "0", "--port-file", str(port_file)]
            self._server = await asyncio.create_subprocess_exec(sys.executable, *command)
            async with asyncio.timeout(START_S):
                while not port_file.exists():
                    if self._server.returncode is not None:
                        raise RuntimeError("the retrieval server did not start")
                    await asyncio.sleep(0.05)
            self._upstream = f"http://127.0.0.1:{int(port_file.read_text())}/retrieve"
        self._site = web.TCPSite(self._front, "127.0.0.1", self._port, backlog=2048)
        await self._site.start()
        self._port = self._front.addresses[0][1]

    async def _kill(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.kill()
        await self._site.stop()
        for connection in self._connections:
            if not connection.is_closing():
                connection.abort()
        self._connections.clear()
        await server.wait()

    async def _switch(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        if wanted["fault"] not in ("ok", *FAULTS):
            return web.Response(status=422, text=f"faults: ok, {', '.join(FAULTS)}")
        if self._server is None and wanted["fault"] != "killed":
            await self._open()
        self.phases.append(Phase(wanted["fault"], wanted["step"]))
        return web.Response()

    async def _show(self, _: web.Request) -> web.Response:
        return web.json_response([asdict(phase) for phase in self.phases])

    async def _retrieve(self, request: web.Request) -> web.Response:
        phase = self.phases[-1]
        connection = request.transport
        body = await request.read()
        if connection is None:
            return web.Response()
        self._connections.add(connection)
        queries = len(json.loads(body)["queries"])
        phase.requests += 1
        phase.queries += queries
        if phase.fault == "killed":
            connection.abort()
            await self._kill()
            return web.Response()
        if phase.fault == "rubbish":
            kind = next(self._rubbish)
            phase.rubbish[kind] = phase.rubbish.get(kind, 0) + 1
            connection.write(RUBBISH[kind])
            connection.close()
            return web.Response()
        if phase.fault == "overloaded":
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            return web.json_response({"detail": "busy"}, status=503, headers=headers)
        if phase.fault == "slow":
            if not next(self._comes):
                await _has_left(connection)
                return web.Response()
            await asyncio.sleep(LATE_S)
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._upstream, data=body, headers=headers) as response:
            answer = web.Response(
                body=await response.read(), status=response.status, content_type="application/json"
            )
        if response.status == 200:
            phase.answered += queries
        return answer


async def _has_left(connection: asyncio.Transport) -> None:
    """Waits until the client has closed the connection."""
    async with asyncio.timeout(LONGEST_WAIT_S):
        while not connection.is_closing():
            await asyncio.sleep(_POLL_S)


async def _serve(index: Path, address_file: Path) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = FaultServer(index)
    addresses = await server.start()
    partial = address_file.with_suffix(".partial")
    partial.write_text(json.dumps(addresses))
    partial.replace(address_file)
    try:
        await stopped.wait()
    finally:
        await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--address-file", type=Path, required=True)
    args = parser.parse_args()
    asyncio.run(_serve(args.index, args.address_file))


if __name__ == "__main__":
    main()
