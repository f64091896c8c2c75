"""Entries of a log are sealed and chained, so that a damaged, exchanged or missing entry is noticed.

    entry n = {"format": 2, "version": n, "previous": seal of entry n - 1, ..., "seal": seal of this entry}
    seal    = SHA-256 of the text before it

The seal of an entry depends on the seals of all entries before it, so an entry fits only one place of one
log.
"""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from thetastream.core.errors import StoreError

FORMAT = 2
"""The version of the format of entries."""
NO_SEAL = ""
"""What the first entry names as the seal of the entry before it."""
_SEALED = re.compile(r'(.*), "seal": "([0-9a-f]{64})"\}', re.DOTALL)


def seal_entry(version: int, previous: str, entry: Mapping[str, Any]) -> str:
    """Write an entry as one object of JSON that ends with its seal.

    >>> seal_entry(7, "", {"epoch": 3})[:57]
    '{"format": 2, "version": 7, "previous": "", "epoch": 3, "'
    """
    body = json.dumps({"format": FORMAT, "version": version, "previous": previous, **entry})[:-1]
    return f'{body}, "seal": "{sha256(body.encode()).hexdigest()}"}}'


def read_seal(text: str) -> str:
    """Read the seal of an entry that ``seal_entry`` wrote."""
    return text[-66:-2]


def unseal_entry(where: str, version: int | None, text: object) -> dict[str, Any]:
    """Read an entry that ``seal_entry`` wrote.

    Parameters
    ----------
    where : str
        The place of the entry in messages.
    version : int or None
        The version that the entry must have; None if it may have any.
    text : str or bytes
        What the place has. A value of another type is an entry of an earlier version of Thetastream.

    Raises
    ------
    StoreError
        STORE_DAMAGED, or STORE_FORMAT if an earlier version of Thetastream wrote the entry.
    """
    try:
        found = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise make_damaged(where, f"it is no text: {error}") from None
    parts = _SEALED.fullmatch(found) if isinstance(found, str) else None
    if parts is None:
        if _is_earlier(found):
            what = f"{where} must have format {FORMAT}, and an earlier version of Thetastream wrote it"
            raise StoreError("STORE_FORMAT", f"{what}. Begin with a new checkpoint and a new store")
        raise make_damaged(where, "it does not end with its seal")
    if sha256(parts[1].encode()).hexdigest() != parts[2]:
        raise make_damaged(where, "its content does not fit its seal")
    entry: dict[str, Any] = json.loads(parts[0])
    if entry["format"] != FORMAT:
        what = f"{where} must have format {FORMAT}, and it has format {entry['format']}"
        raise StoreError("STORE_FORMAT", f"{what}. Use the version of Thetastream that wrote it")
    if version is not None and entry["version"] != version:
        raise make_damaged(where, f"it is entry {entry['version']}, and this is the place of {version}")
    return entry


def make_damaged(where: str, why: str) -> StoreError:
    """Make the error of an entry of a log that is damaged, exchanged or gone."""
    hint = "Restore the store from a backup. thetastream verify lists all that is damaged"
    return StoreError("STORE_DAMAGED", f"{where} must be as its commit wrote it, and {why}. {hint}")


def _is_earlier(text: object) -> bool:
    """Whether an entry has the form of earlier versions, which wrote objects of JSON without a seal."""
    if isinstance(text, Mapping):  # PostgreSQL kept entries as values of type JSONB.
        return True
    try:
        found = json.loads(str(text))
    except ValueError:
        return False
    return isinstance(found, dict) and "seal" not in found and found.get("format") in (None, 1)
