"""A Cassandra server for tests: one process of one node, from its Maven jars, with a keyspace."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.java_server import JavaServer, open_modules
from tests.support.maven import fetch_jars, find_free_port

CASSANDRA = "org.apache.cassandra:cassandra-all:5.0.2"
KEYSPACE = "tests"
_OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.management/com.sun.management.internal",
)
_LOGBACK = """\
<configuration>
  <appender name="output" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %level %logger %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="output"/></root>
</configuration>
"""


@contextmanager
def run_cassandra(jars: Path) -> Iterator[str]:
    """Start a server and yield its address. It ends with the block, and its folder is removed."""
    fetch_jars([CASSANDRA], jars)
    with tempfile.TemporaryDirectory(prefix="cassandra-", ignore_cleanup_errors=True) as folder:
        port = find_free_port()
        server = _make_server(Path(folder), jars, port)
        try:
            server.start(lambda: _makes_keyspace(port))
            yield f"cassandra://127.0.0.1:{port}/{KEYSPACE}"
        finally:
            server.kill()


def _make_server(folder: Path, jars: Path, port: int) -> JavaServer:
    storage_port = find_free_port()
    (folder / "cassandra.yaml").write_text(f"""\
cluster_name: tests
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
commitlog_sync: periodic
commitlog_sync_period: 10000ms
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage_port}
native_transport_port: {port}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "127.0.0.1:{storage_port}"}}]
""")
    (folder / "logback.xml").write_text(_LOGBACK)
    (agent,) = jars.glob("jamm-*.jar")
    options = [
        "-Xmx512m",
        f"-javaagent:{agent}",
        "-Djdk.attach.allowAttachSelf=true",
        f"-Dcassandra.storagedir={folder}",
        f"-Dcassandra.config=file://{folder}/cassandra.yaml",
        f"-Dlogback.configurationFile={folder}/logback.xml",
        "-Dcassandra-foreground=yes",
        "-Dcassandra.unsafesystem=true",
        "-Dcassandra.ring_delay_ms=0",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        *open_modules(*_OPENED),
    ]
    main = "org.apache.cassandra.service.CassandraDaemon"
    return JavaServer(main, (), options, f"{jars}/*", folder / "output")


def _makes_keyspace(port: int) -> bool:
    """Try to make the keyspace of the tests; return whether the server has answered."""
    from cassandra.cluster import Cluster, NoHostAvailable

    with Cluster(["127.0.0.1"], port) as cluster, suppress(NoHostAvailable):
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        statement = f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}"
        cluster.connect().execute(statement)
        return True
    return False
