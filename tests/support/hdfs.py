"""An HDFS of its own for tests: a name node and a data node in one process, from the Maven jars of Hadoop."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.java_server import JavaServer
from tests.support.maven import fetch_jars, find_free_port
from tests.support.object_store import find_hadoop_version

MAIN = "org.apache.hadoop.mapreduce.MiniHadoopClusterManager"
PACKAGES = (
    f"org.apache.hadoop:hadoop-client-minicluster:{find_hadoop_version()}",
    "org.junit.jupiter:junit-jupiter-api:5.10.2",
    "org.slf4j:slf4j-simple:1.7.36",
)
"""Hadoop's cluster for tests calls JUnit, and names it only as an optional dependency."""


@contextmanager
def run_hdfs(jars: Path) -> Iterator[str]:
    """Run an empty HDFS and yield its URI. It ends with the block."""
    fetch_jars(PACKAGES, jars)
    with tempfile.TemporaryDirectory(prefix="hdfs-", ignore_cleanup_errors=True) as folder:
        settings = Path(folder) / "settings.xml"
        ports = ("-nnport", str(find_free_port()), "-nnhttpport", str(find_free_port()))
        arguments = ("-format", "-nomr", "-datanodes", "1", *ports, "-writeConfig", str(settings))
        options = ("-Xmx512m", f"-Dtest.build.data={folder}/data")
        server = JavaServer(MAIN, arguments, options, f"{jars}/*", Path(folder) / "output")
        try:
            server.start(lambda: settings.exists() and "</configuration>" in settings.read_text())
            (uri,) = re.findall(r"<name>fs\.defaultFS</name><value>([^<]+)", settings.read_text())
            yield uri
        finally:
            server.kill()
