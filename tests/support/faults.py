"""Joins that are killed while they run.

A ``Job`` describes a small stream-stream join: its input and output, its master and settings, and the calls
of its predicate that fail. It runs in a separate process, so that a test can kill all of it. The test reads
the answer from the files that the sink has committed:

    { (a.id, b.id) : |a.x - b.x| <= 3, a.y > b.y, |a.ts - b.ts| <= 20 s }

A left or anti join also has (a.id, NULL) for each tuple without partners that the last watermark decides.
A job may have a part of the condition that only Spark evaluates, so that second units answer the tuples.
"""

import contextlib
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from tests.support.jumping_clock import follow
from thetastream.conditions import Predicate, predicate
from thetastream.core.how import JoinKind
from thetastream.spark.session.workers import HOME, link_home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from thetastream.models.base import Model

ROOT = Path(__file__).parents[2]
BAND = 3
WITHIN_S = 20
FILE_S = 5
"""The event time that one file of a stream spans."""
JITTER_S = 2
"""The disorder inside a file. It is smaller than the watermark delay, so that no tuple is late."""
DELAY = "3 seconds"
RESIDUAL = "(a.id + b.id) % 3 > 0"
SCHEMA = "id BIGINT, x BIGINT, y BIGINT, ts TIMESTAMP"


# Input and expected answer


def write_streams(folder: Path, files: int, rows: int, seed: int = 1) -> None:
    """Write ``files`` Parquet files of ``rows`` tuples for each of the streams ``a`` and ``b``, one per
    epoch."""
    rng = np.random.default_rng(seed)
    for alias in "ab":
        (folder / alias).mkdir(parents=True)
        for number in range(files):
            seconds = number * FILE_S + rng.uniform(0, FILE_S, rows) - rng.uniform(0, JITTER_S, rows)
            table = pa.table(
                {
                    "id": pa.array(np.arange(number * rows, (number + 1) * rows)),
                    "x": pa.array(rng.integers(0, 300, rows)),
                    "y": pa.array(rng.integers(0, 100, rows)),
                    "ts": pa.array((1_700_000_000_000_000 + seconds * 1e6).astype("int64")).cast(
                        pa.timestamp("us", "UTC")
                    ),
                }
            )
            path = folder / alias / f"{number:06d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark's file source reads the oldest first


def add_empty_files(folder: Path) -> None:
    """Write a file without tuples for each stream, which brings one more epoch."""
    for alias in "ab":
        last = max((folder / alias).glob("*.parquet"))
        table = pq.read_table(last).slice(0, 0)
        pq.write_table(table, last.with_name(f"{int(last.stem) + 1:06d}.parquet"))


Row = tuple[int, int | None]
"""The ids of a and b. None stands for the partner of a tuple without one."""


def oracle(
    folder: Path, within_s: int = WITHIN_S, how: str = "inner", has_residual: bool = False
) -> Counter[Row]:
    """Compute the bag of (a.id, b.id) by a nested loop over all tuples of both streams."""
    a, b = (pq.read_table(folder / alias).sort_by("id") for alias in "ab")
    ax, ay, at, bx, by, bt = (
        table[name].cast(pa.int64()).to_numpy() for table in (a, b) for name in ("x", "y", "ts")
    )
    found: Counter[Row] = Counter()
    delay_us = int(DELAY.split()[0]) * 1_000_000
    watermark_us = min(at.max(), bt.max()) // 1000 * 1000 - delay_us
    for row in range(len(ax)):
        within = np.abs(at[row] - bt) <= within_s * 1_000_000
        matches = (np.abs(ax[row] - bx) <= BAND) & (ay[row] > by) & within
        if has_residual:
            matches &= (row + np.arange(len(bx))) % 3 > 0
        partners = np.flatnonzero(matches)
        if how != "anti":
            found.update((row, int(partner)) for partner in partners)
        if how != "inner" and not len(partners) and at[row] + within_s * 1_000_000 <= watermark_us:
            found[row, None] += 1
    return found


def read_committed(sink: Path, columns: Sequence[str] = ("a", "b")) -> Counter[Any]:
    """Read the bag of results from the files that the log of a Parquet file sink lists as committed."""
    paths = set()
    for log in (sink / "_spark_metadata").glob("[0-9]*"):
        paths |= {json.loads(line)["path"] for line in log.read_text().splitlines()[1:]}
    found: Counter[Any] = Counter()
    for path in sorted(paths):
        table = pq.read_table(path.removeprefix("file://"), columns=[*columns], partitioning=None)
        found.update(tuple(row[name] for name in columns) for row in table.to_pylist())
    return found


