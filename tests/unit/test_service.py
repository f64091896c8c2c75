"""The service: what clients read is what the store holds, and what they may not ask is refused."""

import asyncio
import json
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

from tests.support.service import HELD, add_epoch, connect, run_service
from thetastream.cli.serving import read_token, serve
from thetastream.core.listening import open_port
from thetastream.errors import QueryError
from thetastream.service import Limits, events, feed
from thetastream.service.encoding import ARROW
from thetastream.service.questions import Questions
from thetastream.stores import ParquetStore

BIG = 2**53 + 1
SUBSCRIBE = "/stores/pairs/subscribe"


LIMITS = Limits(rows=10, seconds=0.2, subscribers_per_client=40)


def make_store(folder: Path) -> ParquetStore:
    store = ParquetStore(str(folder / "pairs"))
    store.describe(HELD)
    add_epoch(store, 0, 1, 2)
    add_epoch(store, 1, BIG)
    return store


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return make_store(tmp_path)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service whose store no test changes."""
    with connect(make_store(tmp_path_factory.mktemp("read")), limits=LIMITS) as client:
        yield client


@pytest.fixture
def client(store: ParquetStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A client of a service that shows after 0.1 s that a connection is alive."""
    monkeypatch.setattr(events, "SILENCE_S", 0.1)
    with connect(store, limits=LIMITS) as client:
        yield client


