"""Whatever is passed to a public function, the error is ours: all that is checked before Spark is asked.

``tests/spark/test_wrong_arguments.py`` has what needs a session.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from typing import Any

import pyarrow as pa
import pytest

import thetastream as th
from tests.support.service import HELD, add_epoch
from tests.support.wrong_values import WRONG

Call = tuple[Callable[..., Any], dict[str, Any]]
NOT_CALLED = {"Plan", "QueryError", "Replicated", "ThetastreamError", "local_session", "subscribe"}
"""Classes that users do not make or that take nothing, what starts a session, and what lists call."""


@pytest.fixture(scope="module", autouse=True)
def inside_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Texts such as "(" become folders, if they are passed where a folder is wanted."""
    with chdir(tmp_path_factory.mktemp("wrong")):
        yield


def list_snapshots(store: Any, **arguments: Any) -> Any:
    """``th.subscribe`` checks its arguments when the first snapshot is asked for."""
    return list(th.subscribe(store, **{"patience": "0s", **arguments}))


@th.predicate(a=["x"], b=["x"])
def are_equal(a: Any, b: Any) -> Any:
    return a.x == b.x


def list_calls(store: th.ParquetStore) -> list[Call]:
    """List calls that are right, or wrong in one argument only: what needs Spark gets None in its place."""
    points = {"lat": "a.x", "lon": "a.y", "other_lat": "b.x", "other_lon": "b.y"}
    samples = {alias: pa.table({"x": [1, 2]}) for alias in "ab"}
    return [
        (th.Rows, {"n": 1}),
        (th.Nearest, {"k": 1, "by": "b.id - a.id"}),
        (th.Biclique, {"units": 2}),
        (th.Matrix, {"rows": 2, "columns": 2}),
        (th.Split, {"cores": 2}),
        (th.Chain, {"workers": 2}),
        (th.Ring, {"nodes": 2}),
        (th.ATR, {"nodes": 2, "segment": "1 minute"}),
        (th.CTR, {"nodes": 2, "segment": "1 minute"}),
        (th.Snapshots, {"every": "1 minute", "size": 4, "delays": 1}),
        (th.Snapshots, {"punctuation": "a.kind = 'end'"}),
        (th.Shed, {"threshold": "1 GB", "capacity": "2 GB"}),
        (th.Statistics, {"tuples_per_second": 10}),
        (th.TwoPhaseScaling, {}),
        (th.LoadBalancing, {}),
        (th.Table, {"source": "rows", "every": "1 minute", "key": "id"}),
        (th.ParquetStore, {"path": "pairs"}),
        (th.DeltaStore, {"path": "pairs"}),
        (th.PostgresStore, {"url": "postgresql:///results", "table": "pairs"}),
        (th.CassandraStore, {"url": "cassandra://host/results", "table": "pairs"}),
        (th.HBaseStore, {"address": "host:9090", "table": "pairs"}),
        *((method, {}) for method in (store.snapshots, store.sweep, store.upkeep, store.compact, store.read)),
        *((method, {}) for method in (store.read_snapshot, store.open_snapshot, store.forget, store.verify)),
        (th.query, {"store": store, "sql": "SELECT 1"}),
        (list_snapshots, {"store": store, "since": None, "sql": "SELECT 1", "poll": "1 s", "patience": "0s"}),
        (th.control, {"query": "nowhere"}),
        (th.metrics, {"query": None}),
        (th.statistics, {"query": None}),
        (th.versions, {"query": None}),
        (th.watch, {"query": None}),
        (th.stage, {"table": None}),
        (th.finish, {"start": print, "checkpoint": "nowhere"}),
        (th.fork, {"checkpoint": "nowhere", "target": "new"}),
        (th.checkpoints.update_paths, {"checkpoint": "nowhere"}),
        (th.checkpoints.finish_epoch, {"results": None, "checkpoint": "nowhere", "sink": "out"}),
        (th.apply_changes, {"table": "table", "key": "id"}),
        (th.predicate, {"form": "plain", "a": ["x"]}),
        (th.metres, points),
        (th.jaccard, {"left": "a.tags", "right": "b.tags", "at_least": 0.7}),
        (th.within_metres, {**points, "metres": 9}),
        (th.measure_predicate, {"predicate": are_equal, "samples": samples}),
        (th.stable, {"predicate": are_equal, "version": "1"}),
        (th.col, {"name": "a.x"}),
        (th.from_nanos, {"nanos": "nanos"}),
        (th.sql, {"spark": None, "text": "SELECT 1"}),
        (th.insert, {"spark": None, "text": "INSERT INTO t SELECT 1"}),
        (th.export_metrics, {"spark": None, "port": 0}),
        (th.read_parquet, {"spark": None, "path": "trades", "schema": "id LONG"}),
        (th.configure, {"session_or_builder": None}),
        (th.with_watermark, {"df": None, "event_time": "ts"}),
        (th.by_arrival, {"df": None}),
        (th.changes, {"df": None}),
        (th.write, {"df": None, "store": store, "checkpoint": "checkpoint"}),
        (th.join, {"streams": None, "on": "a.id = b.id"}),
        (th.plan, {"streams": None, "on": "a.id = b.id"}),
        (th.join_many, {"streams": None, "tasks": {"one": {"on": "a.id = b.id"}}}),
        (th.aggregate, {"streams": None, "on": "a.id = b.id", "aggs": {"n": "count(*)"}}),
    ]


@pytest.fixture(scope="module")
def calls(inside_a_folder: None) -> list[Call]:
    store = th.ParquetStore("pairs")
    store.describe(HELD)
    add_epoch(store, 0, 1, 2)
    return list_calls(store)


@pytest.mark.filterwarnings("ignore")
def test_whatever_is_passed_the_error_is_ours_without_a_session(calls: list[Call]) -> None:
    strange = []
    for function, arguments in calls:
        # Without ``patience``, a subscription waits for ever.
        names = set(inspect.signature(function).parameters) - {"form", "read_s", "arguments", "patience"}
        for name in sorted(names | arguments.keys() - {"form", "patience"}):
            # A function that starts a query raises errors of its own.
            for value in [one for one in [*WRONG, None] if name != "start" or not callable(one)]:
                given = {**arguments, name: value}
                form = [given.pop("form")] if "form" in given else []
                try:
                    with suppress(th.ThetastreamError):
                        function(*form, **given)
                except Exception as error:
                    strange.append(f"{function.__name__}({name}={value!r}): {error!r}")
    assert not strange, "\n".join(strange)


def test_every_public_function_is_among_them(calls: list[Call]) -> None:
    named = {function.__name__ for function, _ in calls} | NOT_CALLED
    assert {name for name in th.__all__ if callable(getattr(th, name))} <= named
