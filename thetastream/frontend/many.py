"""What the user said of a join of many streams, whether it runs as a pipeline or hop by hop."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from thetastream.errors import QueryError, ThetastreamError
from thetastream.frontend.condition import On, read_condition
from thetastream.frontend.streams import read_streams
from thetastream.frontend.window import is_counted, read_window
from thetastream.plan.order import OTHER, Tie, selectivity
from thetastream.plan.query import Stream
from thetastream.predicate import Phrase, Predicate
from thetastream.predicate.names import references
from thetastream.spark.catalyst import Catalyst
from thetastream.windows import Within


class Many(NamedTuple):
    """Streams, conjuncts with the aliases each reads, and windows in microseconds; None keeps everything."""

    catalyst: Catalyst
    inputs: list[Stream]
    texts: list[str]
    phrases: list[tuple[Phrase, set[str]]]
    predicates: list[tuple[Predicate, set[str]]]
    within_us: tuple[int, ...] | None

    @property
    def ties(self) -> list[Tie]:
        """Which streams each conjunct ties, and how selective it is."""
        ties = [(frozenset(aliases), selectivity(phrase)) for phrase, aliases in self.phrases]
        return ties + [(frozenset(aliases), OTHER) for _, aliases in self.predicates]

    @property
    def sizes(self) -> dict[str, float]:
        """Tuples kept of each stream, up to a factor: windows, at one tuple a second."""
        spans = self.within_us or [0] * len(self.inputs)
        return {stream.alias: 1 + span / 1e6 for stream, span in zip(self.inputs, spans, strict=True)}


def read_many(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within,
    settings: Mapping[str, Any],
    problems: list[ThetastreamError],
) -> Many:
    """Streams, condition and window; what is wrong with them is added to ``problems``."""
    catalyst, inputs, found = read_streams(streams, within is not None, settings["event_time"])
    problems += found
    texts, phrases, predicates = read_condition(on, catalyst, inputs, problems)
    if is_counted(within):
        what = "a count window is of two streams, whose order of arrival is known; use a time window"
        problems.append(QueryError("COUNT_WINDOW", what))
    if settings["order"] is not None:
        what = "results of three streams and more have no one order of arrival; leave order out"
        problems.append(QueryError("ORDER", what))
    elif str(settings["punctuations"]).lower() not in ("false", "none"):
        what = (
            "punctuations stand in an order, and results of three streams and more have none; leave them out"
        )
        problems.append(QueryError("ORDER", what))
    spans = None if is_counted(within) else read_window(within, inputs, catalyst, problems)
    return Many(
        catalyst,
        inputs,
        texts,
        [(phrase, set(references(phrase, list(streams)))) for phrase in phrases],
        [(predicate, _aliases_of(predicate, inputs)) for predicate in predicates],
        spans,
    )


def _aliases_of(predicate: Predicate, streams: Sequence[Stream]) -> set[str]:
    named = {alias.casefold() for alias, _ in predicate.columns}
    return {stream.alias for stream in streams if stream.alias.casefold() in named}
