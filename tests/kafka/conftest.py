"""A broker for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka import BROKER, Broker, fetch_connector, run_broker
from tests.support.maven import fetch_jars

JARS = Path(__file__).parents[2] / "out" / "kafka"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with run_broker(tmp_path_factory.mktemp("kafka"), fetch_jars(BROKER, JARS / "broker")) as one:
        yield one


@pytest.fixture(scope="session")
def connector() -> str:
    return fetch_connector(JARS)
