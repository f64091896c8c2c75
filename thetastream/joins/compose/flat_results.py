"""The result of a step of a pipeline: flat columns, the windows of the streams in it, and the result time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StructField, StructType, TimestampType

from thetastream.conditions import Phrase, parse
from thetastream.conditions.names import relocate
from thetastream.core.columns import CHANGE_TYPE, CHANGES, MARK
from thetastream.families.result_time import write_latest
from thetastream.joins.joined import UnitsJoin
from thetastream.lowering.domains import quote
from thetastream.lowering.query import RESULT_TIME, Stream


@dataclass(frozen=True)
class FlatColumn:
    """A column of a stream, and its name ``flat`` in the flat result of a step."""

    alias: str
    name: str
    flat: str
    type: DataType


@dataclass(frozen=True)
class JoinResult:
    """The result of a step as a source of a later step: flat columns and the result time."""

    step: UnitsJoin
    left: "JoinResult | None"
    """The result that is the left source of the step. It is None if the left source is a stream."""
    right: "JoinResult | None"
    """The result that is the right source of the step. It is None if the right source is a stream."""
    columns: tuple[FlatColumn, ...]
    event_times: Mapping[str, str]
    """The flat event-time column of each alias. It is empty unless every stream has an event time."""
    windows_us: Mapping[str, int] | None
    watermark_bound: str | None
    """The column that says how far the streams behind the result move the watermark, if rows have it."""

    def dataframe(self) -> DataFrame:
        """Build the flat columns of the step's pairs that are inside all windows."""
        pairs = self.step.results()
        flat = []
        for column in self.columns:
            alias, source = self._find_side(column.alias)
            name = column.name if source is None else column.flat
            flat.append(F.col(f"{quote(alias)}.{quote(name)}").alias(column.flat))
        if self.watermark_bound is not None:
            flat.append(F.col(quote(self.watermark_bound)))
        if self.change_type is not None:
            flat.append(F.col(self.change_type).alias(self.change_type, metadata={CHANGES: True}))
        frame = pairs.select(*flat)
        if not self.event_times:
            return frame
        times = {alias: F.col(quote(name)) for alias, name in self.event_times.items()}
        newest = F.greatest(*times.values())
        latest = write_latest(list(map(quote, self.event_times.values())))
        if self.windows_us is not None:
            for alias, time in times.items():
                frame = frame.where(_is_within(newest, time, self.windows_us[alias], self.time_type))
        return frame.withColumn(RESULT_TIME, F.expr(latest).alias(RESULT_TIME, metadata={MARK: 0}))

    @property
    def sides(self) -> "tuple[tuple[str, JoinResult | None], ...]":
        """The alias and the source of each input of the step. The source of a stream is None."""
        aliases = (stream.alias for stream in self.step.inputs)
        return tuple(zip(aliases, (self.left, self.right), strict=True))

    @property
    def aliases(self) -> tuple[str, ...]:
        """The joined streams in the order of the columns."""
        return tuple(dict.fromkeys(column.alias for column in self.columns))

    @property
    def change_type(self) -> str | None:
        """The column that says what happened to a row. It is no column of ``schema``. None if rows are only
        inserted."""
        return CHANGE_TYPE if self.step.facts.has_deletes else None

    @property
    def tree(self) -> str:
        """The tree of joins as text."""
        left, right = (alias if source is None else source.tree for alias, source in self.sides)
        return f"({left} JOIN {right})"

    def _find_side(self, alias: str) -> "tuple[str, JoinResult | None]":
        """Find the input of the step that has a stream."""
        return next(
            (name, source)
            for name, source in self.sides
            if (name == alias if source is None else alias in source.aliases)
        )

    def relocate_inputs(self, phrase: Phrase) -> str:
        """Write a phrase over the joined streams as SQL over the inputs of the step."""
        text = phrase.text
        for alias, source in self.sides:
            text = text if source is None else source.relocate(parse(text), alias)
        return text

    def relocate(self, phrase: Phrase, alias: str) -> str:
        """Write a phrase over the joined streams as SQL over this result, which has the alias ``alias``."""
        moved = {column.alias.casefold(): column.alias for column in self.columns}
        return relocate(phrase, moved, lambda *column: f"{quote(alias)}.{quote(self.find_flat(*column))}")

    def find_flat(self, alias: str, name: str) -> str:
        """Find the flat name of a column, which may be spelled in another case."""
        mine = [column for column in self.columns if column.alias == alias]
        exact = next((column.flat for column in mine if column.name == name), None)
        return exact or next(column.flat for column in mine if column.name.casefold() == name.casefold())

    def write_window_checks(self, alias: str, other: Stream) -> tuple[str, ...]:
        """Write the condition that the other input of the next step is in the windows of all joined streams.

            t <= min(t_i + W_i)  for each joined stream i

        The time t of the other input is its event time or its result time. The joined streams are in each
        other's windows already. If the other input is a stream, the next step itself checks that the joined
        streams are in its window.
        """
        if self.windows_us is None or not self.event_times:
            return ()
        ends = [
            _add_span(f"{quote(alias)}.{quote(time)}", self.time_type, self.windows_us[known])
            for known, time in self.event_times.items()
        ]
        time = f"{quote(other.alias)}.{quote(str(other.event_time))}"
        if self.time_type == TimestampType():
            time = f"unix_micros({time})"
        return (f"{time} <= least({', '.join(ends)})",)

    def list_dropping(self) -> list[str]:
        """The steps before this one say what is before them."""
        return []

    def count_watermarks(self) -> int:
        """The streams behind the result have one watermark each."""
        return len(self.aliases)

    @property
    def time_type(self) -> DataType:
        """The type of the result time: that of the event times, or the wider one if there are two."""
        flat = set(self.event_times.values())
        types = {column.type for column in self.columns if column.flat in flat}
        return types.pop() if len(types) == 1 else TimestampType()

    @property
    def schema(self) -> StructType:
        """The schema of ``dataframe``. It is known without building the DataFrame."""
        fields = [StructField(column.flat, column.type) for column in self.columns]
        if self.watermark_bound is not None:
            fields.append(StructField(self.watermark_bound, LongType()))
        if self.event_times:
            fields.append(StructField(RESULT_TIME, self.time_type, metadata={MARK: 0}))
        return StructType(fields)


