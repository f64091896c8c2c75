"""Checks options that can only be read together with the streams or the session of a request.

``late`` and ``mailbox`` are folders that all executors must reach. ``shed`` needs an inner join.
``result_time`` needs an event time of each stream.
"""

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.folder import is_uri
from thetastream.core.how import How
from thetastream.core.shed import LAG, Shed
from thetastream.lowering.query import RESULT_TIME, Stream
from thetastream.spark.session.configure import is_local

_COLUMNS = ("alias", "query", "epoch")
"""The columns of late tuples beside those of the streams."""


def read_late_folder(
    spark: SparkSession,
    asked: str | Path | None,
    aliases: Iterable[str],
    problems: list[ThetastreamError],
) -> str | None:
    """Return the folder as an absolute path or URI, or None if late tuples are not kept.

    Units write into the folder, so on a cluster it must be a URI that all executors reach.
    """
    if asked is None:
        return None
    taken = [alias for alias in aliases if alias.casefold() in _COLUMNS]
    if taken:
        what = f"files of late tuples have columns {', '.join(_COLUMNS)} of their own"
        problems.append(QueryError("INVALID_ALIAS", f"{what}; rename the stream {taken[0]!r}"))
    folder = str(asked)
    if is_uri(folder):
        return folder
    if not is_local(spark):
        what = f"late must be a folder that all executors reach, as a URI, not {folder}"
        problems.append(QueryError("LATE_FOLDER", f'{what}; give late="hdfs://..." or "file:/shared/..."'))
    return os.path.abspath(folder)


def choose_mailbox_folder(
    spark: SparkSession, asked: str | Path | None, problems: list[ThetastreamError]
) -> str:
    """Choose the folder for mailboxes.

    It is the folder that the user gives, or else one beside the checkpoints. On a local master it is
    otherwise a temporary folder of this machine.
    """
    is_alone = is_local(spark)
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    folder = str(asked or "") or (f"{checkpoints.rstrip('/')}/thetastream-mailboxes" if checkpoints else None)
    if folder is None and is_alone:
        folder = str(Path(tempfile.gettempdir()) / f"thetastream-mailboxes-{os.getuid()}")
    if folder is None or not (is_alone or is_uri(folder)):
        problems.append(
            QueryError(
                "MAILBOX",
                "messages need a folder that driver and executors share, as a URI, not "
                f'{folder}; give mailbox="hdfs://..." or "file:/shared/...", or set '
                "spark.thetastream.mailbox",
            )
        )
    return str(folder) if is_uri(folder or "") else str(Path(folder or "").absolute())


def read_shed(
    given: Shed | None, how: How, streams: Sequence[Stream], problems: list[ThetastreamError]
) -> Shed | None:
    """Return the load shedder, and add an error if the query cannot have it.

    Joins that answer each tuple are refused. Otherwise a row without partners could appear although a partner
    has been dropped.
    """
    if given is None:
        return None
    if not how.is_inner:
        problems.append(
            QueryError(
                "SHED",
                f"how={how.name!r} answers each tuple, and a shedder may drop the partners of a tuple; "
                'leave shed out, or use how="inner"',
            )
        )
    timeless = [stream.alias for stream in streams if stream.event_time is None]
    if given.load == LAG and timeless:
        problems.append(
            QueryError(
                "SHED",
                f'load="lag" compares event times with the clock, and {", ".join(timeless)} has none; call '
                '.withWatermark("column", "delay") on it, or use load="state"',
            )
        )
    return given


def read_result_time(
    setting: bool | None, streams: Sequence[Stream], problems: list[ThetastreamError]
) -> bool:
    """Return whether results have the column ``result_time``, and add errors to ``problems``.

    They have it unless the option is false or a stream has no event time.
    """
    if setting is False or any(stream.event_time is None for stream in streams):
        return False
    if RESULT_TIME in (stream.alias.casefold() for stream in streams):
        what = f"results have a column {RESULT_TIME!r}; rename the stream, or give result_time=False"
        problems.append(QueryError("INVALID_ALIAS", what))
    return True
