"""The manifest of a checkpoint is read back as written. Damage and another query are refused by name."""

import json

import pytest

from thetastream.core.errors import StateError
from thetastream.core.identity import NARROWER, Part, encode_identity
from thetastream.core.records import encode
from thetastream.engine.store.segment import SegmentMeta
from thetastream.engine.two_stream.query import UnitState
from thetastream.runtime.state.manifest import FORMAT, NOTHING, LastEpoch, Manifest, decode

QUERY = {"the condition": Part("a.x < b.x", "a.x<b.x"), "the window": Part("[[-9, 9]]", "9 s", NARROWER)}
KEPT = encode_identity(QUERY)
WIDER = {**QUERY, "the window": Part("[[-9, 10]]", "10 s", NARROWER)}
META = SegmentMeta("0a", 1, 3, 10, 1000, 5, 7, 600)
HEARD = LastEpoch(41, 1_700_000_000_000_000)
STATE = UnitState([META], (7, 2**40))
MANIFEST = Manifest(HEARD, "box", STATE)


def test_manifest_round_trip() -> None:
    assert decode(None, QUERY, UnitState) == Manifest(NOTHING, None, UnitState())
    assert decode(MANIFEST.encode(QUERY), QUERY, UnitState) == MANIFEST
    assert decode(MANIFEST.encode(WIDER), QUERY, UnitState) == MANIFEST, "a narrower window continues"


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (MANIFEST.encode(QUERY)[:-9], "MANIFEST_DAMAGED", "cannot be read"),
        ("", "MANIFEST_DAMAGED", "cannot be read"),
        ("[]", "MANIFEST_DAMAGED", "cannot be read"),
        (json.dumps({"format": FORMAT, "query": KEPT}), "MANIFEST_DAMAGED", "cannot be read"),
        (
            json.dumps(
                {
                    "format": FORMAT,
                    "query": 1,
                    "heard": HEARD,
                    "mailbox": None,
                    "state": encode(UnitState()),
                }
            ),
            "MANIFEST_DAMAGED",
            "cannot be read",
        ),
        (
            json.dumps(
                {
                    "format": FORMAT,
                    "query": KEPT,
                    "heard": HEARD,
                    "mailbox": None,
                    "state": {**encode(STATE), "segments": [{"id": "0a"}]},
                }
            ),
            "MANIFEST_DAMAGED",
            "cannot be read",
        ),
        (json.dumps({"format": FORMAT + 1, "anything": 1}), "STATE_FORMAT", f"must be {FORMAT}"),
        (
            MANIFEST.encode({**QUERY, "the condition": Part("a.x <= b.x", "a.x<=b.x")}),
            "STATE_OF_ANOTHER_QUERY",
            "the condition was a.x<=b.x, it is a.x<b.x. Start with a new",
        ),
    ],
)
def test_manifest_refused_by_name(text: str, name: str, says: str) -> None:
    with pytest.raises(StateError) as refused:
        decode(text, QUERY, UnitState)
    assert refused.value.condition == name
    assert says in str(refused.value)
