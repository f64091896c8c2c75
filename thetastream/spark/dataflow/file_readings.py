"""Finds the streams of a join whose files are read and routed by one task, without rows of Spark."""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame

from thetastream.lowering.physical import SidePlan
from thetastream.lowering.plain_columns import NotPlain, PlainColumns, find_plain_columns
from thetastream.spark.sources.parquet import ParquetFiles, find_parquet, list_lines, list_read


class FileReading(NamedTuple):
    """Files of a stream whose rows are routed by the task that reads them."""

    files: ParquetFiles
    columns: PlainColumns
    drops: object
    """Which rows do not move the watermark; equal for streams of which these rows are the same."""


def find_readings(
    sides: Sequence[SidePlan], streams: Sequence[DataFrame | None], has_punctuations: bool
) -> list[FileReading | NotPlain | None]:
    """Find how the files of each stream of ``th.read_parquet`` are read, or why its rows go through Spark.

    It is None for other streams. None among ``streams`` stands for results of a join.
    """
    plans = [[] if stream is None else list_lines(stream) for stream in streams]
    found = [
        None if stream is None else _find_reading(side, lines, stream, has_punctuations)
        for side, lines, stream in zip(sides, plans, streams, strict=True)
    ]
    names = [list_read(lines) for lines in plans]

    def agrees(number: int, mine: FileReading) -> bool:
        others = (one for one, read in zip(found, names, strict=True) if read & names[number])
        return all(isinstance(other, FileReading) and other.drops == mine.drops for other in others)

    # Spark keeps one watermark for all aliases of a stream. A step that reads has a watermark of its own.
    # They are equal only if all aliases drop the same rows.
    why = NotPlain("the join reads it under several aliases that drop different rows")
    return [
        why if isinstance(mine, FileReading) and not agrees(number, mine) else mine
        for number, mine in enumerate(found)
    ]


def _find_reading(
    plan: SidePlan, lines: Sequence[str], stream: DataFrame, has_punctuations: bool
) -> FileReading | NotPlain | None:
    try:
        files = find_parquet(lines, stream.schema) if lines else None
        if files is None:
            return None
        if has_punctuations:
            return NotPlain("it has punctuations")
        columns = find_plain_columns(plan, files.columns.types)
    except NotPlain as why:
        return why
    drops = None if plan.moves_watermark else (frozenset(columns.required), frozenset(columns.filters))
    return FileReading(files, columns, drops)
