"""What the parts of a query write down for later: the same texts as ever, and each text is read back.

Manifests, offsets, plans, messages and store entries outlive the process that wrote them. A checkpoint or a
store of an older version is read by a newer one, so a change of these texts is a change of a format.
"""

import json
from typing import Any

import pyarrow as pa
import pytest

from thetastream.core import records
from thetastream.core.identity import Part
from thetastream.core.sides import Side
from thetastream.core.spans import Rows
from thetastream.engine.answers.best_partners import BestState
from thetastream.engine.answers.deciding import DecidingState
from thetastream.engine.answers.nearest import NearestState
from thetastream.engine.answers.open_tuples import OpenState
from thetastream.engine.answers.unit import AnswersState
from thetastream.engine.counters import Counters
from thetastream.engine.handshake.instructions import (
    Ack,
    AckBlk,
    Group,
    HandshakeMessage,
    Silence,
    SizeChg,
    Tuple,
    TupleBlk,
)
from thetastream.engine.handshake.protocol import ProtocolState
from thetastream.engine.handshake.query import HandshakeState, Neighbourhood
from thetastream.engine.multiway.hop_orders import HopMeasurements
from thetastream.engine.multiway.partial_results import PartialResults
from thetastream.engine.multiway.query import MultiwayState, Waiting
from thetastream.engine.shared_tasks import TasksState
from thetastream.engine.store.segment import SegmentMeta
from thetastream.engine.two_stream.query import UnitState
from thetastream.engine.views import FoldedState
from thetastream.models import Biclique, Ring, Split
from thetastream.results.history import CommittedRows, make_entry, make_rewrite
from thetastream.results.ledger import CommittedEpoch, Ledger, PendingSnapshot
from thetastream.results.snapshots import Snapshot
from thetastream.results.staged import Staged
from thetastream.runtime.control.held_plan import HeldPlan
from thetastream.runtime.control.notices import JOINS, Member, Notice
from thetastream.runtime.control.plan import ControlPlan, Generation, Rules, decode_plan, encode_plan
from thetastream.runtime.control.request import Request
from thetastream.runtime.emit import write_counters
from thetastream.runtime.state.manifest import NOTHING, LastEpoch, Manifest, decode
from thetastream.runtime.table_versions import EpochVersion, Refused, SourceCheck, Version

META = SegmentMeta("0a", Side.RIGHT, 3, 10, 1000, 5, 7, 600)
SEGMENT = (
    '{"id": "0a", "stream": 1, "period": 3, "n_rows": 10, "nbytes": 1000, "min_ts": 5, "max_ts": 7, '
    '"durable_bytes": 600}'
)
UNIT = UnitState([META], (7, 2**40))
UNIT_TEXT = f'{{"segments": [{SEGMENT}], "arrived": [7, 1099511627776]}}'
OPEN = OpenState(9, [(0, "p0"), (3, "p3")])
ANSWERS = AnswersState(UNIT, {Side.LEFT: OPEN})
ANSWERS_TEXT = (
    f'{{"join": {UNIT_TEXT}, "open": {{"0": {{"n_numbered": 9, "pages": [[0, "p0"], [3, "p3"]]}}}}}}'
)
BEST = BestState([(0, "b0", 12)])
BEST_TEXT = '{"pages": [[0, "b0", 12]]}'
MEASURED = HopMeasurements(
    [(1, 2), (2, 0)], [(1, 2, 40)], [(1, 2, 30.5, 2.25)], [[(500, 3)], [(600, 4), (700, 5)]]
)
MULTIWAY = MultiwayState(
    [META], (1, 2, 3), [Waiting("w", 2, 77, 5, 1), Waiting("v", 1, (4, 5, 6), 2, 0)], [(8, 100)], MEASURED, 99
)
PROTOCOL = ProtocolState([1, 2, 3], [4, 5], [6, 7], [[8], []], 9, 10)
HANDSHAKE = HandshakeState([META], (3, 4), Neighbourhood(PROTOCOL, [0, 1], 1, True, 2, [0.5, 3.0]))

