"""A streaming source without rows, whose offset is the identity of the query.

Spark keeps the offsets of all sources in the checkpoint. When a query starts again, Spark's driver gives the
last offset to the source before it runs an epoch. The source compares it with the identity of the query that
starts. It refuses a checkpoint of another query in one sentence, before any unit reads its state. The mailbox
is such a source too, so a query whose units send messages needs no second one. The offset also says which
version wrote the state, and in which format. Therefore a state of another format is refused at the same
moment.

A checkpoint that ``th.fork`` has made begins with the offset of the query whose tuples it has, and the field
``fork``. In the first epoch of the query that starts on it, the source tells each unit whose tuples these
are, if they can serve the condition of this query.

Spark runs the source in a Python process of its own. The modules are pickled by value, so that the process
does not load this package. Units compare identities again, because Spark does not ask the source before it
repeats an epoch that a crash has interrupted.
"""

import base64
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, StringType, StructField, StructType

from thetastream.core import identity
from thetastream.core.columns import FORK
from thetastream.core.identity import (
    Identity,
    adopt_choices,
    decode_identity,
    encode_identity,
    find_changes,
    find_fork_obstacles,
    refuse_changes,
)
from thetastream.core.version import VERSION
from thetastream.runtime.mailbox.files import ADDRESSED
from thetastream.runtime.state.manifest import FORMAT as STATE_FORMAT
from thetastream.spark.sources import read_source

FORMAT = "thetastream_query"
SCHEMA = StructType(
    [
        StructField("unit", IntegerType()),
        StructField("kind", ByteType()),
        StructField("stream", ByteType()),
        StructField("origin", LongType()),
        StructField("header", StringType()),
        StructField("block", BinaryType()),
    ]
)
"""The schema of rows of the exchange; ``thetastream.core.columns`` explains the columns."""

WRITER = {"thetastream": VERSION, "state": STATE_FORMAT}
"""The version that writes the state, and the format of the state, as an offset holds them."""

FORKED, IS_BEGUN = "fork", "is_begun"
"""The field of an offset of a fork, and its field that says whether the query of the fork has begun."""

LONGEST = 4096
"""The longest text of an identity that is not compressed. Spark repeats offsets in each progress report."""


def write_identity(query: Identity) -> Any:
    """Write an identity for an offset: as plain values, or compressed if it is long."""
    values = encode_identity(query)
    text = json.dumps(values)
    return values if len(text) <= LONGEST else base64.b64encode(zlib.compress(text.encode())).decode()


def read_written(written: Any) -> Identity:
    """Read what ``write_identity`` wrote."""
    if isinstance(written, str):
        written = json.loads(zlib.decompress(base64.b64decode(written)))
    return decode_identity(written)


def continue_query(offset: dict[str, Any], query: Identity) -> dict[str, Any]:
    """Return an offset with the identity of the query that continues from it.

    Raises
    ------
    StateError
        STATE_FORMAT, STATE_OF_ANOTHER_QUERY.
    """
    before = read_written(offset["query"])
    # Offsets of earlier versions do not name their writer; units then compare the formats.
    found = offset.get("writer", WRITER)["state"]
    if found != STATE_FORMAT or find_changes(before, query):
        # Spark then shows the error without the Python stack of this process, which serves this source only.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        refuse_format(found)
        refuse_changes(before, query)
    return {**offset, "query": write_identity(adopt_choices(before, query)), "writer": WRITER}


def begin_fork(offset: dict[str, Any], query: Identity, routes_by_content: bool) -> dict[str, Any]:
    """Return the first offset of the query that begins with the tuples of another one.

    Raises
    ------
    StateError
        STATE_FORMAT, FORK.
    """
    before, writer = read_written(offset["query"]), offset.get("writer", WRITER)["state"]
    obstacles = find_fork_obstacles(before, query, routes_by_content)
    if writer != STATE_FORMAT or obstacles:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        refuse_format(writer)
        from thetastream.core.errors import StateError

        what = "the stored tuples of the old query cannot serve this one"
        hint = "Start with a new checkpointLocation, and replay the input of the last window"
        raise StateError("FORK", f"{what}: {'; '.join(obstacles)}. {hint}")
    forked = {**offset[FORKED], IS_BEGUN: True}
    kept = write_identity(adopt_choices(before, query))
    return {**offset, "query": kept, "writer": WRITER, FORKED: forked}


def is_waiting(offset: dict[str, Any]) -> bool:
    """Whether an offset is that of a fork whose query has not begun."""
    return FORKED in offset and not offset[FORKED][IS_BEGUN]


def refuse_format(found: int) -> None:
    """Refuse a state of another format."""
    if found != STATE_FORMAT:
        from thetastream.core.errors import StateError

        raise StateError(
            "STATE_FORMAT",
            f"state format must be {STATE_FORMAT}; the checkpoint has {found}, written by another version",
        )


def refuse_scaled(offset: dict[str, Any]) -> None:
    """Refuse to continue a join whose units or tasks have changed as one in which they do not change."""
    plan = offset.get("control", {}).get("plan", {})
    version = plan.get("version", 0)
    if version:
        from thetastream.core.errors import StateError

        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        changed, needed = ("units", "max_units") if plan.get("tasks") is None else ("tasks", "max_tasks")
        raise StateError(
            "CONTROL_NEEDED",
            f"the {changed} of the join have changed {version} time(s) since the query first started; give "
            f"{needed} to continue it",
        )


class IdentitySource(DataSource):
    """Spark's data source ``thetastream_query``: options ``query``, ``keys``, ``routes_by_content``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: Any) -> "IdentityReader":
        query, keys, routes_by_content = (
            json.loads(self.options[name]) for name in ("query", "keys", "routes_by_content")
        )
        return IdentityReader(decode_identity(query), keys, routes_by_content)


class IdentityReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query; an offset is ``{"query": identity, "writer": WRITER}``.

    Parameters
    ----------
    query : Identity
    keys : sequence of int
        The grouping keys of the units.
    routes_by_content : bool
        Whether the values that the condition compares say which unit stores a tuple.
    """

    def __init__(self, query: Identity, keys: Sequence[int] = (), routes_by_content: bool = False) -> None:
        self._query = query
        self._keys = keys
        self._routes_by_content = routes_by_content

    def initialOffset(self) -> dict[str, Any]:
        return {"query": write_identity(self._query), "writer": WRITER}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        refuse_scaled(start)
        if is_waiting(start):
            return begin_fork(start, self._query, self._routes_by_content)
        return continue_query(start, self._query)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        refuse_scaled(end)
        continue_query(end, self._query)
        return [InputPartition(start["query"])] if is_waiting(start) else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Tell each unit whose tuples it has."""
        before = json.dumps(encode_identity(read_written(partition.value)))
        columns = [self._keys, *([value] * len(self._keys) for value in (FORK, 0, 0, before, b""))]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, ADDRESSED, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=ADDRESSED)


def read_identity(
    spark: SparkSession, query: Identity, keys: Sequence[int], routes_by_content: bool
) -> DataFrame:
    """Make the stream without rows that keeps the identity of ``query`` in the checkpoint."""
    options = {"query": encode_identity(query), "keys": list(keys), "routes_by_content": routes_by_content}
    return read_source(spark, IdentitySource, options)


for module in (identity, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
