"""Checks the Spark session for the planner."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from thetastream.core.errors import ThetastreamError
from thetastream.joins.ask.settings import choose_mailbox_folder
from thetastream.spark.session.configure import check_session, is_local
from thetastream.spark.session.memory import warn_of_state


@dataclass(frozen=True)
class SparkSessionChecks:
    """Answers the questions of the planner about a Spark session, as ``SessionChecks`` describes them."""

    spark: SparkSession

    def find_problems(self, n_units: int) -> Sequence[ThetastreamError]:
        return check_session(self.spark, n_units)

    def choose_mailbox_folder(self, asked: str | Path | None, problems: list[ThetastreamError]) -> str:
        return choose_mailbox_folder(self.spark, asked, problems)

    def warn_of_state(self, nbytes: float) -> None:
        warn_of_state(nbytes, is_local(self.spark))
