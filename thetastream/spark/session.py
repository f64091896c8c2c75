"""What a Spark session needs so that the join runs, and how to tell when it lacks it.

The settings, each with its reason, are the table ``REQUIRED``; everything goes through ``spark.conf``, so
a Spark Connect session is configured the same way as a classic one.
"""

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast, overload

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from thetastream.errors import SessionError

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PARTITIONS = "spark.sql.shuffle.partitions"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DAEMON = "spark.python.daemon.module"

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOGGING = Path(__file__).with_name("log4j2.properties")

REQUIRED: dict[str, str] = {
    # transformWithStateInPandas runs on this provider alone.
    PROVIDER: ROCKSDB,
    # An epoch then commits what it changed; without it every commit uploads whole RocksDB files.
    CHANGELOG: "true",
    # A changelog file per task attempt, and the commit names the one that counts. In format 1 two
    # attempts that both finish (speculation, a worker believed dead) overwrite each other's file, and
    # a manifest could come back with the other attempt's segments.
    CHECKPOINT_FORMAT: "2",
    # th.metrics reads recent progress: 100 epochs, Spark's default, are over in a minute.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # No limit in bytes: Spark would measure the Arrow batch anew after every row, a third of all the
    # JVM's work in a join. spark.sql.execution.arrow.maxRecordsPerBatch still bounds a batch.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}

MEANING = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
)
"""Settings that change what an expression means: a key stored under one and probed under another is missed."""

MAX_PARTITIONS_PER_UNIT = 4
"""Every partition pays a state commit and a Python hand-over per epoch, units in it or not."""


@overload
def configure(session_or_builder: SparkSession, partitions: int | None = None) -> SparkSession: ...
@overload
def configure(
    session_or_builder: SparkSession.Builder, partitions: int | None = None
) -> SparkSession.Builder: ...
def configure(
    session_or_builder: SparkSession | SparkSession.Builder, partitions: int | None = None
) -> SparkSession | SparkSession.Builder:
    """Set what the join needs on a session or on a builder, and return it.

    ``partitions`` becomes ``spark.sql.shuffle.partitions``, the number of tasks the units are spread
    over; left out, it is the number of cores: this machine's for a builder, Spark's for a session.
    A query keeps the number it was first started with: Spark stores it in the checkpoint.

    >>> import thetastream as th
    >>> builder = th.configure(SparkSession.builder.master("local[2]"), partitions=2)  # doctest: +SKIP
    """
    if partitions is not None and partitions < 1:
        raise SessionError("INVALID_PARTITIONS", f"partitions ({partitions}) must be at least 1")
    # Not isinstance: a Spark Connect session and its builder are classes of their own.
    if hasattr(session_or_builder, "getOrCreate"):
        return _configure_builder(cast(SparkSession.Builder, session_or_builder), partitions)
    spark = session_or_builder
    for key, value in REQUIRED.items():
        spark.conf.set(key, value)
    spark.conf.set(PARTITIONS, str(partitions or parallelism(spark)))
    return spark


def _configure_builder(builder: SparkSession.Builder, partitions: int | None) -> SparkSession.Builder:
    for key, value in REQUIRED.items():
        builder.config(key, value)
    builder.config(PARTITIONS, str(partitions or os.cpu_count() or 1))
    options: dict[str, str] = getattr(builder, "_options", {})
    if "spark.remote" in options:
        return builder
    # A long conjunction is a deep expression tree, and Catalyst recurses over it. This works only before
    # the driver's JVM starts, hence on a builder and never on a session.
    java = options.get(JAVA_OPTIONS, "")
    if "-Xss" not in java:
        builder.config(JAVA_OPTIONS, f"{java} -Xss8m".strip())
    if DAEMON not in options:
        builder.config(DAEMON, "thetastream.spark.daemon")
    return builder


def parallelism(spark: SparkSession) -> int:
    """Cores Spark runs on, learned without ``sparkContext``, which Spark Connect does not have."""
    configured = spark.conf.get("spark.default.parallelism", None)
    if configured:
        return int(configured)
    local = re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", spark.conf.get("spark.master", None) or "")
    if local:
        return int(local[1])
    # A range is cut into one slice per core.
    slices = spark.range(4096).select(F.spark_partition_id().alias("slice"))
    return int(slices.agg(F.max("slice")).collect()[0][0]) + 1


def local_session(cores: int = 2, app_name: str = "thetastream", **conf: object) -> SparkSession:
    """Start (or find) a local Spark session that is configured for joins and leaves no litter behind.

    ``conf`` adds to the settings or overrides them: ``local_session(2, **{"spark.driver.memory": "4g"})``.
    The UI is off, the log shows errors only, and the warehouse is a temporary folder.
    """
    # Spark starts Python workers by name; in a virtual environment that is not active it would find another.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warehouse = tempfile.mkdtemp(prefix="thetastream-warehouse-")
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    logging = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    java = f"{logging} {conf.pop(JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.master(f"local[{cores}]").appName(app_name).config(JAVA_OPTIONS, java)
    settings: dict[str, object] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        # Without a name server, or on a network that changes, the machine's own name may not resolve.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": warehouse,
    }
    builder = configure(builder, cores)
    for key, value in {**settings, **conf}.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()


@contextmanager
def stderr_into(path: str | Path) -> Iterator[None]:
    """Let processes started meanwhile write their standard error to ``path``.

    Spark's JVM and its Python workers keep it for life: what they print would tear a command's output apart.
    """
    saved = os.dup(2)
    try:
        with Path(path).open("ab") as file:
            os.dup2(file.fileno(), 2)
            yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def meaning(spark: SparkSession) -> dict[str, str]:
    """The settings under which the query's expressions are evaluated; a checkpoint belongs to them."""
    return {key: str(spark.conf.get(key, "not set")) for key in MEANING}


def check_session(spark: SparkSession, units: int) -> list[SessionError]:
    """List what is wrong with the session for a model of ``units`` units; empty when nothing is."""
    problems = []
    provider = spark.conf.get(PROVIDER, "") or ""
    if provider.rsplit(".", 1)[-1] != "RocksDBStateStoreProvider":
        problems.append(
            SessionError(
                "STATE_STORE_PROVIDER",
                f"{PROVIDER} must be {ROCKSDB}, it is {provider or 'not set'}: "
                "stateful Python operators run on no other; call th.configure(spark)",
            )
        )
    changelog = spark.conf.get(CHANGELOG, "false") or "false"
    if changelog.lower() != "true":
        problems.append(
            SessionError(
                "CHANGELOG_CHECKPOINTING",
                f"{CHANGELOG} must be true, it is {changelog}: "
                "every epoch would upload whole RocksDB files; call th.configure(spark)",
            )
        )
    checkpoint_format = spark.conf.get(CHECKPOINT_FORMAT, "1") or "1"
    if int(checkpoint_format) < 2:
        problems.append(
            SessionError(
                "CHECKPOINT_FORMAT",
                f"{CHECKPOINT_FORMAT} must be 2, it is {checkpoint_format}: "
                "two attempts of one task could mix their state; call th.configure(spark)",
            )
        )
    partitions = int(spark.conf.get(PARTITIONS, "200") or "200")
    limit = MAX_PARTITIONS_PER_UNIT * units
    if partitions > limit:
        problems.append(
            SessionError(
                "SHUFFLE_PARTITIONS",
                f"{PARTITIONS} must be at most {limit} ({MAX_PARTITIONS_PER_UNIT} per unit), "
                f"it is {partitions}: every epoch pays a state commit for each; "
                f"call th.configure(spark), or th.configure(spark, partitions={limit})",
            )
        )
    return problems
