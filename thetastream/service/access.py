"""Tokens with rights, and the file that says who asked what.

A file of tokens has a table for each client. It has the SHA-256 digest of a token, and not the token:

    [dashboard]
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    stores = ["pairs"]               # without it: all stores
    rights = ["ask", "subscribe"]    # without it: all rights but control
"""

import hashlib
import hmac
import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from starlette.requests import Request

from thetastream.core.errors import QueryError, suggest_or_list
from thetastream.core.listening import name_client
from thetastream.core.private_folder import refuse_unsafe

Right = Literal["ask", "subscribe", "watch", "control"]
"""To read and ask a store, to follow its snapshots, to see the running queries, and to change them."""
RIGHTS: tuple[Right, ...] = get_args(Right)
USUAL_RIGHTS = frozenset(RIGHTS) - {"control"}
"""The rights of clients whose rights are not named."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Grant:
    """What the clients that send one token may do."""

    name: str
    """The name of the clients in errors and in the audit file."""
    digest: str
    """The SHA-256 digest of the token, as 64 hexadecimal digits."""
    stores: frozenset[str] | None = None
    """The names of the stores that they may use; None stands for all."""
    rights: frozenset[str] = USUAL_RIGHTS

    def sees(self, store: str) -> bool:
        """Whether these clients may know of a store."""
        return self.stores is None or store in self.stores


EVERYBODY = Grant("everybody", "")
"""What clients of this machine may do, if the service has no token."""


def make_grant(token: str) -> Grant:
    """Return the grant of the only token of a service, which may do everything."""
    return Grant("token", digest_token(token), rights=frozenset(RIGHTS))


def digest_token(token: str) -> str:
    """Compute the SHA-256 digest of a token.

    >>> digest_token("test")[:16]
    '9f86d081884c7d65'
    """
    return hashlib.sha256(token.encode()).hexdigest()


def find_grant(known: Sequence[Grant], token: str) -> Grant | None:
    """Find what the clients of a token may do; None if the token is unknown.

    Each digest is compared, and in constant time, so the time of an answer tells nothing about tokens.
    """
    digest = digest_token(token)
    found = [one for one in known if hmac.compare_digest(one.digest, digest)]
    return found[0] if found else None


def read_tokens(text: str, where: str, stores: Sequence[str]) -> list[Grant]:
    """Read a file of tokens.

    Parameters
    ----------
    text : str
        The content of the file, as TOML.
    where : str
        The name of the file, for errors.
    stores : sequence of str
        The names of the stores of the service.

    Raises
    ------
    QueryError
        TOKEN.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise QueryError("TOKEN", f"{where} must be TOML: {error}") from None
    if not tables:
        raise QueryError("TOKEN", f"{where} must have a table for each client, and it is empty")
    return [_read_grant(name, table, where, stores) for name, table in tables.items()]


def _read_grant(name: str, table: Any, where: str, stores: Sequence[str]) -> Grant:
    what = f"[{name}] of {where}"
    if not isinstance(table, Mapping):
        raise QueryError("TOKEN", f"{where} must have only tables, and {name!r} is {table!r}")
    for key in table.keys() - {"sha256", "stores", "rights"}:
        raise QueryError("TOKEN", f"{what} has no {key!r}; there are sha256, stores, rights")
    digest = table.get("sha256")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        hint = "printf %s TOKEN | sha256sum"
        raise QueryError("TOKEN", f"sha256 of {what} must be the 64 digits that `{hint}` prints")
    return Grant(
        name,
        digest,
        None if "stores" not in table else _read_names(table["stores"], stores, f"stores of {what}"),
        _read_names(table.get("rights", list(USUAL_RIGHTS)), RIGHTS, f"rights of {what}"),
    )


def _read_names(value: Any, known: Sequence[str], what: str) -> frozenset[str]:
    if not isinstance(value, list):
        raise QueryError("TOKEN", f"{what} must be a list, not {value!r}")
    for one in value:
        if one not in known:
            raise QueryError("TOKEN", f"{what} must be known, not {one!r}{suggest_or_list(str(one), known)}")
    return frozenset(value)


class Door:
    """Admits requests by the rights of their token, and writes down who asked what.

    Parameters
    ----------
    audit : Path, optional
        The file that gets one line of JSON for each request that is admitted or refused.
    """

    def __init__(self, audit: Path | None) -> None:
        self._audit: int | None = None
        if audit is not None:
            try:
                self._audit = _open_audit(audit)
            except OSError as error:
                raise QueryError(
                    "BAD_VALUE", f"--audit must name a file that can be written: {error}"
                ) from None
            known = os.fstat(self._audit)
            is_open = bool(known.st_mode & (stat.S_IWGRP | stat.S_IRWXO))
            if stat.S_ISREG(known.st_mode) and (is_open or known.st_uid not in (os.geteuid(), 0)):
                # It has the statements of all clients, and says who asked them.
                what = f"--audit must name a file that others can neither read nor write, not {audit}"
                raise QueryError("BAD_VALUE", f"{what}: call chmod 600 {audit}, or name a new file")

    def admit(self, request: Request, right: Right, store: str | None = None, **asked: Any) -> None:
        """Admit a request, or raise.

        Parameters
        ----------
        request : Request
        right : str
            The right that it needs.
        store : str, optional
            The store that it is about.
        asked
            What it asks, for the audit file. None is left out.

        Raises
        ------
        QueryError
            FORBIDDEN, or AUDIT_UNUSABLE if it cannot be written down.
        """
        grant = get_grant(request)
        is_admitted = right in grant.rights and (store is None or grant.sees(store))
        self._write(request, grant, right, is_admitted, {"store": store, **asked})
        if not is_admitted:
            what = f"the token of {grant.name} does not have the right {right!r}"
            raise QueryError("FORBIDDEN", what if store is None else f"{what} for the store {store!r}")

    def _write(
        self, request: Request, grant: Grant, right: str, is_admitted: bool, asked: Mapping[str, Any]
    ) -> None:
        if self._audit is None:
            return
        line = {
            "at": datetime.now(UTC).isoformat(),
            "token": grant.name,
            "client": request.client.host if request.client else None,
            "right": right,
            "admitted": is_admitted,
            **{name: value for name, value in asked.items() if value not in (None, {})},
        }
        # One write of a file in append mode: lines of several requests do not mix.
        text = f"{json.dumps(line, default=str)}\n".encode()
        try:
            is_written = os.write(self._audit, text) == len(text)
        except OSError as error:
            raise QueryError("AUDIT_UNUSABLE", f"the file of --audit cannot be written: {error}") from None
        if not is_written:
            raise QueryError("AUDIT_UNUSABLE", "the file of --audit cannot be written: the disk is full")


def _open_audit(file: Path) -> int:
    """Open the audit file, or make it.

    Raises
    ------
    SessionError
        UNSAFE_FOLDER if others can put another file, or a link to one, in its place.
    """
    with suppress(FileExistsError):  # A link to nothing exists too, and is not followed.
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    number = os.open(file, os.O_WRONLY | os.O_APPEND)
    # It may also be a pipe, as the standard output.
    if stat.S_ISREG(os.fstat(number).st_mode):
        refuse_unsafe(file)
    return number


def get_grant(request: Request) -> Grant:
    """Return what the client of a request may do, as the guard has found it."""
    grant: Grant = request.scope["state"]["grant"]
    return grant


def get_client(request: Request) -> str:
    """Return the name of the client of a request, for which limits count."""
    return name_client(request.client.host) if request.client else ""
