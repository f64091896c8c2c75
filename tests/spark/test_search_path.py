"""Spark's Python processes run nothing of a folder in which other users can write."""

import subprocess
import sys
from pathlib import Path

from tests.support.planted import list_victims, plant

PROGRAM = """
import sys
import tempfile
import numpy, pandas, pyarrow
import thetastream as th
from beside_the_program import is_less

# An interactive session searches the current folder.
sys.path.append("")
from in_the_folder import is_near

spark = th.local_session(1)
folder = tempfile.mkdtemp()
spark.createDataFrame([(n,) for n in range(6)], "id BIGINT").write.parquet(f"{folder}/in")
points = spark.readStream.schema("id BIGINT").parquet(f"{folder}/in")
pairs = th.join(
    {"a": points, "b": points}, on=[is_less, is_near], within=th.Rows(9), model=th.Split(1), max_units=2
)
store = th.ParquetStore(f"{folder}/pairs")
select = ["a.id AS first", "b.id AS second"]
options = {"checkpoint": f"{folder}/checkpoint", "trigger": "available now"}
th.write(pairs, store, select=select, **options).awaitTermination()
print(sorted((row["first"], row["second"]) for row in store.read().to_pylist()))
"""
PREDICATE = """
import thetastream as th

@th.predicate("numpy", a=["id"], b=["id"])
def {name}(a, b):
    return {condition}
"""


def test_workers_search_where_the_program_searches_and_run_nothing_that_is_planted(tmp_path: Path) -> None:
    program, shared = tmp_path / "program", tmp_path / "shared"
    program.mkdir()
    shared.mkdir()
    plant(shared)
    (program / "main.py").write_text(PROGRAM)
    (program / "beside_the_program.py").write_text(PREDICATE.format(name="is_less", condition="a.id < b.id"))
    (shared / "in_the_folder.py").write_text(PREDICATE.format(name="is_near", condition="b.id - a.id < 2"))
    command = [sys.executable, str(program / "main.py")]
    run = subprocess.run(command, cwd=shared, capture_output=True, text=True, timeout=300)
    assert list_victims(shared) == []
    assert run.stdout.splitlines()[-1:] == [str([(n, n + 1) for n in range(5)])], run.stderr
