"""The archive of the classes of Spark: where it lies, who may use it, and what making it leaves behind."""

import os
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

from thetastream.core import private_folder
from thetastream.core.errors import SessionError
from thetastream.spark.session.jvm import ClassArchive, find_archive, locate_archive
from thetastream.spark.session.worker_packages import VARIABLE
from thetastream.spark.session.workers import HOME, SETTING


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(HOME, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, sys.executable)
    monkeypatch.setattr(pyspark, "__file__", f"{sysconfig.get_path('purelib')}/pyspark/__init__.py")
    return tmp_path


def write_file(options: str) -> None:
    path = options.split()[0].removeprefix("-XX:ArchiveClassesAtExit=")
    assert (Path(os.environ[HOME]) / "jars").exists()
    Path(path).write_text("classes")


def test_a_session_finds_the_archive_after_it_was_made(cache: Path) -> None:
    assert find_archive({}) is None
    assert locate_archive().make(write_file)
    found = find_archive({})
    assert found == locate_archive()
    assert found.file.read_text() == "classes"
    assert found.folder.parent == cache / "thetastream"
    assert f"-XX:SharedArchiveFile={found.file}" in found.write_option()
    assert HOME not in os.environ


def test_an_archive_belongs_to_one_version_of_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    before = locate_archive()
    monkeypatch.setattr(pyspark, "__version__", "0.0")
    assert locate_archive().folder != before.folder


def test_sessions_with_another_home_or_another_python_do_not_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    locate_archive().make(write_file)
    assert find_archive({SETTING: "/usr/bin/python3"}) is None
    monkeypatch.setenv(HOME, "/opt/spark")
    assert find_archive({}) is None


def test_a_java_that_cannot_write_one_leaves_the_last_one(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path)
    assert archive.make(write_file)
    archive.file.write_text("before")
    assert not archive.make(lambda options: None)
    assert archive.file.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["classes.jsa", "home"]


@pytest.mark.parametrize("before", ["/opt/spark", None])
def test_the_home_of_the_environment_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is not None:
        monkeypatch.setenv(HOME, before)

    def fail(options: str) -> None:
        raise RuntimeError("no Java")

    with pytest.raises(RuntimeError, match="no Java"):
        ClassArchive(tmp_path).make(fail)
    assert os.environ.get(HOME) == before


def test_an_archive_that_others_can_replace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM would run their code."""
    for name in ("_is_reachable", "_has_users"):
        monkeypatch.setattr(private_folder, name, lambda folder: True)
    archive = locate_archive()
    archive.make(write_file)
    archive.folder.chmod(0o777)
    with pytest.raises(SessionError, match=r"UNSAFE_FOLDER.*classes\.jsa.*XDG_CACHE_HOME"):
        find_archive({})
    archive.make(write_file)
    assert find_archive({}) == archive
    archive.folder.parent.chmod(0o777)
    with pytest.raises(SessionError, match="UNSAFE_FOLDER"):
        archive.make(write_file)
