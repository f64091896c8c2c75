"""The ways to decode the value of a Kafka record: one class and one line of ``DECODERS`` for each.

json   the value is a JSON object; ``schema`` has columns as SQL writes them
avro   the value is an Avro record; ``schema`` is the Avro schema of its writer, as JSON
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from thetastream.job.avro_schemas import read_avro_schema
from thetastream.job.schemas import Columns, read_schema

VALUE = "value"
"""The column of Spark's connector with the bytes of a record."""
_CORRUPT = "__corrupt"
_CONFLUENT_BYTES = 5
"""A zero and the number of the schema in four bytes, which Confluent's writers put before an Avro record."""


class Decoder(Protocol):
    """Decodes the value of a record by a schema."""

    def read_columns(self, schema: str) -> Columns:
        """Read the columns of a schema; raise ValueError with the reason if it is none."""
        ...

    def open(self, schema: str, schema_id: int | None) -> Column:
        """Return the decoded value as a struct, with fields of the names of the columns."""
        ...

    def find_damage(self, decoded: Column, schema: str, schema_id: int | None) -> Mapping[str, Column]:
        """Return reasons why a value that is not NULL could not be decoded, each with its condition."""
        ...


class Json:
    """JSON objects. Fields that the schema does not name are ignored, and those that are missing are NULL."""

    def read_columns(self, schema: str) -> Columns:
        return read_schema(schema)

    def open(self, schema: str, schema_id: int | None) -> Column:
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        return F.from_json(F.col(VALUE).cast("string"), f"{schema}, {_CORRUPT} STRING", options)

    def find_damage(self, decoded: Column, schema: str, schema_id: int | None) -> Mapping[str, Column]:
        is_damaged = decoded.isNull() | decoded[_CORRUPT].isNotNull()
        return {"the value is not JSON of the schema": is_damaged}


class Avro:
    """Avro records without a header, or with the header of Confluent if the number of their schema is given.

    Avro's bytes do not name their columns, so the schema must be that of the writer. Spark's package
    spark-avro decodes them. It makes a struct of NULLs of bytes that it cannot decode, so a record whose
    columns are all NULL counts as damaged.
    """

    def read_columns(self, schema: str) -> Columns:
        return read_avro_schema(schema)

    def open(self, schema: str, schema_id: int | None) -> Column:
        body = VALUE if schema_id is None else f"substring({VALUE}, {_CONFLUENT_BYTES + 1})"
        text = schema.replace("\\", "\\\\").replace("'", "\\'")
        return F.expr(f"from_avro({body}, '{text}', map('mode', 'PERMISSIVE'))")

    def find_damage(self, decoded: Column, schema: str, schema_id: int | None) -> Mapping[str, Column]:
        reasons = {}
        if schema_id is not None:
            header = f"00{schema_id:08X}"
            found = F.hex(F.substring(F.col(VALUE), 1, _CONFLUENT_BYTES))
            reasons[f"the record is not of schema {schema_id}"] = found != header
        has_value = reduce(or_, (decoded[name].isNotNull() for name in self.read_columns(schema)))
        reasons["the value is not Avro of the schema"] = ~has_value
        return reasons


DECODERS: Mapping[str, Decoder] = {"json": Json(), "avro": Avro()}
"""What ``decode`` may be."""