STATES: dict[str, tuple[Any, str]] = {
    "two streams": (UNIT, UNIT_TEXT),
    "a new unit": (UnitState(), '{"segments": [], "arrived": []}'),
    "answers": (ANSWERS, ANSWERS_TEXT),
    "nearest": (NearestState(ANSWERS, BEST), f'{{"answers": {ANSWERS_TEXT}, "best": {BEST_TEXT}}}'),
    "deciding": (
        DecidingState({0: [(2, "m")], 1: []}, BEST),
        f'{{"matched": {{"0": [[2, "m"]], "1": []}}, "best": {BEST_TEXT}}}',
    ),
    "views": (
        FoldedState(UNIT, 60_000, [("view", 4)]),
        f'{{"unit": {UNIT_TEXT}, "since_ms": 60000, "views": [["view", 4]]}}',
    ),
    "handshake": (
        HANDSHAKE,
        f'{{"segments": [{SEGMENT}], "arrived": [3, 4], "neighbourhood": {{"remembered": {{"held": '
        '[1, 2, 3], "loads": [4, 5], "told": [6, 7], "unacked": [[8], []], "silence": 9, "n_met": 10}, '
        '"copies": [0, 1], '
        '"quiet_epochs": 1, "has_news": true, "empty_epochs": 2, "measured": [0.5, 3.0]}}',
    ),
    "hops": (
        MULTIWAY,
        f'{{"segments": [{SEGMENT}], "arrived": [1, 2, 3], "waiting": [["w", 2, 77, 5, 1], '
        '["v", 1, [4, 5, 6], 2, 0]], "admitted": [[8, 100]], "measured": {"orders": [[1, 2], [2, 0]], '
        '"asked": [[1, 2, 40]], "counts": [[1, 2, 30.5, 2.25]], "held": [[[500, 3]], [[600, 4], [700, 5]]]}, '
        '"ends_us": 99, "stored_once": null}',
    ),
    "tasks": (
        TasksState({"one": json.loads(UNIT_TEXT)}),
        f'{{"tasks": {{"one": {UNIT_TEXT}}}, "added": {{}}, "running": null}}',
    ),
}
QUERY = {"the condition": Part("a.x < b.x", "a.x<b.x")}
HEAD = '{"format": 8, "query": {"the condition": ["a.x < b.x", "a.x<b.x", "equal"]}, '


@pytest.mark.parametrize("name", STATES)
def test_the_state_of_each_engine_is_written_as_ever(name: str) -> None:
    state, text = STATES[name]
    manifest = Manifest(LastEpoch(41, 1_000_000), "box", state)
    written = manifest.encode(QUERY)
    assert written == f'{HEAD}"heard": [41, 1000000], "mailbox": "box", "state": {text}}}'
    assert decode(written, QUERY, type(state)) == manifest


def test_what_a_manifest_says_besides_the_state_is_written_as_ever() -> None:
    member = Member({"name": "split", "cores": 2}, 1, 4, 7, 3, 900, (5, 6), None)
    held = HeldPlan(4, 1)
    manifest = Manifest(LastEpoch(2, None, (7, None)), None, UnitState(), member, True, held)
    written = manifest.encode(QUERY)
    assert written == (
        f'{HEAD}"heard": [2, null, [7, null]], "mailbox": null, "state": {{"segments": [], "arrived": []}}, '
        '"member": [{"name": "split", "cores": 2}, 1, 4, 7, 3, 900, [5, 6], null], '
        '"has_sent": true, "plan": [4, 1]}'
    )
    found = decode(written, QUERY, UnitState)
    assert found == manifest._replace(member=member._replace(arrived=[5, 6]))
    assert decode(None, QUERY, UnitState) == Manifest(NOTHING, None, UnitState())


