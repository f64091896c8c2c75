"""A cluster gives the same bag with speculative attempts, a killed worker, and links that drop."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import faults
from tests.support.cluster import StandaloneCluster
from tests.support.faults import Job, epochs, killed_at_the_end
from tests.support.network import Network

FILES, ROWS = 6, 150


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    started = StandaloneCluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    faults.write_streams(tmp_path, FILES, ROWS)
    return tmp_path


def log_events(folder: Path) -> dict[str, str]:
    """Return the settings that make Spark log its events into a folder."""
    (folder / "events").mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }


def read_events(folder: Path) -> str:
    return "".join(path.read_text() for path in (folder / "events").rglob("*") if path.is_file())


def wait_for_commits(job: Job, process: "subprocess.Popen[bytes]", number: int) -> None:
    while epochs(job.checkpoint, "commits") < number:
        assert process.poll() is None, job.output[-4000:]
        time.sleep(0.01)


@pytest.mark.slow
def test_speculative_attempts(cluster: StandaloneCluster, folder: Path) -> None:
    """Two attempts of one Spark task run at the same time on two hosts; the first to finish counts."""
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        **log_events(folder),
    }
    job = Job(str(folder), cluster.master, conf, faults={"5": "stall", "14": "stall"})
    job.finish()
    assert faults.read_committed(job.sink) == faults.oracle(folder)
    assert '"Speculative":true' in read_events(folder)


@pytest.mark.slow
def test_a_worker_killed_on_the_way(cluster: StandaloneCluster, folder: Path) -> None:
    job = Job(str(folder), cluster.master)
    worker = cluster.workers[0]
    with killed_at_the_end(job.start()) as process:
        wait_for_commits(job, process, 3)
        assert cluster.has_executor(worker)
        cluster.kill(worker)
        assert epochs(job.checkpoint, "commits") < FILES
        assert process.wait(900) == 0, job.output[-4000:]
    assert faults.read_committed(job.sink) == faults.oracle(folder)
    cluster.add_worker()


@pytest.mark.slow
def test_executors_come_and_go(cluster: StandaloneCluster, folder: Path) -> None:
    """Tasks that wait bring an executor, and an idle executor leaves. State goes where the tasks are.

    While one task of an epoch stalls, the other one waits for an executor, or has left its executor idle.
    """
    conf = {
        "spark.executor.cores": "1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "8s",
        **log_events(folder),
    }
    job = Job(str(folder), cluster.master, conf, faults={"5": "stall", "14": "stall"})
    job.finish()
    assert faults.read_committed(job.sink) == faults.oracle(folder)
    events = read_events(folder)
    assert events.count('"Event":"SparkListenerExecutorAdded"') >= 2
    assert '"Event":"SparkListenerExecutorRemoved"' in events


@pytest.mark.slow
def test_links_that_drop(folder: Path, tmp_path: Path) -> None:
    """Workers on hosts of their own: a link drops for a while, again and again, and one drops for good.

    A short cut delays what is sent. After a long one, Spark gives the executor up, and its tasks run again on
    the other host, although the first executor still runs and writes.
    """
    network = Network(2)
    try:
        cluster = StandaloneCluster(tmp_path / "cluster", network=network)
        conf = {
            "spark.driver.host": network.gateway,
            "spark.driver.bindAddress": network.gateway,
            "spark.executor.heartbeatInterval": "1s",
            "spark.network.timeout": "15s",
            "spark.network.timeoutInterval": "5s",
            **log_events(folder),
        }
        job = Job(str(folder), cluster.master, conf)
        try:
            with killed_at_the_end(job.start()) as process:
                wait_for_commits(job, process, 1)
                for host in (0, 1, 0):
                    network.cut(host)
                    time.sleep(2)
                    network.mend(host)
                    time.sleep(1)
                network.cut(1)
                assert process.wait(900) == 0, job.output[-4000:]
        finally:
            cluster.stop()
    finally:
        network.close()
    assert faults.read_committed(job.sink) == faults.oracle(folder)
    assert '"Event":"SparkListenerExecutorRemoved"' in read_events(folder)
