"""Checkpoints of an earlier version: their queries find all results, or are refused by a sentence."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.kept_checkpoints import COMMITTED, FILES, SETTINGS, bring_files, read_streams, run, unpack
from tests.support.kept_queries import KEPT, Place
from tests.support.truth import configured
from thetastream.app.job.checkpoints.inspect import read_checkpoint

IN_EACH_RUN = ("aggregate", "left-interrupted", "ring-nodes-change")
"""The queries of ``make test``: local views, an epoch that is repeated, a mailbox with a control plan."""


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    with configured(spark, SETTINGS):
        yield


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_EACH_RUN else pytest.mark.slow) for name in KEPT]
)
def test_the_checkpoint_of_an_earlier_version(spark: SparkSession, tmp_path: Path, name: str) -> None:
    unpack(name, tmp_path)
    kept, place = KEPT[name], Place(spark, tmp_path)
    before, wanted = kept.read(tmp_path), kept.expect(read_streams(tmp_path))
    checkpoint = read_checkpoint(place.checkpoint)
    assert (checkpoint.committed < checkpoint.begun) == kept.is_interrupted
    assert before != wanted
    bring_files(tmp_path, range(COMMITTED, FILES))
    if kept.refusal is None:
        run(kept, place)
        assert kept.read(tmp_path) == wanted
    else:
        with pytest.raises(StreamingQueryException, match=re.escape(kept.refusal)):
            run(kept, place)
        assert kept.read(tmp_path) == before
