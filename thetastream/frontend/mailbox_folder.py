"""Chooses the folder for mailboxes, for models whose units send messages to each other."""

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from thetastream.core.folder import is_uri
from thetastream.errors import QueryError, ThetastreamError
from thetastream.spark.session import is_local


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
