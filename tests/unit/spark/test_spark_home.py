"""The home of the JVM of a local session: it has all of the installed PySpark but the zip file."""

import os
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

from thetastream.spark.session.worker_packages import VARIABLE
from thetastream.spark.session.workers import (
    HOME,
    SETTING,
    has_installed_pyspark,
    link_home,
    spark_home_without_zip,
)


@pytest.fixture(autouse=True)
def python_of_this_process(monkeypatch):
    monkeypatch.delenv(HOME, raising=False)
    monkeypatch.setenv(VARIABLE, sys.executable)
    monkeypatch.setattr(pyspark, "__file__", f"{sysconfig.get_path('purelib')}/pyspark/__init__.py")


def test_a_home_links_to_everything_but_the_zip_file(tmp_path):
    for name in ("bin", "jars", "python"):
        (tmp_path / name).mkdir()
    (tmp_path / "jars" / "spark.jar").touch()
    home = link_home(tmp_path)
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars"]
    assert (home / "jars" / "spark.jar").exists()


def test_the_home_is_set_while_the_jvm_starts():
    with spark_home_without_zip({}):
        assert not (Path(os.environ[HOME]) / "python").exists()
        assert (Path(os.environ[HOME]) / "bin" / "spark-submit").exists()
    assert HOME not in os.environ


def test_a_home_that_is_set_stays(monkeypatch):
    monkeypatch.setenv(HOME, "/opt/spark")
    with spark_home_without_zip({}):
        assert os.environ[HOME] == "/opt/spark"
    assert os.environ[HOME] == "/opt/spark"


def test_workers_that_may_lack_pyspark_keep_the_zip_file(monkeypatch):
    assert has_installed_pyspark({})
    assert not has_installed_pyspark({SETTING: "/usr/bin/python3"})
    monkeypatch.setattr(pyspark, "__file__", "/opt/spark/python/pyspark/__init__.py")
    assert not has_installed_pyspark({})
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, "/usr/bin/python3")
    assert not has_installed_pyspark({})
