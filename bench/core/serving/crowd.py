"""The clients of the benchmark: subscribers and askers, in one event loop.

A service limits what one address may do. So clients have several addresses of this machine, as those of
several machines would be.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

ADDRESSES = 8
STORE = "/stores/pairs"


@dataclass
class Crowd:
    """Clients of a service, and what they have seen."""

    port: int
    newest_key: Callable[[], int]
    """The largest value of the key that may have results."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    answer_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    n_rows: int = 0
    """The rows of all answers."""
    snapshots: list[list[int]] = field(default_factory=list)
    """The numbers of the snapshots that each subscriber got, in order."""

    async def _connect(self, client: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        here = (f"127.0.0.{2 + client % ADDRESSES}", 0)
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=here, limit=1 << 24)

    async def subscribe(self, client: int) -> None:
        """Read the events of one subscription, from now on, until the crowd ends."""
        seen: list[int] = []
        self.snapshots.append(seen)
        try:
            reader, writer = await self._connect(client)
            writer.write(f"GET {STORE}/subscribe HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            while not self.is_over.is_set():
                line = await reader.readline()
                if not line:
                    raise ConnectionError("the service has closed a subscription")
                if line.startswith(b"id: "):
                    seen.append(int(line[4:]))
            writer.close()
        except (OSError, ValueError, asyncio.LimitOverrunError) as error:
            self.errors.append(f"subscriber {client}: {error!r}")

    async def ask(self, client: int, every_s: float, after_s: float = 0) -> None:
        """Ask for the results of a key again and again until the crowd ends, ``after_s`` from now on."""
        await asyncio.sleep(after_s)
        connected, number = None, 0
        while not self.is_over.is_set():
            began, number = time.monotonic(), number + 1
            try:
                connected = connected or await self._connect(client)
                key = self.newest_key() * ((client * 7919 + number * 104_729) % 1000) // 1000
                status, body = await post(*connected, f"{STORE}/query", {"key": {"a": key}, "sql": SQL})
                self.answer_ms.append(1e3 * (time.monotonic() - began))
                if status != 200:
                    self.errors.append(f"asker {client}: {status} {body[:100]!r}")
                elif any(row["a"] != key for row in json.loads(body)):
                    self.errors.append(f"asker {client}: rows of another key than {key}")
                else:
                    self.n_rows += len(json.loads(body))
            except (OSError, ValueError, EOFError) as error:
                self.errors.append(f"asker {client}: {error!r}")
                connected = None
            await asyncio.sleep(max(0.0, began + every_s - time.monotonic()))

    def list_gaps(self) -> list[str]:
        """List the subscribers that missed a snapshot, or got one twice."""
        return [
            f"subscriber {n}: {seen[:3]} ... {seen[-3:]}"
            for n, seen in enumerate(self.snapshots)
            if not seen or seen != list(range(seen[0], seen[-1] + 1))
        ]


SQL = "SELECT a, b, result_time FROM results ORDER BY b"


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, question: dict[str, object]
) -> tuple[int, bytes]:
    """Send a question on a connection that stays open; return the status and the body of the answer."""
    body = json.dumps(question).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    *_, headers = (await reader.readuntil(b"\r\n\r\n")).split(b"HTTP/1.1 ")
    status, *lines = headers.decode().splitlines()
    fields = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
    if "content-length" in fields:
        return int(status[:3]), await reader.readexactly(int(fields["content-length"]))
    found = b""
    while size := int((await reader.readline()).strip(), 16):
        found += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return int(status[:3]), found
