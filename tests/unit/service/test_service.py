"""The service: what clients read is what the store holds, and what they may not ask is refused."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.support.service import BIG_ID, HELD, add_epoch, connect, make_pairs, run_service
from tests.support.stores import commit_rows
from thetastream.core.errors import QueryError
from thetastream.results import recent
from thetastream.results.description import Description
from thetastream.results.recent import Recent
from thetastream.results.store import Store
from thetastream.service import Limits
from thetastream.service.questions import Questions
from thetastream.service.statement_worker import ARROW
from thetastream.stores import ParquetStore, parquet

LIMITS = Limits(rows=10, seconds=0.2)
ROOT = Path(__file__).parents[3]
CURL = re.compile(r"^curl .*?(?<!\\)$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return make_pairs(tmp_path)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service whose store no test changes."""
    with connect(make_pairs(tmp_path_factory.mktemp("read")), limits=LIMITS) as client:
        yield client


def ask(client: httpx.Client, **question: Any) -> Any:
    answer = client.post("/stores/pairs/query", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_questions_are_answered_over_a_pinned_snapshot(reader: httpx.Client) -> None:
    assert [row["id"] for row in ask(reader)] == [1, 2, BIG_ID]
    assert ask(reader, sql="SELECT count(*) AS n FROM results", snapshot=1) == [{"n": 2}]
    assert ask(reader, sql="SELECT id FROM results", key={"id": [2, BIG_ID]}) == [{"id": 2}, {"id": BIG_ID}]
    assert ask(reader, sql="SELECT 1 AS a, 2 AS a") == [{"a": 1, "a_1": 2}]
    assert ask(reader, sql="SELECT x FROM results", since="1970-01-01T00:01:00") == [{"x": "NaN"}]


def test_a_question_that_is_not_sent_as_json_learns_the_header(reader: httpx.Client) -> None:
    answer = reader.post("/stores/pairs/query", content='{"sql": "SELECT 1"}')
    assert answer.status_code == 422
    assert answer.json()["message"].endswith("sent with the header Content-Type: application/json")


def test_rows_come_as_arrow_if_the_client_accepts_it(reader: httpx.Client) -> None:
    answer = reader.get("/stores/pairs/snapshots/2", headers={"Accept": ARROW})
    assert pa.ipc.open_stream(answer.content).read_all()["id"].to_pylist() == [BIG_ID]


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
        ({"sql": "SELECT length(repeat('x', 2000000000))"}, 413, "TOO_LARGE"),
        *(
            pytest.param({"sql": sql}, 413, "TOO_LARGE", marks=pytest.mark.slow)
            for sql in (
                "SELECT list_transform([1], lambda n: main.printf('%2000000000d', n))",
                "SELECT * FROM query('SELECT repeat(''x'', 2000000000)')",
                "SELECT list_sum(range(2000000000))",
            )
        ),
        ({"key": {"x": 1}}, 400, "STORE_KEY"),
        ({"snapshot": 9}, 404, "UNKNOWN_SNAPSHOT"),
    ],
)
def test_questions_beyond_the_limits_are_refused(
    reader: httpx.Client, question: dict[str, Any], status: int, condition: str
) -> None:
    answer = reader.post("/stores/pairs/query", json=question)
    assert (answer.status_code, answer.json()["condition"]) == (status, condition)


def test_an_unknown_store_and_unknown_fields_are_refused(reader: httpx.Client) -> None:
    assert reader.get("/stores/other/snapshots").json() == {
        "condition": "UNKNOWN_STORE",
        "message": "store 'other' must be a store of this service (pairs)",
    }
    with pytest.raises(QueryError, match=r"must be a store of this service \(none\)"):
        Questions({}, LIMITS).find_store("other")
    assert reader.post("/stores/pairs/query", json={"statement": "SELECT 1"}).status_code == 422


def test_the_first_rows_of_a_snapshot(reader: httpx.Client) -> None:
    rows = reader.get("/stores/pairs/snapshots/1", params={"first": 1}).json()
    assert [row["id"] for row in rows] == [1]


