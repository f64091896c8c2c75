"""All models give the same answer on Spark, and each model stores the tuples that it should store."""

from collections import Counter

import pytest

import thetastream as th
from tests.support.streams import outcome, replay
from thetastream.core.errors import QueryError
from thetastream.models import Biclique, Chain, Matrix, Split


def test_subgroups_need_an_equality_or_a_band(spark):
    frame = spark.range(3)
    with pytest.raises(QueryError, match="NOT_ROUTABLE"):
        th.plan({"a": frame, "b": frame}, on="a.id < b.id", model=Biclique(2, subgroups=2))


@pytest.mark.parametrize(
    ("model", "copies"),
    [
        pytest.param(Split(2), (1, 1), marks=pytest.mark.slow),
        pytest.param(Biclique((2, 3), (2, 2)), (1, 1), marks=pytest.mark.slow),
        pytest.param(Chain(3, fast_forward=True), (1, 1), marks=pytest.mark.slow),
        (Matrix(1, 3), (3, 1)),
    ],
    ids=repr,
)
def test_models_agree_on_streams_and_store_what_they_should(spark, tmp_path, model, copies):
    rows = [(n, n % 17, n * 37 % 50, float(n // 2)) for n in range(400)]
    frame = spark.createDataFrame(rows, "id INT, k INT, v INT, s DOUBLE").selectExpr(
        "id", "k", "v", "timestamp_seconds(s) AS ts"
    )
    ids = [list(range(n, n + 100)) for n in range(0, 400, 100)]
    ids[2].append(3)  # This tuple is late in that epoch.
    wanted = Counter(
        (a, b)
        for a, ak, av, at in rows
        for b, bk, bv, bt in rows
        if ak == bk and av >= bv and abs(at - bt) <= 60
    )
    streams = {alias: replay(frame, ids, tmp_path).withWatermark("ts", "10 seconds") for alias in "ab"}
    pairs = th.join(streams, on="a.k = b.k AND a.v >= b.v", within="60 seconds", model=model)
    found = outcome(pairs, ["a.id", "b.id"], tmp_path)
    assert found.rows == wanted
    assert sum(epoch["stored"] for epoch in found.metrics) == 400 * sum(copies)
    assert sum(epoch["late"] for epoch in found.metrics) == 2
