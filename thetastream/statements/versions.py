"""Resolves FOR SYSTEM_TIME AS OF: an as-of join by the event time of the source that has versions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from thetastream.conditions import make_error_at, tokenize
from thetastream.conditions.statement import Select, Source
from thetastream.core.how import AsOf
from thetastream.joins.ask.streams import find_time_column
from thetastream.lowering.domains import quote


def resolve_versions(select: Select, frames: Mapping[str, DataFrame], event_time: Any) -> Select:
    """Write every FOR SYSTEM_TIME AS OF as an as-of join by the event time of its source."""
    sources = tuple(_resolve(select, source, frames, event_time) for source in select.sources)
    new = [
        mine.match
        for mine, given in zip(sources, select.sources, strict=True)
        if mine.match is not None and given.match is None
    ]
    return replace(select, sources=sources, conditions=(*select.conditions, *new)) if new else select


def _resolve(select: Select, source: Source, frames: Mapping[str, DataFrame], event_time: Any) -> Source:
    if source.version is None or not isinstance(source.how, AsOf):
        return source
    frame, alias = frames[source.alias], source.alias
    asked = event_time.get(alias) if isinstance(event_time, Mapping) else event_time
    column = find_time_column(frame, asked)
    start = source.version.tokens[0].start
    if any(other.isStreaming for other in frames.values()) and not frame.isStreaming:
        what = (
            f"{alias!r} is a table, which has one version; write JOIN ... AS {alias} ON ... without the time"
        )
        raise make_error_at(select.text, start, what, "UNSUPPORTED_SQL")
    if column is None:
        raise make_error_at(
            select.text,
            start,
            f"FOR SYSTEM_TIME AS OF needs the event time of {alias!r}, from which on a version holds; call "
            f'.withWatermark("column", "delay") on it; of a batch, give event_time={{"{alias}": "column"}}',
            "NO_WATERMARK",
        )
    time, began = source.version.text, f"{quote(alias)}.{quote(column)}"
    written = f"{time} >= {alias}.{column}"
    how = replace(source.how, by=f"({time}) - ({began})", written=written)
    return replace(source, how=how, match=tokenize(f"({time}) >= {began}"), version=None)
