"""Lets a few questions run at the same time. The others wait, and clients take turns.

A client with many questions delays its own questions, because the next place is for the next client.
"""

import asyncio
from collections import OrderedDict, deque
from contextlib import suppress

from thetastream.core.errors import QueryError


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
