"""A Kafka broker of its own for tests and for the demo: one process in KRaft mode, from its Maven jars.

folder/pom.xml, folder/jars/      the jars of broker and connector, copied by Maven with the user's settings
folder/broker/                    configuration, log directory and output of the broker
"""

import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.support.maven import fetch_jars, find_free_port
from tests.support.servers import start_server

KAFKA = "4.1.0"
NULL = "<null>"
START_S = 60
BROKER = (f"org.apache.kafka:kafka_2.13:{KAFKA}", f"org.apache.kafka:kafka-tools:{KAFKA}")
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"
AVRO = "org.apache.spark:spark-avro_2.13"
VERSIONS = (pyspark.__version__, "4.2.0", "4.1.1")
"""The versions of Spark's packages, in the order in which they are tried. Maven may lack the one of this
PySpark, and then an earlier one works too."""
_IN_PYSPARK = ("hadoop-", "scala-", "slf4j-", "snappy-", "lz4-", "jsr305-", "spark-tags")
"""Beginnings of the names of jars that the connector asks for and PySpark has."""


def fetch_connector(folder: Path) -> str:
    """Fetch Spark's connector and its reader of Avro; return the value of ``spark.jars``."""
    return f"{_fetch(CONNECTOR, folder, 'connector')},{_fetch(AVRO, folder, 'avro')}"


def _fetch(package: str, folder: Path, name: str) -> str:
    for version in VERSIONS:
        with suppress(subprocess.CalledProcessError):
            jars = fetch_jars([f"{package}:{version}"], folder / f"{name}-{version}")
            return ",".join(
                str(jar) for jar in sorted(jars.glob("*.jar")) if not jar.name.startswith(_IN_PYSPARK)
            )
    raise AssertionError(f"Maven has {package} in none of the versions {', '.join(VERSIONS)}")


@dataclass
class Broker:
    """One broker, which is its own controller. It keeps its topics when it is killed and started again."""

    folder: Path
    jars: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    _process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        self.port, controller = find_free_port(), find_free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "log"),
            "num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.folder / "log").exists():
            self._run(
                "kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c", str(self._config)
            )

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    @property
    def servers(self) -> str:
        """The value of ``kafka.bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        with (self.folder / "output").open("ab") as output:
            command = [*self._java(), "kafka.Kafka", str(self._config)]
            self._process = start_server(command, stdout=output, stderr=output)
        end = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError((self.folder / "output").read_text()[-3000:])
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def make_topics(self, *names: str, partitions: int = 2) -> None:
        """Make topics."""
        for name in names:
            self._admin("--create", "--topic", name, "--partitions", str(partitions))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic this many partitions."""
        self._admin("--alter", "--topic", name, "--partitions", str(partitions))

    def send(self, topic: str, values: Iterable[str | None]) -> None:
        """Send records, and wait until the broker has them. None is a record without value."""
        text = "".join(f"{NULL if value is None else value}\n" for value in values)
        options = ("--bootstrap-server", self.servers, "--topic", topic)
        self._run(
            "org.apache.kafka.tools.ConsoleProducer",
            *options,
            "--property",
            f"null.marker={NULL}",
            typed=text,
        )

    def receive(self, topic: str, n: int, timeout_s: float = 30) -> list[str]:
        """Read the first ``n`` values of a topic, of committed transactions only."""
        options = ["--bootstrap-server", self.servers, "--topic", topic, "--from-beginning"]
        options += ["--isolation-level", "read_committed", "--max-messages", str(n)]
        text = self._run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *options,
            "--timeout-ms",
            str(int(timeout_s * 1000)),
        )
        return text.splitlines()

    def _admin(self, *arguments: str) -> None:
        self._run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.servers, *arguments)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _java(self) -> list[str]:
        java = shutil.which("java") or os.path.join(os.environ["JAVA_HOME"], "bin", "java")
        return [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars}/*"]

    def _run(self, main: str, *arguments: str, typed: str = "") -> str:
        done = subprocess.run(
            [*self._java(), main, *arguments], input=typed, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout


@contextmanager
def run_broker(folder: Path, jars: Path) -> Iterator[Broker]:
    """Run a broker, and kill it in the end."""
    broker = Broker(folder, jars)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
