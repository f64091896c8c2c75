"""The rows by which the control source tells units that the plan changes, one per unit concerned."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from thetastream.core.columns import BLOCK, HEADER, KIND, NOTICE, ORIGIN, STREAM, UNIT
from thetastream.runtime.choice import find_unit_keys
from thetastream.runtime.control.notices import list_notices
from thetastream.runtime.control.plan import decode_plan

_ROWS = pa.schema(
    [
        (UNIT, pa.int32()),
        (KIND, pa.int8()),
        (STREAM, pa.int8()),
        (ORIGIN, pa.int64()),
        (HEADER, pa.string()),
        (BLOCK, pa.binary()),
    ]
)


def make_notice_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Make the rows of a change between two plans, which are given as values of JSON."""
    notices = list_notices(decode_plan(before), decode_plan(after))
    keys = find_unit_keys(max(notices, default=0) + 1)
    rows = [
        {UNIT: keys[slot], KIND: NOTICE, STREAM: 0, ORIGIN: 0, HEADER: notice.write(), BLOCK: b""}
        for slot, notice in notices.items()
    ]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=_ROWS)
