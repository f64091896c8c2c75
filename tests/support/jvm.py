"""The JVMs of the tests: their options, and their archive of the classes of Spark.

``make test`` writes the archive once for a virtual environment, by the joins of ``thetastream prepare``:

    python -m tests.support.jvm

The class path contains the path of Spark's home, so tests share the home of the archive.
"""

import os
import sys
from pathlib import Path

from thetastream.spark.session.jvm import ClassArchive
from thetastream.spark.session.workers import HOME

VARIABLE = "SPARK_SUBMIT_OPTS"
"""The environment variable with the options of a JVM that PySpark starts."""

# Every JVM here is young: optimising its code would cost more than it saves. Without the optimiser, a JVM
# keeps only 48 MB of compiled code by default; it drops code that does not fit, and compiles it again. Hadoop
# starts a process for each chmod and readlink, which VFORK makes cheaper.
OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
    " -Djdk.lang.Process.launchMechanism=VFORK"
)
ARCHIVE = ClassArchive(Path(sys.prefix) / "java-classes")


def configure_jvms() -> None:
    """Set the options of JVMs that start from now on, unless the environment has options or a home."""
    if VARIABLE in os.environ:
        return
    os.environ[VARIABLE] = OPTIONS
    if HOME not in os.environ and ARCHIVE.file.exists():
        os.environ[HOME] = str(ARCHIVE.home)
        os.environ[VARIABLE] = f"{OPTIONS} {ARCHIVE.write_option()}"


if __name__ == "__main__":
    from thetastream.app.cli.small import run_joins

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ[VARIABLE] = OPTIONS
    ARCHIVE.make(run_joins)
