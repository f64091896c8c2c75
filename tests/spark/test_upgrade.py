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
from thetastream.app.job.checkpoint import read_checkpoint
from thetastream.core.errors import ThetastreamError

IN_EACH_RUN = ("ring-nodes-change", "store")
"""The queries of ``make test``: an epoch that is repeated, a mailbox with a control plan, a store that is
refused."""


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
    checkpoint = read_checkpoint(place.checkpoint)
    assert (checkpoint.committed < checkpoint.begun) == kept.is_interrupted
    bring_files(tmp_path, range(COMMITTED, FILES))
    if kept.refusal is not None:
        before = read_results(tmp_path)
        with pytest.raises((StreamingQueryException, ThetastreamError), match=re.escape(kept.refusal)):
            run(kept, place)
        assert read_results(tmp_path) == before
        return
    wanted = kept.expect(read_streams(tmp_path))
    assert kept.read(tmp_path) != wanted
    run(kept, place)
    assert kept.read(tmp_path) == wanted


def read_results(folder: Path) -> dict[Path, bytes]:
    """Read the files of the results, also of a store that this version refuses."""
    files = [file for name in ("results", "store") for file in (folder / name).rglob("*")]
    return {file: file.read_bytes() for file in files if file.is_file()}
