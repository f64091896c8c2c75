"""Stores of all kinds as fixtures. Each test has a store of its own."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.postgres import run_server
from tests.support.stores import EMBEDDED, HELD, KINDS
from thetastream.stores import PostgresStore, Store

NUMBERS = count()


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    with run_server() as address:
        yield address


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made = make_store(request.param, request, tmp_path)
    made.describe(HELD)
    return made


@pytest.fixture
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, request, tmp_path)


def make_store(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    if kind in EMBEDDED:
        return EMBEDDED[kind](str(folder / "store"))
    return PostgresStore(request.getfixturevalue("database"), f"results{next(NUMBERS)}")
