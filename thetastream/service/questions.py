"""Answers questions to the stores of a service. A few questions run at the same time, and the others wait."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Response

from thetastream.errors import QueryError
from thetastream.service.encoding import ARROW, JSON, encode_table
from thetastream.service.limits import Limits
from thetastream.stores.base import Store
from thetastream.stores.question import ask


class Questions:
    """Answers questions to the stores of a service within its limits."""

    def __init__(self, stores: Mapping[str, Store], limits: Limits) -> None:
        self._stores = stores
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.questions)

    def find_store(self, name: str) -> Store:
        """Find a store by its name.

        Raises
        ------
        QueryError
            UNKNOWN_STORE.
        """
        if name not in self._stores:
            known = ", ".join(self._stores) or "none"
            raise QueryError("UNKNOWN_STORE", f"store {name!r} must be a store of this service ({known})")
        return self._stores[name]

    def check(self, store: Store, sql: str) -> None:
        """Run one SELECT over no rows.

        Raises
        ------
        QueryError
            If the statement cannot run, or may not.
        """
        rows, limits = store.description.schema.empty_table(), self._limits
        ask(rows, sql, limits.memory, max_rows=limits.rows, max_s=limits.seconds)

    async def answer(self, open_rows: Callable[[], Any], sql: str, accept: str) -> Response:
        """Run one SELECT over rows, and encode the answer as the header ``Accept`` asks."""
        limits, media_type = self._limits, ARROW if ARROW in accept else JSON

        def run() -> bytes:
            found = ask(open_rows(), sql, limits.memory, max_rows=limits.rows, max_s=limits.seconds)
            return encode_table(found, media_type)

        async with self._turns:
            return Response(await asyncio.to_thread(run), media_type=media_type)
