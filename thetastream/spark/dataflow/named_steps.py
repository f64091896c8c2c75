"""Gives each step of a join that runs in Python a name, which Spark's page shows in the plan of an epoch."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function from the Arrow batches of a Spark task to other batches."""


def run_step(rows: DataFrame, step: Step, columns: StructType | str, name: str) -> DataFrame:
    """Run a step on the rows of each Spark task, as ``DataFrame.mapInArrow`` does.

    Parameters
    ----------
    rows : DataFrame
    step : Step
        A function that nobody else has, because it gets the name.
    columns : StructType or str
        The columns of the result.
    name : str
        What the step does, as in ``"route a to units"``. The plan has it as ``MapInArrow route_a_to_units``.
    """
    step.__name__ = name.replace(" ", "_")
    return rows.mapInArrow(step, columns)
