"""A stopped query goes on with another number of shuffle partitions, and finds what the oracle finds."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import thetastream as th
from tests.spark.test_restart import ON, PARTITIONS, Restarts, expect, make_predicate
from tests.support.truth import configured
from thetastream.app.job.checkpoint import read_checkpoint
from thetastream.app.job.rescaling import rescale
from thetastream.runtime.checkpoint_files import update_paths

PAIRS = [ON, make_predicate("rescale")]
STEPS = ((0, 2), (1, 3), (2, 1))
"""Numbers of files and of partitions."""


def ids(number: int) -> range:
    return range(20 * number, 20 * number + 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("aliases", "on", "model"),
    [
        pytest.param("ab", PAIRS, th.Biclique((2, 1)), id="biclique"),
        pytest.param("ab", PAIRS, th.Chain(3), id="chain"),
        pytest.param("abc", "a.k = b.k AND b.k = c.k", th.Ring(3), id="ring"),
    ],
)
def test_results_stay_exact(spark: SparkSession, tmp_path: Path, aliases: str, on: Any, model: Any) -> None:
    query = Restarts(spark, tmp_path, aliases)
    checkpoint = tmp_path / "checkpoint"
    for number, partitions in STEPS:
        query.add(ids(number))
        if number:
            before = STEPS[number - 1][1]
            assert rescale(spark, checkpoint, partitions) == (before, partitions, ())
        with configured(spark, {PARTITIONS: "2"}):
            found = query.run(on=on, within="100 seconds", model=model)
        assert found == expect(ids(number), 100, len(aliases))
        assert read_checkpoint(str(checkpoint)).partitions == partitions
    assert rescale(spark, checkpoint, 1) == (1, 1, ())


def test_the_path_of_a_checkpoint_may_have_spaces(spark: SparkSession, tmp_path: Path) -> None:
    """Spark escapes such a path twice when it rewrites state, so it would look in another folder."""
    folder = tmp_path / "ü 100% #1"
    folder.mkdir()
    query, checkpoint = Restarts(spark, folder, "ab"), folder / "checkpoint"
    for number in range(2):
        query.add(ids(number))
        if number:
            assert rescale(spark, checkpoint, 1) == (2, 1, ())
            assert update_paths(checkpoint) == 0
        with configured(spark, {PARTITIONS: "2"}):
            found = query.run(on=PAIRS, within="100 seconds", model=th.Biclique(2))
        assert found == expect(ids(number), 100)


@pytest.mark.slow
def test_answers_stay_exact(spark: SparkSession, tmp_path: Path) -> None:
    """A left tuple without partners is a row once, also if it was stored under other partitions."""
    query, found = Restarts(spark, tmp_path, "ab"), Counter()
    files = (*(ids(number) for number, _ in STEPS), range(63, 64))
    for file, partitions in zip(files, (2, 3, 1, 2), strict=True):
        query.add(file)
        if (tmp_path / "checkpoint").exists():
            rescale(spark, tmp_path / "checkpoint", partitions)
        with configured(spark, {PARTITIONS: "2"}):
            found += query.run(
                on=PAIRS, within="20 seconds", how="left", delay="1 second", model=th.Matrix(2, 1)
            )
    pairs = sum((expect(ids(number), 20) for number, _ in STEPS), Counter())
    # The last watermark, 629 s, decides all tuples but the last one.
    alone = Counter((a, None) for a in set(range(60)) - {a for a, _ in pairs})
    assert alone
    assert found == pairs + alone


@pytest.mark.slow
def test_a_file_sink_goes_on_behind_its_compaction(spark: SparkSession, tmp_path: Path) -> None:
    """Without an entry for the epoch of the rescaling, the file sink stops when it compacts its log."""
    query = Restarts(spark, tmp_path, "ab")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def run() -> None:
        streams = {alias: frame.withWatermark("ts", "1 hour") for alias, frame in query.streams.items()}
        pairs = th.join(streams, on=PAIRS, within="100 seconds", model=th.Biclique(2))
        writer = pairs.selectExpr("a.id AS a", "b.id AS b").writeStream.format("parquet")
        writer = writer.option("path", str(out)).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    with configured(spark, {PARTITIONS: "2", "spark.sql.streaming.fileSink.log.compactInterval": "3"}):
        query.add(ids(0))
        run()
        rescale(spark, checkpoint, 3)
        query.add(ids(1))
        with pytest.raises(StreamingQueryException, match="BATCH_METADATA_NOT_FOUND"):
            run()
        rescale(spark, checkpoint, 3, file_sink=out)
        run()
    found = Counter((row.a, row.b) for row in spark.read.parquet(str(out)).collect())
    assert found == expect(ids(0), 100) + expect(ids(1), 100)


@pytest.mark.slow
def test_a_chosen_model_must_be_named_and_an_interrupted_call_completed(
    spark: SparkSession, tmp_path: Path
) -> None:
    query, checkpoint = Restarts(spark, tmp_path, "ab"), tmp_path / "checkpoint"
    with configured(spark, {PARTITIONS: "2"}):
        query.add(ids(0))
        assert query.run(on=PAIRS, within="100 seconds") == expect(ids(0), 100)
        query.add(ids(1))
        (chosen,) = rescale(spark, checkpoint, 8).chosen
        with pytest.raises(StreamingQueryException, match="STATE_OF_ANOTHER_QUERY") as refused:
            query.run(on=PAIRS, within="100 seconds")
        assert f"give model=th.{chosen} to continue" in str(refused.value)
        model = eval(chosen, vars(th))
        assert query.run(on=PAIRS, within="100 seconds", model=model) == expect(ids(1), 100)
        # The call is interrupted before it commits its epoch.
        rescale(spark, checkpoint, 3)
        last = read_checkpoint(str(checkpoint)).committed
        for name in (str(last), f".{last}.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
        query.add(ids(2))
        with pytest.raises(StreamingQueryException, match="REPARTITION"):
            query.run(on=PAIRS, within="100 seconds", model=model)
        assert rescale(spark, checkpoint, 3) == (8, 3, ())
        assert query.run(on=PAIRS, within="100 seconds", model=model) == expect(ids(2), 100)
