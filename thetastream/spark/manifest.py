"""A unit's manifest: which segments are live, of which format, of which query.

Only what the committed manifest names exists; it is one JSON value in Spark's state store. A
manifest of another format or another query is refused by name, never misread.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from thetastream.errors import StateError

FORMAT = 5
"""Version of manifest and segment layout."""

Fingerprint = Mapping[str, str]
"""What must not change between runs on one checkpoint: part of the query -> its text."""


class Heard(NamedTuple):
    """The last epoch in which a unit took part.

    Every unit takes part in every epoch that brings tuples or moves the watermark. So this watermark is that
    of the epoch before the next one.
    """

    epoch: int
    watermark_us: int | None


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


def encode(fingerprint: Fingerprint, heard: Heard, state: State) -> str:
    """The manifest as text."""
    return json.dumps(
        {"format": FORMAT, "query": dict(fingerprint), "heard": heard, "state": state.as_json()}
    )


def decode(text: str | None, fingerprint: Fingerprint, kind: type[S]) -> tuple[Heard | None, S]:
    """The unit's last epoch and its state, which is of this kind; no epoch and no state if there is no text.

    Raises
    ------
    StateError
        MANIFEST_DAMAGED, STATE_FORMAT or STATE_OF_ANOTHER_QUERY.
    """
    if text is None:
        return None, kind()
    try:
        manifest = json.loads(text)
        version = manifest["format"]
        if version == FORMAT:
            query = dict(manifest["query"])
            changed = sorted(
                part for part in {*query, *fingerprint} if query.get(part) != fingerprint.get(part)
            )
            heard = Heard(*manifest["heard"])
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
    return heard, state
