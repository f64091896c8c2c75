"""Answers questions to the stores of a service. A few questions run at the same time, and the others wait."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fastapi import Response

from thetastream.errors import QueryError
from thetastream.service.bodies import ALL
from thetastream.service.bounded_rows import read_bounded
from thetastream.service.limits import Limits
from thetastream.service.statement_pool import OpenRows, StatementPool
from thetastream.stores.answer_encoding import ARROW, JSON, encode_table
from thetastream.stores.base import Store, refuse_damage

Answer = TypeVar("Answer")


class Questions:
    """Answers questions to the stores of a service within its limits."""

    def __init__(self, stores: Mapping[str, Store], limits: Limits) -> None:
        self._stores = stores
        self._limits = limits
        self._statements = StatementPool(limits)
        self._threads = ThreadPoolExecutor(limits.questions, thread_name_prefix="question")

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

    async def check(self, store: Store, sql: str) -> None:
        """Run one SELECT over no rows.

        Raises
        ------
        QueryError
            If the statement cannot run, or may not.
        """
        await self.run(lambda: self.encode(store.description.schema.empty_table, sql))

    async def answer(self, open_rows: OpenRows, sql: str, accept: str, first: int | None = None) -> Response:
        """Run one SELECT, and encode the answer, or its first rows, as the header ``Accept`` asks."""
        media_type = ARROW if ARROW in accept else JSON
        content = await self.run(lambda: self.encode(open_rows, sql, media_type, first))
        return Response(content, media_type=media_type)

    def encode(
        self, open_rows: OpenRows, sql: str, media_type: str = JSON, first: int | None = None
    ) -> bytes:
        """Run one SELECT over the rows that a function opens, and encode its answer, within the limits.

        ``first`` is the number of rows to answer with if there is no statement.

        Raises
        ------
        QueryError
            If the statement cannot run, or may not.
        """
        if sql == ALL:
            # It computes nothing, so it needs no process of its own.
            with refuse_damage("the store"):
                rows = read_bounded(open_rows(), self._limits, first)
            return encode_table(rows, media_type)
        return self._statements.encode(open_rows, sql, media_type)

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """Do the work of one question in a thread for questions, as soon as one is free.

        The thread is taken until the work ends, also if the client leaves before.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