def name_flat_columns(streams: Iterable[Stream]) -> dict[tuple[str, str], str]:
    """Name each (alias, column) ``alias__column``. Underscores are appended if the name is taken."""
    names: dict[tuple[str, str], str] = {}
    taken = {RESULT_TIME}
    for stream in streams:
        for column, _ in stream.types:
            flat = f"{stream.alias}__{column}"
            while flat.casefold() in taken:
                flat += "_"
            taken.add(flat.casefold())
            names[stream.alias, column] = flat
    return names


LAST_US = 2**63 - 1
"""The latest TIMESTAMP, in microseconds since 1970."""


def _is_within(latest: Column, time: Column, span_us: int, type_: DataType) -> Column:
    """Whether ``latest - time`` is at most the span in elapsed time, in which a day has 24 hours."""
    if type_ == TimestampType():
        # Spark subtracts timestamps as local times, and a change to summer time moves the local clock.
        return F.unix_micros(latest) - F.unix_micros(time) <= span_us
    return (latest - time) <= F.expr(f"INTERVAL '{span_us} microseconds'")


def _add_span(time: str, type_: DataType, span_us: int) -> str:
    """Write the SQL of an event time plus elapsed time. A TIMESTAMP is written as a number of microseconds,
    because Spark adds days to it in local time. A sum beyond the largest number is the largest number."""
    if type_ == TimestampType():
        return f"least(unix_micros({time}), {LAST_US - span_us}) + {span_us}"
    span = f"INTERVAL '{span_us // 1_000_000}.{span_us % 1_000_000:06}' SECOND"
    return f"{time} + {span}"
