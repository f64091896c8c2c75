"""Nothing that another user plants in the current folder runs in a process that we start."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.planted import list_victims, plant
from tests.support.service import make_pairs
from thetastream.core.search_path import find_current_folder, list_program_folders, write_search_path
from thetastream.service.limits import Limits
from thetastream.service.statement_pool import StatementPool
from thetastream.spark.session.workers import list_search_settings

SECRET = "THETASTREAM_TOKEN", "a long secret token"


def describe_process() -> pa.Table:
    """Describe the process of a statement; it must be a function that the process can import."""
    found = {"environment": dict(os.environ), "folder": os.getcwd(), "path": sys.path}
    return pa.table({"x": [json.dumps(found)]})


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plant modules in the current folder."""
    plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_process_of_a_statement_runs_nothing_of_the_current_folder(planted: Path) -> None:
    store = make_pairs(planted)
    found = StatementPool(Limits(questions=1), folders=[store.path]).ask(
        store.open, "SELECT count(*) AS n FROM results"
    )
    assert found["n"].to_pylist() == [3]
    assert list_victims(planted) == []


def test_the_process_of_a_statement_has_its_own_folder_and_few_variables(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    # The current folder of an interactive session.
    monkeypatch.setattr(sys, "path", ["", *sys.path])

    def ask(*variables: str) -> Mapping[str, object]:
        pool = StatementPool(Limits(questions=1), variables)
        found: Mapping[str, object] = json.loads(
            pool.ask(partial(describe_process), "FROM results")["x"][0].as_py()
        )
        return found

    found = ask()
    assert "secret" not in str(found["environment"])
    assert found["folder"] != str(planted)
    assert not os.path.exists(str(found["folder"])), "the folder ends with the pool"
    assert not {"", str(planted), found["folder"]} & set(found["path"])  # type: ignore[call-overload]
    environment = ask("AWS_")["environment"]
    assert "AWS_SECRET_ACCESS_KEY" in str(environment)
    assert SECRET[0] not in str(environment)


@pytest.mark.parametrize("start", [("-m", "thetastream.app.cli"), ("-m", "thetastream.spark.session.daemon")])
def test_our_modules_that_start_by_their_names_run_nothing_of_the_current_folder(
    planted: Path, start: tuple[str, str]
) -> None:
    environment = {**os.environ, "PYTHONPATH": write_search_path(list_program_folders())}
    command = [sys.executable, *start, *(["--version"] if "cli" in start[1] else [])]
    # The daemon answers with its port, and ends with its input.
    subprocess.run(command, cwd=planted, env=environment, stdin=subprocess.DEVNULL, timeout=60, check=False)
    assert list_victims(planted) == []


def test_a_program_hands_its_own_folders_to_workers_and_not_those_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "program"), *[one for one in sys.path if one]])
    assert list_program_folders()[0] == str(tmp_path / "program")
    assert not [one for one in list_program_folders() if one.endswith(("site-packages", "lib-dynload"))]
    assert find_current_folder() is None
    local = list_search_settings({"spark.master": "local[2]"})
    assert local["spark.executorEnv.PYTHONSAFEPATH"] == "1"
    assert local["spark.executorEnv.PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "program")
    assert "spark.executorEnv.THETASTREAM_LAST_FOLDER" not in local
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    interactive = list_search_settings({"spark.master": "local[2]"})
    assert interactive["spark.executorEnv.THETASTREAM_LAST_FOLDER"] == str(tmp_path)
    assert str(tmp_path) not in interactive["spark.executorEnv.PYTHONPATH"].split(os.pathsep)
    tmp_path.chmod(0o1777)
    assert find_current_folder() is None
    assert "spark.executorEnv.THETASTREAM_LAST_FOLDER" not in list_search_settings({"spark.master": "local"})
    # The folders of this machine mean nothing on a cluster.
    assert list_search_settings({"spark.master": "yarn"}) == {"spark.executorEnv.PYTHONSAFEPATH": "1"}
    assert list_search_settings({"spark.master": "yarn", "spark.executorEnv.PYTHONSAFEPATH": "0"}) == {}
