"""What a Python worker lacks is named, with what to change."""

import sys

import pytest
from pyspark.errors import PySparkException

from thetastream.core.errors import FLAG
from thetastream.spark.session import failure
from thetastream.spark.session.worker_packages import (
    NEEDED,
    WorkerPackages,
    find_cause,
    find_missing_module,
    make_error,
)

FOLDER, WHEEL = "/tmp/userFiles-1/2", "thetastream-0.1.0-py3-none-any.whl"
INSTALLED = "/usr/lib/python3/site-packages/thetastream/__init__.py"
SENT = f"{FOLDER}/thetastream.zip/thetastream/__init__.py"
ENDED = """[STREAM_FAILED] Query pairs [id = 4f0c-1, runId = 9b-2] terminated with exception: \
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "serializers.py", line 634, in loads
ModuleNotFoundError: No module named '{}'
\tat org.apache.spark.api.python.BasePythonRunner
"""
SET_PYTHON = f"set PYSPARK_PYTHON={sys.executable}, or on a cluster"


@pytest.fixture(autouse=True)
def without_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLAG, raising=False)


@pytest.mark.parametrize(
    ("origin", "is_connect"),
    [(INSTALLED, True), (INSTALLED, False), (SENT, False), (f"{FOLDER}3/x.py", True)],
)
def test_packages_that_all_queries_get_are_no_fault(origin: str, is_connect: bool) -> None:
    assert WorkerPackages([], origin, FOLDER, ["thetastream.zip"]).find_fault(is_connect) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (WorkerPackages(["thetastream"], None, FOLDER, []), f"they lack thetastream; {SET_PYTHON}"),
        (
            WorkerPackages(["thetastream"], None, FOLDER, ["orders.whl"]),
            f"they lack thetastream; {SET_PYTHON}",
        ),
        (WorkerPackages(["numba"], INSTALLED, FOLDER, [WHEEL]), f"they lack numba; {SET_PYTHON}"),
        (
            WorkerPackages(["numba", "thetastream"], None, FOLDER, [WHEEL]),
            f"; rename {WHEEL} to thetastream.zip",
        ),
        (
            WorkerPackages([], SENT, FOLDER, ["thetastream.zip"]),
            "Spark Connect does not hand artifacts to streaming",
        ),
    ],
)
def test_faults_of_workers(found: WorkerPackages, said: str) -> None:
    fault = found.find_fault(is_connect=True)
    assert fault is not None
    assert fault.condition == "WORKER_PYTHON"
    assert said in str(fault)


@pytest.mark.parametrize("module", ["thetastream", "thetastream.spark.new", "numba"])
def test_a_query_whose_workers_lack_a_package_ends_with_our_error(module: str) -> None:
    shown = failure.describe_failure(PySparkException(ENDED.format(module)))
    assert shown is not None
    assert shown.startswith(
        f"[WORKER_PYTHON] Spark's Python workers must run Python {sys.version_info.major}."
    )
    assert f"No module named '{module}'" in shown
    assert SET_PYTHON in shown
    assert "Spark Connect does not hand artifacts to streaming queries" in shown
    assert "It stopped the query pairs." in shown
    assert "\n" not in shown
    assert str(failure.unwrap_error(PySparkException(ENDED.format(module)))).startswith("[WORKER_PYTHON] ")


def test_a_query_whose_workers_lack_a_module_of_the_user_names_it() -> None:
    shown = failure.summarize_failure(ENDED.format("orders.rules"))
    assert shown.startswith("[WORKER_PYTHON] a Python worker has no module 'orders.rules'; install it")
    assert NEEDED[0] not in shown


def test_modules_that_the_driver_lacks_are_shown_as_they_are() -> None:
    assert find_missing_module("ModuleNotFoundError: No module named 'orders'") is None
    assert find_missing_module("An exception was thrown from the Python worker: ValueError: 7") is None


def test_the_error_of_the_check_is_shown_as_it_is() -> None:
    error = make_error(find_cause(ENDED.format("thetastream.spark")))
    assert "set spark.python.daemon.module=pyspark.daemon" in str(error)
    assert failure.describe_failure(error) is None


def test_an_error_of_ours_says_more_than_the_module() -> None:
    ours = "thetastream.core.errors.PredicateError: [PREDICATE_RAISED] predicate 'near' raised ImportError: x"
    assert failure.summarize_failure(f"{ENDED.format('orders')}\n{ours}\n at y").startswith(
        "PredicateError: "
    )
