"""Lets a long run of tests go on where it stopped: ``--passed FILE`` keeps the names of tests that passed.

Tests whose names are in the file are left out. The file belongs to one commit.
"""

from pathlib import Path

import pytest

PASSED = pytest.StashKey[frozenset[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "leave out the tests whose names are in this file, and add those that pass"
    parser.addoption("--passed", type=Path, metavar="FILE", help=help_)


def pytest_configure(config: pytest.Config) -> None:
    """Read the file once, so that all workers, also a later one, leave out the same tests."""
    given = getattr(config, "workerinput", None)
    path = config.getoption("--passed")
    if given is not None:
        config.stash[PASSED] = frozenset(given["passed"])
    elif path is not None and path.exists():
        config.stash[PASSED] = frozenset(path.read_text().splitlines())
    else:
        config.stash[PASSED] = frozenset()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Hand the names to a worker of pytest-xdist."""
    node.workerinput["passed"] = sorted(node.config.stash[PASSED])  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = config.stash[PASSED]
    left_out = [item for item in items if item.nodeid in passed]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in passed]


class Recorder:
    """Adds the names of tests that pass to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            with self.path.open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    path = session.config.getoption("--passed")
    if path is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Recorder(path))
