"""Answers the questions of planning about the Spark session of a request."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.folder import is_uri
from thetastream.spark.session.configure import check_session, is_local
from thetastream.spark.session.memory import warn_of_state


@dataclass(frozen=True)
class SparkSessionChecks:
    """Answers the questions of the planner about a Spark session, as ``SessionChecks`` describes them."""

    spark: SparkSession

    def find_problems(self, n_units: int) -> Sequence[ThetastreamError]:
        return check_session(self.spark, n_units)

    def choose_mailbox_folder(self, asked: str | Path | None) -> tuple[str, list[ThetastreamError]]:
        """Choose the folder for mailboxes. Returns an error if there is none that all units reach.

        It is the folder that the user gives, or else one beside the checkpoints. On a local master it is
        otherwise a temporary folder of this machine.
        """
        is_alone = is_local(self.spark)
        checkpoints = self.spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        beside = f"{checkpoints.rstrip('/')}/thetastream-mailboxes" if checkpoints else None
        folder = str(asked or "") or beside
        if folder is None and is_alone:
            folder = str(Path(tempfile.gettempdir()) / f"thetastream-mailboxes-{os.getuid()}")
        problems: list[ThetastreamError] = []
        if folder is None or not (is_alone or is_uri(folder)):
            what = f"messages need a folder that driver and executors share, as a URI, not {folder}"
            hint = 'give mailbox="hdfs://..." or "file:/shared/...", or set spark.thetastream.mailbox'
            problems.append(QueryError("MAILBOX", f"{what}; {hint}"))
        return str(folder) if is_uri(folder or "") else str(Path(folder or "").absolute()), problems

    def warn_of_state(self, nbytes: float) -> None:
        warn_of_state(nbytes, is_local(self.spark))
