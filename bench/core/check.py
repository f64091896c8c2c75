"""DuckDB counts the results that every engine must find in every epoch.

A pair leaves in the epoch of its later tuple: epoch k gives its own left file against all right files
the window reaches back to, and those of the left stream before against its own right file. DuckDB
counts them file by file (its plain plan is quadratic in the length of its input); the counts are
kept beside the data.
"""

import json
from collections.abc import Callable
from typing import Any

from bench.core import answers
from bench.core.data import Shape
from bench.core.engines.duckdb_batch import connect, select


def count(shape: Shape, files: tuple[list[str], list[str]]) -> int:
    """Count the results of the join of some files."""
    if not files[0]:
        return 0
    ((found,),) = connect().execute(select(shape, "count(*)", files)).fetchall()
    return int(found)


def expected(shape: Shape, epochs: int, announce: Callable[[str], None]) -> list[int]:
    path = shape.folder / f"expected-by-epoch-w{shape.window}.json"
    known: list[int] = json.loads(path.read_text()) if path.exists() else []
    if len(known) < epochs:
        announce(f"DuckDB counts the results of epochs {len(known)} to {epochs - 1}")
        known += [_of_epoch(shape, epoch) for epoch in range(len(known), epochs)]
        path.write_text(json.dumps(known))
    return known[:epochs]


def _of_epoch(shape: Shape, epoch: int) -> int:
    reach = -(-shape.window // shape.epoch)
    before = range(max(0, epoch - reach), epoch)
    left, right = ([shape.file(side, number) for number in [*before, epoch]] for side in (0, 1))
    return count(shape, (left[-1:], right)) + count(shape, (left[:-1], right[-1:]))


def verify(
    shape: Shape, result: dict[str, Any], announce: Callable[[str], None], engine: str = ""
) -> dict[str, Any]:
    """Compare a run with DuckDB's counts; return ``{"epochs", "expected", "found", "is_equal"}``."""
    found = result.get("results_by_epoch")
    if found is None:
        epochs, found = result["input_epochs"], [result["results"]]
        wanted = [sum(expected(shape, epochs, announce))]
    else:
        first = result.get("first_epoch", 0)
        epochs, wanted = len(found), expected(shape, first + len(found), announce)[first:]
        if engine in (*answers.KINDS, answers.SPARK_LEFT):
            wanted = answers.count_answers(shape, engine, wanted)
    return {"epochs": epochs, "expected": sum(wanted), "found": sum(found), "is_equal": found == wanted}
