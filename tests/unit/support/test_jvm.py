"""The options of the JVMs that tests start, with and without an archive of classes."""

import os
from pathlib import Path

import pytest

from tests.support import jvm
from thetastream.spark.session.jvm import ClassArchive
from thetastream.spark.session.workers import HOME


@pytest.fixture(autouse=True)
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    for name in (HOME, jvm.VARIABLE):
        monkeypatch.setenv(name, "")  # Whatever a test sets, the next test has what was there before.
        monkeypatch.delenv(name)
    archive = ClassArchive(tmp_path)
    monkeypatch.setattr(jvm, "ARCHIVE", archive)
    return archive


def test_the_home_is_that_of_the_archive(archive: ClassArchive) -> None:
    archive.file.touch()
    jvm.configure_jvms()
    assert os.environ[HOME] == str(archive.home)
    assert os.environ[jvm.VARIABLE] == f"{jvm.OPTIONS} {archive.write_option()}"


def test_without_an_archive_only_the_options_are_set() -> None:
    jvm.configure_jvms()
    assert os.environ[jvm.VARIABLE] == jvm.OPTIONS
    assert HOME not in os.environ


@pytest.mark.parametrize("name", [HOME, jvm.VARIABLE])
def test_what_the_environment_has_stays(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    archive.file.touch()
    monkeypatch.setenv(name, "chosen")
    jvm.configure_jvms()
    assert os.environ[name] == "chosen"
    assert "SharedArchiveFile" not in os.environ[jvm.VARIABLE]
