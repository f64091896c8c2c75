"""The inputs of a planned join of two streams: streams of the user, and results of other joins."""

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from thetastream.spark.watermarks import list_dropping


class PlannedInput(Protocol):
    """One input of a planned join: a stream of the user, or the result of a join."""

    @property
    def schema(self) -> StructType:
        """The schema of the input."""

    @property
    def watermark_bound(self) -> str | None:
        """The column that says how far the streams behind the input move the watermark. It is None if the
        event times of the input say so themselves."""

    def dataframe(self) -> DataFrame:
        """Build the input. It is called when the join is built."""

    def list_dropping(self) -> list[str]:
        """List the operators of the user before the join that drop late rows."""


@dataclass(frozen=True)
class GivenStream:
    """A DataFrame of the user as an input."""

    frame: DataFrame

    @property
    def watermark_bound(self) -> None:
        """The event times of the stream say how far it moves the watermark."""

    @property
    def schema(self) -> StructType:
        """The schema of the stream."""
        return self.frame.schema

    def dataframe(self) -> DataFrame:
        """The stream itself."""
        return self.frame

    def list_dropping(self) -> list[str]:
        """List the operators of the stream that drop late rows."""
        return list_dropping(self.frame) if self.frame.isStreaming else []
