"""A stream beside a table that changes all the time, for tests that kill it while it runs.

A version of the table has rows of one label n, and as many rows as say which label it is:

    n -> FEWEST + n rows (id = 1000 n + k, low, high, y)

So the number of rows of the version that an epoch has read says which rows its results must have:
{ (a.id, b.id) : b.low <= a.x < b.high, a.y > b.y, b is a row of this version }.
"""

import json
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.faults import Job, Row, epochs
from thetastream.conditions import Predicate
from thetastream.runtime.table_epochs import list_epochs
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_versions import Version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEWEST = 20
SCHEMA = "id BIGINT, x BIGINT, y BIGINT, ts TIMESTAMP"


@dataclass(frozen=True)
class TableJob(Job):
    """A lookup of the stream ``a`` in ranges. Streams, table, sink and checkpoint are in ``folder``."""

    module: ClassVar[str] = "tests.support.table_job"

    def pairs(self, spark: "SparkSession", band: int = 0) -> "DataFrame":
        """Build the stream of (a, b): the ids of a tuple and of a row of the table."""
        import thetastream as th

        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{self.folder}/a")
        table = th.Table(f"{self.folder}/table", every="0.2 seconds", keep=2, key="id")
        on: list[str | Predicate] = ["a.x >= b.low AND a.x < b.high", self.higher()]
        return th.join({"a": stream, "b": table}, on, mailbox=self.mailbox).selectExpr(
            "a.id AS a", "b.id AS b"
        )

    def write_input(self, files: int, rows: int, seed: int) -> None:
        """Write the stream, and the first version of the table."""
        super().write_input(files, rows, seed)
        self.write_version(0)

    def beside(self, seed: int) -> AbstractContextManager[dict[int, set[Version]]]:
        """Replace the rows of the table while the block runs."""
        return self.changing(seed)

    def is_exact(self, seen: dict[int, set[Version]]) -> bool:
        """Whether each epoch has read one version, and its results are those of this version."""
        if any(len(versions) != 1 for versions in seen.values()):
            return False
        return self.list_found() == self.find_expected({epoch: one for epoch, (one,) in seen.items()})

    def write_version(self, label: int, is_bad: bool = False) -> None:
        """Replace the rows of the table at once. A bad version has a key twice."""
        path = Path(self.folder, "table", "rows.parquet")
        path.parent.mkdir(exist_ok=True)
        ids, low, high, y = make_rows(label)
        if is_bad:
            ids[-1] = ids[0]
        hidden = path.with_name(".rows")
        pq.write_table(pa.table({"id": ids, "low": low, "high": high, "y": y}), hidden)
        os.replace(hidden, path)

    @contextmanager
    def changing(self, seed: int) -> Iterator[dict[int, set[Version]]]:
        """Replace the rows again and again from the first epoch on. Every fourth version is bad.

        Most rows stay until an epoch has read them, and some are replaced before. Yields the versions that
        each epoch has read, as far as they are known. The folder of the table forgets epochs that are long
        over.
        """
        ended, read, chance = threading.Event(), dict[int, set[Version]](), random.Random(seed)

        def change() -> None:
            while not (epochs(self.checkpoint, "offsets") or ended.wait(0.1)):
                pass
            label = 0
            while not ended.wait(chance.uniform(0, 1)):
                self.note_epochs(read)
                newest = max(
                    (one.n_rows - FEWEST for versions in read.values() for one in versions), default=0
                )
                if newest == label or chance.random() < (0.05 if label % 4 else 0.3):
                    label += 1
                    self.write_version(label, is_bad=label % 4 == 0)

        thread = threading.Thread(target=change, daemon=True)
        thread.start()
        try:
            yield read
        finally:
            ended.set()
            thread.join()
            self.note_epochs(read)

    def note_epochs(self, read: dict[int, set[Version]]) -> None:
        """Add the versions that are written down for epochs. Each epoch must always have the same one."""
        query = json.loads((self.checkpoint / "metadata").read_text())["id"]
        for epoch, found in list_epochs(TableFolder(self.mailbox), query):
            read.setdefault(epoch, set()).add(found.version)

    def list_files(self) -> dict[int, list[Path]]:
        """List the files of each epoch that has any.

        A driver that is killed between two entries of Spark's logs leaves the next epoch with two files.
        """
        entries: dict[int, set[Path]] = {}
        for log in (self.checkpoint / "sources" / "0").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                entries.setdefault(entry["batchId"], set()).add(Path(entry["path"].removeprefix("file://")))
        found, last = {}, -1
        for log in sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda log: int(log.name)):
            end = json.loads(log.read_text().splitlines()[-1])["logOffset"]
            found[int(log.name)] = [
                path for n in range(last + 1, end + 1) for path in sorted(entries.get(n, ()))
            ]
            last = end
        return {epoch: files for epoch, files in found.items() if files}

    def find_expected(self, read: Mapping[int, Version]) -> Counter[Row]:
        """Join the tuples of each epoch with the version that it has read, by loops."""
        expected: Counter[Row] = Counter()
        for epoch, files in self.list_files().items():
            tuples = pa.concat_tables(map(pq.read_table, files))
            if not len(tuples):
                continue  # Epochs at the end of a campaign have no tuples, and nobody noted their version.
            ids, x, y = (tuples[name].to_numpy() for name in ("id", "x", "y"))
            for row, low, high, least in zip(*make_rows(read[epoch].n_rows - FEWEST), strict=True):
                matches = (low <= x) & (x < high) & (y > least)
                expected.update((int(one), int(row)) for one in ids[matches])
        return expected


def make_rows(label: int) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", ...]:
    """Make the ids, the ends of the ranges and the values of the rows of a label."""
    rng, n_rows = np.random.default_rng(label), FEWEST + label
    low = rng.integers(0, 300, n_rows)
    return (
        1000 * label + np.arange(n_rows),
        low,
        low + rng.integers(0, 9, n_rows),
        rng.integers(0, 100, n_rows),
    )


if __name__ == "__main__":
    TableJob(**json.loads(sys.argv[1])).run()
