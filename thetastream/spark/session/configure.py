"""Configures a Spark session for joins, and checks whether a session is configured.

The table ``REQUIRED`` lists the settings and the reason for each. All of them are set through ``spark.conf``,
so a Spark Connect session is configured in the same way as a classic one.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import cast, overload

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from thetastream.core.arguments import describe_given
from thetastream.core.errors import QueryError, SessionError, shows_tracebacks, suggest
from thetastream.core.private_folder import make_temporary
from thetastream.lowering.query import warn_caller
from thetastream.results.writer import PARTITIONS
from thetastream.spark.session.failure import list_loggers, show_failures_shortly
from thetastream.spark.session.java import choose_java
from thetastream.spark.session.jvm import find_archive, launch_without_secrets, without_chatter
from thetastream.spark.session.memory import (
    DRIVER_MEMORY,
    EXECUTOR_MEMORY,
    VARIABLE,
    choose_driver_memory,
    read_machine_bytes,
    warn_of_tasks,
)
from thetastream.spark.session.workers import (
    becomes_local,
    check_workers,
    choose_worker_python,
    list_search_settings,
    may_be_set_elsewhere,
    prepare_environment,
    spark_home_without_zip,
    warm_up_workers,
)
from thetastream.spark.session.zones import TIME_ZONE, refuse_unknown_zone

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOCAL_FOLDER = "spark.local.dir"
TEMPORARY = "-Djava.io.tmpdir"
DAEMON = "spark.python.daemon.module"
SHORT_TRACEBACKS = "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK"
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
WITH_FEW_PROCESSES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""How a local session writes the files of checkpoints.

Without its native library, which PySpark does not have, Hadoop starts processes to set the mode of a local
file and to look for links. Spark prefers its interface FileContext, by which a file takes ten processes, and
an epoch writes a dozen files. By the interface FileSystem, a file takes two, and Hadoop compares it with its
checksum when it reads it. But this interface keeps a file that it should replace, and says nothing. In
checkpoints of format 2, no file is written twice: names of state have a random part, and entries of logs must
not be replaced.
"""
LOGGING = Path(__file__).with_name("log4j2.properties")

