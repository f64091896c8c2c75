"""A thousand subscribers of one service, whose memory stays bounded."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service import HELD, add_epoch
from thetastream.stores import ParquetStore

SERVICE = """
import sys
import uvicorn
from thetastream.service import Limits, build_app
from thetastream.stores import ParquetStore

app = build_app({"pairs": ParquetStore(sys.argv[1])}, limits=Limits(subscribers_per_client=1000))
uvicorn.run(app, fd=int(sys.argv[2]), log_level="error")
"""
SUBSCRIBERS, SNAPSHOTS, ROWS = 1000, 10, 2000
READ_AHEAD = 4096
"""Bytes that a slow subscriber takes at most before it reads on."""


def read_memory_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


async def subscribe(port: int, until: int, is_slow: asyncio.Event | None) -> list[int]:
    """Read the events of one subscription up to a snapshot; a slow reader waits before it reads on."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, limit=READ_AHEAD if is_slow else 1 << 20
    )
    writer.write(b"GET /stores/pairs/subscribe HTTP/1.1\r\nHost: localhost\r\n\r\n")
    found: list[int] = []
    rest = b""
    while not found or found[-1] < until:
        if is_slow is not None and found:
            await is_slow.wait()
        piece = await reader.read(1 << 16)
        assert piece, "the service has closed a subscription"
        *lines, rest = (rest + piece).split(b"\n")
        found += [int(line[4:]) for line in lines if line.startswith(b"id: ")]
    writer.close()
    return found


@pytest.mark.slow
def test_a_thousand_subscribers_get_each_snapshot_once(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path / "pairs"))
    store.describe(HELD)
    add_epoch(store, 0, *range(ROWS))
    with socket.create_server(("127.0.0.1", 0), backlog=SUBSCRIBERS) as listening:
        command = [sys.executable, "-c", SERVICE, store.path, str(listening.fileno())]
        service = subprocess.Popen(command, pass_fds=[listening.fileno()])
        port = listening.getsockname()[1]
        try:
            asyncio.run(asyncio.wait_for(subscribe(port, 1, None), 60))
            before_mb = read_memory_mb(service.pid)
            peak_mb = asyncio.run(measure_crowd(port, service.pid, store))
        finally:
            service.terminate()
            service.wait()
    print(f"{before_mb:.0f} MB with one subscriber, {peak_mb:.0f} MB with {SUBSCRIBERS}")
    assert peak_mb - before_mb < 150


async def measure_crowd(port: int, process: int, store: ParquetStore) -> float:
    """Let a thousand subscribers read, a tenth of them slowly; return the greatest memory of the service."""
    go = asyncio.Event()
    crowd = [
        asyncio.create_task(subscribe(port, SNAPSHOTS, go if n % 10 == 0 else None))
        for n in range(SUBSCRIBERS)
    ]
    peak_mb = 0.0
    for epoch in range(1, SNAPSHOTS):
        await asyncio.to_thread(add_epoch, store, epoch, *range(ROWS))
        await asyncio.sleep(0.5)
        peak_mb = max(peak_mb, read_memory_mb(process))
    fast = [task for n, task in enumerate(crowd) if n % 10]
    # The slow ones hold back nobody else.
    assert all(await asyncio.wait_for(asyncio.gather(*fast), 120))
    go.set()
    found = await asyncio.wait_for(asyncio.gather(*crowd), 60)
    assert found == [list(range(1, SNAPSHOTS + 1))] * SUBSCRIBERS
    return max(peak_mb, read_memory_mb(process))
