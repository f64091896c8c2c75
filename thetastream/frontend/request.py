"""A join request of the user, with the session's defaults for settings that the user left out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from thetastream.core.how import INNER, How
from thetastream.core.sides import Side
from thetastream.core.windows import Within
from thetastream.frontend.condition import On
from thetastream.frontend.how import GivenHow, read_how
from thetastream.frontend.streams import check_streams
from thetastream.frontend.tables import read_tables
from thetastream.index import REGISTRY as SHAPES
from thetastream.models.base import Model
from thetastream.predicate import Predicate

SETTINGS: dict[str, str] = {
    "index": f"force an index shape: {', '.join(SHAPES)}",
    "archive_period": 'event time one subindex spans, as in "1 minute"; by default a tenth of the window',
    "order": 'order of pairs: "outer", "strict", "inner n", or a punctuation interval in arrivals',
    "punctuations": "whether punctuations are rows of ordered results: true or false",
    "event_time": "event-time column per alias, for batch DataFrames, which cannot carry a watermark",
    "result_time": "whether results have a column with their latest event time: true (default) or false",
    "mailbox": "folder, shared by driver and executors, for messages between units of a ring or chain",
    "max_units": "the largest number of units at once, if th.control may change them while the join runs",
    "cache_folder": "host-local folder for mapped segments; Spark's local directory by default",
    "late": "folder in which late tuples are kept, as Parquet files; by default they are only counted",
    "shed": "th.Shed, which drops tuples while the load is too high; by default nothing is dropped",
    "statistics": "th.Statistics to estimate costs from, and to choose the model by; assumed by default",
}
"""Settings: keyword arguments of join and plan. ``spark.thetastream.<name>`` gives the session's defaults."""


@dataclass(frozen=True)
class JoinRequest:
    """A join as the user asked for it. Only its streams are checked."""

    streams: Mapping[str, DataFrame]
    on: On
    within: Within
    model: Model | str | None
    settings: Mapping[str, Any]
    """The values of all ``SETTINGS``."""
    how: How = INNER
    columns: Mapping[str, Collection[str] | None] = field(default_factory=dict)
    """For each alias, the columns that results need, in lower case. Without an entry, all columns are
    needed."""
    bounds_watermark: bool = False
    """Whether the units of the last of several joins must know how far the watermark rises."""

    @property
    def spark(self) -> SparkSession:
        """The Spark session of the streams."""
        return next(iter(self.streams.values())).sparkSession


def complete_request(
    streams: Mapping[str, Any],
    on: On,
    within: Within,
    model: Model | str | None,
    settings: Mapping[str, Any],
    columns: Mapping[str, Collection[str] | None] | None = None,
    how: GivenHow = INNER.name,
) -> JoinRequest:
    """Check the streams, complete the settings and return the request.

    It raises what ``check_streams`` and ``read_how`` raise.
    """
    streams = read_tables(streams)
    check_streams(streams)
    values, kind, needed = read_settings(streams, settings), read_how(how), dict(columns or {})
    for side in Side:
        if side not in kind.shown and side < len(streams):
            alias = list(streams)[side]
            needed[alias] = _list_read(on, alias)
    return JoinRequest(streams, on, within, model, values, kind, needed)


def _list_read(on: On, alias: str) -> set[str]:
    """List the columns of a stream that Python predicates read. Keys of SQL conditions are sent anyway."""
    items = on if isinstance(on, Sequence) and not isinstance(on, str) else [on]
    return {
        name.casefold()
        for item in items
        if isinstance(item, Predicate)
        for named, names in item.columns
        if named.casefold() == alias.casefold()
        for name in names
    }


def read_settings(streams: Mapping[str, DataFrame], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all settings. One that is not given, or is None, has the session's default."""
    spark = next(iter(streams.values())).sparkSession
    return {
        name: spark.conf.get(f"spark.thetastream.{name}", None) if given.get(name) is None else given[name]
        for name in SETTINGS
    }