PLAN = ControlPlan(
    3, (Generation(0, Split(2), (0, 1)), Generation(2, Biclique((1, 2)), (0, 2, 3))), 0.25, {1: 2}
)
PLAN_TEXT = (
    '{"version": 3, "membership": [{"since": 0, "model": {"name": "split", "cores": 2}, "slots": [0, 1]}, '
    '{"since": 2, "model": {"name": "biclique", "units": [1, 2]}, "slots": [0, 2, 3]}], "shed_factor": 0.25, '
    '"leaving": {"1": 2}'
)
COMING = ControlPlan(3, PLAN.membership, 0.25, {1: 2}, Generation(3, Ring(4, Rows(9)), (4,)), (10, 20))
RULES = Rules(8, ("hash",), (True, False), True, False, True, (0,), True, True)
RULES_TEXT = (
    '{"max_units": 8, "routings": ["hash"], "never_expires": [true, false], "can_shed": true, '
    '"counts_tuples": false, "only_sizes": true, "preserved": [0], "is_ordered": true, "moves_tuples": true, '
    '"tasks": null}'
)


def test_plans_and_rules_are_written_as_ever() -> None:
    ends = '"coming": {"since": 3, "model": {"name": "ring", "nodes": 4, "slice": {"rows": 9}}, "slots": [4]}'
    for plan, text in ((PLAN, f"{PLAN_TEXT}}}"), (COMING, f'{PLAN_TEXT}, {ends}, "arrived": [10, 20]}}')):
        assert json.dumps(encode_plan(plan)) == text
        assert decode_plan(json.loads(text)) == plan
    assert json.dumps(records.encode(RULES)) == RULES_TEXT
    assert records.decode(Rules, json.loads(RULES_TEXT)) == RULES


def test_requests_and_notices_are_written_as_ever() -> None:
    request = Request({"units": (4, 2)}, Biclique((4, 2)), 0.5)
    text = '{"format": 1, "sizes": {"units": [4, 2]}, "model": {"name": "biclique", "units": [4, 2]}, '
    assert request.write() == text + '"shed_factor": 0.5}'
    assert Request.read(request.write()) == request
    notice = Notice(JOINS, 3, {"name": "split", "cores": 2}, 1, True, (5, 6))
    assert notice.write() == '["joins", 3, {"name": "split", "cores": 2}, 1, true, [5, 6]]'
    assert Notice.read(notice.write()) == notice._replace(arrived=[5, 6])


def test_headers_of_messages_are_written_as_ever() -> None:
    letters = {
        '["TUPLE_BLK", 2, 7, 8]': TupleBlk(Group(2), 7, 8),
        '["TUPLE", 0, 3, null]': Tuple(Side.LEFT, 3),
        '["ACK_BLK", 1]': AckBlk(Side.RIGHT),
        '["ACK"]': Ack(),
        '["SIZE_CHG", 1, 70]': SizeChg(1, 70),
        '["SILENCE", 2, 3]': Silence(2, 3),
    }
    for text, header in letters.items():
        message = HandshakeMessage(header).to_message(2)
        assert message.header == text
        assert HandshakeMessage.from_message(message).header == header
    block = pa.RecordBatch.from_pydict({"c0": [1]})
    for horizon, text in ((None, "null"), (30, "30"), ((5, 9), "[5, 9]")):
        partial = PartialResults((2, 0, 1), 2, horizon, block)
        assert partial.to_message().header == f"[[2, 0, 1], 2, {text}]"
        assert PartialResults.from_message(partial.to_message()) == partial


def test_reports_of_units_are_written_as_ever() -> None:
    counters = Counters(left=3, late=1)
    counters.list_streams(["a"])
    assert write_counters(4, counters) == (
        '{"unit": 4, "left": 3, "right": 0, "received": 0, "received_bytes": 0, "stored": 0, "probed": 0, '
        '"matched": 0, "late": 1, "late_deletes": 0, "unknown_deletes": 0, "shed": 0, "shed_probes": 0, '
        '"expired": 0, "candidates": 0, "segments": 0, "held": 0, "mlv_bytes": 0, "state_bytes": 0, '
        '"busy_ms": 0, "predicate_us": 0, "emitted_bytes": 0, "streams": {"a": '
        '{"timely": 0, "late": 0, "newest_us": null, "shed": 0, "shed_probes": 0, "delay_us": null}}}'
    )