REQUIRED: dict[str, str] = {
    # transformWithStateInPandas runs only on this provider.
    PROVIDER: ROCKSDB,
    # An epoch then commits only its changes. Without this setting, it would upload whole RocksDB files.
    CHANGELOG: "true",
    # In format 2, each attempt of a Spark task writes its own changelog file, and the commit names the valid
    # one. In format 1, two attempts that both finish (speculation, or a worker that only seemed dead)
    # overwrite each other's file, and a manifest could be restored with the segments of the other attempt.
    CHECKPOINT_FORMAT: "2",
    # Spark runs equal exchanges of one query once. It carries the watermark along the nodes of the plan, so a
    # stateful operator behind the second exchange never gets a watermark: the union of an aggregated stream
    # with itself silently loses half of its rows. Two joins of one stream have equal exchanges as well.
    "spark.sql.exchange.reuse": "false",
    # th.metrics reads the recent progress. Spark's default of 100 epochs covers only about a minute.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # This removes the limit in bytes. With a limit, Spark measures the Arrow batch again after every row,
    # which is a third of the JVM's work in a join. spark.sql.execution.arrow.maxRecordsPerBatch still limits
    # a batch, and thetastream.spark.dataflow.wide_rows lets this limit bound the bytes too.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}

MEANING = (
    TIME_ZONE,
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
)
"""Settings that change the value of an expression.

If one of them changed between two runs, a probe would miss stored keys that were computed under the old
setting.
"""

MAX_PARTITIONS_PER_UNIT = 4
"""Maximum number of shuffle partitions per unit.

In every epoch, each partition costs a state commit and a call of Python, even if it contains no unit.
"""


_STARTING = Lock()
"""One thread starts a session at a time, because the standard error is redirected while a session starts."""


class ManyPartitionsWarning(UserWarning):
    """The session has many more shuffle partitions than the join has units, so epochs are slow."""


@overload
def configure(session_or_builder: SparkSession, partitions: int | None = None) -> SparkSession: ...
@overload
def configure(
    session_or_builder: SparkSession.Builder, partitions: int | None = None
) -> SparkSession.Builder: ...
def configure(
    session_or_builder: SparkSession | SparkSession.Builder, partitions: int | None = None
) -> SparkSession | SparkSession.Builder:
    """Set what a join needs on a session or on a builder, and return the session or the builder.

    ``partitions`` becomes ``spark.sql.shuffle.partitions``, the number of tasks over which the units are
    spread. If it is left out, it is the number of cores: those of this machine for a builder, those of Spark
    for a session. A query keeps the number with which it was first started, because Spark stores it in the
    checkpoint.

    On a builder of a local session, Python workers run the Python of this process, unless ``PYSPARK_PYTHON``
    or ``spark.pyspark.python`` names another one. On a session, one small task checks, once, that Python
    workers start and have the packages that a join needs. From then on, an error that stops a query is
    printed as one paragraph. ``THETASTREAM_TRACEBACK=1`` in the environment shows the tracebacks of Spark.

    A JVM needs 256 MiB for each task that it runs at a time. If ``spark.driver.memory`` of a local session,
    or ``spark.executor.memory`` of a cluster, is less, a ``SmallMemoryWarning`` says so. ``configure`` does
    not know how much a window holds. ``th.plan`` knows it if statistics are given, and warns then.

    Call this function in one thread, before other threads use the session.

    Raises
    ------
    SessionError
        INVALID_PARTITIONS if ``partitions`` is no positive integer. NO_SESSION if the first argument is
        neither a session nor a builder. WORKER_PYTHON if a Python worker of the session
        cannot start, has another version of Python, or lacks a package.
    QueryError
        BAD_VALUE if the time zone of a builder is none.

    Examples
    --------
    >>> import thetastream as th
    >>> builder = th.configure(SparkSession.builder.master("local[2]"), partitions=2)  # doctest: +SKIP
    """
    if partitions is not None and not (isinstance(partitions, int) and partitions >= 1):
        raise SessionError(
            "INVALID_PARTITIONS", f"partitions ({partitions!r}) must be an integer of at least 1"
        )
    if not hasattr(session_or_builder, "conf") and not hasattr(session_or_builder, "getOrCreate"):
        what = "th.configure takes a Spark session or SparkSession.builder"
        what += f", not {describe_given(session_or_builder)}"
        raise SessionError("NO_SESSION", what)
    show_failures_shortly()
    # isinstance would fail here, because a Spark Connect session and its builder are other classes.
    if hasattr(session_or_builder, "getOrCreate"):
        return _configure_builder(cast(SparkSession.Builder, session_or_builder), partitions)
    spark = session_or_builder
    for key, value in REQUIRED.items():
        spark.conf.set(key, value)
    cores = count_cores(spark)
    spark.conf.set(PARTITIONS, str(partitions or cores))
    names = (DRIVER_MEMORY, EXECUTOR_MEMORY, "spark.executor.cores")
    warn_of_tasks({name: spark.conf.get(name, None) for name in names}, cores, is_local(spark))
    check_workers(spark)
    return spark


def _configure_builder(builder: SparkSession.Builder, partitions: int | None) -> SparkSession.Builder:
    for key, value in REQUIRED.items():
        builder.config(key, value)
    builder.config(PARTITIONS, str(partitions or os.cpu_count() or 1))
    options: dict[str, str] = getattr(builder, "_options", {})
    refuse_unknown_zone(options.get(TIME_ZONE))
    # A local server of Spark Connect is a child of this process, and has its environment.
    choose_worker_python(options)
    if becomes_local(options):
        choose_java()
        if CHECKPOINT_FILES not in options and not may_be_set_elsewhere(CHECKPOINT_FILES):
            builder.config(CHECKPOINT_FILES, WITH_FEW_PROCESSES)
    if "spark.remote" in options:
        return builder
    for key, value in list_search_settings(options).items():
        builder.config(key, value)
    local = re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", options.get("spark.master", ""))
    if local:
        warn_of_tasks(options, int(local[1]), is_local=True)
    # A long conjunction is a deep expression tree, over which Catalyst recurses. The stack size can be set
    # only before the driver's JVM starts, so this is done for a builder and not for a session.
    java = options.get(JAVA_OPTIONS, "")
    if "-Xss" not in java:
        java = f"{java} -Xss8m".strip()
    if becomes_local(options):
        # Shuffle files hold tuples. The JVM also unpacks libraries of machine code, which others could change
        # in the common folder for temporary files if the umask of this process lets them.
        folder = make_temporary("thetastream-spark-")
        unpacked = folder / "java"
        unpacked.mkdir(mode=0o700)
        if TEMPORARY not in java:
            java = f"{TEMPORARY}={unpacked} {java}"
        if LOCAL_FOLDER not in options and "SPARK_LOCAL_DIRS" not in os.environ:
            builder.config(LOCAL_FOLDER, f"{folder}/local")
    builder.config(JAVA_OPTIONS, java)
    # The daemon starts before workers get the files that the session sends, of which one may be this package.
    if DAEMON not in options and "spark.submit.pyFiles" not in options:
        builder.config(DAEMON, "thetastream.spark.session.daemon")
    # Spark sets this variable for mapInArrow and not for stateful operators, and starts a daemon for each
    # environment. With the same environment, one daemon forks the workers of both.
    if SHORT_TRACEBACKS not in options:
        builder.config(SHORT_TRACEBACKS, "1")
    return builder


def count_cores(spark: SparkSession) -> int:
    """Find the number of Spark's cores without ``sparkContext``, which Spark Connect does not have."""
    configured = spark.conf.get("spark.default.parallelism", None)
    if configured:
        return int(configured)
    local = re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", spark.conf.get("spark.master", None) or "")
    if local:
        return int(local[1])
    # Spark cuts a range into one slice per core.
    slices = spark.range(4096).select(F.spark_partition_id().alias("slice"))
    return int(slices.agg(F.max("slice")).collect()[0][0]) + 1


def local_session(cores: int = 2, app_name: str = "thetastream", **conf: object) -> SparkSession:
    """Start a local Spark session that is configured for joins, or return the one that is running.

    ``conf`` adds settings or overrides them: ``local_session(2, **{"spark.driver.memory": "4g"})``.
    By default, the JVM gets a quarter of the memory of the machine, or of its container, but 1 GiB at least
    and 4 GiB at most. The environment variable ``SPARK_DRIVER_MEMORY`` gives it another size.
    The UI is off, and the log shows errors only. Spark's local files and the warehouse are in a temporary
    folder that only this user may enter, and that is removed at exit.
    The JVM maps the classes of Spark from an archive if ``thetastream prepare`` has made one. A small task
    starts the Python workers while the program goes on.

    Several threads may call this function. They get the same session.

    Raises
    ------
    SessionError
        INVALID_PARTITIONS if ``cores`` is no positive integer.
    QueryError
        UNKNOWN_SETTING if a name in ``conf`` does not begin with ``spark.``. BAD_VALUE if the time zone of
        the session is none.
    """
    if not (isinstance(cores, int) and cores >= 1):
        raise SessionError("INVALID_PARTITIONS", f"cores ({cores!r}) must be an integer of at least 1")
    for name in conf:
        if not name.startswith("spark."):
            what = f"{name!r} is no setting of Spark, because its name does not begin with 'spark.'"
            raise QueryError("UNKNOWN_SETTING", f"{what}{suggest(name, ['cores', 'app_name'])}")
    refuse_unknown_zone(conf.get(TIME_ZONE))
    with _STARTING:
        return _start_session(cores, app_name, conf)


def _start_session(cores: int, app_name: str, conf: dict[str, object]) -> SparkSession:
    logging = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
    if shows_tracebacks():
        logging += " -Dthetastream.stacks=full"
    else:
        # The exception says the same without its Java stack.
        for logger in list_loggers():
            logger.setLevel("CRITICAL")
    java = f"{logging} {conf.pop(JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.master(f"local[{cores}]").appName(app_name).config(JAVA_OPTIONS, java)
    settings: dict[str, object] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        # The machine's own name may not resolve if there is no name server or if the network changes.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(make_temporary("thetastream-warehouse-")),
        # Shuffle files stay on this machine, so compression costs more CPU time than it saves. Spark reads
        # the first checksums when it cannot decompress a file, and the second ones when it runs tasks again
        # whose files were lost with an executor. Here, the executor is the program.
        "spark.shuffle.compress": False,
        "spark.shuffle.checksum.enabled": False,
        "spark.sql.shuffle.orderIndependentChecksum.enabled": False,
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": False,
    }
    if VARIABLE not in os.environ:
        memory = conf.pop(DRIVER_MEMORY, None) or choose_driver_memory(read_machine_bytes())
        builder = builder.config(DRIVER_MEMORY, str(memory))
    builder = configure(builder, cores)
    for key, value in {**settings, **conf}.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else str(value))
    options = getattr(builder, "_options", {})
    archive = find_archive(options)
    if archive is not None:
        builder = builder.config(JAVA_OPTIONS, f"{options[JAVA_OPTIONS]} {archive.write_option()}")
    home = spark_home_without_zip(options, None if archive is None else archive.home)
    with without_chatter(), home, prepare_environment():
        launch_without_secrets(options)
        spark = builder.getOrCreate()
    warm_up_workers(spark)
    return spark


