"""A Delta table beside a stream: versions of Delta are compared, and each epoch reads one of them.

Delta Lake has no jar for PySpark 4.3, so the test needs PySpark 4.2 (``make sweep PYSPARK=4.2.*``) and Maven.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.maven import fetch_jars

JARS = Path(__file__).parents[2] / "out" / "delta"
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
PROGRAM = """
import json, sys
from pathlib import Path
import thetastream as th
from thetastream.spark.tables.table import Table
root, jars = Path(sys.argv[1]), sys.argv[2]
spark = th.local_session(2, **{
    "spark.jars": jars,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
})
path, n_read, read = str(root / "t"), 0, Table.read
(root / "numbers").mkdir()


def count_and_read(self, session):
    global n_read
    n_read += 1
    return read(self, session)


def write(text, **options):
    frame = spark.range(3).selectExpr("id * 10 AS low", *text)
    frame.write.format("delta").mode("overwrite").options(**options).save(path)


def run(name):
    (root / "numbers" / f"{name}.csv").write_text("3\\n13\\n23\\n103\\n")
    writer = pairs.writeStream.foreachBatch(collect).option("checkpointLocation", str(root / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    last = th.versions(query)[-1]
    return name, last["version"], sorted(found)


def collect(batch, epoch):
    found[:] = [tuple(row) for row in batch.collect()]


def stage():
    try:
        return th.stage(table)[0]["version"]
    except th.QueryError as error:
        return error.condition


Table.read = count_and_read
write(["id * 10 + 5 AS high", "'first' AS name"])
table, found = th.Table(path, format="delta"), []
stream = spark.readStream.schema("x BIGINT").csv(str(root / "numbers"))
on = "a.x >= t.low AND a.x < t.high"
pairs = th.join({"a": stream, "t": table}, on, mailbox=str(root / "mail")).select("a.x", "t.name")
shown = [run("first")]
before = n_read
shown.append(("unchanged", stage(), n_read - before))
spark.sql(
    f"MERGE INTO delta.`{path}` t USING (SELECT 10L AS low, 19L AS high, 'merged' AS name UNION ALL "
    "SELECT 100L, 105L, 'new') s ON t.low = s.low WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED THEN INSERT *"
)
shown += [("merged", stage()), run("merged")]
spark.sql(f"OPTIMIZE delta.`{path}`")
shown.append(("the same rows in other files", stage()))
write(["string(id * 10 + 5) AS high", "'bad' AS name"], overwriteSchema="true")
shown += [("another type", stage()), run("another type")]
write(["id * 10 + 5 AS high", "'more' AS name", "1 AS column"], overwriteSchema="true")
shown += [("one more column", stage()), run("one more column")]
print(json.dumps(shown))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.skipif(not pyspark.__version__.startswith("4.2."), reason="Delta has a jar for PySpark 4.2")
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven fetches the jar of Delta")
def test_a_delta_table_is_followed_by_its_versions(tmp_path: Path) -> None:
    folder = fetch_jars([DELTA], JARS)
    # The other jars are those of PySpark.
    jars = ",".join(str(path) for part in ("delta", "unitycatalog") for path in folder.glob(f"{part}-*.jar"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), jars],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "THETASTREAM_TRACEBACK": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    merged = [[3, "first"], [13, "merged"], [23, "first"], [103, "new"]]
    assert json.loads(done.stdout.strip().splitlines()[-1]) == [
        ["first", 1, [[3, "first"], [13, "first"], [23, "first"]]],
        ["unchanged", 1, 0],
        ["merged", 2],
        ["merged", 2, merged],
        ["the same rows in other files", 2],
        ["another type", "TABLE_SCHEMA"],
        ["another type", 2, merged],
        ["one more column", 3],
        ["one more column", 3, [[3, "more"], [13, "more"], [23, "more"]]],
    ]
