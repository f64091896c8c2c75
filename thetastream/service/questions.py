"""Answers questions to the stores of a service.

A few statements run at the same time, and as many reads without a statement. The others wait, and clients
take turns: a client with many questions delays its own questions, because the next place is for the next
client.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import Request, Response

from thetastream.core.errors import QueryError
from thetastream.core.stopping import Stop
from thetastream.results.loading import refuse_damage
from thetastream.results.store import Store
from thetastream.service.access import get_client
from thetastream.service.bodies import ALL, BoundedResponse, Encoded, ResponseMemory
from thetastream.service.limits import Limits, make_large, read_bounded
from thetastream.service.statement_pool import OpenRows, StatementPool
from thetastream.service.statement_worker import ARROW, JSON, encode_table

FEW_ROWS = 1000
"""The number of rows of a read that waits for no large answers. The page asks for so many."""


def list_folders(stores: Mapping[str, Store]) -> list[str] | None:
    """List the folders of this machine in which the stores are; None if one of them is elsewhere."""
    folders = [store.local_folder for store in stores.values()]
    return None if None in folders else [one for one in folders if one is not None]


class Questions:
    """Answers questions to the stores of a service within its limits."""

    def __init__(self, stores: Mapping[str, Store], limits: Limits) -> None:
        self._stores = stores
        self._limits = limits
        self._statements = StatementPool(
            limits, {name for store in stores.values() for name in store.variables}, list_folders(stores)
        )
        self._threads = ThreadPoolExecutor(limits.questions, thread_name_prefix="statement")
        self._turns = Turns(limits.questions, limits.waiting, limits.waiting_per_client)
        # Reads without a statement, as those of the page, never wait behind statements.
        self._read_threads = ThreadPoolExecutor(limits.questions, thread_name_prefix="read")
        self._read_turns = Turns(limits.questions, limits.waiting, limits.waiting_per_client)
        self._memory = ResponseMemory(limits.question_bytes * limits.questions)
        self._memory_of_few = ResponseMemory(limits.question_bytes)
        self._memory_of_events = ResponseMemory(limits.question_bytes * limits.questions)

    def prepare(self) -> None:
        """Start a process for statements, and wait until it is ready, so that no question waits for it.

        Raises
        ------
        QueryError
            TOO_BUSY if it cannot start.
        """
        self._statements.prepare()

    @property
    def most_bytes(self) -> int:
        """The memory of one question, in bytes."""
        return self._limits.question_bytes

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

    async def check(self, request: Request, store: Store, sql: str) -> None:
        """Run one SELECT over no rows, for a subscriber that has a seat. It stops if the client leaves.

        Raises
        ------
        QueryError
            If the statement cannot run, or may not; TOO_BUSY if the client has left.
        """
        await _work_until_left(
            request, self.ask(store.description.schema.empty_table, sql, get_client(request))
        )

    async def answer(
        self, request: Request, open_rows: OpenRows, sql: str, accept: str, first: int | None = None
    ) -> Response:
        """Run one SELECT, and encode the answer, or its first rows, as the header ``Accept`` asks.

        If the client leaves, the question is stopped, or waits no more (TOO_BUSY).
        """
        media_type = ARROW if ARROW in accept else JSON
        asked = self._ask_once(open_rows, sql, get_client(request), media_type, first)
        return BoundedResponse(await _work_until_left(request, asked), media_type)

    async def _ask_once(
        self, open_rows: OpenRows, sql: str, client: str, media_type: str, first: int | None
    ) -> Encoded:
        turns = self._read_turns if sql == ALL else self._turns
        await turns.take(client)
        threads = self._read_threads if sql == ALL else self._threads
        return await _run(threads, turns, partial(self.encode, open_rows, sql, media_type, first, client))

    async def ask(self, open_rows: OpenRows, sql: str, client: str) -> Encoded:
        """Run one SELECT of a subscriber. The number of subscribers bounds how many of them wait."""
        await self._turns.take(f"subscriptions of {client}", is_patient=True)
        work = partial(self.encode, open_rows, sql, JSON, None, client)
        return await _run(self._threads, self._turns, work)

    def encode_event(self, open_rows: OpenRows) -> Encoded:
        """Encode the rows of a snapshot for all subscribers. Such answers have a memory of their own."""
        return self._encode_rows(open_rows, JSON, None, self._memory_of_events, Stop(), None)

    def encode(
        self,
        open_rows: OpenRows,
        sql: str = ALL,
        media_type: str = JSON,
        first: int | None = None,
        client: str = "",
        stop: Stop | None = None,
    ) -> Encoded:
        """Run one SELECT over the rows that a function opens, and encode its answer, within the limits.

        ``first`` is the number of rows to answer with if there is no statement. ``client`` gets the answer.

        Raises
        ------
        QueryError
            If the statement cannot run, or may not.
        """
        stop = stop or Stop()
        if sql != ALL:
            memory_of_client = self._memory.give_to(client)
            return self._statements.encode(open_rows, sql, media_type, memory_of_client, stop)
        # It computes nothing, so it needs no process of its own. A few rows wait for no large answers.
        memory = self._memory_of_few if first is not None and first <= FEW_ROWS else self._memory
        return self._encode_rows(open_rows, media_type, first, memory, stop, client)

    def _encode_rows(
        self,
        open_rows: OpenRows,
        media_type: str,
        first: int | None,
        memory: ResponseMemory,
        stop: Stop,
        client: str | None,
    ) -> Encoded:
        with refuse_damage("the store"):
            rows = read_bounded(open_rows(), self._limits, first, stop)
        if memory is self._memory_of_few and rows.nbytes > self._limits.question_bytes // 8:
            memory = self._memory  # A few rows with large values are a large answer.
        give_back = memory.take(rows.nbytes, stop, client)
        try:
            content = encode_table(rows, media_type)
        finally:
            give_back()
        if len(content) > self._limits.question_bytes:
            raise make_large(self._limits.question_bytes)
        return Encoded(content, memory.take(len(content), stop, client))


class Turns:
    """Places for questions of one event loop.

    Parameters
    ----------
    running : int
        The number of questions that may run.
    waiting, waiting_per_client : int
        The number of questions that may wait, in all and of one client.
    """

    def __init__(self, running: int, waiting: int, waiting_per_client: int) -> None:
        self._free = running
        self._waiting = waiting
        self._waiting_per_client = waiting_per_client
        # The clients that wait, in the order of their turns. No queue is empty.
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def n_waiting(self) -> int:
        """The number of questions that wait."""
        return sum(map(len, self._queues.values()))

    async def take(self, client: str, *, is_patient: bool = False) -> None:
        """Wait for a place. ``give_back`` must be called after the question.

        Parameters
        ----------
        client : str
        is_patient : bool
            Whether the question waits however many others wait. Something else must bound such questions.

        Raises
        ------
        QueryError
            TOO_MANY_QUESTIONS.
        """
        if self._free:
            self._free -= 1
            return
        if not is_patient:
            self._refuse_many(client)
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(client, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._forget(client, place)
            else:
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give the place of a question to the next client.

        Places that are done belong to questions whose clients have left a moment ago.
        """
        while self._queues:
            client, queue = self._queues.popitem(last=False)
            place = queue.popleft()
            is_given = not place.done()
            if queue:
                self._queues[client] = queue
                # The other questions of this client wait until all other clients had their turns.
                self._queues.move_to_end(client, last=is_given)
            if is_given:
                place.set_result(None)
                return
        self._free += 1

    def _refuse_many(self, client: str) -> None:
        if self.n_waiting >= self._waiting:
            what = f"{self._waiting} questions wait already, and no more may wait"
            raise QueryError("TOO_MANY_QUESTIONS", f"{what}: ask again later")
        if len(self._queues.get(client, ())) >= self._waiting_per_client:
            what = f"{self._waiting_per_client} questions of {client} wait already, and no more may wait"
            raise QueryError("TOO_MANY_QUESTIONS", f"{what}: ask again later")

    def _forget(self, client: str, place: "asyncio.Future[None]") -> None:
        # ``give_back`` may have removed the place in the meantime.
        queue = self._queues.get(client)
        if queue is None:
            return
        with suppress(ValueError):
            queue.remove(place)
        if not queue:
            del self._queues[client]


async def _run(threads: ThreadPoolExecutor, turns: Turns, work: Callable[..., Encoded]) -> Encoded:
    """Do the work of one question in a thread. If the task is cancelled, stop the work.

    The place of the question is free when the work has ended, which may be a moment after the task.
    """
    stop, loop = Stop(), asyncio.get_running_loop()
    running = loop.run_in_executor(threads, lambda: work(stop=stop))

    def end(done: "asyncio.Future[Encoded]") -> None:
        turns.give_back()
        if not done.cancelled():
            done.exception()  # The work may have failed after the client left.

    running.add_done_callback(end)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # Writing to the process of the statement could block.
        loop.run_in_executor(None, stop.set)
        raise


async def _work_until_left(request: Request, work: Coroutine[Any, Any, Encoded]) -> Encoded:
    """Do some work, and stop it if the client leaves.

    Raises
    ------
    QueryError
        TOO_BUSY if the client has left.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_wait_until_left(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
    if not working.done():
        raise QueryError("TOO_BUSY", "the client has left before its answer")  # Nobody reads it.
    return working.result()


async def _wait_until_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        """The body is here already."""
