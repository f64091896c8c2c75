"""Writes a commit of a log in a folder. If several writers write one version, only one of them succeeds.

    local file system    a hard link, which is refused if the name exists
    HDFS                 a rename, which is refused if the name exists
    S3                   a conditional write, which Arrow does not have (``thetastream.results.atomic_files``)

Arrow has no such step for other file systems, so a store on one of them is refused.

Conditional writes to an object store with the protocol of S3.

A write with the header ``If-None-Match: *`` fails if the name exists, so only one of several writers
succeeds. Amazon S3 and current servers with its protocol support it. Arrow's file system does not send the
header, so boto3 writes these few small files.
"""

import os
import time
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from thetastream.core.errors import QueryError
from thetastream.core.folder import Folder, hide_secrets
from thetastream.results.backend import make_not_atomic, make_unreachable


def write_once(root: str, folder: Folder, name: str, data: bytes) -> bool:
    """Write a file unless there is one of this name, and return whether it was written.

    Parameters
    ----------
    root : str
        The path or URI with which ``folder`` was opened.

    Raises
    ------
    QueryError
        NO_ATOMIC_COMMIT if the file system cannot refuse to replace a file that exists.
    StoreError
        STORE_UNREACHABLE.
    """
    kind = folder.filesystem.type_name
    if kind in ("local", "hdfs"):
        return folder.write_new(name, data)
    if kind == "s3":
        return connect(root, folder.filesystem.region).write_new(folder.locate(name), data)
    raise make_not_atomic(root, f"Arrow has no write for {kind!r} that fails if the name exists")


INSTALL = "pip install 'thetastream[s3]'"
EXISTS, CONFLICT, UNKNOWN = 412, 409, 501
"""The answers to a conditional write: the name exists, another write of it is under way, and the server does
not know the condition."""
ATTEMPTS = 5
"""The largest number of attempts if another write of the same name is under way."""


class S3Commits:
    """Conditional writes to one store.

    Parameters
    ----------
    root : str
        The URI of the store.
    client : botocore client of S3
    """

    def __init__(self, root: str, client: Any) -> None:
        self._root = root
        self._client = client
        self._is_checked = False

    def write_new(self, path: str, data: bytes) -> bool:
        """Write an object unless there is one of this name, and return whether it was written.

        Parameters
        ----------
        path : str
            Bucket and key.
        data : bytes

        Raises
        ------
        QueryError
            NO_ATOMIC_COMMIT if the server ignores the condition.
        StoreError
            STORE_UNREACHABLE.
        """
        bucket, _, key = path.partition("/")
        if not self._is_checked:
            self._check(bucket, key.rpartition("/")[0])
        return self._put(bucket, key, data)

    def _check(self, bucket: str, folder: str) -> None:
        """Write one object twice. A server that does not know the condition takes the second one too."""
        # Its name is no name of an entry, so nothing reads it.
        key = f"{folder}/.check-{uuid4().hex}"
        self._put(bucket, key, b"1")
        is_replaced = self._put(bucket, key, b"2")
        self._client.delete_object(Bucket=bucket, Key=key)
        if is_replaced:
            raise make_not_atomic(
                self._root, "the server replaces an object in spite of the header If-None-Match"
            )
        self._is_checked = True

    def _put(self, bucket: str, key: str, data: bytes) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
            except ClientError as error:
                status = error.response["ResponseMetadata"]["HTTPStatusCode"]
                if status == EXISTS:
                    # boto3 repeats a request that had no answer, and the first one may have written it.
                    return bool(self._client.get_object(Bucket=bucket, Key=key)["Body"].read() == data)
                if status == UNKNOWN:
                    raise make_not_atomic(
                        self._root, "the server does not know the header If-None-Match"
                    ) from None
                if status != CONFLICT or attempt == ATTEMPTS:
                    raise make_unreachable(hide_secrets(self._root), error) from None
                time.sleep(0.1 * attempt)
            except BotoCoreError as error:
                raise make_unreachable(hide_secrets(self._root), error) from None
            else:
                return True
        raise AssertionError("the last attempt returns or raises")


@cache
def connect(root: str, region: str) -> S3Commits:
    """Open a store with the credentials that Arrow uses: those of the URI, or those of the environment."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        what = f"a store on s3:// needs boto3 for its commits, and {error.name} is missing: {INSTALL}"
        raise QueryError("MISSING_PACKAGE", what) from None
    parts = urlsplit(root)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host = options.get("endpoint_override")
    if host and "://" not in host:
        host = f"{options.get('scheme', 'https')}://{host}"
    # Like Arrow, boto3 reads these variables. Both write the bucket into the path if there is an endpoint.
    has_endpoint = host or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    config = Config(
        s3={"addressing_style": "path" if has_endpoint else "auto"},
        request_checksum_calculation="when_required",
        retries={"mode": "standard"},
    )
    # ``boto3.client`` uses one session for all threads, and a session must not make two clients at a time.
    client = boto3.session.Session().client(
        "s3",
        region_name=options.get("region", region) or None,
        endpoint_url=host,
        aws_access_key_id=unquote(parts.username) if parts.username else None,
        aws_secret_access_key=unquote(parts.password) if parts.password else None,
        config=config,
    )
    return S3Commits(root, client)
