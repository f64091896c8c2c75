"""Lets the Python processes of a local session load the installed PySpark instead of its zip file.

Spark puts ``$SPARK_HOME/python/lib/pyspark.zip`` in front of the path of every Python process that it starts.
The zip file has no byte code, so each process compiles PySpark again, which takes a second of CPU time. A
streaming query starts two such processes, and a session starts four. Therefore the JVM of a local session
gets a home that links to all folders of the installed PySpark except ``python``.
"""

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from thetastream.spark.session.workers import SETTING, VARIABLE

HOME = "SPARK_HOME"


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
    os.environ[HOME] = str(home or link_home(Path(pyspark.__file__).parent))
    try:
        yield
    finally:
        del os.environ[HOME]


def has_installed_pyspark(options: Mapping[str, object]) -> bool:
    """Whether the workers run the Python of this process, and PySpark is installed in it."""
    is_same_python = SETTING not in options and os.environ.get(VARIABLE) == sys.executable
    return is_same_python and Path(pyspark.__file__).parents[1] == Path(sysconfig.get_path("purelib"))


def link_home(installed: Path) -> Path:
    """Make a folder that links to everything in a Spark home except ``python``; it is removed at exit."""
    home = Path(tempfile.mkdtemp(prefix="thetastream-spark-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    link_folders(installed, home)
    return home


def link_folders(installed: Path, home: Path) -> None:
    """Put the missing links into ``home``: to everything in the installed PySpark except ``python``."""
    for entry in installed.iterdir():
        link = home / entry.name
        if entry.name != "python" and not link.is_symlink():
            link.symlink_to(entry)