VERSION = Version(2, ("r0", "r1"), 5, 700, 1.5, "5 77")
VERSION_TEXT = (
    '{"number": 2, "runs": ["r0", "r1"], "n_rows": 5, "nbytes": 700, "staged_s": 1.5, '
    '"content": "5 77", "extents": [], "layout": "", "cuts": []}'
)


def test_versions_of_tables_are_written_as_ever() -> None:
    written = {
        VERSION_TEXT: VERSION,
        f'{{"alias": "t", "version": {VERSION_TEXT}, "fresh_s": 2.5, "refused": null}}': EpochVersion(
            "t", VERSION, 2.5
        ),
        '{"fresh_s": 2.5, "stamp": "version 7", "refused": {"condition": "TABLE_KEYS", "what": "twice", '
        '"when_s": 3.5}}': SourceCheck(2.5, "version 7", Refused("TABLE_KEYS", "twice", 3.5)),
    }
    for text, record in written.items():
        assert json.dumps(records.encode(record)) == text
        assert records.decode(type(record), json.loads(text)) == record
        # Earlier versions wrote no cuts, no extents and no layout.
        earlier = text.replace(', "extents": [], "layout": "", "cuts": []', "")
        assert records.decode(type(record), json.loads(earlier)) == record


STAGED = Staged("part-q-000007-3-ab.rows", 5, 70, {"at": (1, 9), "k": ("a", "b")}, (0, 2), {"crc": 7})
STAGED_TEXT = (
    '{"name": "part-q-000007-3-ab.rows", "rows": 5, "nbytes": 70, "bounds": {"at": [1, 9], '
    '"k": ["a", "b"]}, "groups": [0, 2], "seal": {"crc": 7}}'
)
SNAPSHOT = Snapshot(4, 90, 1, None, (6, 7), 5, "every", "q")
SNAPSHOT_TEXT = (
    '{"number": 4, "at_us": 90, "begin_us": 1, "end_us": null, "epochs": [6, 7], "rows": 5, '
    '"reason": "every", "query": "q"}'
)
LEDGER = Ledger({"q": CommittedEpoch(7, "ab", "file:/c")}, {"q": PendingSnapshot(6, 5, 1, 9, 9, 1)}, 4)
LEDGER_TEXT = (
    '{"queries": {"q": {"epoch": 7, "digest": "ab", "checkpoint": "file:/c"}}, "collected": {"q": '
    '{"first": 6, "rows": 5, "begin_us": 1, "end_us": 9, "now_us": 9, "delayed": 1}}, "snapshots": 4}'
)


def test_entries_of_stores_are_written_as_ever() -> None:
    entry = make_entry(LEDGER, "q", 7, [STAGED], SNAPSHOT)
    text = (
        f'{{"query": "q", "epoch": 7, "staged": [{STAGED_TEXT}], "snapshot": {SNAPSHOT_TEXT}, '
        f'"ledger": {LEDGER_TEXT}}}'
    )
    assert json.dumps(entry) == text
    rewrite = make_rewrite(
        entry["ledger"], [CommittedRows(STAGED, "q")], [CommittedRows(STAGED, "q", 4)], 2, 3
    )
    added = f'{{"staged": {STAGED_TEXT}, "query": "q", "snapshot": 4}}'
    assert json.dumps(rewrite) == (
        f'{{"dropped": [{STAGED_TEXT}], "added": [{added}], "first": 2, "clock_us": 3, '
        f'"ledger": {LEDGER_TEXT}}}'
    )
