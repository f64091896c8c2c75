"""Connections of clients that show no token do not exhaust a service."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from tests.support.service import add_epoch, make_pairs, make_wide, run_service
from thetastream.core.listening import name_client, open_port
from thetastream.service import Limits
from thetastream.service.server import Connections, ListeningSocket
from thetastream.stores import ParquetStore

HALF = b"GET /stores HTTP/1.1\r\nHost: localhost\r\n"
QUICK = Limits(header_seconds=0.3, body_seconds=0.3, send_seconds=0.3)


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return make_pairs(tmp_path)


@contextmanager
def open_connections(address: str, n: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Open connections to a service, and send the same bytes over each."""
    found = urlsplit(address)
    with ExitStack() as stack:
        opened = []
        for _ in range(n):
            one = stack.enter_context(socket.create_connection((found.hostname, found.port), timeout=10))
            with suppress(OSError):
                one.sendall(sent)
            opened.append(one)
        yield opened


def read_all(connection: socket.socket) -> bytes:
    """Read what arrives until the service closes the connection."""
    text = b""
    with suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            text += piece
    return text


def count_open(opened: list[socket.socket]) -> int:
    """Count the connections that the service has not closed."""
    n = 0
    for one in opened:
        one.setblocking(False)
        try:
            n += bool(one.recv(1))
        except BlockingIOError:
            n += 1
        except ConnectionError:
            pass
    return n


def test_seven_hundred_half_requests_do_not_keep_others_out(store: ParquetStore) -> None:
    files = psutil.Process().num_fds()
    with (
        run_service({"pairs": store}, limits=Limits(connections_per_client=200)) as address,
        open_connections(address, 700, HALF) as opened,
    ):
        assert httpx.get(f"{address}/health", timeout=5).json() == {"ok": True}
        assert 190 <= count_open(opened) <= 200
        # 700 belong to this test itself.
        assert psutil.Process().num_fds() - files < 700 + 230


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HALF,
        b"POST /stores/pairs/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF,
    ],
    ids=["nothing", "half a header", "half a body", "half a second request"],
)
def test_a_request_that_does_not_arrive_in_time_is_over(store: ParquetStore, sent: bytes) -> None:
    with run_service({"pairs": store}, limits=QUICK) as address:
        with open_connections(address, 1, sent) as (one,):
            began = time.monotonic()
            read_all(one)
            assert time.monotonic() - began < 4
        assert httpx.get(f"{address}/health", timeout=5).json() == {"ok": True}


def test_a_body_that_arrives_byte_by_byte_gets_no_more_time(store: ParquetStore) -> None:
    head = b"POST /stores/pairs/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with run_service({"pairs": store}, limits=QUICK) as address, open_connections(address, 1, head) as (one,):
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - began < 5:
                one.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() - began < 4


def test_a_client_that_takes_nothing_of_its_answer_loses_the_connection(tmp_path: Path) -> None:
    ask = b"GET /stores/pairs/snapshots/1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    limits = Limits(send_seconds=0.3)
    with run_service({"pairs": make_wide(tmp_path, 12)}, limits=limits) as address, socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", urlsplit(address).port))
        one.settimeout(20)
        one.sendall(ask)
        text = one.recv(1)
        # The service tries to send more than the system keeps for it, and gives up.
        time.sleep(2)
        text += read_all(one)
        assert text.startswith(b"HTTP/1.1 200 OK")
        assert len(text) < 12_000_000


def test_a_subscriber_that_waits_for_a_snapshot_keeps_its_connection(store: ParquetStore) -> None:
    ask = b"GET /stores/pairs/subscribe?since=2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with run_service({"pairs": store}, limits=QUICK) as address, open_connections(address, 1, ask) as (one,):
        time.sleep(1.5)
        add_epoch(store, 2, 7)
        text = b""
        while b"id: 3" not in text:
            piece = one.recv(1 << 16)
            assert piece
            text += piece


def test_an_answer_that_is_being_made_makes_no_room() -> None:
    connections = Connections(Limits(connections=2, connections_per_client=2))
    with socket.socket() as first, socket.socket() as second, socket.socket() as third:
        assert connections.add(first, ("127.0.0.1", 1))
        assert connections.add(second, ("127.0.0.2", 1))
        for one in (first, second):
            connections.find(one.fileno()).request_by = None  # type: ignore[union-attr]
        assert not connections.add(third, ("127.0.0.3", 1))
        assert len(connections) == 2
        connections.remove(first.fileno())
        assert connections.add(third, ("127.0.0.3", 1))


def test_a_system_without_files_neither_stops_the_service_nor_fills_its_log() -> None:
    with (
        ListeningSocket(open_port("127.0.0.1", 0), Connections(Limits())) as listener,
        socket.create_connection(listener.getsockname()) as refused,
        ExitStack() as files,
    ):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        number = files.enter_context(socket.socket()).fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (number + 1, hard))
        try:
            with suppress(OSError):
                while True:
                    files.enter_context(socket.socket())
            # The event loop logs other errors with a traceback, thousands of times a second.
            with pytest.raises(ConnectionAbortedError):
                listener.accept()
            refused.settimeout(5)
            assert refused.recv(1) == b""
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_requests_behind_each_other_are_all_answered(store: ParquetStore) -> None:
    with run_service({"pairs": store}) as address:
        place = urlsplit(address)
        with socket.create_connection((place.hostname, place.port)) as one:
            one.sendall(f"{HALF.decode()}\r\n".encode() * 5)
            one.settimeout(20)
            text = b""
            while text.count(b"HTTP/1.1 200 OK") < 5:
                text += one.recv(1 << 16)


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    assert name_client("2001:db8::1") == name_client("2001:db8::ffff:2")
    assert name_client("::ffff:192.0.2.1") == "192.0.2.1"
    assert name_client("fe80::1%eth0") == "fe80::/64"
    assert name_client("unknown") == "unknown"
