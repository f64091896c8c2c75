"""A unit's manifest names its live segments, their format, and the query to which they belong.

The manifest is one JSON value in Spark's state store. Segments that the committed manifest does not name do
not count. A manifest of another format or of another query is refused with an error that says so.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from thetastream.errors import StateError

FORMAT = 6
"""Version of the layout of manifests and segments."""

Fingerprint = Mapping[str, str]
"""The parts of a query that must not change between runs on one checkpoint: name of the part -> its text."""


class Heard(NamedTuple):
    """The last epoch in which a unit took part, and its watermark.

    Every unit takes part in every epoch that brings tuples or moves the watermark. So in the next epoch, this
    is the watermark of the previous epoch.
    """

    epoch: int
    watermark_us: int | None


NOTHING = Heard(-1, None)
"""The value before the first epoch."""


class Manifest(NamedTuple):
    """The state that a unit keeps between epochs, apart from its segments."""

    heard: Heard
    mailbox: str | None
    """Name of the query's mailbox; None if its units send no messages."""
    state: Any
    """The state of the engine."""

    def encode(self, fingerprint: Fingerprint) -> str:
        """Write the manifest as JSON."""
        parts = {"heard": self.heard, "mailbox": self.mailbox, "state": self.state.as_json()}
        return json.dumps({"format": FORMAT, "query": dict(fingerprint), **parts})


def digest(fingerprint: Fingerprint) -> str:
    """Compute a short name of a query from its fingerprint."""
    return hashlib.sha256(json.dumps(dict(fingerprint), sort_keys=True).encode()).hexdigest()[:12]


def decode(text: str | None, fingerprint: Fingerprint, state_type: type[Any]) -> Manifest:
    """Read the manifest of a unit.

    Parameters
    ----------
    text : str or None
        The text that ``Manifest.encode`` wrote; None before the first epoch.
    fingerprint : mapping of str to str
        The fingerprint of the query that runs now.
    state_type : type
        The type of the engine's state (``thetastream.engine.protocol.State``).

    Raises
    ------
    StateError
        MANIFEST_DAMAGED, STATE_FORMAT or STATE_OF_ANOTHER_QUERY.
    """
    if text is None:
        return Manifest(NOTHING, None, state_type())
    try:
        stored = json.loads(text)
        version = stored["format"]
        if version == FORMAT:
            query = dict(stored["query"])
            changed = sorted(
                part for part in {*query, *fingerprint} if query.get(part) != fingerprint.get(part)
            )
            # The state of another query may be of another type.
            state = state_type() if changed else state_type.from_json(stored["state"])
            manifest = Manifest(Heard(*stored["heard"]), stored["mailbox"], state)
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
    return manifest
