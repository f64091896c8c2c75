"""Joins that are planned and can be built: by units, or put together from other joins."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from thetastream.core.columns import MARK, SIGN, ColumnSource
from thetastream.core.errors import raise_problems
from thetastream.families.base import Facts, Planned
from thetastream.families.views.flow import fold_plan
from thetastream.families.views.folding import Folding
from thetastream.joins.ask.carriers import carry
from thetastream.joins.ask.streams import LATE_RESULTS, StreamInput
from thetastream.lowering.plain_columns import NotPlain
from thetastream.lowering.query import RESULT_TIME, Stream
from thetastream.lowering.report import Fact, Section
from thetastream.models.base import Model
from thetastream.runtime.flow import Flow, Staging, Target
from thetastream.runtime.punctuations import Punctuations
from thetastream.spark.changes import keep_row_columns, mark_changes
from thetastream.spark.dataflow.build import build
from thetastream.spark.dataflow.file_readings import find_readings

LONGEST_REASON = 200
"""The number of characters of a reason in the text of a plan."""


class PlannedInput(Protocol):
    """One input of a planned join: a stream of the user, or the result of a join."""

    @property
    def schema(self) -> StructType:
        """The schema of the input."""

    def dataframe(self) -> DataFrame:
        """Build the input. It is called when the join is built."""

    def list_dropping(self) -> list[str]:
        """List the operators of the user before the join that drop late rows."""

    def count_watermarks(self) -> int:
        """Count the watermarks of the input. Units can compute the watermark before 1970 if it has one."""


class Joined(Protocol):
    """A join that is checked and planned but not started. Planning reads only schemas."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """The streams, in the order of the result's columns."""

    @property
    def models(self) -> tuple[Model, ...]:
        """The models of the join's steps. A join without steps has one."""

    @property
    def facts(self) -> Facts:
        """What may follow the join."""

    def explain(self) -> tuple[Section, ...]:
        """Explain the join. A join that is made of joins has a section for each of them."""

    def results(self) -> DataFrame:
        """Build the results: one struct column per alias, and no result time."""


class Foldable(Joined, Protocol):
    """A join with a final join, whose units can fold their matches."""

    @property
    def final_inputs(self) -> tuple[PlannedInput, ...]:
        """The inputs of the final join."""

    def fold(self, folding: Folding, inputs: Mapping[str, PlannedInput]) -> Joined:
        """Return the same join with views as its results: one row per unit, epoch and group.

        ``inputs`` are those of the final join by alias. They have the columns that its condition reads and
        those that ``folding.computed`` names.
        """


