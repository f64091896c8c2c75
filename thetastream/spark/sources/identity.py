"""A streaming source without rows, whose offset is the identity of the query.

Spark keeps the offsets of all sources in the checkpoint. When a query starts again, Spark's driver gives the
last offset to the source before it runs an epoch. The source compares it with the identity of the query that
starts. It refuses a checkpoint of another query in one sentence, before any unit reads its state. The mailbox
is such a source too, so a query whose units send messages needs no second one. The offset also says which
version wrote the state, and in which format. Therefore a state of another format is refused at the same
moment.

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
from importlib.metadata import version
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from thetastream.core import identity
from thetastream.core.identity import (
    Identity,
    adopt_choices,
    decode_identity,
    encode_identity,
    find_changes,
    refuse_changes,
)
from thetastream.runtime.state.manifest import FORMAT as STATE_FORMAT
from thetastream.spark.sources import register_source

FORMAT = "thetastream_query"
SCHEMA = "unit int, kind byte, stream byte, origin long, header string, block binary"
"""The schema of rows of the exchange; ``thetastream.core.columns`` explains the columns."""

WRITER = {"thetastream": version("thetastream"), "state": STATE_FORMAT}
"""The version that writes the state, and the format of the state, as an offset holds them."""

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


def refuse_format(found: int) -> None:
    """Refuse a state of another format."""
    if found != STATE_FORMAT:
        from thetastream.core.errors import StateError

        raise StateError(
            "STATE_FORMAT",
            f"state format must be {STATE_FORMAT}; the checkpoint has {found}, written by another version",
        )


def refuse_scaled(offset: dict[str, Any]) -> None:
    """Refuse to continue a join whose units have changed as one whose units do not change."""
    version = offset.get("control", {}).get("plan", {}).get("version", 0)
    if version:
        from thetastream.core.errors import StateError

        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise StateError(
            "CONTROL_NEEDED",
            f"the units of the join have changed {version} time(s) since the query first started; give "
            "max_units to continue it",
        )


class IdentitySource(DataSource):
    """Spark's data source ``thetastream_query``, which has the option ``query``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> "IdentityReader":
        return IdentityReader(decode_identity(json.loads(self.options["query"])))


class IdentityReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query; an offset is ``{"query": identity, "writer": WRITER}``."""

    def __init__(self, query: Identity) -> None:
        self._query = query

    def initialOffset(self) -> dict[str, Any]:
        return {"query": write_identity(self._query), "writer": WRITER}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        refuse_scaled(start)
        return continue_query(start, self._query)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        refuse_scaled(end)
        continue_query(end, self._query)
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


def read_identity(spark: SparkSession, query: Identity) -> DataFrame:
    """Make the stream without rows that keeps the identity of ``query`` in the checkpoint."""
    register_source(spark, IdentitySource)
    return spark.readStream.format(FORMAT).option("query", json.dumps(encode_identity(query))).load()


for module in (identity, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
