"""A commit that a database has done is done once, although its answer never comes."""

from typing import Any

import pytest

from tests.support.stores import HELD, read_ids, stage
from thetastream.results import history
from thetastream.results.store import Store
from thetastream.stores import cassandra
from thetastream.stores.cassandra import CassandraTables

pytestmark = pytest.mark.databases


class LosesAnswers:
    """A client of a Thrift server whose connection breaks after each conditional write."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def checkAndPut(self, *arguments: Any) -> None:
        self._client.checkAndPut(*arguments)
        raise OSError("the connection is lost")


def lose_answers_of_cassandra(monkeypatch: pytest.MonkeyPatch) -> None:
    from cassandra import OperationTimedOut

    run = CassandraTables.run

    def run_and_lose(tables: CassandraTables, text: str, values: Any = ()) -> Any:
        rows = run(tables, text, values)
        if "IF NOT EXISTS" in text:
            raise OperationTimedOut
        return rows

    monkeypatch.setattr(CassandraTables, "run", run_and_lose)


def lose_answers_of_hbase(monkeypatch: pytest.MonkeyPatch) -> None:
    import happybase

    connect = happybase.Connection._refresh_thrift_client

    def connect_and_lose(connection: happybase.Connection) -> None:
        connect(connection)
        connection.client = LosesAnswers(connection.client)

    monkeypatch.setattr(happybase.Connection, "_refresh_thrift_client", connect_and_lose)


@pytest.mark.parametrize(
    ("empty", "lose_answers"),
    [("cassandra", lose_answers_of_cassandra), ("hbase", lose_answers_of_hbase)],
    indirect=["empty"],
)
def test_a_commit_whose_answer_is_lost_is_done_once(
    empty: Store, lose_answers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty.describe(HELD)
    lose_answers(monkeypatch)
    for epoch in range(3):
        assert empty.commit("q", epoch, stage(empty, epoch, epoch))
        assert not empty.commit("q", epoch, stage(empty, epoch, epoch))
    assert not empty.log.append(3, "", {"query": "p", "epoch": 0})
    assert read_ids(empty) == [0, 1, 2]


@pytest.mark.parametrize("empty", ["cassandra"], indirect=True)
def test_a_log_in_many_partitions_is_one_log(empty: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassandra, "LOG_ROWS", 3)
    empty.describe(HELD)
    for epoch in range(8):
        assert empty.commit("q", epoch, stage(empty, epoch, epoch))
        assert read_ids(empty) == list(range(epoch + 1))
    history._KNOWN.clear()
    assert read_ids(empty) == list(range(8))
    assert not empty.commit("q", 7, stage(empty, 7, 7))