@dataclass(frozen=True)
class UnitsJoin:
    """A join by units, and the DataFrames that it joins."""

    planned: Planned
    given: tuple[PlannedInput, ...]
    punctuations: Punctuations | None = None
    """Which rows of the inputs are punctuations; None if there are none."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return self.planned.inputs

    @property
    def models(self) -> tuple[Model, ...]:
        return self.planned.models

    @property
    def facts(self) -> Facts:
        return self.planned.facts

    def explain(self) -> tuple[Section, ...]:
        before = tuple(
            Fact(
                f"late rows of {stream.alias}:",
                f"{' and '.join(found)} before the join drops them; th.metrics counts them as late_elsewhere",
            )
            for stream, given in zip(self.inputs, self.given, strict=True)
            if stream.event_time not in (None, RESULT_TIME) and (found := given.list_dropping())
        )
        sections = (
            Section("Files", self._explain_files()),
            Section("Before the join", before),
            Section("Before 1970", self._explain_early_watermark()),
        )
        return (*self.planned.explain(), *(section for section in sections if section.facts))

    def _explain_files(self) -> tuple[Fact, ...]:
        """Say for each stream of ``th.read_parquet`` whether its rows go through Spark, and why."""
        streams = [given.frame if isinstance(given, StreamInput) else None for given in self.given]
        facts = []
        for stream, found in zip(
            self.inputs,
            find_readings(self.planned.flow().sides, streams, self.punctuations is not None),
            strict=True,
        ):
            if isinstance(found, NotPlain):
                why = shorten(str(found), LONGEST_REASON)
                facts.append(Fact(f"{stream.alias}:", "its rows go through Spark", why))
            elif found is not None:
                facts.append(Fact(f"{stream.alias}:", "the task that reads a file routes its rows"))
        return tuple(facts)

    def _explain_early_watermark(self) -> tuple[Fact, ...]:
        """Say why units cannot compute the watermark before 1970, if tuples wait for it."""
        flow = self.planned.flow()
        if flow.waits_by is None or not any(stream.is_streaming for stream in self.inputs):
            return ()
        why = [] if flow.rules is None else ["the units may change (max_units)"]
        for stream, given in zip(self.inputs, self.given, strict=True):
            why += [f"{stream.alias} has {n} watermarks"] if (n := given.count_watermarks()) > 1 else []
        what = "tuples before 1970 are answered when Spark's watermark has passed 1970"
        return (Fact("answers:", what, " and ".join(why)),) if why else ()

    def results(self) -> DataFrame:
        return self._build(self.planned.flow())

    def stage(self, target: Target, sources: Sequence[ColumnSource]) -> DataFrame:
        """Build the stream of what units have staged in a store. ``facts.emitted`` says whether they can."""
        flow = self.planned.flow({name for one in sources for name in one.read})
        columns = tuple(name for spec in flow.keys for name in spec.columns)
        columns += (SIGN,) * any(spec.has_deletes for spec in flow.keys)
        return self._build(flow, Staging(target, columns, tuple(sources)))

    def _build(self, flow: Flow, staging: Staging | None = None) -> DataFrame:
        streams = [given.dataframe() for given in self.given]
        is_streaming = any(stream.is_streaming for stream in self.inputs)
        run = self.planned.run if is_streaming else None
        return build(flow, streams, run, staging, self.punctuations)

    @property
    def final_inputs(self) -> tuple[PlannedInput, ...]:
        return self.given

    def fold(self, folding: Folding, inputs: Mapping[str, PlannedInput]) -> "UnitsJoin":
        streams: list[Stream] = []
        for stream in self.inputs:
            schema = keep_row_columns(inputs[stream.alias].schema)
            carried, problems = carry(stream.alias, schema, sum(len(known.carried) for known in streams))
            raise_problems(problems)
            types = tuple((field.name, field.dataType.simpleString()) for field in schema)
            streams.append(replace(stream, types=types, carried=carried))
        folded = fold_plan(self.planned, folding, (streams[0], streams[1]))
        return UnitsJoin(folded, tuple(inputs[stream.alias] for stream in self.inputs))


def build_rows(join: Joined) -> DataFrame:
    """Build the rows of a join: one struct column per alias, and the result time if the user gets it.

    If a stream has deletes, the last column is the type of the change.
    """
    results, facts = join.results(), join.facts
    if facts.shows_result_time and facts.result_time is not None:
        metadata = find_time_metadata(join.inputs, facts.is_prompt)
        # In a classic session, an alias with metadata would take twice as many calls to the JVM.
        results = results.selectExpr("*", f"{facts.result_time} AS {RESULT_TIME}")
        results = results.withMetadata(RESULT_TIME, metadata)
    if facts.has_deletes:
        results = mark_changes(results)
    return results.drop(*facts.hidden) if facts.hidden else results


def find_time_metadata(streams: Collection[Stream], is_prompt: bool) -> dict[str, int]:
    """Return the metadata of the result time.

    Spark's operators behind a join find the event time of their input by a mark in the metadata of a column.
    The mark needs no operator of its own, and Spark leaves the column out of the plan if nothing reads it.

    Parameters
    ----------
    streams : collection of Stream
        The inputs of the join.
    is_prompt : bool
        Whether each result leaves before the watermark can pass it. If so, the column of a stream is marked
        as event time, with the longest delay of the streams' watermarks. Otherwise Spark would drop results,
        and a note in the column's metadata lets a join behind this one say so.
    """
    if not any(stream.is_streaming for stream in streams):
        return {}
    delays_ms = [-(-(stream.watermark_delay_us or 0) // 1000) for stream in streams]
    return {MARK: max(delays_ms)} if is_prompt else {LATE_RESULTS: 1}
