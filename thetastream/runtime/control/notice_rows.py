"""The rows by which the control source tells units that the plan changes.

Every unit of both plans gets the version of the plan that holds from the next epoch on
(``thetastream.runtime.control.held_plan``). The units that are concerned also get a notice. If join tasks
have been added or removed, every unit gets the list of those that run: a unit that joins knows none of them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from thetastream.core.columns import BLOCK, HEADER, KIND, NOTICE, ORIGIN, PLAN, RUNNING_TASKS, STREAM, UNIT
from thetastream.core.records import encode
from thetastream.runtime.choice import find_unit_keys
from thetastream.runtime.control.notices import list_notices
from thetastream.runtime.control.plan import decode_plan
from thetastream.runtime.mailbox.files import ADDRESSED


def make_notice_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Make the rows of a change between two plans, which are given as values of JSON."""
    old, new = decode_plan(before), decode_plan(after)
    told = sorted({*old.slots, *new.slots})
    keys = find_unit_keys(told[-1] + 1)
    headers = [(slot, PLAN, str(new.version)) for slot in told]
    if new.tasks is not None:
        running = json.dumps(encode(new.tasks))
        headers += [(slot, RUNNING_TASKS, running) for slot in told]
    headers += [(slot, NOTICE, notice.write()) for slot, notice in list_notices(old, new).items()]
    rows = [
        {UNIT: keys[slot], KIND: kind, STREAM: 0, ORIGIN: 0, HEADER: header, BLOCK: b""}
        for slot, kind, header in headers
    ]
    yield pa.RecordBatch.from_pylist(rows, schema=ADDRESSED)