@pytest.mark.parametrize("capacity", [recent.CAPACITY, 0])
def test_a_snapshot_with_more_rows_than_an_answer_is_never_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    monkeypatch.setattr(recent, "CAPACITY", capacity)
    monkeypatch.setattr(parquet, "RECENT", Recent(capacity))
    monkeypatch.delattr(Store, "read_snapshot")
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    add_epoch(store, 0, *range(20))
    path = "/stores/pairs/snapshots/1"
    with connect(store, limits=LIMITS) as client:
        assert client.get(path).json()["condition"] == "TOO_MANY_ROWS"
        assert [row["id"] for row in client.get(path, params={"first": 3}).json()] == [0, 1, 2]
        assert client.get(path, params={"first": 11}).json()["condition"] == "TOO_MANY_ROWS"
        with client.stream("GET", "/stores/pairs/subscribe") as answer:
            data = next(line for line in answer.iter_lines() if line.startswith("data: "))
        event = json.loads(data.removeprefix("data: "))
        assert (event["number"], event["error"]["condition"]) == (1, "TOO_MANY_ROWS")


@pytest.mark.parametrize("page", ["README.md", "docs/running/service.md"])
def test_the_curl_commands_of_the_pages_are_answered(tmp_path: Path, page: str) -> None:
    store = ParquetStore(str(tmp_path))
    schema = pa.schema([("a_carrier", pa.string()), ("first", pa.int64())])
    store.describe(Description(schema))
    rows = [{"a_carrier": carrier, "first": 7} for carrier in "UUAUDAEB"]
    commit_rows(store, 0, Description(schema), pa.RecordBatch.from_pylist(rows, schema=schema))
    found = []
    with connect(store) as client:
        for command in CURL.findall((ROOT / page).read_text()):
            words = shlex.split(command.replace("\\\n", " "), comments=True)
            (url,) = (word for word in words if word.startswith("http"))
            path = httpx.URL(url).raw_path.decode()
            if "service.example" in url:
                assert client.get(path).status_code == 200
            elif "-d" in words:
                headers = dict([words[words.index("-H") + 1].split(": ")])
                answer = client.post(path, content=words[words.index("-d") + 1], headers=headers)
                found.append(answer.json())
            elif "subscribe" in path:
                with client.stream("GET", path) as answer:
                    data = next(line for line in answer.iter_lines() if line.startswith("data: "))
                found.append(json.loads(data.removeprefix("data: "))["results"])
            else:
                found.append(client.get(path).json())
    assert next(one[:2] for one in found if isinstance(one, list) and "a_carrier" in one[0]) == [
        {"a_carrier": "U", "pairs": 3},
        {"a_carrier": "A", "pairs": 2},
    ]
    assert [{"pairs": 8}] in found


def test_two_services_of_one_store_answer_alike(store: ParquetStore) -> None:
    with run_service({"pairs": store}) as one, run_service({"pairs": store}) as other:
        for epoch in range(2, 5):
            add_epoch(store, epoch, epoch)
            for path in ("/stores", "/stores/pairs/snapshots", "/stores/pairs/snapshots/2"):
                assert httpx.get(one + path).content == httpx.get(other + path).content
            found = [httpx.post(f"{each}/stores/pairs/query", json={}).json() for each in (one, other)]
            assert len(found[0]) == epoch + 2
            assert str(found[0]) == str(found[1])


def test_a_store_of_changes_answers_with_the_rows_that_hold(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("_change_type", pa.string())])
    held, store = Description(schema, has_deletes=True), ParquetStore(str(tmp_path))
    store.describe(held)

    def make(kinds: list[str], first: int = 0) -> pa.RecordBatch:
        ids = range(first, first + len(kinds))
        return pa.record_batch([ids, [f"{one:0500}" for one in ids], kinds], schema=schema)

    commit_rows(store, 0, held, make(["insert"] * 1500))
    commit_rows(store, 1, held, make(["delete"] * 1498))
    with connect(store, limits=Limits(memory="8 MB", questions=4)) as client:
        assert [row["id"] for row in ask(client)] == [1498, 1499]
        assert ask(client, sql="SELECT count(*) AS n, min(id) AS id FROM results") == [{"n": 2, "id": 1498}]
        # The rows that hold are few, but the service must not load all changes to find them.
        commit_rows(store, 2, held, make(["insert"] * 1000, 2000))
        for question in ({}, {"sql": "SELECT count(*) AS n FROM results"}):
            answer = client.post("/stores/pairs/query", json=question)
            assert (answer.status_code, answer.json()["condition"]) == (413, "TOO_LARGE")
            assert "since, until or key" in answer.json()["message"]
        assert ask(client, sql="SELECT count(*) AS n FROM results", snapshot=2) == [{"n": 2}]
