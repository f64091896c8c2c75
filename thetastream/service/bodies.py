"""The bodies of requests and answers, as OpenAPI describes them, and the statuses of refusals.

An error of the files of the service names their paths, which are nobody else's business. The log has each
such error once, however many clients meet it. The bytes of answers are bounded, and count until the client
has them.
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json
from starlette.responses import Response

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.stopping import Stop
from thetastream.results.question import RESULTS
from thetastream.results.snapshots import Snapshot
from thetastream.results.store import Store
from thetastream.service.statement_worker import ARROW, JSON

STATUS = {
    "FORBIDDEN": 403,
    "NO_STORE": 404,
    "UNKNOWN_STORE": 404,
    "UNKNOWN_QUERY": 404,
    "UNKNOWN_SNAPSHOT": 404,
    "SNAPSHOT_GONE": 410,
    "TOO_LARGE": 413,
    "TOO_MANY_ROWS": 413,
    "TOO_MANY_QUESTIONS": 429,
    "TOO_MANY_SUBSCRIBERS": 429,
    "TOO_BUSY": 503,
    "TOO_SLOW": 408,
    "NO_METRICS": 500,
    "NO_CHECKPOINT": 500,
    "CONTROL_UNUSABLE": 500,
    "STORE_DAMAGED": 500,
    "STORE_UNREACHABLE": 503,
    "AUDIT_UNUSABLE": 503,
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

LOG = logging.getLogger("thetastream.service")
OF_FILES = (
    "STORE_DAMAGED",
    "STORE_UNREACHABLE",
    "NO_STORE",
    "NO_METRICS",
    "NO_CHECKPOINT",
    "CONTROL_UNUSABLE",
    "AUDIT_UNUSABLE",
)
"""The conditions of errors of the files of the service."""
KEPT = 100
"""The number of errors that are known to be in the log."""
_LOGGED: OrderedDict[str, None] = OrderedDict()

PIECE_BYTES = 1 << 16
"""The bytes of an answer that are given to a connection at a time."""
PATIENCE_S = 10.0
"""How long an answer waits until others have been sent, in seconds."""
OWN_PATIENCE_S = 1.0
"""How long it waits until others of the same client have been sent."""
LOOK_S = 0.1
"""The time after which an answer that waits looks whether its client has left, in seconds."""


class Problem(BaseModel):
    """Why a request was refused."""

    condition: str
    message: str


PROBLEMS: Responses = {
    status: {"model": Problem} for status in sorted({400, 401, 403, 422, *STATUS.values()})
}


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


def describe_store(store: Store) -> StoreBody:
    """Describe a store by plain values."""
    held = store.description
    columns = {one.name: str(one.type) for one in held.schema}
    return StoreBody(kind=store.kind, columns=columns, time=held.time, keys=list(held.keys))


def describe_snapshot(snapshot: Snapshot) -> SnapshotBody:
    """Describe a snapshot by plain values."""
    at = snapshot.at.isoformat()
    return SnapshotBody(number=snapshot.number, at=at, rows=snapshot.rows, reason=snapshot.reason)


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


class ResponseMemory:
    """The memory of all answers that a service holds. Its methods may be called from any thread.

    Answers of one client that takes them slowly leave half of it to others.
    """

    def __init__(self, nbytes: int) -> None:
        self._total = self._free = nbytes
        self._per_client: Counter[str] = Counter()
        self._changed = Condition()

    @property
    def n_held(self) -> int:
        """The bytes that are taken."""
        return self._total - self._free

    def give_to(self, client: str) -> "ClientMemory":
        """Return the memory of the answers to one client, which is a part of this memory."""
        return ClientMemory(self, client)

    def take(self, nbytes: int, stop: Stop | None, client: str | None = None) -> Callable[[], None]:
        """Wait for memory, and return the function that gives it back.

        Parameters
        ----------
        nbytes : int
        stop : Stop or None
            Says that the client has left. None if the answer does not wait.
        client : str, optional
            The client of the answer. If it holds other answers, it may have half of the memory with this one.

        Raises
        ------
        QueryError
            TOO_BUSY if there is not enough memory in time, or if the client has left.
        """
        began = time.monotonic()
        with self._changed:
            while (is_share_full := self._is_share_full(nbytes, client)) or nbytes > self._free:
                # The other answers of the client keep this one back, and it keeps a place from other clients.
                until = began + (OWN_PATIENCE_S if is_share_full else PATIENCE_S)
                is_over = stop is None or stop.is_set or time.monotonic() > until
                if is_over or nbytes > self._total:
                    held = self._per_client[client] if client and is_share_full else self.n_held
                    what = f"answers of {held / 1e6:,.0f} MB are being sent"
                    what += f" to {client}, which may have {self._total / 2e6:,.0f} MB" * is_share_full
                    what += f", and this one has {nbytes / 1e6:,.0f} MB"
                    raise QueryError("TOO_BUSY", f"{what}: ask again later")
                self._changed.wait(LOOK_S)
            self._change(-nbytes, client)

        def give_back() -> None:
            with self._changed:
                self._change(nbytes, client)
                self._changed.notify_all()

        return give_back

    def _is_share_full(self, nbytes: int, client: str | None) -> bool:
        held = self._per_client[client] if client is not None else 0
        return held > 0 and held + nbytes > self._total // 2

    def _change(self, nbytes: int, client: str | None) -> None:
        self._free += nbytes
        if client is not None:
            self._per_client[client] -= nbytes
            if not self._per_client[client]:
                del self._per_client[client]


@dataclass(frozen=True)
class ClientMemory:
    """The memory of the answers to one client."""

    whole: ResponseMemory
    client: str

    def take(self, nbytes: int, stop: Stop) -> Callable[[], None]:
        """Take memory, as ``ResponseMemory.take`` does."""
        return self.whole.take(nbytes, stop, self.client)


class Encoded:
    """An encoded answer. Its memory is given back when nothing refers to it any more."""

    def __init__(self, content: bytes, give_back: Callable[[], None]) -> None:
        self.content = content
        self._give_back = give_back

    def __del__(self) -> None:
        """Give the memory back."""
        self._give_back()


class BoundedResponse(Response):
    """A response that sends an answer in pieces, so that a connection holds no second copy of it."""

    def __init__(self, answer: Encoded, media_type: str) -> None:
        super().__init__(media_type=media_type)
        self.headers["Content-Length"] = str(len(answer.content))
        self._answer: Encoded | None = answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the answer. After each piece, the connection waits until the client has taken most of it."""
        answer, self._answer = self._answer, None
        assert answer is not None
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        whole = memoryview(answer.content)
        for start in range(0, max(1, len(whole)), PIECE_BYTES):
            piece = bytes(whole[start : start + PIECE_BYTES])
            is_last = start + PIECE_BYTES >= len(whole)
            await send({"type": "http.response.body", "body": piece, "more_body": not is_last})


def answer_plainly(value: Any, memory: ResponseMemory, client: str) -> BoundedResponse:
    """Answer with plain values and models as JSON, at once.

    Raises
    ------
    QueryError
        TOO_BUSY if there is not enough memory.
    """
    content = to_json(value, inf_nan_mode="null")
    return BoundedResponse(Encoded(content, memory.take(len(content), None, client)), JSON)
