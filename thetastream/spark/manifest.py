"""A unit's manifest: which segments are live, of which format, of which query.

Only what the committed manifest names exists; it is one JSON value in Spark's state store. A
manifest of another format or another query is refused by name, never misread.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

from thetastream.errors import StateError

FORMAT = 4
"""Version of manifest and segment layout."""

Fingerprint = Mapping[str, str]
"""What must not change between runs on one checkpoint: part of the query -> its text."""


class State(Protocol):
    """What a unit remembers; without arguments: nothing."""

    def __init__(self) -> None: ...
    def as_json(self) -> dict[str, Any]: ...
    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self: ...


S = TypeVar("S", bound=State)


def digest(fingerprint: Fingerprint) -> str:
    """Short name of a query."""
    return hashlib.sha256(json.dumps(dict(fingerprint), sort_keys=True).encode()).hexdigest()[:12]


def encode(fingerprint: Fingerprint, state: State) -> str:
    """The manifest as text."""
    return json.dumps({"format": FORMAT, "query": dict(fingerprint), "state": state.as_json()})


def decode(text: str | None, fingerprint: Fingerprint, kind: type[S]) -> S:
    """What the unit remembers, as a state of this kind; nothing if there is no text.

    Raises
    ------
    StateError
        MANIFEST_DAMAGED, STATE_FORMAT or STATE_OF_ANOTHER_QUERY.
    """
    if text is None:
        return kind()
    try:
        manifest = json.loads(text)
        version = manifest["format"]
        if version == FORMAT:
            query = dict(manifest["query"])
            changed = sorted(
                part for part in {*query, *fingerprint} if query.get(part) != fingerprint.get(part)
            )
            # The state of another query may be of another kind.
            state = kind() if changed else kind.from_json(manifest["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError("MANIFEST_DAMAGED", f"a unit's manifest cannot be read: {error}") from error
    if version != FORMAT:
        raise StateError(
            "STATE_FORMAT",
            f"state format must be {FORMAT}; the checkpoint has {version}, written by another version",
        )
    if changed:
        details = "; ".join(f"{part}: {query.get(part)} -> {fingerprint.get(part)}" for part in changed)
        raise StateError(
            "STATE_OF_ANOTHER_QUERY",
            f"a checkpoint belongs to one query; since it was written this changed: {details}. "
            "Start with a new checkpointLocation, or undo the change",
        )
    return state
