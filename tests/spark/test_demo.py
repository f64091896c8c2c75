"""The demo runs in its own process."""

import re
import subprocess
import sys

import pytest

from thetastream.app.demo import picture
from thetastream.app.demo.run import PER_FILE, count, load
from thetastream.stores import ParquetStore


def thetastream(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "thetastream.app.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        **options,
    )


@pytest.mark.slow
def test_demo_counts_what_duckdb_counts(tmp_path):
    rows = PER_FILE + 1000
    done = thetastream("demo", "--rows", rows, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    expected, _ = count(load(rows))
    assert expected > 100
    assert f"{expected:,} = {expected:,}" in done.stdout
    assert re.search(rf"^ +0  2013-02-0\d \d\d:\d\d +{2 * PER_FILE:,} ", done.stdout, re.MULTILINE)
    assert (tmp_path / "out" / "departures.png").stat().st_size > 10_000
    assert ParquetStore(str(tmp_path / "out" / "pairs")).read().num_rows == expected
    if picture.find_browser() is not None:
        assert (tmp_path / "out" / "page.png").stat().st_size > 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
