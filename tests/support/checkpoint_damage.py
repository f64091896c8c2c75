"""Damages to the files of a checkpoint: what becomes of a query that continues from it.

A query joins two streams and keeps its pairs in a store. It has read some files when its checkpoint is
copied. In each case, one file of the checkpoint is damaged, and the query continues and reads the others.
Then its store is exact, or an error of ours has refused the query.
"""

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import thetastream as th
from tests.support.faults import SCHEMA, WITHIN_S, oracle, write_streams
from tests.support.store_damage import DAMAGES, damage
from thetastream.spark.session.failure import read_text, summarize_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("metadata", "offsets", "commits", "sources", "state")
EXACT = "exact"
FILES, FIRST_FILES, ROWS = 5, 4, 40


def list_files(checkpoint: Path, kind: str) -> list[Path]:
    """List the files of a kind, in order of their epochs, without Hadoop's files of checksums."""
    found = [checkpoint / kind] if kind == "metadata" else [*(checkpoint / kind).rglob("*")]
    files = [path for path in found if path.is_file() and not path.name.startswith(".")]
    return sorted(files, key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)] or [0])


class DamagedCheckpoint:
    """A query whose checkpoint is damaged again and again."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._checkpoint = folder / "checkpoint"
        write_streams(folder / "all", FILES, ROWS)
        for alias in "ab":
            (folder / alias).mkdir()
            self._give(alias, FIRST_FILES)
        self._run()
        for name in ("checkpoint", "store"):
            shutil.copytree(folder / name, folder / f"saved-{name}")
        for alias in "ab":
            self._give(alias, FILES)
        self.expected = oracle(folder / "all")

    def _give(self, alias: str, n: int) -> None:
        for path in sorted((self._folder / "all" / alias).glob("*.parquet"))[:n]:
            shutil.copy2(path, self._folder / alias)

    def _join(self) -> "DataFrame":
        streams = {
            alias: self._spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._folder / alias))
            .withWatermark("ts", "3 seconds")
            for alias in "ab"
        }
        on = ["abs(a.x - b.x) <= 3", "a.y > b.y"]
        return th.join(streams, on=on, within=f"{WITHIN_S} seconds", model=th.Biclique((1, 1)))

    def _run(self) -> None:
        select = ["a.id AS a", "b.id AS b"]
        store = th.ParquetStore(str(self._folder / "store"))
        query = th.write(
            self._join(), store, checkpoint=self._checkpoint, select=select, trigger="available now"
        )
        query.awaitTermination()

    def run_case(self, kind: str, chance: random.Random) -> tuple[str, str]:
        """Damage a file of this kind; return what was done, and what became of the query."""
        for name in ("checkpoint", "store"):
            shutil.rmtree(self._folder / name)
            shutil.copytree(self._folder / f"saved-{name}", self._folder / name)
        files = list_files(self._checkpoint, kind)
        # The last files of each log are the ones that are read.
        done = damage(files[-4:] if chance.random() < 0.7 else files, chance.choice(DAMAGES), chance)
        if chance.random() < 0.3:
            for checksum in (self._checkpoint / kind).parent.rglob(".*.crc"):
                checksum.unlink()
            done += ", no checksums"
        try:
            self._run()
        except Exception as error:
            return done, summarize_failure(read_text(error))
        store = th.ParquetStore(str(self._folder / "store"))
        found = Counter((row["a"], row["b"]) for row in store.read().to_pylist())
        return done, EXACT if found == self.expected else f"WRONG: {len(found)} of {len(self.expected)}"


def run_cases(
    spark: "SparkSession", folder: Path, seeds: range, kinds: tuple[str, ...] = KINDS
) -> Iterator[tuple[int, str, str, str]]:
    """Run cases; yield (seed, kind, damage, outcome)."""
    query = DamagedCheckpoint(spark, folder)
    for seed in seeds:
        kind = kinds[seed % len(kinds)]
        yield seed, kind, *query.run_case(kind, random.Random(seed))
