"""A join behind a window behind a join: windows behind both joins have the rows of a nested loop."""

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.answer_streams import LEFT, RIGHT, ROWS, START, WITHIN_S, streams
from tests.support.streams import Outcome, outcome
from tests.support.truth import configured

WITHIN = timedelta(seconds=WITHIN_S)
FIRST, LAST = timedelta(seconds=10), timedelta(seconds=15)
"""The lengths of the windows behind the first and behind the second join."""


def find_end(time: datetime, length: timedelta) -> datetime:
    """Find the end of the window of this time."""
    return START + ((time - START) // length + 1) * length


def keep_timely(rows: list[Any], found: Outcome) -> list[Any]:
    def is_timely(row: Any) -> bool:
        return row["ts"] is not None and row["ts"].timestamp() * 1000 > found.late_ms(row["id"] // ROWS)

    return [row for row in rows if is_timely(row)]


def is_near(a: datetime, b: datetime) -> bool:
    return abs(a - b) <= WITHIN


@pytest.mark.slow
def test_windows_behind_two_joins(spark: SparkSession, tmp_path: Path) -> None:
    """A left join, a count of its rows in windows, a left join of the counts, and windows of its rows."""
    given = {alias: stream.where("ts IS NOT NULL") for alias, stream in streams(spark, tmp_path).items()}
    within = f"{WITHIN_S} seconds"
    first = th.join(given, on="a.x = b.x AND a.y > 1", within=within, how="left")
    counts = first.groupBy(F.window("result_time", f"{FIRST.seconds} seconds")).count()
    counts = counts.select(F.window_time("window").alias("ts"), "count")
    second = th.join({"w": counts, "b": given["b"]}, on="w.count > b.y", within=within, how="left")
    last = second.groupBy(F.window("result_time", f"{LAST.seconds} seconds"))
    columns = ["window.end", "rows", "partners", "ids"]
    ids = F.col("b.id")
    summed = last.agg(F.count("*").alias("rows"), F.count(ids).alias("partners"), F.sum(ids).alias("ids"))
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        found = outcome(summed, columns, tmp_path)
    left, right = keep_timely(LEFT, found), keep_timely(RIGHT, found)
    until = datetime.fromtimestamp(max(found.watermarks_ms.values()) / 1000)
    # 1. The first join, and the windows that the last watermark has closed.
    ends: Counter[datetime] = Counter()
    for a in left:
        partners = [b for b in right if a["x"] is not None and a["x"] == b["x"] and a["y"] > 1]
        times = [max(a["ts"], b["ts"]) for b in partners if is_near(a["ts"], b["ts"])]
        ends.update(find_end(time, FIRST) for time in times or [a["ts"] + WITHIN])
    # 2. The second join, and its windows. A count has the last microsecond of its window as event time.
    windows: dict[datetime, list[int | None]] = {}
    for end, n in ends.items():
        time = end - timedelta(microseconds=1)
        if end > until:
            continue
        partners = [b for b in right if n > b["y"] and is_near(time, b["ts"])]
        rows = [(max(time, b["ts"]), b["id"]) for b in partners] or [(time + WITHIN, None)]
        for result_time, id_ in rows:
            window = windows.setdefault(find_end(result_time, LAST), [0, 0, None])
            window[0] = (window[0] or 0) + 1
            if id_ is not None:
                window[1], window[2] = (window[1] or 0) + 1, (window[2] or 0) + id_
    assert found.rows == Counter((end, *window) for end, window in windows.items() if end <= until)
    assert any(row[1] > row[2] for row in found.rows)
    assert any(row[2] for row in found.rows)
