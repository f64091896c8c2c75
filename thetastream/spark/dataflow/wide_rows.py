"""Bounds the bytes of the Arrow batches that Spark makes of wide rows.

    a row of n * STEP bytes      ->  the row, and n rows without wide values behind it
    a row of very many columns   ->  a list of one row, and n empty lists behind it
    a block of n * STEP bytes    ->  the block, and n rows without a block behind it if its task
                                     has already sent many bytes

Spark bounds an Arrow batch by rows (``spark.sql.execution.arrow.maxRecordsPerBatch``, 10,000). It can also
bound it by bytes, but then it measures the batch again after every row, which is a third of the JVM's work in
a join of narrow rows. Fillers are rows without wide values. With the fillers behind wide rows, the bound of
rows also bounds the bytes: 10,000 rows hold at most 10,000 * STEP bytes and one more row. There are no
fillers behind narrow rows. Columns of fixed width are not even measured, and a filler repeats their values,
because Spark then computes nothing for them. If the columns of a row have more than STEP bytes although all
values are NULL, even a filler would be wide. Then the whole row is packed into a list.

Spark hands the rows of a unit to Python one by one, so a filler behind a block costs some 10 microseconds.
Therefore each task sends its first blocks without fillers (``count_fillers``).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    GeographyType,
    GeometryType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from thetastream.core.blocks import FILLER, LARGEST_TUPLE, PACKED, STEP
from thetastream.core.errors import ThetastreamError
from thetastream.lowering.domains import quote

FIXED = 16
"""The bytes that count for a value of fixed width beside others."""

_WIDE = (StringType, BinaryType, ArrayType, MapType, VariantType, GeometryType, GeographyType)


def fill_up(flat: DataFrame, row: str) -> DataFrame:
    """Put fillers behind wide rows, and refuse a row that no block can hold.

    The result has the column ``FILLER`` in addition if some column has no fixed width or if there are very
    many columns. ``row`` describes a row in the message of the error, for example ``a tuple of stream 'a'``.
    """
    wide = {field.name: field.dataType for field in flat.schema if not _has_fixed_width(field.dataType)}
    empty_bytes = FIXED * sum(_count_values(field.dataType) for field in flat.schema)
    is_packed = empty_bytes > STEP
    if not wide and not is_packed:
        return flat
    widths = [_measure(F.col(quote(name)), type_) for name, type_ in wide.items()]
    width = sum(widths, F.lit(empty_bytes if is_packed else 0).cast("bigint"))
    refused = ThetastreamError("TUPLE_TOO_LARGE", "")  # Spark raises it while it computes the row.
    what = F.concat(
        F.lit(f"{refused}{row} has "),
        width.cast("string"),
        F.lit(f" bytes, and a block can hold {LARGEST_TUPLE}; keep large values in files, join their names"),
    )
    one = F.array(F.lit(0))
    many = F.sequence(F.lit(0), (width / STEP).cast("int"))
    fillers = F.when(width < STEP, one).when(width <= LARGEST_TUPLE, many).otherwise(F.raise_error(what))
    filled = flat.select("*", F.explode(fillers).alias(FILLER))
    is_tuple = F.col(quote(FILLER)) == 0
    if is_packed:
        packed = F.array(F.struct(*(F.col(quote(name)) for name in flat.columns)))
        return filled.select(F.when(is_tuple, packed).alias(PACKED), quote(FILLER))
    columns = {name: F.col(quote(name)) for name in flat.columns}
    kept = (F.when(is_tuple, col).alias(name) if name in wide else col for name, col in columns.items())
    return filled.select(*kept, quote(FILLER))


def _has_fixed_width(type_: DataType) -> bool:
    if isinstance(type_, StructType):
        return all(_has_fixed_width(field.dataType) for field in type_.fields)
    return not isinstance(type_, _WIDE)


def _count_values(type_: DataType) -> int:
    """Count the values of a type that take memory in an Arrow batch even if they are NULL."""
    if isinstance(type_, StructType):
        return sum(_count_values(field.dataType) for field in type_.fields)
    return 1


def _measure(value: Column, type_: DataType) -> Column:
    """Compute the bytes of a value as BIGINT; 0 for NULL, and ``FIXED`` for types with a fixed width."""
    if _has_fixed_width(type_):
        return F.lit(FIXED).cast("bigint")
    if isinstance(type_, StructType):
        inner = [_measure(value.getField(field.name), field.dataType) for field in type_.fields]
        return sum(inner[1:], inner[0])
    if isinstance(type_, MapType):
        keys, values = ArrayType(type_.keyType), ArrayType(type_.valueType)
        return _measure(F.map_keys(value), keys) + _measure(F.map_values(value), values)
    if isinstance(type_, ArrayType) and not _has_fixed_width(type_.elementType):
        element, zero = type_.elementType, F.lit(0).cast("bigint")
        found = F.aggregate(value, zero, lambda total, one: total + _measure(one, element))
    elif isinstance(type_, ArrayType):
        found = F.size(value) * FIXED
    elif isinstance(type_, VariantType):
        found = F.octet_length(F.to_json(value))
    elif isinstance(type_, GeometryType | GeographyType):
        found = F.octet_length(F.call_function("st_asbinary", value))
    else:
        found = F.octet_length(value)
    return F.coalesce(found.cast("bigint"), F.lit(0).cast("bigint"))
