"""The command line, in processes of its own."""

import re
import subprocess
import sys
from importlib.metadata import version

import pyarrow.dataset as ds
import pytest

from thetastream.demo import check, departures


def thetastream(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "thetastream.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        **options,
    )


def test_version():
    assert thetastream("--version").stdout == f"thetastream {version('thetastream')}\n"


@pytest.mark.parametrize("arguments", [[], ["fly"], ["demo", "--rows", "0"], ["demo", "--rows", "few"]])
def test_what_is_not_understood_exits_with_2(arguments):
    done = thetastream(*arguments)
    assert done.returncode == 2
    assert "usage: thetastream" in done.stderr


def test_demo_leaves_a_folder_of_others_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    done = thetastream("demo", "--out", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("thetastream: [FOLDER_NOT_EMPTY] --out must be a new or empty folder")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_departures_are_the_year_in_event_time_order():
    table = departures.load()
    assert table.num_rows == 328_521
    departed = table["departed"].to_numpy()
    assert (departed[1:] >= departed[:-1]).all()
    assert str(table["departed"][0].as_py()) == "2013-01-01 10:17:00+00:00"


@pytest.mark.slow
def test_demo_counts_what_duckdb_counts(tmp_path):
    rows = departures.PER_FILE + 1000
    done = thetastream("demo", "--rows", rows, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    expected, _ = check.count(departures.load(rows))
    assert expected > 100
    assert f"{expected:,} = {expected:,}" in done.stdout
    assert re.search(rf"^ +0  2013-01-1\d \d\d:\d\d +{2 * departures.PER_FILE:,} ", done.stdout, re.MULTILINE)
    assert (tmp_path / "out" / "departures.png").stat().st_size > 10_000
    files = [str(path) for path in (tmp_path / "out" / "pairs").glob("*.parquet")]
    assert ds.dataset(files).count_rows() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
