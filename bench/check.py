"""The number of results that every engine must reach, from DuckDB, on a prefix of the streams.

Within one epoch all pairs of the prefix are out: results of epochs 0..k-1, added up, equal the join
of the first k files of both streams. The count is made file by file, each left file against the
right files that its window can touch (DuckDB's plain plan is quadratic in the length of its input),
and kept beside the data.
"""

import json
from collections.abc import Callable
from typing import Any

from bench.data import Shape
from bench.engines.duckdb_batch import connect, select


def expected(shape: Shape, epochs: int, announce: Callable[[str], None] = lambda _: None) -> int:
    """Results of the first ``epochs`` epochs."""
    path = shape.folder / f"expected-w{shape.window}.json"
    known: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    if str(epochs) not in known:
        announce(f"DuckDB counts the results of the first {epochs} epochs")
        known[str(epochs)] = _count(shape, epochs)
        path.write_text(json.dumps(known))
    return known[str(epochs)]


def _count(shape: Shape, epochs: int) -> int:
    reach = -(-shape.window // shape.epoch)
    connection = connect()
    total = 0
    for epoch in range(epochs):
        touched = range(max(0, epoch - reach), min(epochs, epoch + reach + 1))
        files = ([shape.file(0, epoch)], [shape.file(1, other) for other in touched])
        sql = select(shape, "count(*)", files, is_bucketed=shape.workload == "handshake")
        row = connection.execute(sql).fetchone()
        assert row is not None
        total += int(row[0])
    return total


def verify(shape: Shape, prefix: int, result: dict[str, Any]) -> dict[str, Any]:
    """Compare a run with DuckDB's count: ``{"epochs", "expected", "found", "is_equal"}``."""
    epochs = result.get("input_epochs", prefix)
    by_epoch = result.get("results_by_epoch", [result.get("results")])
    found = sum(by_epoch[:epochs])
    wanted = expected(shape, epochs)
    return {"epochs": epochs, "expected": wanted, "found": found, "is_equal": found == wanted}
