"""A running service, and a store for it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from thetastream.core.listening import open_port
from thetastream.results.description import Description
from thetastream.results.staged import Origin
from thetastream.results.store import Store
from thetastream.service import Limits, Server, build_app
from thetastream.stores import ParquetStore

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("result_time", pa.timestamp("us", "UTC"))])
HELD = Description(SCHEMA, "result_time", ("id",))
WIDE = Description(pa.schema([("text", pa.string())]), None)
BIG_ID = 2**53 + 1
"""An integer that a floating-point number cannot be."""


def make_pairs(folder: Path) -> ParquetStore:
    """Make a store of two snapshots, with the ids 1 and 2, and BIG_ID."""
    store = ParquetStore(str(folder / "pairs"))
    store.describe(HELD)
    add_epoch(store, 0, 1, 2)
    add_epoch(store, 1, BIG_ID)
    return store


def make_wide(folder: Path, n_rows: int) -> ParquetStore:
    """Make a store of one snapshot, with rows of one text of 1 MB."""
    store = ParquetStore(str(folder / "wide"))
    store.describe(WIDE)
    stage = store.open_stage(Origin("q", 0, "0"), WIDE)
    stage.add(pa.record_batch([["x" * 1_000_000] * n_rows], schema=WIDE.schema))
    staged = stage.close()
    assert staged is not None
    assert store.commit("q", 0, [staged])
    return store


def add_epoch(store: Store, epoch: int, *ids: int) -> None:
    """Commit an epoch with these rows to a store."""
    stage = store.open_stage(Origin("q", epoch, "0"), HELD)
    rows = [{"id": one, "x": float("nan"), "result_time": epoch * 60_000_000} for one in ids]
    stage.add(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    staged = stage.close()
    assert staged is not None
    assert store.commit("q", epoch, [staged])


@contextmanager
def run_service(
    stores: dict[str, Store], port: int = 0, *, proxy: str | None = None, **options: Any
) -> Iterator[str]:
    """Run a service of these stores, and yield its address."""
    server = Server(build_app(stores, **options), options.get("limits") or Limits(), proxy=proxy)
    server.config.timeout_graceful_shutdown = 1
    with open_port("127.0.0.1", port) as listening:
        number = listening.getsockname()[1]
        thread = threading.Thread(target=server.listen, args=(listening,), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{number}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def connect(store: Store, **options: Any) -> Iterator[httpx.Client]:
    """Run a service of the store ``pairs``, and open a client."""
    with (
        run_service({"pairs": store}, **options) as address,
        httpx.Client(base_url=address, timeout=20) as client,
    ):
        yield client
