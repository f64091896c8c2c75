"""Sources, models, kinds of join, sinks and doors go together, or each door refuses them by the same name."""

import tomllib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import thetastream as th
from tests.support.composed import Composed, cover_pairs, list_all
from thetastream.app.job.document import examine
from thetastream.core.errors import ThetastreamError, list_problems

CASES = list_all()


def test_a_job_file_can_name_every_join(tmp_path: Path) -> None:
    for alias in "ab":
        (tmp_path / alias).mkdir()
    for case in CASES:
        if case.door == "job":
            document = examine(tomllib.loads(case.write_job()), tmp_path)
            assert document.all_problems == [], case
            assert document.job is not None
            assert document.job.model == case.arguments.get("model")
            assert (document.job.sink.kept is None) == (case.sink == "parquet")


@pytest.mark.slow
@pytest.mark.parametrize("case", list(cover_pairs(CASES)), ids=str)
def test_each_door_gives_the_same_answer_or_the_same_error(
    case: Composed, spark: SparkSession, tmp_path: Path
) -> None:
    case.write_input(tmp_path)
    try:
        th.plan(case.read(spark, tmp_path), **case.arguments)
    except ThetastreamError as refusal:
        names = {problem.condition for problem in list_problems(refusal)}
        with pytest.raises(ThetastreamError) as error:
            case.run(spark, tmp_path)
        assert {problem.condition for problem in list_problems(error.value)} == names
        return
    case.run(spark, tmp_path)
    assert case.read_found(spark, tmp_path) == case.list_expected()
