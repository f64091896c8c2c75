"""Tokens with rights, and the file that says who asked what."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.service import make_pairs, run_service
from thetastream.app.cli import build_parser
from thetastream.app.cli.serving import serve
from thetastream.core.errors import QueryError, SessionError
from thetastream.service import Grant, read_tokens
from thetastream.service.access import digest_token, find_grant
from thetastream.stores import ParquetStore

ADMIN, DASHBOARD, FEED = "the token of the admin", "the token of a dashboard", "the token of a feed"
DIGEST = digest_token(DASHBOARD)


def send(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def write_tokens() -> str:
    return f"""
    [dashboard]
    sha256 = "{DIGEST}"
    stores = ["pairs"]
    rights = ["ask"]
    [feed]
    sha256 = "{digest_token(FEED)}"
    stores = ["others"]
    rights = ["ask", "subscribe"]
    """


def test_each_token_has_its_stores_and_rights(tmp_path: Path) -> None:
    store = make_pairs(tmp_path)
    stores = {"pairs": store, "others": store}
    tokens = read_tokens(write_tokens(), "tokens.toml", list(stores))
    audit = tmp_path / "audit.jsonl"
    asked = [
        ("POST", "/stores/pairs/query", {ADMIN: 200, DASHBOARD: 200, FEED: 403}),
        ("GET", "/stores/pairs/snapshots", {ADMIN: 200, DASHBOARD: 200, FEED: 403}),
        ("GET", "/stores/pairs/snapshots/1", {ADMIN: 200, DASHBOARD: 200, FEED: 403}),
        ("GET", "/stores/pairs/subscribe?since=99", {ADMIN: 404, DASHBOARD: 403, FEED: 403}),
        ("GET", "/stores/others/subscribe?since=99", {ADMIN: 404, DASHBOARD: 403, FEED: 404}),
        ("GET", "/stores/missing/snapshots", {ADMIN: 404, DASHBOARD: 403, FEED: 403}),
        ("GET", "/stores/pairs%2F..%2Fothers/snapshots", {ADMIN: 404, DASHBOARD: 404, FEED: 404}),
        ("GET", "/queries", {ADMIN: 200, DASHBOARD: 403, FEED: 403}),
        ("GET", "/health", {ADMIN: 200, DASHBOARD: 200, FEED: 200}),
    ]
    with (
        run_service(stores, token=ADMIN, tokens=tokens, audit=audit) as address,
        httpx.Client(base_url=address, timeout=20) as client,
    ):
        for method, path, expected in asked:
            for token, status in expected.items():
                body: Any = {"sql": "SELECT 1 AS one"} if method == "POST" else None
                answer = client.request(method, path, json=body, headers=send(token))
                assert answer.status_code == status, (path, token, answer.text)
                if status == 403:
                    assert answer.json()["condition"] == "FORBIDDEN"
            assert path == "/health" or client.request(method, path, json=body).status_code == 401
        seen = {
            token: client.get("/stores", headers=send(token)).json()["stores"] for token in (DASHBOARD, FEED)
        }
        assert {token: list(names) for token, names in seen.items()} == {
            DASHBOARD: ["pairs"],
            FEED: ["others"],
        }
        for wrong in (DIGEST, DASHBOARD + "x", "x", DASHBOARD.upper()):
            assert client.get("/stores", headers=send(wrong)).status_code == 401
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [line["admitted"] for line in lines[:3]] == [True, True, False]
    assert lines[1] | {"at": ""} == {
        "at": "",
        "token": "dashboard",
        "client": "127.0.0.1",
        "right": "ask",
        "admitted": True,
        "store": "pairs",
        "sql": "SELECT 1 AS one",
    }
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600
    assert not any(token in audit.read_text() for token in (ADMIN, DASHBOARD, FEED))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "must have a table for each client"),
        ("x = 1", "must have only tables"),
        ("[a", "must be TOML"),
        ("[a]", "64 digits"),
        (f"[a]\nsha256 = '{DASHBOARD}'", "64 digits"),
        (f"[a]\nsha256 = '{DIGEST}'\nstore = 'pairs'", "has no 'store'"),
        (f"[a]\nsha256 = '{DIGEST}'\nstores = 'pairs'", "must be a list"),
        (f"[a]\nsha256 = '{DIGEST}'\nstores = ['pair']", "did you mean 'pairs'"),
        (f"[a]\nsha256 = '{DIGEST}'\nrights = ['write']", "there are ask, subscribe, watch"),
    ],
)
def test_a_wrong_file_of_tokens_is_refused(text: str, expected: str) -> None:
    with pytest.raises(QueryError, match=rf"(?s)TOKEN.*{expected}"):
        read_tokens(text, "tokens.toml", ["pairs"])


def test_the_first_of_equal_tokens_counts() -> None:
    both = [Grant("one", DIGEST), Grant("two", DIGEST)]
    found = find_grant(both, DASHBOARD)
    assert found is not None
    assert found.name == "one"
    assert find_grant(both, "another") is None


def test_a_file_of_tokens_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_pairs(tmp_path)
    file = tmp_path / "tokens.toml"
    file.write_text(write_tokens())
    file.chmod(0o644)
    with pytest.raises(QueryError, match=r"TOKEN.*--tokens must name a file that only this user can read"):
        run_serve([str(ParquetStore(str(tmp_path / "pairs")).path), "--tokens", str(file)])


def run_serve(arguments: list[str]) -> None:
    serve(build_parser().parse_args(["serve", *arguments]))


def test_a_link_that_another_user_may_have_put_is_no_audit_file_and_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.write_text(f"{ADMIN}\n")
    own.chmod(0o600)
    link = shared / "link"
    link.symlink_to(own)
    shared.chmod(0o1777)

    def lstat(path: Path) -> os.stat_result:
        """Only root may really give a link to another user."""
        found = [*os.lstat(path)]
        found[stat.ST_UID] = 12_345 if path == link else found[stat.ST_UID]
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", lstat)
    store = make_pairs(tmp_path)
    for option in ("--audit", "--tokens", "--token-file"):
        with pytest.raises(SessionError, match=r"UNSAFE_FOLDER.*link belongs to user 12345"):
            run_serve([store.path, option, str(link)])
    (shared / "nothing").symlink_to(tmp_path / "new")
    with pytest.raises(QueryError, match=r"BAD_VALUE.*--audit must name a file"):
        run_serve([store.path, "--audit", str(shared / "nothing")])
    assert not (tmp_path / "new").exists()
    assert own.read_text() == f"{ADMIN}\n"


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o666])
def test_an_audit_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    store, audit = make_pairs(tmp_path), tmp_path / "audit.jsonl"
    audit.touch()
    audit.chmod(mode)
    with pytest.raises(QueryError, match=r"BAD_VALUE.*--audit must name a file that others can neither"):
        run_serve([store.path, "--audit", str(audit)])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_question_that_cannot_be_written_down_is_not_answered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        run_service({"pairs": make_pairs(tmp_path)}, audit=Path("/dev/full")) as address,
        httpx.Client(base_url=address, timeout=20) as client,
    ):
        for _ in range(3):
            refused = client.get("/stores/pairs/snapshots")
            assert (refused.status_code, refused.json()["condition"]) == (503, "AUDIT_UNUSABLE")
        assert client.get("/health").status_code == 200
    # The log had a traceback for each request.
    assert capfd.readouterr().err.count("No space left") <= 1
