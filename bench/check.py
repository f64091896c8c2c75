"""The number of results that every engine must reach in every epoch, from DuckDB.

A pair is out in the epoch of its later tuple: epoch k gives its own left file against all right files
the window reaches back to, and those of the left stream before against its own right file. DuckDB
counts them file by file (its plain plan is quadratic in the length of its input); the counts are
kept beside the data.
"""

import json
from collections.abc import Callable
from typing import Any

from bench.data import Shape
from bench.engines.duckdb_batch import connect, select


def expected(shape: Shape, epochs: int, announce: Callable[[str], None] = lambda _: None) -> list[int]:
    """Results of each of the first ``epochs`` epochs."""
    path = shape.folder / f"expected-by-epoch-w{shape.window}.json"
    known: list[int] = json.loads(path.read_text()) if path.exists() else []
    if len(known) < epochs:
        announce(f"DuckDB counts the results of epochs {len(known)} to {epochs - 1}")
        known += [_count(shape, epoch) for epoch in range(len(known), epochs)]
        path.write_text(json.dumps(known))
    return known[:epochs]


def _count(shape: Shape, epoch: int) -> int:
    reach = -(-shape.window // shape.epoch)
    before = range(max(0, epoch - reach), epoch)
    return _pairs(shape, [epoch], [*before, epoch]) + _pairs(shape, [*before], [epoch])


def _pairs(shape: Shape, left: list[int], right: list[int]) -> int:
    if not left:
        return 0
    files = ([shape.file(0, epoch) for epoch in left], [shape.file(1, epoch) for epoch in right])
    sql = select(shape, "count(*)", files, is_bucketed=shape.workload == "handshake")
    row = connect().execute(sql).fetchone()
    assert row is not None
    return int(row[0])


def verify(
    shape: Shape, result: dict[str, Any], announce: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Compare a run with DuckDB's counts: ``{"epochs", "expected", "found", "is_equal"}``."""
    found = result.get("results_by_epoch")
    if found is None:
        epochs, found = result["input_epochs"], [result["results"]]
        wanted = [sum(expected(shape, epochs, announce))]
    else:
        epochs, wanted = len(found), expected(shape, len(found), announce)
    return {"epochs": epochs, "expected": sum(wanted), "found": sum(found), "is_equal": found == wanted}
