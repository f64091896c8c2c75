"""A job: its sources, its statements, its sink and its model. ``job.document`` reads it from ``job.toml``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thetastream.models import Model

REPLAY = "replay"
"""Format of a source that streams a file in the order of its event time, at a given rate."""


@dataclass(frozen=True)
class SourceSpec:
    """One stream: a Spark source, its event time, and the expressions that compute its columns."""

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    event_time: str | None = None
    delay: str = "0 seconds"
    idle: str | None = None
    """The time without tuples after which the stream does not hold back the watermark. None means never."""
    rate: int | None = None
    """Rows per second of a replayed file."""
    select: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    decode: str | None = None
    """The name of the decoder for the values of Kafka records. None means that the values remain bytes."""
    schema_id: int | None = None
    """The number in the header of Confluent's Avro records. None means that they have no header."""
    dead_letters: str | None = None
    """The folder of records that cannot be decoded. None means that they are dropped."""


@dataclass(frozen=True)
class SinkSpec:
    """The Spark sink to which results are written."""

    format: str = "console"
    path: str | None = None
    mode: str = "append"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """The content of a well-formed job file, which Spark has not checked yet."""

    sql: str
    checkpoint: str
    sources: tuple[SourceSpec, ...]
    sink: SinkSpec
    trigger: str | None = None
    name: str | None = None
    """The name of the query in Spark."""
    model: Model | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the joins, with the load shedder and the statistics."""
    spark: dict[str, Any] = field(default_factory=dict)


def is_local(path: str) -> bool:
    """Whether a path is a path on this machine and not a URL."""
    return re.match(r"[a-z][a-z0-9+.-]+:", path) is None
