"""Groups over a subquery that is a join: units fold its results, as Spark groups the rows of the subquery."""

import pytest

import thetastream as th
from tests.support.groups import SCHEMA, answer_twice, draw_rows, list_groups


@pytest.fixture(scope="module")
def tables(spark):
    rows = {name: draw_rows(60, shift) for shift, name in enumerate("rs")}
    return {name: spark.createDataFrame(found, SCHEMA) for name, found in rows.items()}


JOIN = "FROM r, s WHERE abs(r.id - s.id) < 7 AND r.id % 5 <= s.id % 4 WITHIN 1 minute"
FOLDED = [
    "SELECT k, count(*), sum(v) FROM (SELECT r.k, r.n - s.id AS v, s.x {join}) AS q GROUP BY k",
    "SELECT upper(q.k) AS k, sum(Q.gap * 2) FILTER (WHERE gap > 1) AS gap, max(big) AS w"
    " FROM (SELECT r.k AS k, abs(r.id - s.id) + 1 gap, CASE WHEN s.b THEN s.wide END AS big {join}) q"
    " GROUP BY upper(q.k)",
    "SELECT day, many, count(*) AS amount FROM (SELECT r.day, s.id % 3 AS many {join}) q GROUP BY 1, many"
    " HAVING amount > 2",
    "SELECT window.start, sum(n) FROM (SELECT s.n, result_time AS t {join}) q"
    " GROUP BY window(t, '30 seconds')",
    "SELECT u, min(w) FROM (SELECT r.k AS u, s.wide AS w FROM r JOIN s USING (id)) q GROUP BY u",
]


def explain(spark, tables, text):
    return th.sql(spark, f"EXPLAIN {text}", tables).collect()[0][0]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("text", FOLDED)
def test_units_fold_the_results_of_a_subquery(spark, tables, text, monkeypatch):
    text = text.format(join=JOIN)
    explained = explain(spark, tables, text)
    assert "units fold" in explained
    assert "Subquery" not in explained
    views, pairs = answer_twice(spark, tables, text, monkeypatch)
    assert views.columns == pairs.columns
    wanted = list_groups(pairs)
    assert list_groups(views) == wanted
    assert wanted


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM (SELECT percentile(r.x, 0.5) AS p {join}) q",  # one row
        "SELECT count(*) FROM (SELECT explode(r.a) AS x {join}) q",
        "SELECT count(*) FROM (SELECT DISTINCT r.k {join}) q",
        "SELECT count(*) FROM (SELECT r.k {join} LIMIT 3) q",
        "SELECT k, count(*) FROM (SELECT r.k, s.x {join}) q WHERE x > 0 GROUP BY k",
        "SELECT k, count(*) AS n FROM (SELECT r.k {join}) q GROUP BY k ORDER BY n",
        "SELECT k, count(*) FROM (SELECT r.* {join}) q GROUP BY k",
        "SELECT k, skewness(x) FROM (SELECT r.k, s.x {join}) q GROUP BY k",
        "SELECT g AS b, count(*) FROM (SELECT r.k AS g {join}) q GROUP BY b",  # r and s have a column b
        "SELECT k, sum(n) AS n FROM (SELECT r.k, s.n {join}) q GROUP BY k HAVING n > 0",
        "SELECT k, count(*) FROM (SELECT r.k FROM r LEFT JOIN s ON r.id < s.id WITHIN 1 hour) q GROUP BY k",
        "SELECT n, count(*) FROM (SELECT r.k, count(*) AS n {join} GROUP BY r.k) q GROUP BY n",
    ],
)
def test_other_subqueries_are_grouped_by_spark(spark, tables, text, monkeypatch):
    text = text.format(join=JOIN)
    assert "Spark's own SELECT over one input" in explain(spark, tables, text)
    views, pairs = answer_twice(spark, tables, text, monkeypatch)
    assert list_groups(views) == list_groups(pairs)
