"""An HBase server and its Thrift server for tests: two processes on one machine, from their Maven jars."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.java_server import JavaServer, open_modules
from tests.support.maven import fetch_jars, find_free_port

HBASE = "org.apache.hbase:hbase-thrift:2.6.1"
_OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
)


@contextmanager
def run_hbase(jars: Path) -> Iterator[str]:
    """Start the servers and yield the address of the Thrift server. They end with the block."""
    fetch_jars([HBASE], jars)
    with tempfile.TemporaryDirectory(prefix="hbase-", ignore_cleanup_errors=True) as folder:
        thrift_port = find_free_port()
        _write_settings(Path(folder))
        hbase = _make_server(Path(folder), jars, "master.HMaster", "start")
        options = ("-p", str(thrift_port), "-b", "127.0.0.1", "start")
        thrift = _make_server(Path(folder), jars, "thrift.ThriftServer", *options)
        try:
            hbase.start(lambda: (Path(folder) / "root" / "hbase.id").exists())
            thrift.start(lambda: _lists_tables(thrift_port))
            yield f"127.0.0.1:{thrift_port}"
        finally:
            thrift.kill()
            hbase.kill()


def _write_settings(folder: Path) -> None:
    settings = {
        "hbase.rootdir": f"file://{folder}/root",
        "hbase.tmp.dir": f"{folder}/tmp",
        "hbase.wal.provider": "filesystem",
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.cluster.distributed": "false",
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.zookeeper.property.clientPort": find_free_port(),
        "hbase.zookeeper.property.dataDir": f"{folder}/zookeeper",
        "hbase.master.hostname": "localhost",
        "hbase.master.port": find_free_port(),
        "hbase.master.info.port": -1,
        "hbase.regionserver.hostname": "localhost",
        "hbase.regionserver.port": find_free_port(),
        "hbase.regionserver.info.port": -1,
        "hbase.localcluster.assign.random.ports": "false",
        "hbase.thrift.info.port": -1,
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in settings.items()
    )
    (folder / "hbase-site.xml").write_text(f"<configuration>\n{properties}</configuration>\n")


def _make_server(folder: Path, jars: Path, main: str, *arguments: str) -> JavaServer:
    options = ["-Xmx512m", "-Djava.net.preferIPv4Stack=true", *open_modules(*_OPENED)]
    classpath, output = f"{folder}:{jars}/*", folder / f"{main}.output"
    return JavaServer(f"org.apache.hadoop.hbase.{main}", arguments, options, classpath, output)


def _lists_tables(port: int) -> bool:
    """Whether the Thrift server answers, and the server behind it."""
    import happybase
    from thriftpy2.thrift import TException

    try:
        connection = happybase.Connection("127.0.0.1", port, timeout=10_000)
        connection.tables()
    except (OSError, TException):
        return False
    connection.close()
    return True
