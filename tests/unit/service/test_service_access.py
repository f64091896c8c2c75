"""Who may ask the service, and over which connection."""

import logging
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.service import BIG_ID, connect, make_pairs, run_service
from thetastream.app.cli.serving import read_named_store, read_stores, read_token, serve
from thetastream.core.errors import QueryError, StoreError
from thetastream.core.listening import open_port
from thetastream.service import Limits, Server, access, build_app, guard, statement_pool
from thetastream.service.sandbox import find_protections
from thetastream.stores import ParquetStore

MAKE_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    " -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem"
)


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return make_pairs(tmp_path)


def test_without_a_token_only_this_machine_is_answered(store: ParquetStore) -> None:
    with connect(store) as client:
        assert client.get("/stores", headers={"Host": "127.0.0.1:8080"}).status_code == 200
        assert client.get("/stores", headers={"Host": "[::1]:8080"}).status_code == 200
        for host in ("evil.example", "[::1]evil.com", "127.0.0.1.evil.com", "localhost:80@evil.com", ""):
            assert client.get("/stores", headers={"Host": host}).status_code in (400, 403)


def test_pages_of_other_sites_are_refused_before_their_question_waits(store: ParquetStore) -> None:
    address = "/stores/pairs/subscribe?sql=SELECT+1"
    foreign = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ]
    with connect(store) as client:
        host = f"{client.base_url.host}:{client.base_url.port}"
        for headers in foreign:
            answer = client.get(address, headers=headers)
            assert (answer.status_code, answer.json()["condition"]) == (403, "FORBIDDEN_ORIGIN"), headers
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert client.get("/", headers=link).status_code == 200
        own = {"Sec-Fetch-Site": "same-origin", "Origin": f"http://{host}"}
        assert client.post("/stores/pairs/query", json={}, headers=own).status_code == 200
    with connect(store, token="a long secret token") as client:
        right = {"Authorization": "Bearer a long secret token", "Sec-Fetch-Site": "cross-site"}
        assert client.get("/stores", headers=right).status_code == 403


def test_answers_are_not_guessed_kept_or_given_to_other_sites(store: ParquetStore) -> None:
    with connect(store, token="a long secret token") as client:
        for path in ("/", "/health", "/stores", "/page/main.js", "/none"):
            headers = client.get(path).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
            # Browsers ask each time for the files of the page, which have no results.
            kept = "no-cache" if path in ("/", "/page/main.js") else "no-store"
            assert headers["Cache-Control"] == kept, path


