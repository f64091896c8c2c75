"""Questions wait in a bounded and fair order, end with their clients, and hold bounded memory."""

import asyncio
import gc
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from urllib.parse import quote_plus, urlsplit

import httpx
import pytest

from tests.support.service import connect, make_pairs, make_wide, run_service
from thetastream.core.errors import QueryError
from thetastream.core.stopping import Stop
from thetastream.service import Limits, bodies
from thetastream.service import app as service_app
from thetastream.service.bodies import Encoded, ResponseMemory
from thetastream.service.questions import Turns
from thetastream.stores import ParquetStore

SLOW = "SELECT sum(a.range * b.range) AS s FROM range(9000000) a, range(9000000) b"
QUERY = "/stores/pairs/query"
HEALTH = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return make_pairs(tmp_path)


def test_clients_take_turns_however_many_questions_one_has() -> None:
    order: list[str] = []

    async def ask(turns: Turns, client: str) -> None:
        await turns.take(client)
        order.append(client)
        await asyncio.sleep(0)
        turns.give_back()

    async def ask_all() -> None:
        turns = Turns(1, 100, 100)
        await turns.take("first")
        asked = [asyncio.create_task(ask(turns, client)) for client in "aaaaabc"]
        await asyncio.sleep(0)
        assert turns.n_waiting == 7
        turns.give_back()
        await asyncio.gather(*asked)
        assert turns.n_waiting == 0
        await turns.take("last")

    asyncio.run(ask_all())
    assert order == list("abcaaaa")


def test_more_questions_than_may_wait_are_refused_but_not_those_of_subscribers() -> None:
    async def ask() -> None:
        turns = Turns(1, 3, 2)
        await turns.take("a")
        waiting = [asyncio.create_task(turns.take("a")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(QueryError, match=r"TOO_MANY_QUESTIONS.* 2 questions of a wait"):
            await turns.take("a")
        waiting.append(asyncio.create_task(turns.take("b")))
        await asyncio.sleep(0)
        with pytest.raises(QueryError, match=r"TOO_MANY_QUESTIONS.* 3 questions wait"):
            await turns.take("c")
        waiting.append(asyncio.create_task(turns.take("a", is_patient=True)))
        await asyncio.sleep(0)
        # A question that is cancelled waits no more, and takes no place later.
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert turns.n_waiting == 3
        for _ in range(4):
            turns.give_back()
        await asyncio.gather(*waiting[1:])

    asyncio.run(ask())


def test_a_client_that_leaves_while_another_question_ends_takes_no_place_away() -> None:
    order: list[str] = []

    async def ask(turns: Turns, client: str) -> None:
        await turns.take(client)
        order.append(client)
        await asyncio.sleep(0)
        turns.give_back()

    async def leave(clients: str, n_left: int) -> None:
        turns = Turns(1, 10, 10)
        await turns.take("first")
        asked = [asyncio.create_task(ask(turns, client)) for client in clients]
        await asyncio.sleep(0)
        for one in asked[:n_left]:
            one.cancel()
        # The tasks that are cancelled have not run since.
        turns.give_back()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found[:n_left]] == [True] * n_left
        assert found[n_left:] == [None] * (len(clients) - n_left)
        assert turns.n_waiting == 0
        await asyncio.wait_for(turns.take("last"), 1)

    for clients, n_left in (("b", 1), ("bc", 2), ("bb", 2), ("bbc", 1)):
        asyncio.run(leave(clients, n_left))
    assert order == list("bc"), "a question that is cancelled does not use the turn of its client"


BODY = f'{{"sql": "{SLOW}"}}'
ASKING = (
    f"POST {QUERY} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n{BODY}"
)
SUBSCRIBING = f"GET /stores/pairs/subscribe?sql={quote_plus(SLOW)} HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([ASKING], id="a question"),
        # The event loop reads nothing more from such a client, so it did not notice that it left.
        pytest.param([ASKING, HEALTH], id="a question, and a request behind it"),
        pytest.param([SUBSCRIBING], id="a subscription, whose statement runs first over no rows"),
    ],
)
def test_questions_of_clients_that_have_left_do_not_keep_the_service_busy(
    store: ParquetStore, sent: list[str]
) -> None:
    with connect(store, limits=Limits(questions=1)) as client:
        assert client.post(QUERY, json={"sql": "SELECT 1 AS x"}).json() == [{"x": 1}]
        for _ in range(40):
            with socket.create_connection((client.base_url.host, client.base_url.port)) as one:
                for part in sent:
                    one.sendall(part.encode())
                    time.sleep(0.02)
        began = time.monotonic()
        assert client.post(QUERY, json={"sql": "SELECT 2 AS x"}).json() == [{"x": 2}]
        assert time.monotonic() - began < 8


