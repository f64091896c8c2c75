"""Of several writers of a commit one wins, and a folder that cannot promise that is refused."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pyarrow import fs

from thetastream.core.errors import QueryError, StoreError
from thetastream.core.folder import Folder
from thetastream.results import version_log
from thetastream.results.version_log import S3Commits, connect, write_once

ROOT = "s3://key:secret@bucket/pairs?region=eu-west-1"


def fail(status: int) -> ClientError:
    return ClientError({"Error": {"Code": "No"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


class Server:
    """A client of an object store with conditional writes. ``answers`` come first, one for each write."""

    def __init__(self, *answers: Exception | None) -> None:
        self.objects: dict[str, bytes] = {}
        self.answers = list(answers)

    def put_object(self, Bucket: str, Key: str, Body: bytes, IfNoneMatch: str) -> None:
        assert (Bucket, IfNoneMatch) == ("bucket", "*")
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        if Key in self.objects:
            raise fail(412)
        self.objects[Key] = Body

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        return {"Body": io.BytesIO(self.objects[Key])}

    def delete_object(self, Bucket: str, Key: str) -> None:
        del self.objects[Key]


class Careless(Server):
    """A server that does not know the condition and ignores it."""

    def put_object(self, Bucket: str, Key: str, Body: bytes, IfNoneMatch: str) -> None:
        self.objects[Key] = Body


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_log.time, "sleep", lambda seconds: None)


def test_the_second_writer_of_a_name_loses() -> None:
    server = Server()
    first, second = S3Commits(ROOT, server), S3Commits(ROOT, server)
    assert first.write_new("bucket/pairs/_log/1.json", b"first")
    assert not second.write_new("bucket/pairs/_log/1.json", b"second")
    assert server.objects == {"pairs/_log/1.json": b"first"}


def test_a_write_whose_answer_was_lost_has_won() -> None:
    server = Server()
    writer = S3Commits(ROOT, server)
    writer.write_new("bucket/pairs/_log/1.json", b"mine")
    assert writer.write_new("bucket/pairs/_log/1.json", b"mine")


def test_a_write_that_meets_another_one_is_tried_again() -> None:
    server = Server(None, None, fail(409), fail(409))
    assert S3Commits(ROOT, server).write_new("bucket/pairs/_log/1.json", b"mine")
    assert server.objects == {"pairs/_log/1.json": b"mine"}


@pytest.mark.parametrize(
    ("server", "rule"),
    [
        (Careless(), "in spite of the header"),
        (Server(fail(501)), "does not know the header"),
    ],
)
def test_a_server_without_conditional_writes_is_refused(server: Server, rule: str) -> None:
    with pytest.raises(QueryError, match=rf"NO_ATOMIC_COMMIT.*s3://bucket/pairs cannot.*{rule}") as error:
        S3Commits(ROOT, server).write_new("bucket/pairs/_log/1.json", b"mine")
    assert "secret" not in str(error.value)
    assert not server.objects


@pytest.mark.parametrize(
    "answer", [fail(403), fail(503), EndpointConnectionError(endpoint_url="http://localhost")]
)
def test_a_server_that_does_not_answer_is_named(answer: Exception) -> None:
    with pytest.raises(StoreError, match=r"STORE_UNREACHABLE.*s3://bucket/pairs"):
        S3Commits(ROOT, Server(answer)).write_new("bucket/pairs/_log/1.json", b"mine")


def test_a_write_that_always_meets_another_one_ends() -> None:
    with pytest.raises(StoreError, match="STORE_UNREACHABLE"):
        S3Commits(ROOT, Server(None, None, *[fail(409)] * 5)).write_new("bucket/x/1.json", b"mine")


@pytest.mark.parametrize(
    ("root", "variables", "endpoint", "style"),
    [
        (ROOT, {}, "https://s3.eu-west-1.amazonaws.com", "auto"),
        (f"{ROOT}&endpoint_override=127.0.0.1%3A9000&scheme=http", {}, "http://127.0.0.1:9000", "path"),
        ("s3a://bucket/x", {"AWS_ENDPOINT_URL": "http://minio:9000"}, "http://minio:9000", "path"),
    ],
)
def test_the_client_opens_what_arrow_opens(
    monkeypatch: pytest.MonkeyPatch, root: str, variables: dict[str, str], endpoint: str, style: str
) -> None:
    connect.cache_clear()
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    client = connect(root, "us-east-2")._client
    assert client.meta.endpoint_url == endpoint
    assert client.meta.region_name == ("us-east-2" if root.startswith("s3a") else "eu-west-1")
    assert client.meta.config.s3["addressing_style"] == style
    connect.cache_clear()


def test_without_boto3_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    connect.cache_clear()
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(QueryError, match=r"MISSING_PACKAGE.*boto3.*thetastream\[s3\]"):
        connect("s3://bucket/pairs", "us-east-1")


class Elsewhere:
    """The local file system under another name. Like HDFS, it refuses to rename a file to a name that
    exists."""

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name
        self._local = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def move(self, source: str, target: str) -> None:
        if Path(target).exists():
            raise OSError("rename failed")
        self._local.move(source, target)


def open_elsewhere(folder: Path, type_name: str) -> Folder:
    found = Folder(str(folder), "")
    found._fs = Elsewhere(type_name)
    return found


def test_hdfs_refuses_the_second_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_elsewhere(tmp_path, "hdfs")
    assert write_once("hdfs://host/x", folder, "1.json", b"first")
    assert not write_once("hdfs://host/x", folder, "1.json", b"second")
    # The other writer comes between the look and the rename.
    looks = iter([False, True])
    monkeypatch.setattr(Folder, "exists", lambda self, name: next(looks))
    assert not write_once("hdfs://host/x", folder, "1.json", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("1.json", b"first")]


def test_an_error_that_is_no_second_writer_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Elsewhere, source: str, target: str) -> None:
        raise OSError("no quota")

    monkeypatch.setattr(Elsewhere, "move", refuse)
    with pytest.raises(OSError, match="no quota"):
        write_once("hdfs://host/x", open_elsewhere(tmp_path, "hdfs"), "1.json", b"first")
    assert not list(tmp_path.iterdir())


def test_a_file_system_without_such_a_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"NO_ATOMIC_COMMIT.*gs://bucket/x cannot.*'gcs'.*s3://"):
        write_once("gs://bucket/x", open_elsewhere(tmp_path, "gcs"), "1.json", b"first")
    assert not list(tmp_path.iterdir())