def epochs(folder: Path, log: str) -> int:
    """Count the epochs in the folder ``offsets`` or ``commits`` of a checkpoint."""
    numbers = (int(path.name) for path in (folder / log).glob("*") if path.name.isdigit())
    return max(numbers, default=-1) + 1


# Predicates that fail


def make_failing(calls: Path, faults: Mapping[int, str], clock: Path) -> Predicate:
    """Build the conjunct ``a.y > b.y`` whose n-th call, over all processes, fails as ``faults[n]`` says.

    ``raise`` raises an error, ``die`` kills the Python worker, and ``stall`` takes 20 s. Every call is
    counted in the file ``calls`` before it fails, so a second attempt is a later call and succeeds. The
    worker follows the ``clock`` from its first call on.
    """
    counter, planned, wall_clock = str(calls), dict(faults), str(clock)

    @predicate(a=["y"], b=["y"])
    def higher(a: Any, b: Any) -> Any:
        import pyarrow.compute as pc

        from tests.support.jumping_clock import follow

        follow(wall_clock)
        with open(counter, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b".")
            file.flush()
            fault = planned.get(os.fstat(file.fileno()).st_size)
        if fault == "raise":
            raise RuntimeError("on purpose")
        if fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "stall":
            time.sleep(20)
        return pc.greater(a.y, b.y)

    return higher


# The join as a process


def environment_of_processes() -> dict[str, str]:
    """Build the environment in which a new process and the Python workers of its Spark find this package."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    home = os.environ.get(HOME) or str(link_home(Path(pyspark.__file__).parent))
    return os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path, HOME: home}


@dataclass(frozen=True)
class Job:
    """A streaming join whose streams, sink and checkpoint are in ``folder``."""

    module: ClassVar[str] = "tests.support.faults"
    """The module that runs such a job as a process."""

    folder: str
    master: str = "local[2]"
    conf: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    """The fault (``raise``, ``die`` or ``stall``) by the number of the call of the predicate."""
    cache_folder: str | None = None
    within_s: int = WITHIN_S
    how: JoinKind = "inner"
    has_residual: bool = False
    chain: int | None = None
    """The workers of a handshake chain, whose mailbox is in ``folder``."""

    max_units: int | None = None
    """The number of slots of a join whose units may change, and whose control folder is in ``folder``."""

    @property
    def mailbox(self) -> str:
        """The folder of the messages of a chain, and of control folders."""
        return f"{self.folder}/mailbox"

    @property
    def sink(self) -> Path:
        """The folder of the results."""
        return Path(self.folder, "sink")

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's recovery log."""
        return Path(self.folder, "checkpoint")

    @property
    def clock(self) -> Path:
        """The file that says by how many seconds the clocks of all Python processes of the job are wrong."""
        return Path(self.folder, "clock")

    @property
    def calls(self) -> Path:
        """The file that counts calls of the predicate, with one byte per call."""
        return Path(self.folder, "calls")

    @property
    def output(self) -> str:
        """The text that all processes of the job have printed."""
        return Path(self.folder, "log").read_text()

    def start(self) -> "subprocess.Popen[bytes]":
        """Run the rest of the stream in a new process, which leads its own process group."""
        command = [sys.executable, "-m", self.module, json.dumps(asdict(self)), type(self).__name__]
        environment = environment_of_processes()
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT"):
            environment.pop(name, None)
        with Path(self.folder, "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def finish(self, timeout_s: float = 3000) -> None:
        """Run the rest of the stream and wait for its end."""
        with killed_at_the_end(self.start()) as process:
            code = process.wait(timeout_s)
            if code:
                raise RuntimeError(f"the join ended with {code}: {self.output[-4000:]}")

    def interrupt(self, epoch: int, after_s: float = 0.0, timeout_s: float = 600) -> bool:
        """Start the job, and kill its driver ``after_s`` seconds after the first epoch from ``epoch`` on has
        begun.

        Returns whether that epoch was running when the driver was killed: its offsets were written and it was
        not committed.
        """
        with killed_at_the_end(self.start()) as process:
            end = time.monotonic() + timeout_s
            while epochs(self.checkpoint, "offsets") <= max(epoch, epochs(self.checkpoint, "commits")):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"epoch {epoch} never began: {self.output[-4000:]}")
                time.sleep(0.01)
            time.sleep(after_s)
        return epochs(self.checkpoint, "offsets") > epochs(self.checkpoint, "commits")

    def run(self) -> None:
        """Run the join in this process until the streams are read."""
        from pyspark.sql import SparkSession

        import thetastream as th
        from thetastream.spark.session.configure import LOGGING

        follow(str(self.clock))
        builder = SparkSession.builder.master(self.master).appName("faults")
        settings = {
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": f"{self.folder}/warehouse",
        }
        for key, value in {**settings, **self.conf}.items():
            builder = builder.config(key, value)
        spark = th.configure(builder, 2).getOrCreate()
        self.write_all(self.pairs(spark))
        spark.stop()

    def pairs(self, spark: "SparkSession", band: int = BAND) -> "DataFrame":
        """Build the joined stream of (a, b). With another ``band`` it is another query."""
        import thetastream as th

        pairs = th.join(
            self.streams(spark),
            on=[f"abs(a.x - b.x) <= {band}", self.higher(), *[RESIDUAL] * self.has_residual],
            within=f"{self.within_s} seconds",
            model=self.model(),
            mailbox=self.mailbox if self.chain or self.max_units else None,
            max_units=self.max_units,
            how=self.how,
            cache_folder=self.cache_folder,
        )
        partner = "CAST(NULL AS BIGINT)" if self.how == "anti" else "b.id"
        return pairs.selectExpr("a.id AS a", f"{partner} AS b")

    def streams(self, spark: "SparkSession", schema: str = SCHEMA) -> "dict[str, DataFrame]":
        """Open the streams, one file of each in an epoch. Arrow reads one of them, Spark the other one."""
        import thetastream as th

        by_arrow = th.read_parquet(spark, f"{self.folder}/a", schema, maxFilesPerTrigger=1)
        by_spark = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{self.folder}/b")
        return {
            alias: files.withWatermark("ts", DELAY) for alias, files in (("a", by_arrow), ("b", by_spark))
        }

    def higher(self) -> Predicate:
        """Build the conjunct ``a.y > b.y``, whose calls fail as ``faults`` says."""
        faults = {int(call): fault for call, fault in self.faults.items()}
        return make_failing(self.calls, faults, self.clock)

    def model(self) -> "Model | None":
        """Build the model. None stands for the one that the planner chooses."""
        import thetastream as th

        if self.chain:
            return th.Chain(self.chain)
        return th.Biclique(units=(2, 2)) if self.how == "inner" else None

    def write(self, pairs: "DataFrame") -> "StreamingQuery":
        """Start the query. It ends when the streams are read."""
        writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).start(str(self.sink))

    def write_all(self, pairs: "DataFrame") -> None:
        """Run the query until the streams are read."""
        import thetastream as th

        th.checkpoints.finish_epoch(pairs, self.checkpoint, self.sink)
        self.write(pairs).awaitTermination()

    # Input and answer

    def write_input(self, files: int, rows: int, seed: int) -> None:
        """Write the streams."""
        write_streams(Path(self.folder), files, rows, seed)

    def beside(self, seed: int) -> AbstractContextManager[Any]:
        """Do what happens beside the query while the block runs; yield what ``is_exact`` needs of it."""
        return contextlib.nullcontext()

    def list_found(self) -> Counter[Row]:
        """List the results that were committed."""
        return read_committed(self.sink)

    def list_expected(self) -> Counter[Row]:
        """List the results of a nested loop."""
        return oracle(Path(self.folder), self.within_s, self.how, self.has_residual)

    def is_exact(self, seen: Any) -> bool:
        """Whether the results are those of the nested loop. ``seen`` is what ``beside`` has yielded."""
        return self.list_found() == self.list_expected()


