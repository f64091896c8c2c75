"""Answers on their way to clients. Their bytes are bounded, and count until the client has them."""

import time
from collections.abc import Callable
from threading import Condition
from typing import Any

from starlette.responses import Response

from thetastream.core.errors import QueryError
from thetastream.core.stopping import Stop

PIECE_BYTES = 1 << 16
"""The bytes of an answer that are given to a connection at a time."""
PATIENCE_S = 10.0
"""How long an answer waits until others have been sent, in seconds."""
LOOK_S = 0.1
"""The time after which an answer that waits looks whether its client has left, in seconds."""


class ResponseMemory:
    """The memory of all answers that a service holds. Its methods may be called from any thread."""

    def __init__(self, nbytes: int) -> None:
        self._total = self._free = nbytes
        self._changed = Condition()

    @property
    def n_held(self) -> int:
        """The bytes that are taken."""
        return self._total - self._free

    def take(self, nbytes: int, stop: Stop) -> Callable[[], None]:
        """Wait for memory, and return the function that gives it back.

        Raises
        ------
        QueryError
            TOO_BUSY if there is not enough memory in time, or if the client has left.
        """
        until = time.monotonic() + PATIENCE_S
        with self._changed:
            while nbytes > self._free:
                if stop.is_set or time.monotonic() > until or nbytes > self._total:
                    what = f"answers of {self.n_held / 1e6:,.0f} MB are being sent, and this one has"
                    raise QueryError("TOO_BUSY", f"{what} {nbytes / 1e6:,.0f} MB: ask again later")
                self._changed.wait(LOOK_S)
            self._free -= nbytes

        def give_back() -> None:
            with self._changed:
                self._free += nbytes
                self._changed.notify_all()

        return give_back


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
