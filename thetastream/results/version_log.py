"""The log of a store in a folder: each entry is a JSON file that appears whole and only once.

    folder/_log/00000000000000000000.json    the description of the store
    folder/_log/00000000000000000007.json    the seventh commit, or a rewrite
    folder/_log/state-00000000000000000007.json    the state that follows from the entries up to the seventh
    folder/_log/newest.json    the note: an entry that was written

Only files that commits name contain results. All other files in the folder contain none. If several writers
write one entry, only one of them succeeds. A local file system and HDFS refuse a hard link or a rename if the
name exists. Object stores with the protocol of S3 refuse a write with the header ``If-None-Match: *``, which
Arrow does not send, so boto3 writes these few small files. A store on another file system is refused.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import QueryError
from thetastream.core.folder import Folder
from thetastream.results.backend import NOTE, STATE, make_not_atomic, make_unreachable, reach
from thetastream.results.description import Description
from thetastream.results.log import make_damaged

PLACE = "{name}/_log/{n:020}.json"
"""The place of an entry in messages."""
GRACE_S = 3600
"""The least age of an entry that is removed because a state contains it, in seconds."""
NOTE_FILE = "newest.json"
"""The name of the note."""
_NAME = re.compile(r"(state-)?([0-9]{20})\.json")
"""The names of entries and states. Files with other names are not part of the log."""
_NEWEST: dict[str, int] = {}
"""The newest entry of each log that this process knows."""

INSTALL = "pip install 'thetastream[s3]'"
EXISTS, CONFLICT, UNKNOWN = 412, 409, 501
"""The answers to a conditional write: the name exists, another write of it is under way, and the server does
not know the condition."""
ATTEMPTS = 5
"""The largest number of attempts if another write of the same name is under way."""


class VersionLog:
    """The methods of a backend for entries, in the folder ``root``, a path or URI."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._log = Folder(root, "_log")
        self._where = f"the log of {hide_secrets(root)}"

    def newest(self) -> int:
        """Find the number of the last entry that is there; -1 if there is none.

        The folder is listed once. Later calls only ask whether the next entry exists. Old entries are removed
        in their order. So if the next entry does not exist and afterwards this one still exists, the next one
        was never written. A log without a note is listed each time.

        Raises
        ------
        StoreError
            STORE_DAMAGED if an entry is gone that no state contains.
        """
        newest = _NEWEST.get(self._root, -1) if self._has(NOTE_FILE) else -1
        while True:
            while newest >= 0 and self.has(newest + 1):
                newest += 1
            if newest >= 0 and self.has(newest):
                break
            newest = self._find_listed()
            if newest < 0:
                break
        _NEWEST[self._root] = newest
        return newest

    def read(self, n: int, with_later: bool = False) -> Iterator[tuple[int, object]]:
        """Read an entry, the note or the newest state; or an entry and all later ones up to a gap."""
        names = [NOTE_FILE] if n == NOTE else [_name(n)]
        if n == STATE:
            n = max(self._list()[1], default=-1)
            names = [] if n < 0 else [f"state-{_name(n)}"]
        while names and (text := self._read(names.pop())) is not None:
            yield n, text
            n += 1
            names = [_name(n)] if with_later else []

    def append(self, n: int, text: str, entry: Mapping[str, Any]) -> bool:
        """Write the text of an entry unless there is one of this number; return whether it was written.

        Raises
        ------
        QueryError
            NO_ATOMIC_COMMIT or MISSING_PACKAGE.
        StoreError
            STORE_UNREACHABLE.
        """
        with reach(self._where):
            return write_once(self._root, self._log, _name(n), text.encode())

    def mark(self, note: str) -> None:
        """Write the note in place of the one before."""
        # Two writers at a time may disturb each other on HDFS. Then the note stays older, or is left out.
        with suppress(OSError):
            self._log.write(NOTE_FILE, note.encode(), is_durable=True)

    def make(self, description: Description) -> None:
        """Make the folder unless it is there."""
        with reach(self._where):
            self._log.make()

    def has(self, n: int) -> bool:
        """Whether an entry exists. Old entries are removed after a state that contains them."""
        return self._has(_name(n))

    def write_state(self, version: int, text: str) -> None:
        """Write the state after an entry, and remove old states and entries.

        Those before the previous state are removed if they are older than ``GRACE_S`` seconds. Younger ones
        are kept, because a writer that pauses could write an entry again that was removed meanwhile.
        """
        before = sorted(one for one in self._list()[1] if one < version)
        self._log.write(f"state-{_name(version)}", text.encode(), is_durable=True)
        now = time.time()
        # They are removed in their order, so that ``newest`` finds no gap after an entry that exists.
        for name, (changed_ns, _) in sorted(self._log.list_files().items()):
            found = _NAME.fullmatch(name)
            is_old = found and before and 0 < int(found[2]) < before[-1]
            if is_old and now - changed_ns / 1e9 >= GRACE_S:
                with suppress(FileNotFoundError):  # Another process has removed it.
                    self._log.remove(name)

    def _read(self, name: str) -> bytes | None:
        """Read a file; None if it does not exist."""
        with reach(self._where):
            try:
                return self._log.read(name)
            except FileNotFoundError:
                return None

    def _has(self, name: str) -> bool:
        with reach(self._where):
            return self._log.exists(name)

    def _list(self) -> tuple[frozenset[int], frozenset[int]]:
        """List the numbers of entries, and those of states."""
        with reach(self._where):
            found = [_NAME.fullmatch(name) for name in self._log.list_files()]
        entries, states = (
            frozenset(int(one[2]) for one in found if one and bool(one[1]) == is_state)
            for is_state in (False, True)
        )
        return entries, states

    def _find_listed(self) -> int:
        """Find the newest entry of the folder by listing it, and raise if an entry is gone.

        A state names an entry, so this entry must exist too. Those before the newest state may be gone. A
        listing may lack an entry that is new.
        """
        entries, states = self._list()
        newest, covered = max(entries | states, default=-1), max(states, default=0)
        needed = {*range(covered, newest + 1)} | ({0} if newest >= 0 else set())
        for n in sorted(needed - entries):
            # Another process may have written a state meanwhile, and removed what the state contains.
            if not self.has(n) and (n == 0 or max(self._list()[1], default=0) <= n):
                where = PLACE.format(name=hide_secrets(self._root), n=n)
                raise make_damaged(where, f"it is gone, and entry {newest} is there")
        return newest


def _name(n: int) -> str:
    return f"{n:020}.json"


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
        what = f"a folder on s3:// needs boto3 for its commits, and {error.name} is missing: {INSTALL}"
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
