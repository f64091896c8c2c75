"""``columns=`` leaves the other columns out of results and of blocks, and changes nothing else."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from thetastream.core.errors import QueryError

COLUMNS = {"A": ["id", "we ird"], "b": ["N"]}
"""Aliases and names are found in any case, as elsewhere."""
KEPT = ["struct(a.id, a.`we ird`) AS a", "struct(b.n) AS b"]


@th.predicate(a=["x"], b=["y"])
def same_parity(a: Any, b: Any) -> Any:
    return np.asarray(a.x) % 2 == np.asarray(b.y) % 2


@pytest.fixture(scope="module")
def left(spark: SparkSession) -> DataFrame:
    texts = ["id", "timestamp_seconds(id * 3) AS ts", "id % 7 AS x", "id AS `we ird`", "array(id) AS wide"]
    return spark.range(0, 40, 1, 1).selectExpr(*texts).localCheckpoint()


@pytest.fixture(scope="module")
def right(spark: SparkSession) -> DataFrame:
    texts = ["id AS n", "timestamp_seconds(id * 5) AS ts", "id % 5 AS y", "repeat('b', 50) AS wide"]
    return spark.range(0, 30, 1, 1).selectExpr(*texts).localCheckpoint()


def collect(rows: DataFrame) -> Counter[str]:
    return Counter(row[0] for row in rows.select(F.to_json(F.struct("*"))).collect())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("on", "options"),
    [
        ("a.x < b.y", {"model": th.Biclique(units=(1, 1))}),
        ("a.x < b.y AND coalesce(a.x, b.n) <> 3", {"how": "left", "model": th.Matrix(2, 1), "within": "20s"}),
        (["a.x <= b.y", same_parity], {"how": "full", "within": "20s", "model": th.Matrix(1, 1)}),
        ("a.x = b.y", {"how": th.Nearest(2, by="abs(a.id - b.n)"), "within": "20s"}),
        ("a.x < b.y", {}),  # one of the frames is staged, or it is Spark's own join
        ("a.x < b.y", {"model": "spark"}),
    ],
)
def test_batches(left: DataFrame, right: DataFrame, on: Any, options: dict[str, Any]) -> None:
    streams = {"a": left, "b": right}
    whole = th.join(streams, on, event_time="ts", **options)
    rest = [name for name in whole.columns if name not in streams]
    narrow = th.join(streams, on, event_time="ts", columns=COLUMNS, **options)
    assert narrow.select("a.*", "b.*").columns == ["id", "we ird", "n"]
    padded = [f"CASE WHEN {text[-1]} IS NOT NULL THEN {text[:-5]} END AS {text[-1]}" for text in KEPT]
    assert collect(narrow) == collect(whole.selectExpr(*padded, *rest))
    assert collect(narrow)


def test_semi_joins_have_one_alias(left: DataFrame, right: DataFrame) -> None:
    streams = {"a": left, "b": right}
    narrow = th.join(streams, "a.x < b.y", "20s", how="semi", event_time="ts", columns={"a": ["x"]})
    whole = th.join(streams, "a.x < b.y", "20s", how="semi", event_time="ts")
    assert collect(narrow) == collect(whole.selectExpr("struct(a.x) AS a", "result_time"))
    with pytest.raises(QueryError, match=r"UNKNOWN_ALIAS.*'b'"):
        th.join(streams, "a.x < b.y", "20s", how="semi", event_time="ts", columns={"b": ["n"]})


def stream(frame: DataFrame, folder: Path, key: str = "id") -> DataFrame:
    """Replay a frame in two epochs."""
    n = frame.count()
    made = replay(frame, [range(n // 2), range(n // 2, n)], folder, key)
    return made.withWatermark("ts", "0 seconds")


@pytest.mark.slow
def test_units_write_the_shown_columns_into_a_store(
    left: DataFrame, right: DataFrame, tmp_path: Path
) -> None:
    streams = {"a": stream(left.drop("wide"), tmp_path), "b": stream(right, tmp_path, "n")}
    plan = th.plan(streams, "a.x < b.y", "20s", columns=COLUMNS)
    assert plan.explain_write().startswith("units")
    store = th.ParquetStore(tmp_path / "pairs")
    query = th.write(plan, store, checkpoint=tmp_path / "checkpoint", trigger="available now")
    query.awaitTermination()
    whole = th.join({"a": left, "b": right}, "a.x < b.y", "20s", event_time="ts").selectExpr(
        *KEPT, "result_time"
    )
    found = left.sparkSession.createDataFrame(store.read()).selectExpr("a", "b", "result_time")
    assert store.read().schema.field("a").type.num_fields == 2
    assert collect(found) == collect(whole.selectExpr(*KEPT, "result_time"))


def test_results_of_changes_are_still_changes(left: DataFrame, right: DataFrame, tmp_path: Path) -> None:
    orders = th.changes(stream(left.selectExpr("*", "1 AS w"), tmp_path), sign="w")
    streams = {"a": orders, "b": stream(right, tmp_path, "n")}
    narrow = th.join(streams, "a.x < b.y", "20s", columns=COLUMNS)
    whole = th.join(streams, "a.x < b.y", "20s")
    marks = [(field.name, field.metadata) for field in whole.schema]
    assert [(field.name, field.metadata) for field in narrow.schema] == marks
    assert any(metadata for name, metadata in marks if name == "a")


@pytest.mark.slow
def test_a_pipeline_and_a_table_behind_it(left: DataFrame, right: DataFrame, tmp_path: Path) -> None:
    streams = {"a": stream(left, tmp_path), "b": stream(right, tmp_path, "n"), "c": stream(left, tmp_path)}
    table = right.withColumnRenamed("ts", "since")
    on = "a.x < b.y AND b.y < c.x AND c.x < t.y AND t.n < 9"
    asked = {"a": ["id"], "b": ["n"], "c": ["id"], "t": ["n"]}
    narrow = th.join({**streams, "t": table}, on, "9s", columns=asked)
    assert narrow.select("a.*", "b.*", "c.*", "t.*").columns == ["id", "n", "id", "n"]
    ids = ["a.id", "b.n", "c.id AS c", "t.n AS t"]
    found = outcome(narrow, [F.expr(text) for text in ids], tmp_path).rows
    whole = th.join({**streams, "t": table}, on, "9s")
    assert found == outcome(whole, [F.expr(text) for text in ids], tmp_path).rows
    assert found


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"c": ["id"]}, "UNKNOWN_ALIAS.*'c'.*a"),
        ({"a": ["idd"]}, "UNKNOWN_COLUMN.*'idd'.*id"),
        ({"a": "id"}, "BAD_VALUE.*lists of names"),
        ({"a": []}, "BAD_VALUE.*lists of names"),
        (["id"], "BAD_VALUE.*lists of names"),
    ],
)
def test_what_is_refused(left: DataFrame, right: DataFrame, columns: Any, rule: str) -> None:
    with pytest.raises(QueryError, match=rule):
        th.plan({"a": left, "b": right}, "a.x < b.y", columns=columns)
