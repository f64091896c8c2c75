"""Stores of all kinds as fixtures. Each test has a store of its own."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support.cassandra import run_cassandra
from tests.support.hbase import run_hbase
from tests.support.object_store import BUCKET, ObjectStore, run_object_store
from tests.support.postgres import run_server
from tests.support.stores import EMBEDDED, HELD, KINDS, ON_S3
from thetastream.results.store import Store
from thetastream.stores import CassandraStore, HBaseStore, PostgresStore

NUMBERS = count()
JARS = Path(__file__).parents[2] / "out"
SERVERS = {
    "postgres": (PostgresStore, "database"),
    "cassandra": (CassandraStore, "cassandra"),
    "hbase": (HBaseStore, "hbase"),
}
"""The stores that need a server, and the fixtures that start one."""


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    with run_server() as address:
        yield address


@pytest.fixture(scope="session")
def cassandra() -> Iterator[str]:
    with run_cassandra(JARS / "cassandra") as address:
        yield address


@pytest.fixture(scope="session")
def hbase() -> Iterator[str]:
    with run_hbase(JARS / "hbase") as address:
        yield address


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    with run_object_store() as server:
        yield server


@pytest.fixture
def bucket(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket whose address and keys are in the environment, where deltalake reads them too."""
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}"


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
    if kind in ON_S3:
        return ON_S3[kind](f"{request.getfixturevalue('bucket')}/results{next(NUMBERS)}")
    make, server = SERVERS[kind]
    return make(request.getfixturevalue(server), f"results{next(NUMBERS)}")
