"""The check for known vulnerabilities: what it asks about, and what fails it."""

import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

AUDIT = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "audit.py"))


def answer(monkeypatch: pytest.MonkeyPatch, *packages: dict[str, Any]) -> None:
    """Let the index answer so."""

    def run(command: list[str], **_: Any) -> Any:
        Path(command[command.index("--output") + 1]).write_text(json.dumps({"dependencies": packages}))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)


def test_packages_that_the_wheel_needs_are_listed_and_tools_are_not() -> None:
    found = AUDIT["list_needed"]("thetastream[serve]")
    assert {"pyspark", "py4j", "starlette", "anyio"} <= found.keys()
    assert not {"pytest", "ruff", "boto3"} & found.keys()


def test_a_known_vulnerability_fails_and_a_package_without_data_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = {"name": "h11", "version": "0.16.0", "vulns": []}
    unknown = {"name": "six", "skip_reason": "not found"}
    answer(monkeypatch, fine, unknown)
    assert AUDIT["audit"]({"h11": "0.16.0", "six": "1"}) == 0
    assert "1 packages audited, 0 known" in capsys.readouterr().out
    hole = {"id": "CVE-1", "fix_versions": ["0.16.0"]}
    answer(monkeypatch, fine | {"version": "0.14.0", "vulns": [hole]}, unknown)
    assert AUDIT["audit"]({"h11": "0.14.0", "six": "1"}) == 1
    assert "h11 0.14.0: CVE-1, fixed in 0.16.0" in capsys.readouterr().out


def test_an_index_that_does_not_answer_fails_nothing_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], timeout: float, **_: Any) -> Any:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    assert AUDIT["audit"]({"h11": "0.14.0"}) == 0
    assert "did not answer in 90 s" in capsys.readouterr().out
