"""Filters rows with a Python predicate behind a join of Spark's own.

The predicate is called once for each Arrow batch of rows. Its columns have the same types as in a unit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.conditions import Predicate
from thetastream.core.blocks import drop_fillers
from thetastream.core.condition import PythonPredicate
from thetastream.engine.matching import evaluate
from thetastream.lowering.physical import Carried
from thetastream.spark.dataflow.named_steps import run_step
from thetastream.spark.dataflow.wide_rows import fill_up


def filter_rows(
    rows: DataFrame,
    predicate: Predicate,
    aliases: Sequence[str],
    columns: Sequence[Sequence[tuple[str, Carried]]],
    instants: Collection[tuple[str, str]],
) -> DataFrame:
    """Keep the rows for which a predicate is true.

    Parameters
    ----------
    rows : DataFrame
        Rows with one struct column per alias.
    predicate : Predicate
    aliases : sequence of str
        The aliases whose columns the predicate reads, as it names them.
    columns : sequence of sequences of (name, Carried)
        For each of these aliases, the columns that the predicate reads: the name that it uses, and how the
        column becomes an Arrow column.
    instants : collection of (alias, name)
        Those of the columns that are TIMESTAMPs.
    """
    arguments = tuple(tuple((name, carried.block_column) for name, carried in own) for own in columns)
    function = predicate.adapt(lambda alias, name: (alias, name) in instants)
    call = PythonPredicate(predicate.name, function, tuple(aliases), arguments, predicate.is_encoded)
    read = {carried.block_column: carried.to_block for own in columns for _, carried in own}
    kept = rows.columns
    wide = rows.select("*", *(F.expr(text).alias(name) for name, text in read.items()))
    filled = fill_up(wide, f"a row for the predicate {predicate.name!r}")
    return run_step(filled, _keep_true(call, len(kept)), rows.schema, f"check {predicate.name}")


def _keep_true(
    predicate: PythonPredicate, n_kept: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def keep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in map(drop_fillers, batches):
            if not batch.num_rows:
                continue
            every = np.arange(batch.num_rows)
            mask = evaluate(predicate, [(batch, every)] * len(predicate.aliases))
            yield batch.select(range(n_kept)).filter(pa.array(mask))

    return keep
