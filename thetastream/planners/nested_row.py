"""The rows of joins in a row, as the left input of the next join.

A row has result time T. A new tuple c must be inside the window of all tuples t_i of the row:

    c.ts <= t_i + W_i   and   t_i - W_c <= c.ts   for each t_i that is not NULL

T may be later than all t_i, because a row without partners has the instant that decides it. Let S be the
longest time by which T can be later than the latest tuple of its row. Then the join of c keeps rows for
max(W_i), and tuples c for W_c + S. A row or a tuple c without a partner leaves the join when it is decided.
Therefore S grows by max(W_i) if the join answers each row, and by W_c if it answers each tuple c. The
condition compares the event times themselves.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.core.how import How
from thetastream.core.sides import Side
from thetastream.frontend.how import GivenHow
from thetastream.plan.domains import quote
from thetastream.plan.query import RESULT_TIME, Stream
from thetastream.planners.plan import Plan
from thetastream.predicate import parse
from thetastream.predicate.respelled_names import qualify, relocate
from thetastream.spark.session import choose_case_fold


class NestedRow:
    """The rows of the joins so far."""

    def __init__(self, first: Stream, frame: DataFrame, span_us: int | None) -> None:
        self.alias = first.alias
        self.frame = frame
        """The rows. Before the first join, they are the tuples of the first stream."""
        self._is_joined = False
        self._streams = [first]
        self._spans_us = [span_us or 0]
        self._slack_us = 0
        """The longest time by which the event time of a row is later than that of its latest tuple."""

    @property
    def shown(self) -> list[str]:
        """The aliases whose tuples the rows have."""
        return [stream.alias for stream in self._streams]

    def take_result(self, step: Plan, taken: Collection[str]) -> None:
        """Take the result of a join as the rows: one struct column per alias, and the result time."""
        frame = step.dataframe()
        if self._is_joined:
            # The left input of the join was a row, whose structs are inside one struct.
            inside = [alias for alias in self.shown if alias not in frame.columns]
            columns = [F.col(f"{quote(self.alias)}.{quote(alias)}").alias(alias) for alias in inside]
            kept = [name for name in frame.columns if name != self.alias]
            frame = frame.select(*columns, *map(F.col, map(quote, kept)))
        self.frame = frame
        self._is_joined = True
        self.alias = "_".join(self.shown)
        while self.alias.casefold() in {alias.casefold() for alias in taken}:
            self.alias += "_"

    def add(self, stream: Stream, span_us: int | None, how: How) -> None:
        """Add the stream of the next join to the rows."""
        waits_us = {Side.LEFT: max(self._spans_us), Side.RIGHT: span_us or 0}
        self._slack_us += max((waits_us[side] for side in how.preserved), default=0)
        if how.has_pairs:
            self._streams.append(stream)
            self._spans_us.append(span_us or 0)

    def find_windows(self, alias: str, span_us: int) -> dict[str, timedelta]:
        """Return how long rows, and tuples of the next stream, stay joinable."""
        longest = max(self._spans_us)
        return {
            self.alias: timedelta(microseconds=longest),
            alias: timedelta(microseconds=span_us + self._slack_us),
        }

    def list_event_times(self, stream: Stream) -> dict[str, str]:
        """Return the event times of both inputs of the next join, which batch DataFrames do not know."""
        if stream.is_streaming:
            return {}
        left = RESULT_TIME if self._is_joined else self._streams[0].event_time
        if left not in self.frame.columns or stream.event_time is None:
            return {}
        return {self.alias: str(left), stream.alias: stream.event_time}

    def write_condition(self, on: str, stream: Stream, span_us: int | None) -> list[str]:
        """Write the condition of the next join over the rows, with the window of each of their tuples."""
        if not self._is_joined:
            return [on]
        names = {known.alias: [name for name, _ in known.types] for known in (*self._streams, stream)}
        fold = choose_case_fold(self.frame.sparkSession)
        written = [self._relocate(qualify(parse(on), names, fold).text)]
        if span_us is not None:
            time = f"{quote(stream.alias)}.{quote(str(stream.event_time))}"
            latest = [self._write_time(known, 0) for known in self._streams]
            ends = [
                self._write_time(known, span)
                for known, span in zip(self._streams, self._spans_us, strict=True)
            ]
            written.append(f"{time} >= {_shift(_choose('greatest', latest), -span_us, stream)}")
            written.append(f"{time} <= {_choose('least', ends)}")
        return written

    def relocate_ranking(self, how: GivenHow) -> GivenHow:
        """Write the ranking of a nearest join over the rows."""
        if not self._is_joined or isinstance(how, str):
            return how
        return replace(how, by=self._relocate(how.by))

    def _relocate(self, text: str) -> str:
        def write(alias: str, column: str) -> str:
            return f"{quote(self.alias)}.{quote(alias)}.{quote(column)}"

        return relocate(parse(text), {alias.casefold(): alias for alias in self.shown}, write)

    def _write_time(self, stream: Stream, shift_us: int) -> str:
        column = ".".join(map(quote, (self.alias, stream.alias, str(stream.event_time))))
        return _shift(column, shift_us, stream)


def _choose(function: str, times: Sequence[str]) -> str:
    """Write the greatest or the least of times. NULL is left out."""
    return times[0] if len(times) == 1 else f"{function}({', '.join(times)})"


def _shift(time: str, span_us: int, stream: Stream) -> str:
    """Add elapsed time to an event time. Spark itself adds days to a TIMESTAMP in local time."""
    if not span_us:
        return time
    if stream.type_of(str(stream.event_time)) == "timestamp":
        return f"timestamp_micros(unix_micros({time}) + ({span_us}))"
    return f"{time} + INTERVAL '{span_us} microseconds'"