def ask(client: httpx.Client, **question: Any) -> Any:
    answer = client.post("/stores/pairs/query", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_questions_are_answered_over_a_pinned_snapshot(reader: httpx.Client) -> None:
    assert [row["id"] for row in ask(reader)] == [1, 2, BIG]
    assert ask(reader, sql="SELECT count(*) AS n FROM results", snapshot=1) == [{"n": 2}]
    assert ask(reader, sql="SELECT id FROM results", key={"id": [2, BIG]}) == [{"id": 2}, {"id": BIG}]
    assert ask(reader, sql="SELECT 1 AS a, 2 AS a") == [{"a": 1, "a_1": 2}]
    assert ask(reader, sql="SELECT x FROM results", since="1970-01-01T00:01:00") == [{"x": "NaN"}]


def test_a_question_that_is_not_sent_as_json_learns_the_header(reader: httpx.Client) -> None:
    answer = reader.post("/stores/pairs/query", content='{"sql": "SELECT 1"}')
    assert answer.status_code == 422
    assert answer.json()["message"].endswith("sent with the header Content-Type: application/json")


def test_rows_come_as_arrow_if_the_client_accepts_it(reader: httpx.Client) -> None:
    answer = reader.get("/stores/pairs/snapshots/2", headers={"Accept": ARROW})
    assert pa.ipc.open_stream(answer.content).read_all()["id"].to_pylist() == [BIG]


def test_stores_and_snapshots_are_listed(reader: httpx.Client) -> None:
    assert reader.get("/stores").json()["stores"]["pairs"]["keys"] == ["id"]
    (last,) = reader.get("/stores/pairs/snapshots", params={"after": 1}).json()
    assert (last["number"], last["rows"], last["at"]) == (2, 1, "1970-01-01T00:01:00+00:00")


@pytest.mark.parametrize(
    ("question", "status", "condition"),
    [
        ({"sql": "DROP TABLE results"}, 400, "STORE_QUERY"),
        ({"sql": "SELECT * FROM read_csv('/etc/passwd')"}, 400, "STORE_QUERY"),
        ({"sql": "SELECT range FROM range(11)"}, 413, "TOO_MANY_ROWS"),
        ({"sql": "SELECT sum(a.range * b.range) FROM range(9000000) a, range(9000000) b"}, 408, "TOO_SLOW"),
        ({"sql": "SELECT length(repeat('x', 2000000000))"}, 400, "STORE_QUERY"),
        ({"sql": "SELECT x FROM (SELECT 'a'.LPAD(2000000000, 'b') AS x)"}, 400, "STORE_QUERY"),
        ({"sql": "SELECT list_transform([1], n -> main.printf('%2000000000d', n))"}, 400, "STORE_QUERY"),
        ({"sql": 'WITH a AS (SELECT 1) SELECT "list_resize"([1], 2000000000) FROM a'}, 400, "STORE_QUERY"),
        ({"sql": "SELECT * FROM query('SELECT repeat(''x'', 2000000000)')"}, 400, "STORE_QUERY"),
        ({"sql": "SELECT list_sum(range(2000000000))"}, 400, "STORE_QUERY"),
        ({"sql": "SELECT list_reduce(list(id), (a, b) -> a || a) FROM results"}, 400, "STORE_QUERY"),
        ({"sql": "SELECT * FROM unnest(generate_series(1, 2000000000))"}, 400, "STORE_QUERY"),
        ({"key": {"x": 1}}, 400, "STORE_KEY"),
        ({"snapshot": 9}, 404, "UNKNOWN_SNAPSHOT"),
    ],
)
def test_questions_beyond_the_limits_are_refused(
    reader: httpx.Client, question: dict[str, Any], status: int, condition: str
) -> None:
    answer = reader.post("/stores/pairs/query", json=question)
    assert (answer.status_code, answer.json()["condition"]) == (status, condition)


A, B = "a" * 40, "b" * 40


@pytest.mark.parametrize(
    ("sql", "is_allowed"),
    [
        ("SELECT replace(replace('1,2', ',', ' and '), ' and ', ';') AS x", True),
        ("SELECT regexp_replace(CAST(id AS VARCHAR), '[0-9]', '#', 'g') AS x FROM results", True),
        (f"SELECT '{A}'.replace('{A}', '{B}').replace('{B}', '{A}').replace('{A}', '{B}') AS x", True),
        (f"SELECT replace(replace('{A}', 'a', '{A}'), 'a', '{B}') AS x", False),
        (f"SELECT replace(x, 'a', '{B}') FROM (SELECT replace('{A}', 'a', '{A}') AS x)", False),
        (f"SELECT regexp_replace(regexp_replace('{A}', 'a', '{A}', 'g'), 'a', '{B}', 'g') AS x", False),
        (f"SELECT x.regexp_replace('a*', '{A}', 'g').REPLACE('a', '{B}') FROM (SELECT '{A}' AS x)", False),
        ("SELECT replace(x, 'a', x) FROM (SELECT 'aaa' AS x)", False),
        ("SELECT x.replace('a', x) FROM (SELECT 'aaa' AS x)", False),
    ],
)
def test_replacements_that_make_texts_too_long_are_refused(
    reader: httpx.Client, sql: str, is_allowed: bool
) -> None:
    answer = reader.post("/stores/pairs/query", json={"sql": sql})
    if is_allowed:
        assert answer.status_code == 200, answer.text
    else:
        assert (answer.status_code, answer.json()["condition"]) == (400, "STORE_QUERY")
        assert "1,000 times longer" in answer.json()["message"]


def test_an_unknown_store_and_unknown_fields_are_refused(reader: httpx.Client) -> None:
    assert reader.get("/stores/other/snapshots").json() == {
        "condition": "UNKNOWN_STORE",
        "message": "store 'other' must be a store of this service (pairs)",
    }
    with pytest.raises(QueryError, match=r"must be a store of this service \(none\)"):
        Questions({}, LIMITS).find_store("other")
    assert reader.post("/stores/pairs/query", json={"statement": "SELECT 1"}).status_code == 422


def test_without_a_token_only_this_machine_is_answered(reader: httpx.Client) -> None:
    assert reader.get("/stores", headers={"Host": "127.0.0.1:8080"}).status_code == 200
    assert reader.get("/stores", headers={"Host": "[::1]:8080"}).status_code == 200
    assert reader.get("/stores", headers={"Host": "evil.example"}).status_code == 403


def test_with_a_token_only_those_who_know_it_are_answered(store: ParquetStore) -> None:
    wrong = {"Authorization": "Bearer a long secret tokem"}
    right = {"Authorization": "Bearer a long secret token", "Host": "results.example"}
    with connect(store, token="a long secret token") as client:
        assert client.get("/stores").status_code == 401
        assert client.get("/stores", headers=wrong).status_code == 401
        assert client.get("/openapi.json").status_code == 401
        assert client.get("/health").status_code == 200
        assert client.get("/stores", headers=right).status_code == 200


def parse(*arguments: str) -> Any:
    from thetastream.cli.arguments import build_parser

    return build_parser().parse_args(arguments)


def test_another_address_needs_a_token_before_the_service_starts(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="TOKEN"):
        serve(parse("serve", str(tmp_path), "--host", "0.0.0.0"))
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(QueryError, match="at least 16"):
        read_token(tmp_path / "token")


def test_a_port_that_is_taken_is_refused_before_the_service_starts(store: ParquetStore) -> None:
    with open_port("127.0.0.1", 0) as taken:
        arguments = parse("serve", store.path, "--port", str(taken.getsockname()[1]))
        with pytest.raises(QueryError, match=r"SERVICE_PORT.*in use"):
            serve(arguments)
    with pytest.raises(QueryError, match="SERVICE_PORT"):
        serve(parse("serve", store.path, "--port", "99999"))


def test_a_certificate_that_cannot_be_used_is_refused(store: ParquetStore, tmp_path: Path) -> None:
    file = tmp_path / "some.pem"
    with pytest.raises(QueryError, match=r"CERTIFICATE.*some\.pem cannot be used"):
        serve(parse("serve", store.path, "--tls-cert", str(file)))
    file.write_text("no certificate")
    with pytest.raises(QueryError, match=r"CERTIFICATE.*some\.pem cannot be used"):
        serve(parse("serve", store.path, "--tls-cert", str(file)))
    with pytest.raises(QueryError, match=r"CERTIFICATE.*pass --tls-cert"):
        serve(parse("serve", store.path, "--tls-key", str(file)))


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
    assert [data["results"] for *_, data in filtered] == [[], [{"id": BIG}], [{"id": 7}]]


def test_silence_is_filled_and_a_statement_that_cannot_run_is_refused(client: httpx.Client) -> None:
    with client.stream("GET", SUBSCRIBE, params={"since": 2}) as answer:
        found = read_events(answer.iter_lines())
        assert [next(found)[0] for _ in range(2)] == ["progress", "progress"]
    assert client.get(SUBSCRIBE, params={"sql": "SELECT nothing FROM results"}).status_code == 400
    large = client.get(SUBSCRIBE, params={"sql": "SELECT length(repeat('x', 2000000000))"})
    assert (large.status_code, large.json()["condition"]) == (400, "STORE_QUERY")
    assert client.get(SUBSCRIBE, headers={"Last-Event-ID": "x"}).status_code == 400


def test_a_subscriber_that_has_seen_more_than_the_store_made_is_refused(client: httpx.Client) -> None:
    answer = client.get(SUBSCRIBE, headers={"Last-Event-ID": "3"})
    assert (answer.status_code, answer.json()["condition"]) == (404, "UNKNOWN_SNAPSHOT")


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
    read = ParquetStore.read_snapshot

    def count_reads(self: ParquetStore, snapshot: Any) -> pa.Table:
        reads.append(snapshot.number)
        return read(self, snapshot)

    monkeypatch.setattr(ParquetStore, "read_snapshot", count_reads)
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
    seats = events.Seats(total=3, per_client=2)
    first = [seats.take("a") for _ in range(2)]
    with pytest.raises(QueryError, match="a has 2"):
        seats.take("a")
    seats.take("b")
    with pytest.raises(QueryError, match="3 subscribers"):
        seats.take("c")
    first[0]()
    seats.take("c")


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


def test_the_first_rows_of_a_snapshot(client: httpx.Client) -> None:
    rows = client.get("/stores/pairs/snapshots/1", params={"first": 1}).json()
    assert [row["id"] for row in rows] == [1]


def test_a_snapshot_that_was_forgotten_is_gone_for_new_and_for_connected_subscribers(
    client: httpx.Client, store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(subscribe(client, 2)) == 2
    assert store.forget(before=2) == 1
    answer = client.get(SUBSCRIBE, params={"since": 0})
    assert (answer.status_code, answer.json()["condition"]) == (410, "SNAPSHOT_GONE")

    def read_none(self: ParquetStore, snapshot: Any) -> pa.Table:
        raise QueryError("UNKNOWN_SNAPSHOT", "it was forgotten after it was listed")

    monkeypatch.setattr(ParquetStore, "read_snapshot", read_none)
    with client.stream("GET", SUBSCRIBE, params={"sql": "SELECT id FROM results"}) as answer:
        kind, _, data = next(read_events(answer.iter_lines()))
    assert (kind, data["condition"]) == ("error", "SNAPSHOT_GONE")


def test_a_subscriber_that_many_snapshots_have_overtaken_misses_none(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "KEPT_SNAPSHOTS", 2)
    monkeypatch.setattr(feed, "POLL_S", 0)

    async def follow() -> list[int]:
        one = feed.Feed(store)
        seen = [snapshot.number for snapshot in await one.list_after(None)]
        for epoch in range(2, 9):
            add_epoch(store, epoch, epoch)
        return seen + [snapshot.number for snapshot in await one.wait(seen[-1], 5)]

    assert asyncio.run(follow()) == list(range(1, 10))


def test_a_subscriber_ahead_of_the_others_leaves_them_no_gap(store: ParquetStore) -> None:
    async def follow() -> list[int]:
        one = feed.Feed(store)
        seen = [snapshot.number for snapshot in await one.list_after(None)]
        for epoch in range(2, 9):
            add_epoch(store, epoch, epoch)
        ahead = await one.list_after(6)
        assert [snapshot.number for snapshot in ahead] == [7, 8, 9]
        return seen + [snapshot.number for snapshot in await one.wait(seen[-1], 5)]

    assert asyncio.run(follow()) == list(range(1, 10))


def test_two_services_of_one_store_answer_alike(store: ParquetStore) -> None:
    with run_service({"pairs": store}) as one, run_service({"pairs": store}) as other:
        for epoch in range(2, 5):
            add_epoch(store, epoch, epoch)
            for path in ("/stores", "/stores/pairs/snapshots", "/stores/pairs/snapshots/2"):
                assert httpx.get(one + path).content == httpx.get(other + path).content
            found = [httpx.post(f"{each}/stores/pairs/query", json={}).json() for each in (one, other)]
            assert len(found[0]) == epoch + 2
            assert str(found[0]) == str(found[1])


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
