"""Looks after a store while a query writes into it: ``th.write(..., upkeep=, keep=)``.

A thread of the program that has started the query calls ``Store.upkeep`` from time to time. It may do so
beside the writer and beside readers in any process. What it cannot do now, it does the next time: an error is
logged, and ends neither the thread nor the query.
"""

import time
from threading import Thread
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from thetastream.core.errors import QueryError
from thetastream.core.spans import Duration, read_positive_span
from thetastream.results.store import Store
from thetastream.results.upkeep import read_span_us
from thetastream.runtime.observe.epoch_lines import LOG

EVERY = "10 minutes"
"""The default time between two calls of ``Store.upkeep``."""
FEWEST = 16
"""A store with fewer parts, of which all results are kept, is left as it is."""
_LOOK_S = 2.0
"""The longest pause in seconds after which the thread sees that the query has ended."""


def check_upkeep(keep: Any, upkeep: object) -> float | None:
    """Check both arguments, and return the seconds between two calls of ``Store.upkeep``; None for no calls.

    >>> check_upkeep("30 days", "1 hour"), check_upkeep(None, False)
    (3600.0, None)

    Raises
    ------
    QueryError
        BAD_VALUE, or INVALID_DURATION if ``keep`` is no span of time.
    """
    if keep is not None:
        read_span_us(keep)
    if upkeep is False:
        if keep is not None:
            what = f"keep={keep!r} needs upkeep, which forgets older results"
            raise QueryError("BAD_VALUE", f"{what}; leave upkeep out, or leave keep to thetastream upkeep")
        return None
    what = f'upkeep must be a positive span of time, as in "{EVERY}", or False'
    return read_positive_span(upkeep, what).total_seconds()


class StoreKeeper:
    """Looks after a store until a query ends."""

    def __init__(self, store: Store, query: StreamingQuery, every_s: float, keep: Duration | None) -> None:
        self._store, self._query, self._every_s, self._keep = store, query, every_s, keep

    def start(self) -> None:
        """Look after the store from now on, in a thread that does not keep the program running."""
        Thread(target=self._run, name="thetastream-upkeep", daemon=True).start()

    def _run(self) -> None:
        # A query that runs once a night for a minute gets its turn at the start.
        waited_s = self._every_s
        while self._is_running():
            if waited_s >= self._every_s:
                waited_s = 0.0
                self.look_after()
            pause_s = min(_LOOK_S, self._every_s - waited_s)
            time.sleep(pause_s)
            waited_s += pause_s

    def look_after(self) -> None:
        """Forget, merge and remove once."""
        try:
            parts = {one.staged.name for one in self._store.read_history().held}
            if self._keep is None and len(parts) < FEWEST:
                return
            done = self._store.upkeep(self._keep)
            LOG.debug("%s: %s", self._store.name, done)
        except Exception as error:
            if self._is_running():
                line = str(error).strip().partition("\n")[0]
                LOG.warning("%s was not looked after: %s", self._store.name, line)

    def _is_running(self) -> bool:
        try:
            return self._query.isActive
        except Exception:
            return False  # The session has stopped.
