"""The HTTP endpoint at which Prometheus reads metrics.

One thread serves all connections. A request must be complete in a short time, and only few connections are
open at once: the oldest one makes room. So half requests take no threads, and keep Prometheus out for at most
a moment. An endpoint that listens to this machine answers only requests that name this machine, because a
page in a browser could otherwise read it by a host name that resolves to 127.0.0.1 (DNS rebinding).
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from thetastream.core.listening import is_loopback, read_host

PATIENCE_S = 5.0
"""The time in which a request must arrive, and its answer must be taken, in seconds."""
MOST_CONNECTIONS = 32
"""The number of connections that are open at once."""
LONGEST_REQUEST = 1 << 13
"""The bytes of the longest request."""


class MetricsEndpoint:
    """An endpoint that listens until ``close`` is called.

    Parameters
    ----------
    host, port
        The address; port 0 takes a free one.
    write : callable without arguments
        Writes the metrics.
    content_type : str
        The media type of the metrics.

    Raises
    ------
    OSError, OverflowError
        If the address cannot be used.
    """

    def __init__(self, host: str, port: int, write: Callable[[], str], content_type: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
        self.port = int(self._socket.getsockname()[1])
        self._is_local = is_loopback(host)
        self._write = write
        self._content_type = content_type
        self._open: dict[asyncio.Task[None], None] = {}
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = Thread(target=self._run, name="thetastream metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the endpoint."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve_until_closed())
        self._loop.close()

    async def _serve_until_closed(self) -> None:
        server = await asyncio.start_server(
            self._serve, sock=self._socket, limit=LONGEST_REQUEST, backlog=MOST_CONNECTIONS
        )
        await self._closing.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= MOST_CONNECTIONS:
            next(iter(self._open)).cancel()
        self._open[task] = None
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(PATIENCE_S):
                    writer.write(self._answer(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        except asyncio.CancelledError:
            return  # A newer connection has the place of this one.
        finally:
            del self._open[task]
            writer.transport.abort()

    def _answer(self, request: bytes) -> bytes:
        line, *headers = request.decode("latin-1").split("\r\n")
        hosts = [one.partition(":")[2].strip() for one in headers if one.lower().startswith("host:")]
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if self._is_local and not (len(hosts) == 1 and is_loopback(read_host(hosts[0]))):
            return self._encode(
                "403 Forbidden", "text/plain", "the metrics are for requests to localhost only"
            )
        if method != "GET" or path != "/metrics":
            return self._encode("404 Not Found", "text/plain", "the metrics are at GET /metrics")
        return self._encode("200 OK", self._content_type, self._write())

    def _encode(self, status: str, content_type: str, text: str) -> bytes:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
            "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
            "Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body
