"""Other users of the machine: a local session runs nothing of theirs, and shows them nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.planted import list_victims, plant

PROGRAM = """
import json
import os
import sys
import tempfile
from pathlib import Path
import numpy, pandas, pyarrow
import thetastream as th
from beside_the_program import is_less

# An interactive session searches the current folder.
sys.path.append("")
from in_the_folder import is_near

# The folders of a session are private also if all other files of this process may be written by everybody.
os.umask(0)
settings = {"spark.hadoop.its.secret.key": "hunter2", "spark.its.address": "jdbc:x://user:hunter2@host/db"}
spark = th.local_session(1, **settings, **{"spark.its.name": "shown"})
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
lines = []
for process in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        lines.append(process.read_bytes().decode(errors="replace").replace("\\0", " "))
    except OSError:  # it has ended
        pass
local = Path(spark.conf.get("spark.local.dir"))
unpacked = Path(spark._jvm.System.getProperty("java.io.tmpdir"))
told = {
    "pairs": sorted((row["first"], row["second"]) for row in store.read().to_pylist()),
    "secret": spark.sparkContext._jsc.hadoopConfiguration().get("its.secret.key"),
    "lines with the secret": [line for line in lines if "hunter2" in line],
    "lines with the name": len([line for line in lines if "spark.its.name=shown" in line]),
    "shuffles": len([*local.rglob("shuffle*")]),
    "mode": oct(local.parent.stat().st_mode & 0o777),
    "libraries": len([*unpacked.glob("*.so")]),
    "mode of libraries": oct(unpacked.stat().st_mode & 0o777),
    "address": spark.conf.get("spark.its.address"),
}
print(json.dumps(told))
"""
PREDICATE = """
import thetastream as th

@th.predicate("numpy", a=["id"], b=["id"])
def {name}(a, b):
    return {condition}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everybody can write."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> dict[str, Any]:
    """What a program tells that ran a join, from a folder in which modules are planted."""
    program = tmp_path_factory.mktemp("program")
    plant(shared)
    (program / "main.py").write_text(PROGRAM)
    (program / "beside_the_program.py").write_text(PREDICATE.format(name="is_less", condition="a.id < b.id"))
    (shared / "in_the_folder.py").write_text(PREDICATE.format(name="is_near", condition="b.id - a.id < 2"))
    command = [sys.executable, str(program / "main.py")]
    run = subprocess.run(command, cwd=shared, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return told


def test_workers_search_where_the_program_searches_and_run_nothing_that_is_planted(
    told: dict[str, Any], shared: Path
) -> None:
    assert list_victims(shared) == []
    assert told["pairs"] == [[n, n + 1] for n in range(5)]


def test_a_secret_setting_reaches_the_jvm_and_no_command_line(told: dict[str, Any]) -> None:
    assert told["secret"] == "hunter2"
    assert told["address"] == "jdbc:x://user:hunter2@host/db"
    assert told["lines with the secret"] == []
    assert told["lines with the name"] > 0


def test_shuffle_files_are_in_a_folder_that_only_this_user_may_enter(told: dict[str, Any]) -> None:
    assert told["shuffles"] > 0
    assert told["mode"] == "0o700"


def test_libraries_that_the_jvm_unpacks_are_in_a_folder_that_only_this_user_may_enter(
    told: dict[str, Any],
) -> None:
    assert told["libraries"] > 0
    assert told["mode of libraries"] == "0o700"