def test_the_queue_is_bounded_and_reads_do_not_wait_in_it(store: ParquetStore) -> None:
    limits = Limits(questions=1, waiting_per_client=2, seconds=6)
    with connect(store, limits=limits) as client, ExitStack() as stack:

        def ask_slowly() -> None:
            with suppress(httpx.HTTPError), httpx.Client(base_url=client.base_url, timeout=3) as other:
                other.post(QUERY, json={"sql": SLOW})

        asking = [Thread(target=ask_slowly) for _ in range(3)]
        for one in asking:
            one.start()
            stack.callback(one.join)
        time.sleep(1)
        refused = client.post(QUERY, json={"sql": "SELECT 1 AS x"})
        assert (refused.status_code, refused.json()["condition"]) == (429, "TOO_MANY_QUESTIONS")
        assert int(refused.headers["Retry-After"]) > 0
        began = time.monotonic()
        for path in (
            "/",
            "/stores",
            "/queries",
            "/stores/pairs/snapshots",
            "/stores/pairs/snapshots/1?first=9",
        ):
            assert client.get(path).status_code == 200
        assert time.monotonic() - began < 1


def test_answers_take_bounded_memory_until_nobody_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PATIENCE_S", 0.2)
    memory = ResponseMemory(100)
    first = Encoded(b"x" * 60, memory.take(60, Stop()))
    with pytest.raises(QueryError, match="TOO_BUSY"):
        memory.take(60, Stop())
    left = Stop()
    left.set()
    with pytest.raises(QueryError, match="TOO_BUSY"):
        memory.take(60, left)
    assert memory.n_held == 60
    del first
    gc.collect()
    assert memory.n_held == 0
    memory.take(100, Stop())()


def test_one_client_gets_half_of_the_memory_if_it_holds_other_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "OWN_PATIENCE_S", 0.1)
    memory = ResponseMemory(100)
    alone = memory.give_to("a").take(60, Stop())
    with pytest.raises(QueryError, match=r"TOO_BUSY.*are being sent to a, which may have"):
        memory.give_to("a").take(1, Stop())
    memory.give_to("b").take(40, Stop())()
    alone()
    held = [memory.give_to("a").take(25, Stop()) for _ in range(2)]
    with pytest.raises(QueryError, match="TOO_BUSY"):
        memory.give_to("a").take(1, Stop())
    for give_back in held:
        give_back()
    assert memory.n_held == 0
    memory.give_to("a").take(100, Stop())()


def test_lists_take_bounded_memory_and_do_not_wait_for_it(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: list[ResponseMemory] = []

    def make_memory(nbytes: int) -> ResponseMemory:
        memories.append(ResponseMemory(nbytes))
        return memories[-1]

    monkeypatch.setattr(service_app, "ResponseMemory", make_memory)
    with connect(store) as client:
        path = "/stores/pairs/snapshots"
        length = len(client.get(path).content)
        (memory,) = memories
        sending = memory.take(Limits().question_bytes - length - 1, Stop())
        assert [client.get(one).status_code for one in (path, "/queries")] == [200, 200]
        held = memory.take(2, None)
        began = time.monotonic()
        assert [client.get(one).status_code for one in (path, path)] == [503, 503]
        assert time.monotonic() - began < 1
        sending()
        held()
        assert client.get(path).status_code == 200
        gc.collect()
        assert memory.n_held == 0


def read_slowly(address: str, path: str) -> socket.socket:
    """Ask by a connection that takes few bytes of the answer at a time."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", urlsplit(address).port))
    one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    one.settimeout(30)
    return one


def test_slow_readers_hold_no_more_than_the_memory_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "PATIENCE_S", 0.3)
    store = make_wide(tmp_path, 6)
    # Each answer has 6 MB, of which the system keeps less than 5 MB.
    limits = Limits(memory="40 MB", questions=4)
    path = "/stores/pairs/snapshots/1"
    with run_service({"pairs": store}, limits=limits) as address, ExitStack() as stack:
        found = [stack.enter_context(read_slowly(address, path)) for _ in range(12)]
        heads = [one.recv(12) for one in found]
        assert heads.count(b"HTTP/1.1 503") >= 6
        assert heads.count(b"HTTP/1.1 200") >= 2
        assert httpx.get(f"{address}/stores/pairs/snapshots/1?first=1", timeout=5).status_code == 200


def test_slow_readers_of_one_address_leave_half_of_the_memory_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "PATIENCE_S", 3.0)
    monkeypatch.setattr(bodies, "OWN_PATIENCE_S", 0.2)
    store = make_wide(tmp_path, 19)
    # Four answers of 19 MB would take all of it.
    limits = Limits(memory="80 MB", questions=4)
    asked = "/stores/pairs/snapshots/1?first=19", "/stores/pairs/snapshots/1"
    with run_service({"pairs": store}, limits=limits) as address, ExitStack() as stack:
        found = [stack.enter_context(read_slowly(address, asked[number % 2])) for number in range(12)]
        heads = [one.recv(12) for one in found]
        assert heads.count(b"HTTP/1.1 200") == 2
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=address, transport=transport, timeout=30) as other:
            for path in asked:
                assert len(other.get(path).json()) == 19