def kill_worker(driver: int, rng: random.Random) -> bool:
    """Kill one of the Python workers of a driver's tasks; return whether it had one."""
    with contextlib.suppress(psutil.Error):
        workers = [worker for daemon in find_daemons(driver) for worker in daemon.children()]
        if workers:
            rng.choice(workers).kill()
            return True
    return False


def find_daemons(driver: int) -> list[psutil.Process]:
    """Find the processes below a driver that fork the Python workers of its tasks."""
    with contextlib.suppress(psutil.Error):
        found = psutil.Process(driver).children(recursive=True)
        return [each for each in found if _runs_workers(each) and not _runs_workers(each.parent())]
    return []


def _runs_workers(process: psutil.Process | None) -> bool:
    """Return whether a process runs the module of workers. A process that has ended has no command line."""
    if process is None:
        return False
    with contextlib.suppress(psutil.Error):
        return bool(process.cmdline()[-1:] == ["pyspark.worker"])
    return False


@contextlib.contextmanager
def killed_at_the_end(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """Kill the process and its group at the end of the block, even after an error."""
    try:
        yield process
    finally:
        kill_group(process)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a driver and all processes of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def find_segments(cache: Path) -> list[Path]:
    """Find the complete files of the segments that are cached below a folder."""
    return [path for path in cache.rglob("*") if path.is_file() and not path.name.startswith(".")]


if __name__ == "__main__":
    Job(**json.loads(sys.argv[1])).run()
