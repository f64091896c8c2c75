"""A unit's manifest names its live segments, their format, and the query to which they belong.

The manifest is one JSON value in Spark's state store. Segments that the committed manifest does not name do
not count. A manifest of another format or of another query is refused with an error that says so.
"""

import json
from typing import Any, NamedTuple

from thetastream.core import records
from thetastream.core.errors import StateError
from thetastream.core.identity import Identity, decode_identity, encode_identity, find_changes, refuse_changes
from thetastream.engine.clock import Latest
from thetastream.runtime.control.held_plan import NOTHING_HELD, HeldPlan
from thetastream.runtime.control.notices import NEVER_TOLD, Member

FORMAT = 8
"""Version of the layout of manifests and segments."""


class LastEpoch(NamedTuple):
    """The last epoch in which a unit took part, and its watermark.

    Every unit takes part in every epoch that brings tuples or moves the watermark. So in the next epoch, this
    is the watermark of the previous epoch.
    """

    epoch: int
    watermark_us: int | None
    latest_us: Latest = ()
    """The latest event time of each stream, as long as Spark has no watermark and units compute one."""


NOTHING = LastEpoch(-1, None)
"""The value before the first epoch."""


class Manifest(NamedTuple):
    """The state that a unit keeps between epochs, apart from its segments."""

    heard: LastEpoch
    mailbox: str | None
    """Name of the query's mailbox; None if its units send no messages."""
    state: Any
    """The state of the engine."""
    member: Member = NEVER_TOLD
    """What the control plan has told the unit."""
    has_sent: bool = False
    """Whether the unit sent messages in the epoch ``heard``."""
    held_plan: HeldPlan = NOTHING_HELD
    """The version of the control plan that the unit was told."""

    def encode(self, query: Identity) -> str:
        """Write the manifest as JSON."""
        heard = self.heard if self.heard.latest_us else self.heard[:2]
        parts = {"heard": heard, "mailbox": self.mailbox, "state": records.encode(self.state)}
        if self.member != NEVER_TOLD:
            parts["member"] = self.member
        if self.has_sent:
            parts["has_sent"] = True
        if self.held_plan != NOTHING_HELD:
            parts["plan"] = self.held_plan
        return json.dumps({"format": FORMAT, "query": encode_identity(query), **parts})


def decode(
    text: str | None, query: Identity, state_type: type[Any], forked_from: Identity | None = None
) -> Manifest:
    """Read the manifest of a unit.

    Parameters
    ----------
    text : str or None
        The text that ``Manifest.encode`` wrote; None before the first epoch.
    query : Identity
        The identity of the query that runs now.
    state_type : type
        The type of the engine's state (``EngineSpec.state_type``).
    forked_from : Identity, optional
        The query that wrote the manifest, if the query that runs now begins with its tuples.

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
            before, now = decode_identity(stored["query"]), forked_from or query
            # The state of another query may be of another type.
            state = state_type() if find_changes(before, now) else records.decode(state_type, stored["state"])
            heard = records.decode(LastEpoch, stored["heard"])
            member = Member(*stored.get("member", ()))
            held_plan = HeldPlan(*stored.get("plan", ()))
            has_sent = stored.get("has_sent", False)
            manifest = Manifest(heard, stored["mailbox"], state, member, has_sent, held_plan)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError("MANIFEST_DAMAGED", f"a unit's manifest cannot be read: {error}") from error
    if version != FORMAT:
        raise StateError(
            "STATE_FORMAT",
            f"state format must be {FORMAT}; the checkpoint has {version}, written by another version",
        )
    refuse_changes(before, now)
    return manifest