def test_a_body_with_two_lengths_is_refused_and_its_connection_closed(store: ParquetStore) -> None:
    with run_service({"pairs": store}) as address, socket.create_connection(split(address)) as one:
        one.sendall(
            b"POST /stores/pairs/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        one.settimeout(10)
        text = b""
        while piece := one.recv(1 << 16):
            text += piece
    assert text.startswith(b"HTTP/1.1 400")
    assert text.count(b"HTTP/1.1") == 1


def test_a_client_is_who_connects_and_only_a_proxy_says_otherwise(store: ParquetStore) -> None:
    limits = Limits(subscribers_per_client=1)
    cases = (
        (None, "192.0.2.1 192.0.2.2", [200, 429]),
        ("127.0.0.1", "192.0.2.1 192.0.2.2", [200, 200]),
        # Whoever has one address of an IPv6 network has all of them.
        ("127.0.0.1", "2001:db8::1 2001:db8::2", [200, 429]),
        ("127.0.0.1", "2001:db8::1 2001:db8:0:1::1", [200, 200]),
    )
    for proxy, clients, seen in cases:
        with (
            run_service({"pairs": store}, limits=limits, proxy=proxy) as address,
            httpx.Client(base_url=address, timeout=20) as client,
            ExitStack() as stack,
        ):
            found = []
            for one in clients.split():
                headers = {"X-Forwarded-For": one}
                ask = client.stream("GET", "/stores/pairs/subscribe", headers=headers)
                found.append(stack.enter_context(ask).status_code)
            assert found == seen


def split(address: str) -> tuple[str, int]:
    found = httpx.URL(address)
    return found.host, found.port or 80


def test_with_a_token_only_those_who_know_it_are_answered(store: ParquetStore) -> None:
    wrong = {"Authorization": "Bearer a long secret tokem"}
    right = {"Authorization": "Bearer a long secret token", "Host": "results.example"}
    with connect(store, token="a long secret token") as client:
        assert client.get("/stores").status_code == 401
        assert client.get("/stores", headers=wrong).status_code == 401
        assert client.get("/openapi.json").status_code == 401
        assert client.get("/health").status_code == 200
        assert client.get("/stores", headers=right).status_code == 200


def test_tokens_are_compared_in_constant_time(store: ParquetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of ``==`` says how many characters of a guess are right."""
    compared: list[tuple[str, str]] = []

    def compare(given: str, expected: str) -> bool:
        compared.append((given, expected))
        return False

    monkeypatch.setattr(access.hmac, "compare_digest", compare)
    with connect(store, token="a long secret token") as client:
        right = {"Authorization": "Bearer a long secret token"}
        assert client.get("/stores", headers=right).status_code == 401
    assert compared == [(access.digest_token("a long secret token"),) * 2]


@pytest.mark.parametrize("token", ["", " a long secret token", "a long\nsecret token", "ein geheimes Wört"])
def test_a_token_that_no_client_can_send_or_everybody_knows_is_refused(
    store: ParquetStore, tmp_path: Path, token: str
) -> None:
    with pytest.raises(QueryError, match=r"TOKEN.*one line of ASCII"):
        build_app({"pairs": store}, token=token)
    file = tmp_path / "token"
    file.write_text(token)
    file.chmod(0o600)
    if len(token.strip()) == len(token) >= 16:
        with pytest.raises(QueryError, match=r"TOKEN.*one line of ASCII.*/token is not"):
            serve(parse("serve", store.path, "--token-file", str(file)))


def test_a_large_body_is_refused_before_it_is_in_memory(store: ParquetStore) -> None:
    def send() -> Iterator[bytes]:
        for _ in range(3):
            yield b" " * (1 << 19)

    with connect(store) as client:
        fitting = b" " * ((1 << 20) - 2) + b"{}"
        headers = {"Content-Type": "application/json"}
        assert client.post("/stores/pairs/query", content=fitting, headers=headers).status_code == 200
        for content in (b" " + fitting, send()):
            answer = client.post("/stores/pairs/query", content=content, headers=headers)
            assert (answer.status_code, answer.json()["condition"]) == (413, "BAD_VALUE")
            assert "1,048,576 bytes" in answer.json()["message"]


def test_a_large_body_where_none_belongs_writes_no_line_into_the_log(store: ParquetStore) -> None:
    lines: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = lines.append  # type: ignore[method-assign]
    with run_service({"pairs": store}) as address:
        logging.getLogger("uvicorn.error").addHandler(handler)
        for path in ("/page/main.js", "/", "/health", "/stores/pairs/subscribe", "/stores/pairs/snapshots/1"):
            with socket.create_connection(split(address)) as client, suppress(OSError):
                client.settimeout(0.5)
                head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n"
                client.sendall(head.encode() + b"x" * 3_000_000)
                while client.recv(1 << 20):
                    """The client takes its answer."""
        assert httpx.get(f"{address}/health").json() == {"ok": True}
    assert [line.getMessage() for line in lines] == []


def test_a_method_that_a_path_does_not_have_is_refused_with_those_that_it_has(store: ParquetStore) -> None:
    with connect(store) as client:
        for method, path, allowed in (("HEAD", "/stores", "GET"), ("OPTIONS", "/stores/pairs/query", "POST")):
            answer = client.request(method, path)
            assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)


def test_the_name_of_a_store_can_be_in_an_address_and_has_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pairs").mkdir()
    monkeypatch.chdir(tmp_path / "pairs")
    uris = ("s3://key:secret@pairs", "s3://bucket/pairs?region=x")
    named = {".": "pairs", "..": tmp_path.name, **dict.fromkeys(uris, "pairs")}
    for path, name in named.items():
        assert read_named_store(path)[0] == name
    for text in ("/", ".=pairs", "..=pairs", "a=", "delta:"):
        with pytest.raises(QueryError, match="BAD_VALUE"):
            read_named_store(text)


def parse(*arguments: str) -> Any:
    from thetastream.app.cli import build_parser

    return build_parser().parse_args(arguments)


def test_another_address_needs_a_token_before_the_service_starts(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="TOKEN"):
        serve(parse("serve", str(tmp_path), "--host", "0.0.0.0"))
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(QueryError, match=r"at least 16 characters, and that of .*/token has 5"):
        read_token(tmp_path / "token")


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    file.write_text("a long secret token\n")
    file.chmod(mode)
    with pytest.raises(QueryError, match=r"TOKEN.*others can read .*/token: .*chmod 600"):
        read_token(file)
    file.chmod(0o400)
    assert read_token(file) == "a long secret token"


def test_a_service_that_everybody_can_listen_to_says_so(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THETASTREAM_TOKEN", "a long secret token")
    monkeypatch.setattr(Server, "listen", lambda *_: None)
    options = ("--host", "0.0.0.0", "--port", "0")
    assert serve(parse("serve", store.path, *options)) == 0
    written = capsys.readouterr()
    assert "everybody between a client and host 0.0.0.0 can read the token" in written.err
    limiting = find_protections().describe([store.path])
    assert f"\nThe system limits the processes of statements. {limiting}\n" in written.out
    assert serve(parse("serve", store.path, *options, "--proxy", "127.0.0.1")) == 0
    assert capsys.readouterr().err == ""


def test_the_command_listens_when_the_first_process_for_statements_is_ready(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def listen(server: Server, port: socket.socket) -> None:
        found.append((len(usual), port.fileno() > 0))

    usual: list[statement_pool.Worker] = []

    def start_slowly(*arguments: Any) -> statement_pool.Worker:
        time.sleep(0.5)
        usual.append(Worker(*arguments))
        return usual[0]

    Worker = statement_pool.Worker
    monkeypatch.setattr(statement_pool, "Worker", start_slowly)
    monkeypatch.setattr(Server, "listen", listen)
    assert serve(parse("serve", store.path, "--port", "0")) == 0
    assert found == [(1, True)]


def test_a_service_without_processes_for_statements_says_so_and_answers_the_rest(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any) -> statement_pool.Worker:
        raise OSError("no more processes in /home/somebody")

    monkeypatch.setattr(statement_pool, "Worker", fail)
    with monkeypatch.context() as patch:
        patch.setattr(Server, "listen", lambda *_: None)
        assert serve(parse("serve", store.path, "--port", "0")) == 0
    assert "no process for statements could start" in capsys.readouterr().err
    with connect(store) as client:
        refused = client.post("/stores/pairs/query", json={"sql": "SELECT 1"})
        assert (refused.status_code, refused.json()["condition"]) == (503, "TOO_BUSY")
        assert "somebody" not in refused.text
        assert refused.headers["Retry-After"] == "2"
        assert len(client.post("/stores/pairs/query", json={}).json()) == 3


@pytest.mark.parametrize("memory", ["much", "0", "3 B", "1 MB"])
def test_memory_that_is_too_small_for_a_statement_is_refused(store: ParquetStore, memory: str) -> None:
    with pytest.raises(QueryError, match=r"BAD_VALUE.*memory"):
        serve(parse("serve", store.path, "--memory", memory))


def test_a_store_that_cannot_be_served_is_named_before_the_service_starts(store: ParquetStore) -> None:
    with pytest.raises(QueryError, match=r"BAD_VALUE.*two stores have the name 'a'"):
        read_stores([f"a={store.path}", f"a={store.path}"])
    with pytest.raises(StoreError, match=r"STORE_UNREACHABLE.*hdfs://nowhere/pairs"):
        read_stores(["hdfs://nowhere/pairs"])


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


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_key_that_others_can_read_is_refused(
    store: ParquetStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(MAKE_CERTIFICATE.split(), cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setattr(Server, "listen", lambda *_: None)
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    both = tmp_path / "both.pem"
    both.write_text(certificate.read_text() + key.read_text())
    options = ["serve", store.path, "--port", "0", "--tls-cert"]
    for mode, is_taken in ((0o600, True), (0o400, True), (0o604, False), (0o660, False), (0o777, False)):
        for file, more in ((key, [str(certificate), "--tls-key", str(key)]), (both, [str(both)])):
            file.chmod(mode)
            if is_taken:
                assert serve(parse(*options, *more)) == 0
            else:
                with pytest.raises(QueryError, match=rf"CERTIFICATE.*others can read.*{file.name}"):
                    serve(parse(*options, *more))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_service_with_a_certificate_answers_over_https(store: ParquetStore, tmp_path: Path) -> None:
    subprocess.run(MAKE_CERTIFICATE.split(), cwd=tmp_path, check=True, capture_output=True)
    command = [sys.executable, "-m", "thetastream.app.cli", "serve", store.path, "--port", "0"]
    command += ["--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        address = service.stdout.readline().rpartition(" ")[2].strip()
        known = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        try:
            assert address.startswith("https://127.0.0.1:")
            answer = httpx.get(f"{address}/stores/pairs/snapshots/2", verify=known, timeout=20)
            assert answer.json()[0]["id"] == BIG_ID
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                httpx.get(f"{address}/health", timeout=20)
        finally:
            service.terminate()


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the script of the page")
def test_the_page_shows_a_column_of_any_name(tmp_path: Path) -> None:
    script = Path(guard.__file__).with_name("static") / "rows.js"
    (tmp_path / "rows.mjs").write_bytes(script.read_bytes())
    program = """
import { flatten } from "./rows.mjs";
const row = JSON.parse('{"__proto__": 1, "constructor": 2, "a": {"__proto__": {"b": 3}}}');
console.log(JSON.stringify(Object.entries(flatten(row))));
"""
    (tmp_path / "main.mjs").write_text(program)
    shown = subprocess.run(["node", "main.mjs"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == '[["__proto__",1],["constructor",2],["a.__proto__.b",3]]'


def test_an_error_of_a_store_tells_clients_no_path_and_is_in_the_log_once(
    store: ParquetStore, caplog: pytest.LogCaptureFixture
) -> None:
    for file in store.files():
        Path(file).unlink()
    with connect(store) as client:
        for _ in range(3):
            for answer in (
                client.get("/stores/pairs/snapshots/1"),
                client.post("/stores/pairs/query", json={"sql": "SELECT count(x) AS n FROM results"}),
            ):
                assert (answer.status_code, answer.json()["condition"]) == (500, "STORE_DAMAGED")
                assert store.path not in answer.text
                assert "part-" not in answer.text
    assert 1 <= len([one for one in caplog.messages if store.path in one]) <= 2
