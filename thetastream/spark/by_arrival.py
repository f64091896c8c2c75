"""Event time for sources that have none: the time of arrival."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.core.windows import Duration
from thetastream.errors import QueryError
from thetastream.spark.event_time import write_delay


def by_arrival(df: DataFrame, column: str = "arrival", slack: Duration = "10 seconds") -> DataFrame:
    """Add the time at which its epoch began to every tuple, and make this the event time of the stream.

    The time is Spark's ``current_timestamp()``: one instant for all tuples of an epoch. Spark writes it to
    the offset log before the epoch runs. An epoch that runs again after a failure gets the same instant, so
    the result stays exactly once.

    ``slack`` is the delay of the watermark. It covers steps of the clock, not delays of the network. The
    watermark never moves back, but a clock may be set back (by NTP, or because the driver restarts on another
    host). With a slack of zero, every tuple that comes after such a step would be late. A step of up to
    ``slack`` loses nothing. In return, the state lives longer by ``slack``.

    All rows of a batch DataFrame get one instant, so every pair is inside any time window.
    """
    taken = {name.lower() for name in df.columns}
    if column.lower() in taken:
        raise QueryError(
            "COLUMN_EXISTS",
            f"column {column!r} is already in the stream ({', '.join(df.columns)}): "
            "its values would be lost; give by_arrival another column name",
        )
    return df.withColumn(column, F.current_timestamp()).withWatermark(column, write_delay(slack))
