"""Subscribers of the service get each snapshot once and in order, also after a disconnect."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.support.service import BIG_ID, HELD, add_epoch, connect, make_pairs, run_service
from thetastream.core.errors import QueryError
from thetastream.service import Limits, events
from thetastream.service.bodies import Encoded
from thetastream.service.statement_pool import OpenRows, StatementPool
from thetastream.service.statement_worker import encode_table
from thetastream.stores import ParquetStore

SUBSCRIBE = "/stores/pairs/subscribe"
LIMITS = Limits(rows=10, seconds=0.2, subscribers_per_client=40)


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return make_pairs(tmp_path)


@pytest.fixture
def client(store: ParquetStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A client of a service that shows after 0.1 s that a connection is alive."""
    monkeypatch.setattr(events, "SILENCE_S", 0.1)
    with connect(store, limits=LIMITS) as client:
        yield client


def read_events(lines: Iterator[str]) -> Iterator[tuple[str, str | None, Any]]:
    """Read server-sent events: kind, id and data."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        else:
            yield fields["event"], fields.get("id"), json.loads(fields["data"])
            fields = {}


def subscribe(
    client: httpx.Client, n: int, headers: dict[str, str] | None = None, **params: Any
) -> list[Any]:
    """Read the next n snapshots."""
    with client.stream("GET", SUBSCRIBE, params=params, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        found = read_events(answer.iter_lines())
        return [next(one for one in found if one[0] == "snapshot") for _ in range(n)]


def test_a_subscriber_gets_each_snapshot_once_and_resumes(client: httpx.Client, store: ParquetStore) -> None:
    first = subscribe(client, 2)
    assert [(number, len(data["results"])) for _, number, data in first] == [("1", 2), ("2", 1)]
    later = threading.Timer(0.3, add_epoch, (store, 2, 7))
    later.start()
    resumed = subscribe(client, 1, headers={"Last-Event-ID": "2"}, since=0)
    later.join()
    assert [(number, data["results"][0]["id"]) for _, number, data in resumed] == [("3", 7)]
    filtered = subscribe(client, 3, sql="SELECT id FROM results WHERE id > 5")
    assert [data["results"] for *_, data in filtered] == [[], [{"id": BIG_ID}], [{"id": 7}]]


def test_silence_is_filled_and_a_statement_that_cannot_run_is_refused(client: httpx.Client) -> None:
    with client.stream("GET", SUBSCRIBE, params={"since": 2}) as answer:
        found = read_events(answer.iter_lines())
        assert [next(found)[0] for _ in range(2)] == ["progress", "progress"]
    assert client.get(SUBSCRIBE, params={"sql": "SELECT nothing FROM results"}).status_code == 400
    large = client.get(SUBSCRIBE, params={"sql": "SELECT length(repeat('x', 2000000000))"})
    assert (large.status_code, large.json()["condition"]) == (413, "TOO_LARGE")
    assert client.get(SUBSCRIBE, headers={"Last-Event-ID": "x"}).status_code == 400


def test_a_subscriber_that_has_seen_more_than_the_store_made_is_refused(client: httpx.Client) -> None:
    answer = client.get(SUBSCRIBE, headers={"Last-Event-ID": "3"})
    assert (answer.status_code, answer.json()["condition"]) == (404, "UNKNOWN_SNAPSHOT")


def test_a_last_event_of_thousands_of_digits_is_refused(client: httpx.Client) -> None:
    answer = client.get(SUBSCRIBE, headers={"Last-Event-ID": "9" * 5000})
    assert (answer.status_code, answer.json()["condition"]) == (400, "BAD_VALUE")


def test_a_snapshot_that_is_not_kept_any_more_is_gone(
    client: httpx.Client, store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store.snapshots()[1:]
    monkeypatch.setattr(ParquetStore, "snapshots", lambda self, after=0: kept)
    answer = client.get(SUBSCRIBE, params={"since": 0})
    assert (answer.status_code, answer.json()["condition"]) == (410, "SNAPSHOT_GONE")


def test_many_subscribers_share_one_read_and_give_their_seats_back(
    client: httpx.Client, store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = ParquetStore.open_snapshot

    def count_reads(self: ParquetStore, snapshot: Any) -> Any:
        reads.append(snapshot.number)
        return read(self, snapshot)

    monkeypatch.setattr(ParquetStore, "open_snapshot", count_reads)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.extend(number for _, number, _ in subscribe(client, 3)))
        for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    add_epoch(store, 2, 7)
    for thread in threads:
        thread.join()
    assert sorted(found) == ["1"] * 40 + ["2"] * 40 + ["3"] * 40
    assert len(reads) == 3
    assert len(subscribe(client, 3)) == 3


def test_a_client_has_as_many_subscriptions_as_it_may() -> None:
    seats = events.SubscriberLimits(total=3, per_client=2)
    first = [seats.take("a") for _ in range(2)]
    with pytest.raises(QueryError, match="a has 2"):
        seats.take("a")
    seats.take("b")
    with pytest.raises(QueryError, match="3 subscribers"):
        seats.take("c")
    first[0]()
    seats.take("c")


def test_statements_of_subscribers_wait_as_other_questions_do(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = 0, 0

    def answer_slowly(
        pool: StatementPool, open_rows: OpenRows, sql: str, media_type: str, *_: Any
    ) -> Encoded:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.02)
        running -= 1
        return Encoded(encode_table(open_rows(), media_type), lambda: None)

    monkeypatch.setattr(StatementPool, "encode", answer_slowly)
    with connect(store, limits=Limits(questions=2)) as client:
        sql = "SELECT id FROM results"
        threads = [threading.Thread(target=lambda: subscribe(client, 2, sql=sql)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == 2


def test_snapshots_of_an_answer_are_consecutive(store: ParquetStore, client: httpx.Client) -> None:
    for epoch in range(2, 30):
        add_epoch(store, epoch, epoch)
    numbers = [int(number) for _, number, _ in subscribe(client, 30)]
    assert all(later == earlier + 1 for earlier, later in pairwise(numbers))


def test_a_new_subscriber_costs_one_look_at_the_store(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = ParquetStore.snapshots

    def count_looks(self: ParquetStore, after: int = 0) -> Any:
        looks.append(after)
        return look(self, after)

    monkeypatch.setattr(ParquetStore, "snapshots", count_looks)
    assert len(subscribe(client, 2)) == 2
    assert looks == [0]


def test_a_connected_subscriber_learns_that_the_store_was_restored(
    client: httpx.Client, store: ParquetStore, tmp_path: Path
) -> None:
    shutil.copytree(store.path, tmp_path / "backup")
    add_epoch(store, 2, 7)
    with client.stream("GET", SUBSCRIBE) as answer:
        found = read_events(answer.iter_lines())
        assert [next(found)[1] for _ in range(3)] == ["1", "2", "3"]
        shutil.rmtree(store.path)
        shutil.copytree(tmp_path / "backup", store.path)
        kind, _, data = next(one for one in found if one[0] != "progress")
    assert (kind, data["condition"]) == ("error", "UNKNOWN_SNAPSHOT")


@pytest.mark.parametrize("since", [None, 3])
def test_a_connected_subscriber_gets_no_snapshot_of_another_store(
    client: httpx.Client, store: ParquetStore, since: int | None, tmp_path: Path
) -> None:
    """Another subscriber begins after the store was replaced, and may be the first who sees the new one."""
    add_epoch(store, 2, 7)
    other = ParquetStore(str(tmp_path / "other"))
    other.describe(HELD)
    for epoch in range(5):
        add_epoch(other, epoch, 70 + epoch, 80 + epoch)
    with client.stream("GET", SUBSCRIBE) as answer:
        found = read_events(answer.iter_lines())
        assert [next(found)[1] for _ in range(3)] == ["1", "2", "3"]
        shutil.rmtree(store.path)
        Path(other.path).rename(store.path)
        params = {} if since is None else {"since": since}
        assert [number for _, number, _ in subscribe(client, 2, **params)] == (
            ["1", "2"] if since is None else ["4", "5"]
        )
        kind, _, data = next(one for one in found if one[0] != "progress")
    assert (kind, data["condition"]) == ("error", "UNKNOWN_SNAPSHOT")
    assert "another snapshot 3 than before" in data["message"]


def test_a_store_that_was_replaced_is_read_again(client: httpx.Client, store: ParquetStore) -> None:
    assert [data["results"][0]["id"] for *_, data in subscribe(client, 2)] == [1, BIG_ID]
    shutil.rmtree(store.path)
    store.describe(HELD)
    add_epoch(store, 0, 77)
    add_epoch(store, 1, 78, 79)
    assert [data["results"][0]["id"] for *_, data in subscribe(client, 2)] == [77, 78]


def test_a_snapshot_that_was_forgotten_is_gone_for_new_and_for_connected_subscribers(
    client: httpx.Client, store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(subscribe(client, 2)) == 2
    assert store.forget(before=2) == 1
    answer = client.get(SUBSCRIBE, params={"since": 0})
    assert (answer.status_code, answer.json()["condition"]) == (410, "SNAPSHOT_GONE")

    def read_none(self: ParquetStore, snapshot: Any) -> pa.Table:
        raise QueryError("UNKNOWN_SNAPSHOT", "it was forgotten after it was listed")

    monkeypatch.setattr(ParquetStore, "open_snapshot", read_none)
    monkeypatch.setattr(StatementPool, "encode", lambda self, open_rows, *_: open_rows())
    with client.stream("GET", SUBSCRIBE, params={"sql": "SELECT id FROM results"}) as answer:
        kind, _, data = next(read_events(answer.iter_lines()))
    assert (kind, data["condition"]) == ("error", "SNAPSHOT_GONE")


def test_a_subscriber_that_many_snapshots_have_overtaken_misses_none(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "KEPT_SNAPSHOTS", 2)
    monkeypatch.setattr(events, "POLL_S", 0)

    async def follow() -> list[int]:
        one = events.Feed(store)
        seen = [snapshot.number for snapshot in await one.list_after(None)]
        for epoch in range(2, 9):
            add_epoch(store, epoch, epoch)
        return seen + [snapshot.number for snapshot in await one.wait(seen[-1], 5)]

    assert asyncio.run(follow()) == list(range(1, 10))


def test_a_subscriber_ahead_of_the_others_leaves_them_no_gap(store: ParquetStore) -> None:
    async def follow() -> list[int]:
        one = events.Feed(store)
        seen = [snapshot.number for snapshot in await one.list_after(None)]
        for epoch in range(2, 9):
            add_epoch(store, epoch, epoch)
        ahead = await one.list_after(6)
        assert [snapshot.number for snapshot in ahead] == [7, 8, 9]
        return seen + [snapshot.number for snapshot in await one.wait(seen[-1], 5)]

    assert asyncio.run(follow()) == list(range(1, 10))


def test_a_service_that_restarts_resumes_every_subscriber(store: ParquetStore) -> None:
    rounds, seen = 3, [[0], [0], [0]]
    for epoch in range(2, 2 + 3 * rounds):
        add_epoch(store, epoch, epoch)
    with ExitStack() as connections:
        for _ in range(rounds):
            # Connections are open when the service stops.
            with run_service({"pairs": store}) as address:
                for n, numbers in enumerate(seen):
                    client = connections.enter_context(httpx.Client(base_url=address, timeout=20))
                    last = {"Last-Event-ID": str(numbers[-1])}
                    answer = connections.enter_context(client.stream("GET", SUBSCRIBE, headers=last))
                    found = read_events(answer.iter_lines())
                    numbers += [int(next(found)[1] or 0) for _ in range(n + 1)]
    assert seen == [list(range(rounds * (n + 1) + 1)) for n in range(len(seen))]
