"""A pandas frame whose columns PySpark hands to Spark as the Arrow arrays that they are.

    frame of Arrow arrays -> PySpark's conversion of pandas columns -> the same Arrow arrays

PySpark takes an atomic column that holds an Arrow array as it is. Of a column with a nested type, it makes a
Python object for every value, by ``Series.apply``, and builds an Arrow array of these objects again. So one
array of 384 numbers becomes a list of 384 Python numbers, and a NULL inside a value becomes NaN. A column of
an ``ArrowFrame`` already holds what this conversion should make, so its ``apply`` returns the column.
"""

from typing import Any

import pandas as pd
import pyarrow as pa


class ArrowSeries(pd.Series):
    """A column of an ``ArrowFrame``."""

    @property
    def _constructor(self) -> type["ArrowSeries"]:
        return ArrowSeries

    def apply(self, *_: Any, **__: Any) -> "ArrowSeries":  # type: ignore[override]
        """Return the column, which needs no conversion."""
        return self


class ArrowFrame(pd.DataFrame):
    """A frame of Arrow arrays for PySpark, and for nothing else."""

    @property
    def _constructor(self) -> type["ArrowFrame"]:
        return ArrowFrame

    @property
    def _constructor_sliced(self) -> type[ArrowSeries]:
        return ArrowSeries


def make_frame(batch: pa.RecordBatch) -> pd.DataFrame:
    """Make a frame of a batch, without copying its values.

    It is a plain frame if no column is nested, because pandas works faster on its own class.

    >>> from pyspark.sql.conversion import PandasToArrowConversion
    >>> from pyspark.sql.types import ArrayType, IntegerType, StructType
    >>> batch = pa.RecordBatch.from_pydict({"list": pa.array([[1, None], None], pa.list_(pa.int32()))})
    >>> schema = StructType().add("list", ArrayType(IntegerType()))
    >>> PandasToArrowConversion.convert(make_frame(batch), schema).column(0).to_pylist()
    [[1, None], None]
    """
    columns = {
        name: pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array])), copy=False)
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }
    is_nested = any(pa.types.is_nested(column.type) for column in batch.schema)
    return (ArrowFrame if is_nested else pd.DataFrame)(columns, copy=False)
