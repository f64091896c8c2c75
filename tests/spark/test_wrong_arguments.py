"""Whatever a user passes to a public function, the error is one of ours, and it says what to write."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.draws import draw_cases
from tests.support.wrong_values import WRONG


@pytest.fixture(scope="module", autouse=True)
def inside_a_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Texts such as "(" become folders, if they are passed where a folder is wanted."""
    with chdir(tmp_path_factory.mktemp("wrong")):
        yield


SINKS = {"streams": {}, "sinks": {"noop": {"format": "noop"}}}
Call = tuple[Callable[..., Any], dict[str, Any]]


@pytest.fixture(scope="module")
def ticks(spark: SparkSession) -> DataFrame:
    ticks = spark.readStream.format("rate").load().selectExpr("value AS id", "timestamp AS ts")
    return ticks.withWatermark("ts", "1 minute")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(10).selectExpr("id", "timestamp_seconds(id) AS ts")


def list_calls(ticks: DataFrame, rows: DataFrame) -> list[Call]:
    """List calls that are right: a function and its arguments."""
    both = {"a": ticks, "b": ticks}
    pairs = {"streams": both, "on": "a.id < b.id", "within": "1 minute"}
    return [
        (th.join, {**pairs, "model": th.Biclique(2)}),
        (th.join, {**pairs, "how": "left"}),
        (th.join, {**pairs, "how": th.Nearest(1, by="b.id - a.id")}),
        (th.join, {"streams": {"a": rows, "b": rows}, "on": "a.id < b.id"}),
        (th.join, {"streams": {"a": ticks, "b": rows}, "on": "a.id < b.id"}),
        (th.join, {**pairs, "streams": {**both, "c": ticks}, "on": "a.id < b.id AND b.id < c.id"}),
        (th.Nearest, {"k": 1, "by": "b.id - a.id"}),
        (th.Rows, {"n": 1}),
        (th.by_arrival, {"df": rows.select("id"), "slack": "10 seconds"}),
        (th.changes, {"df": rows, "sign": "id"}),
        (th.changes, {"df": rows, "format": "upsert", "key": "id", "sequence": "ts", "deleted": "id < 0"}),
        (th.with_watermark, {"df": rows, "event_time": "ts", "delay": "1 minute"}),
        (th.join_many, {"streams": both, "tasks": {"one": {"on": "a.id < b.id", "within": "1 minute"}}}),
        (th.aggregate, {**pairs, "group_by": "a.id", "aggs": {"n": "count(*)"}}),
        (th.sql, {"spark": rows.sparkSession, "text": "SELECT id FROM a", "streams": {"a": rows}}),
        (th.insert, {"spark": rows.sparkSession, "text": "INSERT INTO noop SELECT id FROM a", **SINKS}),
    ]


@draw_cases(40)
@given(st.data())
@pytest.mark.filterwarnings("ignore")
def test_whatever_is_passed_the_error_is_ours(ticks: DataFrame, rows: DataFrame, data: st.DataObject) -> None:
    function, arguments = data.draw(st.sampled_from(list_calls(ticks, rows)))
    names = [
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.kind is not one.VAR_KEYWORD
    ]
    name, value = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(WRONG))
    with suppress(th.ThetastreamError):
        function(**{**arguments, name: value})


def test_frames_that_are_given_one_by_one(rows: DataFrame) -> None:
    for given_by_name in [{}, {"on": "a.id = b.id"}]:
        with pytest.raises(
            th.QueryError, match=r"\[STREAMS\] join takes its DataFrames as one mapping of alias"
        ):
            th.join(rows, rows, **given_by_name)  # type: ignore[arg-type]


def test_a_frame_of_pandas_on_spark(rows: DataFrame) -> None:
    with pytest.raises(th.QueryError, match=r"\[STREAMS\] stream 'b' is a frame of .*; give b\.to_spark\(\)"):
        th.join({"a": rows, "b": rows.pandas_api()}, "a.id = b.id")  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("a.id = b.id AND", "AND must stand between two conditions"),
        ("OR a.id = b.id", "OR must stand between two conditions"),
        ("a.id = b.id && a.id > 1", "at or near '&'. Write AND"),
        ("id", r'is in the streams a, b; if it is to be equal, write "a\.id = b\.id"'),
        ("haversine(a.id, a.id, b.id, b.id) < 9", r"th\.within_metres\(\"a\.lat\", .*\) compares distances"),
    ],
)
def test_what_a_wrong_condition_should_be(rows: DataFrame, on: str, expected: str) -> None:
    with pytest.raises(th.QueryError, match=expected):
        th.join({"a": rows, "b": rows}, on)


def test_a_column_of_a_frame_does_not_name_its_stream(rows: DataFrame) -> None:
    expected = r'AMBIGUOUS_COLUMN.*write a\.id or b\.id, as in th\.col\("a\.id"\): a column of a DataFrame'
    with pytest.raises(th.QueryError, match=expected):
        th.join({"a": rows, "b": rows}, rows.id == rows.id)


@pytest.mark.parametrize(
    ("type_", "made"),
    [
        ("STRING", r'F\.col\("ts"\)\.cast\("timestamp"\)'),
        ("BIGINT", r'F\.timestamp_seconds\("ts"\), or F\.timestamp_millis\("ts"\)'),
    ],
)
def test_an_event_time_that_is_no_time(rows: DataFrame, type_: str, made: str) -> None:
    frame = rows.selectExpr(f"CAST(id AS {type_}) AS ts")
    with pytest.raises(th.QueryError, match=rf"EVENT_TIME_TYPE.*not {type_}; compute one: .*{made}"):
        th.with_watermark(frame, "ts", "1 minute")


def test_a_misspelt_argument_of_local_session() -> None:
    with pytest.raises(th.QueryError, match=r"\[UNKNOWN_SETTING\] 'core' is no .*; did you mean 'cores'"):
        th.local_session(core=2)


def test_what_is_no_session() -> None:
    with pytest.raises(th.errors.SessionError, match=r"\[NO_SESSION\] th.configure takes .*, not None"):
        th.configure(None)  # type: ignore[call-overload]