def count_partitions(spark: SparkSession) -> int:
    """Read the number of shuffle partitions of a session."""
    return int(spark.conf.get(PARTITIONS, None) or "2")


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names that differ by case only are different names in a session."""
    return (spark.conf.get("spark.sql.caseSensitive", None) or "").lower() == "true"


def choose_name_key(spark: SparkSession) -> Callable[[str], str]:
    """Return the function that gives all spellings of one name the same value.

    It is ``str.casefold``, or the identity if names that differ by case only are different names.
    """
    return str if is_case_sensitive(spark) else str.casefold


def is_local(spark: SparkSession) -> bool:
    """Whether all workers of a session run on this machine."""
    return (spark.conf.get("spark.master", "local") or "local").startswith("local")


def read_settings(spark: SparkSession, prefix: str) -> dict[str, str]:
    """Read the settings of a session whose keys begin with a text."""
    # On a classic session, each setting takes two calls to the JVM, and few sessions have one of ours.
    known = getattr(spark.conf, "_jconf", None)
    if known is not None and prefix not in known.getAllAsJava().toString():
        return {}
    return {key: value for key, value in spark.conf.getAll.items() if key.startswith(prefix)}


def read_meaning(spark: SparkSession) -> dict[str, str]:
    """Read the settings that change the values of expressions; they must not change for a checkpoint."""
    return {key: str(spark.conf.get(key)) for key in MEANING}


def check_session(spark: SparkSession, units: int) -> list[SessionError]:
    """List the problems of the session for a model of ``units`` units; it is empty if there are none.

    Too many shuffle partitions give a ``ManyPartitionsWarning``. They are no error, because a query that
    continues from a checkpoint does not use them.
    """
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
        warn_caller(
            f"{PARTITIONS} should be at most {limit} ({MAX_PARTITIONS_PER_UNIT} per unit), it is "
            f"{partitions}: every epoch pays a state commit for each; call "
            f"th.configure(spark, partitions={limit}). A query that continues from a checkpoint keeps the "
            "number of its first start",
            ManyPartitionsWarning,
        )
    return problems
