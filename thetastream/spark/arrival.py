"""Event time for sources that have none: the time of arrival."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.errors import QueryError


def by_arrival(df: DataFrame, column: str = "arrival", slack: str = "10 seconds") -> DataFrame:
    """Stamp every tuple with the time its epoch began and make that the event time of the stream.

    The stamp is Spark's ``current_timestamp()``: one instant for all tuples of an epoch, written to the
    offset log before the epoch runs. An epoch that runs again after a failure stamps the same instant, so
    the result stays exactly once.

    ``slack`` is the watermark delay. It is there for the clock, not for the network: the watermark never
    moves back, but a clock may (NTP, a driver restarted on another host). With a slack of zero, every tuple
    stamped after a step back would lie below the watermark and be dropped as late; a step of up to
    ``slack`` loses nothing. The price is state that lives ``slack`` longer.

    A batch DataFrame gets one instant for all rows: a time window then holds every pair.
    """
    taken = {name.lower() for name in df.columns}
    if column.lower() in taken:
        raise QueryError(
            "COLUMN_EXISTS",
            f"column {column!r} is already in the stream ({', '.join(df.columns)}): "
            "its values would be lost; give by_arrival another column name",
        )
    return df.withColumn(column, F.current_timestamp()).withWatermark(column, slack)
