"""A Spark Master and its Workers as processes of this machine, each on an address of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from tests.support.faults import free_port
from tests.support.network import Network


class StandaloneCluster:
    """A Spark Master and its Workers of one core each.

    Every Worker has its own address, because Spark starts no speculative attempt on the host of the first
    attempt.

    Parameters
    ----------
    folder : Path
        The folder of logs and work directories.
    workers : int
        The number of Workers at the start.
    network : Network, optional
        The network whose hosts run the Workers: the first Worker runs on host 0. Without it, they have
        loopback addresses.
    """

    def __init__(self, folder: Path, workers: int = 2, network: Network | None = None) -> None:
        self._network = network
        self._home = Path(pyspark.__file__).parent
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log = folder / "cluster.log"
        folder.mkdir(parents=True, exist_ok=True)
        port, address = free_port(), "127.0.0.1" if network is None else network.gateway
        self.master = f"spark://{address}:{port}"
        self._launch([], "master.Master", address, "--port", str(port), "--webui-port", "0")
        for _ in range(workers):
            self.add_worker()

    def add_worker(self, timeout_s: float = 300) -> "subprocess.Popen[bytes]":
        """Start one more Worker; return when it has registered with the Master."""
        known, number = self._registered(), len(self._processes)
        folder = self._folder / f"worker{number}"
        prefix, address = [], f"127.0.0.{number}"
        if self._network is not None:
            prefix, address = self._network.enter(number - 1), self._network.address(number - 1)
        options = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder))
        process = self._launch(prefix, "worker.Worker", address, *options, self.master)
        end = time.monotonic() + timeout_s
        while self._registered() == known:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"worker did not start: {self._log.read_text()[-4000:]}")
            time.sleep(0.1)
        return process

    @property
    def workers(self) -> "list[subprocess.Popen[bytes]]":
        """The Workers that are alive."""
        return [process for process in self._processes[1:] if process.poll() is None]

    def has_executor(self, process: "subprocess.Popen[bytes]") -> bool:
        """Whether the Worker has started an executor."""
        number = self._processes.index(process)
        return any((self._folder / f"worker{number}").glob("app-*/*"))

    def kill(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill a Worker and the executors that it started with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End every process of the cluster."""
        for process in reversed(self._processes):
            self.kill(process)

    def _registered(self) -> int:
        return len(re.findall("Successfully registered with master", self._log.read_text()))

    def _launch(self, prefix: list[str], what: str, host: str, *arguments: str) -> "subprocess.Popen[bytes]":
        environment = os.environ | {
            "SPARK_LOCAL_IP": host,
            "SPARK_HOME": str(self._home),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        script = str(self._home / "bin" / "spark-class")
        command = [*prefix, script, f"org.apache.spark.deploy.{what}", "--host", host, *arguments]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self._processes.append(process)
        return process
