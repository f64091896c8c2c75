"""The JVMs of the tests: their options, and an archive of the classes of Spark.

Without the archive, every JVM searches almost 300 jars for each of the 20,000 classes that a join needs, and
reads, checks and parses it: half of the CPU time of a JVM that runs a few joins. Java can write the parsed
classes to an archive, and later JVMs map it into memory. ``make test`` makes the archive once for a virtual
environment:

    python -m tests.support.jvm

A JVM whose version or class path differs ignores the archive. The class path contains the path of Spark's
home, so tests share a home that stays where it is.
"""

import os
import sys
import tempfile
from pathlib import Path

import pyspark

from thetastream.spark.spark_home import HOME, link_folders

VARIABLE = "SPARK_SUBMIT_OPTS"
"""The environment variable with the options of a JVM that PySpark starts."""

# Every JVM here is young: optimising its code would cost more than it saves. Without the optimiser, a JVM
# keeps only 48 MB of compiled code by default; it drops code that does not fit, and compiles it again. Hadoop
# starts a process for each chmod and readlink, which VFORK makes cheaper.
OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)
FOLDER = Path(sys.prefix) / "java-classes"
SPARK_HOME, ARCHIVE = FOLDER / "home", FOLDER / "classes.jsa"
QUIET = "-Xlog:cds*=off"
"""No message about an archive that does not fit, or about classes that an archive cannot contain."""


def configure_jvms() -> None:
    """Set the options of JVMs that start from now on, unless the environment has options or a home."""
    if VARIABLE not in os.environ and HOME not in os.environ and ARCHIVE.exists():
        start_with(f"-XX:SharedArchiveFile={ARCHIVE}")
    os.environ.setdefault(VARIABLE, OPTIONS)


def start_with(archive: str) -> None:
    """Let JVMs that start from now on read or write the archive, from the home that it belongs to."""
    os.environ[HOME] = str(SPARK_HOME)
    os.environ[VARIABLE] = f"{OPTIONS} {archive} {QUIET}"


def make_archive() -> None:
    """Run joins in a JVM that writes its classes to the archive when it ends."""
    SPARK_HOME.mkdir(parents=True, exist_ok=True)
    link_folders(Path(pyspark.__file__).parent, SPARK_HOME)
    made = ARCHIVE.with_suffix(".new")
    start_with(f"-XX:ArchiveClassesAtExit={made}")
    run_joins()
    # A JVM that cannot write an archive, such as OpenJ9, ends without one, and tests run without it.
    if made.exists():
        made.replace(ARCHIVE)


def run_joins() -> None:
    """Run a batch join, and a stream with groups and windows, in a session of its own; wait for its JVM."""
    from pyspark import SparkContext

    import thetastream as th
    from tests.support import truth
    from tests.support.fast_checkpoints import CHECKPOINT_FILES
    from tests.support.streams import outcome, replay

    spark = th.local_session(2, "classes", **{"spark.sql.timeType.enabled": True}, **CHECKPOINT_FILES)
    a, b = truth.frames(spark)
    truth.agree(a, b, ["a.x = b.x AND a.y > b.y", "abs(a.d - b.d) <= 0.1", "a.s < b.s AND a.x <> b.x"])
    rows = spark.range(40).selectExpr("id", "id % 7 AS k", "timestamp_seconds(id) AS ts")
    with tempfile.TemporaryDirectory() as folder:
        stream = replay(rows, [range(20), range(20, 40)], folder).withWatermark("ts", "2 seconds")
        statement = (
            "SELECT ONLINE a.k, count(*) FROM a, b WHERE a.k = b.k WITHIN 5 seconds "
            "GROUP BY a.k, window(result_time, '3 seconds')"
        )
        outcome(th.sql(spark, statement, {"a": stream, "b": stream}), ["*"], folder)
        pairs = th.join({"a": stream, "b": stream}, "a.k < b.k", "5 seconds", th.Biclique((1, 2)))
        outcome(pairs, ["a.id", "b.id"], folder)
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    make_archive()
