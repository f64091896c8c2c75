"""The Python of Spark's workers: chooses it for a local session, and checks it for a session that exists.

Spark starts its Python processes by ``python -m`` in the folder in which the session was started. They search
this folder for modules only if this process does (``thetastream.core.search_path``). Spark puts
``$SPARK_HOME/python/lib/pyspark.zip`` in front of their path. The zip file has no byte code, so each process
would compile PySpark again, which takes a second of CPU time. A streaming query starts two such processes,
and a session starts four. Therefore the JVM of a local session gets a home that links to all folders of the
installed PySpark except ``python``.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import WeakSet

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from thetastream.core.private_folder import make_temporary
from thetastream.core.search_path import (
    LAST_FOLDER,
    SAFE_PATH,
    find_current_folder,
    list_program_folders,
    write_search_path,
)
from thetastream.spark.session.memory import ARENAS, FEW_ARENAS
from thetastream.spark.session.worker_packages import (
    NEEDED,
    OURS,
    VARIABLE,
    WorkerPackages,
    find_cause,
    make_error,
)
from thetastream.spark.sources.identity import read_identity

SETTING = "spark.pyspark.python"
OF_WORKERS = "spark.executorEnv."
"""The prefix of settings that are environment variables of workers."""
_CHECKED: "WeakSet[SparkSession]" = WeakSet()
_WARM: "WeakSet[SparkSession]" = WeakSet()
HOME = "SPARK_HOME"


def choose_worker_python(options: Mapping[str, object]) -> None:
    """Let the workers of a local session run the Python of this process, unless another one is named.

    Spark starts ``python3``, which may be another Python if the virtual environment is not active. On a
    cluster the path of this Python may not exist, so nothing is set there.

    Parameters
    ----------
    options : mapping
        The options of the builder of the session.
    """
    if becomes_local(options) and SETTING not in options:
        os.environ.setdefault(VARIABLE, sys.executable)


def list_search_settings(options: Mapping[str, object]) -> dict[str, str]:
    """List the settings by which workers do not search the folder in which they start.

    On a cluster, the folders of this program may not exist, so only local workers get them.

    Parameters
    ----------
    options : mapping
        The options of the builder of the session. Settings that it has are left out.
    """
    settings = {OF_WORKERS + SAFE_PATH: "1"}
    if becomes_local(options):
        settings[OF_WORKERS + "PYTHONPATH"] = write_search_path(list_program_folders())
        current = find_current_folder()
        if current is not None:
            settings[OF_WORKERS + LAST_FOLDER] = current
    return {name: value for name, value in settings.items() if name not in options}


@contextmanager
def prepare_environment() -> Iterator[None]:
    """Let a JVM that starts inside this block have few arenas of memory, and no current folder on the path.

    Spark looks for the data sources of installed packages in a Python process that gets no variables of
    workers. This process must not load modules of the current folder.
    """
    with set_variables({SAFE_PATH: "1", ARENAS: os.environ.get(ARENAS, FEW_ARENAS)}):
        yield


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables of the environment inside this block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def becomes_local(options: Mapping[str, object]) -> bool:
    """Whether a builder with these options starts a local session, or a local server of Spark Connect."""
    if "spark.remote" in options:
        return str(options["spark.remote"]).startswith("local")
    master = str(options.get("spark.master", ""))
    # Without a master, Spark is local unless spark-submit or a configuration folder says otherwise.
    elsewhere = ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME", "MASTER")
    return master.startswith("local") if master else not any(name in os.environ for name in elsewhere)


def may_be_set_elsewhere(key: str) -> bool:
    """Whether ``spark-submit``, or Spark's folder of settings, may set a key of a session of this process.

    The options of a builder take precedence over both. What a running ``spark-submit`` has set is not known
    before its session starts.
    """
    home = os.environ.get(HOME) or Path(pyspark.__file__).parent
    texts = [os.environ.get("PYSPARK_SUBMIT_ARGS", "")]
    with suppress(OSError):
        folder = os.environ.get("SPARK_CONF_DIR") or f"{home}/conf"
        texts.append(Path(folder, "spark-defaults.conf").read_text(errors="replace"))
    return "PYSPARK_GATEWAY_PORT" in os.environ or any(key in text for text in texts)


def check_workers(spark: SparkSession) -> None:
    """Run one small task in a Python worker, once per session.

    Raises
    ------
    SessionError
        WORKER_PYTHON if a worker cannot start, has another version of Python, or lacks a package, or if it
        has Thetastream from an artifact of Spark Connect, which streaming queries do not get.
    """
    if spark in _CHECKED:
        return
    needed, ours = NEEDED, OURS

    @F.udf("missing ARRAY<STRING>, origin STRING, folder STRING, files ARRAY<STRING>", useArrow=False)  # type: ignore[untyped-decorator, unused-ignore]
    def find_packages(_: int) -> tuple[list[str], str | None, str, list[str]]:
        import importlib.util
        import os

        from pyspark import SparkFiles

        # A folder without a module, as of leftover data files, has a specification without a file.
        specs = {name: importlib.util.find_spec(name) for name in needed}
        origins = {name: spec.origin for name, spec in specs.items() if spec is not None and spec.origin}
        folder = os.path.abspath(SparkFiles.getRootDirectory())
        return (
            [name for name in needed if name not in origins],
            os.path.abspath(origins[ours]) if ours in origins else None,
            folder,
            os.listdir(folder) if os.path.isdir(folder) else [],
        )

    try:
        found = spark.range(1).select(find_packages("id")).collect()[0][0]
    except (PySparkException, Py4JJavaError) as error:
        raise make_error(find_cause(str(error))) from None
    fault = WorkerPackages(*found).find_fault(type(spark).__module__.startswith("pyspark.sql.connect"))
    if fault is not None:
        raise fault
    _CHECKED.add(spark)


def warm_up_workers(spark: SparkSession) -> None:
    """Start the Python workers of a session, once per session, and do not wait for them.

    A small task starts those of tasks. To load our libraries takes two seconds of CPU time, and the first
    epoch of a join would wait for it. The source of identities starts those that plan a data source, for
    which the first join would wait another second. Meanwhile, the program reads its streams. If the workers
    cannot start, the first query says so.
    """
    if spark in _WARM:
        return
    _WARM.add(spark)

    def run_task() -> None:
        with suppress(Exception):
            spark.range(1).mapInArrow(lambda batches: batches, "id LONG").collect()

    def plan_source() -> None:
        with suppress(Exception):
            read_identity(spark, {}, (), False)

    for start in (run_task, plan_source):
        InheritableThread(start, daemon=True).start()


@contextmanager
def spark_home_without_zip(options: Mapping[str, object], home: Path | None = None) -> Iterator[None]:
    """Let a JVM that starts inside this block have a home without PySpark's zip file.

    Nothing changes if ``SPARK_HOME`` is set, or if the workers may lack an installed PySpark.

    Parameters
    ----------
    options : mapping
        The options of the builder of the session.
    home : Path, optional
        A folder with the links. Without it, one is made that is removed at exit.
    """
    if HOME in os.environ or not has_installed_pyspark(options):
        yield
        return
    with set_variables({HOME: str(home or link_home(Path(pyspark.__file__).parent))}):
        yield


def has_installed_pyspark(options: Mapping[str, object]) -> bool:
    """Whether the workers run the Python of this process, and PySpark is installed in it."""
    is_same_python = SETTING not in options and os.environ.get(VARIABLE) == sys.executable
    return is_same_python and Path(pyspark.__file__).parents[1] == Path(sysconfig.get_path("purelib"))


def link_home(installed: Path) -> Path:
    """Make a folder that links to everything in a Spark home except ``python``; it is removed at exit."""
    home = make_temporary("thetastream-spark-home-")
    link_folders(installed, home)
    return home


def link_folders(installed: Path, home: Path) -> None:
    """Put the missing links into ``home``: to everything in the installed PySpark except ``python``."""
    for entry in installed.iterdir():
        link = home / entry.name
        if entry.name != "python" and not link.is_symlink():
            link.symlink_to(entry)
