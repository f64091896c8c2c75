"""A store as the sink of a statement: ``[sink]`` of a job, and ``sinks=`` of ``th.insert``.

store = "postgres"  url = "postgresql:///results"  table = "pairs"    the kind, and its parameters
key, time, snapshots, beside_others, keep, upkeep                     as in th.write
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.core.errors import (
    QueryError,
    ThetastreamError,
    list_problems,
    raise_problems,
    suggest_or_list,
)
from thetastream.joins.write import write
from thetastream.results.snapshots import Snapshots
from thetastream.results.store import Store
from thetastream.spark.sinks.upkeep import EVERY, check_upkeep
from thetastream.stores import make_store

STORE = "store"
"""The key that makes a sink a store."""


@dataclass(frozen=True)
class SinkStore:
    """A store, and how ``th.write`` puts results into it."""

    store: Store
    key: tuple[str, ...] = ()
    time: str | None = None
    snapshots: Snapshots | None = None
    beside_others: bool = False
    keep: str | None = None
    upkeep: str | Literal[False] = EVERY

    def start(
        self, rows: DataFrame, checkpoint: str | Path, trigger: str | None, name: str | None
    ) -> StreamingQuery:
        """Start the query that keeps rows in the store, each exactly once."""
        return write(
            rows,
            self.store,
            checkpoint=checkpoint,
            snapshots=self.snapshots,
            key=self.key,
            time=self.time,
            trigger=trigger,
            name=name,
            beside_others=self.beside_others,
            keep=self.keep,
            upkeep=self.upkeep,
        )


def read_sink_store(table: Mapping[str, object], where: str) -> SinkStore:
    """Read a table with the kind and the parameters of a store; ``where`` names the sink in messages.

    >>> read_sink_store({"store": "delta", "path": "/out", "key": "a_id"}, "the sink")
    SinkStore(store=DeltaStore(path='/out'), key=('a_id',), time=None, snapshots=None, beside_others=False, \
keep=None, upkeep='10 minutes')

    Raises
    ------
    QueryError
        All problems together: UNKNOWN_KEY, MISSING_KEY, BAD_VALUE or STORE_PLUGIN.
    """
    problems: list[ThetastreamError] = []
    own = {one.name for one in fields(SinkStore)}
    parameters = {name: value for name, value in table.items() if name not in own}
    store = _read_store(table[STORE], parameters, where, problems)
    key = table.get("key", ())
    keys = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else (None,)
    if not all(isinstance(one, str) for one in keys):
        problems.append(_refuse("key", where, "the name of a column or a list of names", key))
    time, beside_others = table.get("time"), table.get("beside_others", False)
    if not isinstance(time, str | None):
        problems.append(_refuse("time", where, "the name of a column", time))
    if not isinstance(beside_others, bool):
        problems.append(_refuse("beside_others", where, "true or false", beside_others))
    snapshots = _read_snapshots(table.get("snapshots"), where, problems)
    keep, upkeep = table.get("keep"), table.get("upkeep", EVERY)
    try:
        check_upkeep(keep, upkeep)
    except ThetastreamError as error:
        problems.append(error)
    raise_problems(problems)
    assert store is not None
    return SinkStore(store, keys, time, snapshots, beside_others, keep, upkeep)  # type: ignore[arg-type]


def _read_store(
    given: object, parameters: Mapping[str, object], where: str, problems: list[ThetastreamError]
) -> Store | None:
    try:
        if isinstance(given, Store):
            for name in parameters:
                raise QueryError("UNKNOWN_KEY", f"{where} has a store, and {name!r} is no key of it")
            return given
        if isinstance(given, str):
            return make_store(given, parameters)
        raise _refuse(STORE, where, "the name of a kind of store", given)
    except ThetastreamError as error:
        problems += list_problems(error)
        return None


def _read_snapshots(given: Any, where: str, problems: list[ThetastreamError]) -> Snapshots | None:
    if given is None or isinstance(given, Snapshots):
        return given
    if not isinstance(given, Mapping):
        problems.append(_refuse("snapshots", where, "a table, as in { every = '1 minute' }", given))
        return None
    known = [one.name for one in fields(Snapshots)]
    unknown = [name for name in given if name not in known]
    problems += [
        QueryError("UNKNOWN_KEY", f"snapshots of {where} have no {name!r}{suggest_or_list(name, known)}")
        for name in unknown
    ]
    try:
        return None if unknown else Snapshots(**given)
    except ThetastreamError as error:
        problems.append(error)
        return None


def _refuse(key: str, where: str, what: str, value: object) -> QueryError:
    return QueryError("BAD_VALUE", f"{key!r} of {where} must be {what}, not {value!r}")
