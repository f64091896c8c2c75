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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

KAFKA = "4.1.0"
START_S = 60
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>thetastream</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


def fetch_jars(coordinates: str, folder: Path) -> Path:
    """Copy an artifact of Maven and all that it needs into ``folder/jars``, once; return that folder.

    ``coordinates`` are ``group:artifact:version``. Raises CalledProcessError with Maven's own words if the
    artifact is not to be had.
    """
    jars = folder / "jars"
    if not (folder / ".complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        group, artifact, version = coordinates.split(":")
        (folder / "pom.xml").write_text(_POM.format(group=group, artifact=artifact, version=version))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*command, f"-DoutputDirectory={jars}"], cwd=folder, check=True, timeout=900)
        (folder / ".complete").touch()
    return jars


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
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(self._config)], stdout=output, stderr=output
            )
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

    def _admin(self, *arguments: str) -> None:
        self._run("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.servers, *arguments)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _java(self) -> list[str]:
        java = shutil.which("java") or os.path.join(os.environ["JAVA_HOME"], "bin", "java")
        return [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars}/*"]

    def _run(self, main: str, *arguments: str) -> None:
        done = subprocess.run([*self._java(), main, *arguments], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def run_broker(folder: Path, jars: Path) -> Iterator[Broker]:
    """Run a broker, and kill it in the end."""
    broker = Broker(folder, jars)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def find_free_port() -> int:
    """Find a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
