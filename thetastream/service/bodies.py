"""The bodies of requests and answers, as OpenAPI describes them, and the statuses of refusals.

An error of the files of the service names their paths, which are nobody else's business. The log has each
such error once, however many clients meet it.
"""

import logging
from collections import OrderedDict
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict

from thetastream.core.errors import ThetastreamError
from thetastream.results.question import RESULTS
from thetastream.results.snapshots import Snapshot
from thetastream.results.store import Store
from thetastream.service.statement_worker import ARROW, JSON

STATUS = {
    "NO_STORE": 404,
    "UNKNOWN_STORE": 404,
    "UNKNOWN_SNAPSHOT": 404,
    "SNAPSHOT_GONE": 410,
    "TOO_LARGE": 413,
    "TOO_MANY_ROWS": 413,
    "TOO_MANY_QUESTIONS": 429,
    "TOO_MANY_SUBSCRIBERS": 429,
    "TOO_BUSY": 503,
    "TOO_SLOW": 408,
    "NO_METRICS": 500,
    "STORE_DAMAGED": 500,
    "STORE_UNREACHABLE": 503,
}
"""The HTTP status of an error by its condition. All other errors have the status 400."""

ALL = f"SELECT * FROM {RESULTS}"
"""The statement of a question that has none."""
LARGEST_NUMBER = (1 << 63) - 1
"""The largest number that an address may have."""
Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]
After = Annotated[int, Query(ge=0, le=LARGEST_NUMBER)]
Value = str | int | float | bool | None
Responses = dict[int | str, dict[str, Any]]


class Problem(BaseModel):
    """Why a request was refused."""

    condition: str
    message: str


class HealthBody(BaseModel):
    """The answer of a service that runs."""

    ok: bool


class StoreBody(BaseModel):
    """A store: its kind, and the names and Arrow types of its columns."""

    kind: str
    columns: dict[str, str]
    time: str | None
    keys: list[str]


class StoreList(BaseModel):
    """The stores of a service by their names."""

    version: str
    stores: dict[str, StoreBody]


class SnapshotBody(BaseModel):
    """A snapshot without its rows."""

    number: int
    at: str
    rows: int
    reason: str


class QueryBody(BaseModel):
    """One question to a store."""

    model_config = ConfigDict(extra="forbid")

    sql: str = ALL
    snapshot: int | str | None = None
    since: str | None = None
    until: str | None = None
    key: dict[str, Value | tuple[Value, Value]] = {}


PROBLEMS: Responses = {
    status: {"model": Problem} for status in sorted({400, 401, 403, 422, *STATUS.values()})
}
ROWS: Responses = {
    200: {
        "description": "The rows.",
        "content": {
            JSON: {"schema": {"type": "array"}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
EVENTS: Responses = {200: {"description": "The events.", "content": {"text/event-stream": {}}}}


def describe_store(store: Store) -> StoreBody:
    """Describe a store by plain values."""
    held = store.description
    columns = {one.name: str(one.type) for one in held.schema}
    return StoreBody(kind=store.kind, columns=columns, time=held.time, keys=list(held.keys))


def describe_snapshot(snapshot: Snapshot) -> SnapshotBody:
    """Describe a snapshot by plain values."""
    at = snapshot.at.isoformat()
    return SnapshotBody(number=snapshot.number, at=at, rows=snapshot.rows, reason=snapshot.reason)


LOG = logging.getLogger("thetastream.service")
OF_FILES = ("STORE_DAMAGED", "STORE_UNREACHABLE", "NO_STORE", "NO_METRICS")
"""The conditions of errors of the files of the service."""
KEPT = 100
"""The number of errors that are known to be in the log."""
_LOGGED: OrderedDict[str, None] = OrderedDict()


def write_message(error: ThetastreamError) -> str:
    """Write the message of an error for a client, without paths of this machine."""
    if error.condition not in OF_FILES:
        return error.message
    if error.message not in _LOGGED:
        LOG.error("[%s] %s", error.condition, error.message)
    _LOGGED[error.message] = None
    _LOGGED.move_to_end(error.message)
    while len(_LOGGED) > KEPT:
        _LOGGED.popitem(last=False)
    return "the service cannot read its files or reach their place; the log of the service names them"
