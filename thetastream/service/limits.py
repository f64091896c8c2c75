"""Limits of what clients may ask of a service.

``read_bounded`` reads rows without a statement, and stops as soon as they are more than an answer may have. A
snapshot may have far more rows than an answer, so they are read in small batches.
"""

import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetastream.core.errors import QueryError
from thetastream.core.spans import parse_nbytes
from thetastream.core.stopping import Stop
from thetastream.results.frugal_rows import FrugalRows
from thetastream.results.question import make_many, make_slow

LEAST_BYTES = 1_000_000
"""The least memory of one question, in bytes. With much less, DuckDB cannot begin. 0 would be no limit."""


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Parameters
    ----------
    rows : int
        The largest number of rows of one answer. The service refuses an answer with more rows; it never
        returns a part of the rows.
    seconds : float
        The longest time of one question.
    memory : str or int
        The memory of all statements together, as ``"2 GB"`` or in bytes. Each one has an equal share. The
        answers that the service sends at the same time may have as much.
    questions : int
        The largest number of statements that run at the same time, and as many reads without a statement.
    waiting, waiting_per_client : int
        The largest number of questions that wait, in all and from one address. Others are refused.
    subscribers : int
        The largest number of subscribers of the service.
    subscribers_per_client : int
        The largest number of subscribers from one address.
    connections : int
        The largest number of open connections, before anybody has shown a token. If there are more, the one
        that has waited longest for its request is closed.
    connections_per_client : int
        The largest number of open connections from one address.
    header_seconds, body_seconds : float
        The time in which the header and the body of a request must arrive; then the connection is closed.
    send_seconds : float
        The time in which a client must take a piece of its answer; then the connection is closed.

    Examples
    --------
    >>> Limits(memory="4 GB").question_bytes
    1000000000
    """

    rows: int = 100_000
    seconds: float = 30.0
    memory: str | int = "2 GB"
    questions: int = 4
    waiting: int = 100
    waiting_per_client: int = 40
    subscribers: int = 1000
    subscribers_per_client: int = 100
    connections: int = 2000
    connections_per_client: int = 500
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    send_seconds: float = 60.0

    @property
    def question_bytes(self) -> int:
        """The memory of one question in bytes.

        Raises
        ------
        QueryError
            BAD_VALUE.
        """
        nbytes = parse_nbytes(self.memory)
        if nbytes is None:
            raise QueryError("BAD_VALUE", f'memory must be a size, as in "2 GB", not {self.memory!r}')
        if nbytes // self.questions < LEAST_BYTES:
            what = f"memory ({self.memory}) must give each of {self.questions} questions at least 1 MB"
            raise QueryError("BAD_VALUE", f"{what}: give {self.questions * LEAST_BYTES} bytes or more")
        return nbytes // self.questions


def read_bounded(rows: Any, limits: Limits, first: int | None = None, stop: Stop | None = None) -> pa.Table:
    """Read rows that a store has opened, all of them or the first ones.

    Raises
    ------
    QueryError
        TOO_MANY_ROWS, TOO_LARGE or TOO_SLOW.
    """
    if isinstance(rows, pa.Table):
        batches = iter(rows.slice(0, first).to_batches())
    else:
        batches = FrugalRows(rows).scanner().to_batches()
    kept: list[pa.RecordBatch] = []
    n, nbytes, most_bytes = 0, 0, limits.question_bytes
    until = time.monotonic() + limits.seconds
    for batch in batches:
        batch = batch.slice(0, None if first is None else first - n)
        kept.append(batch)
        n, nbytes = n + batch.num_rows, nbytes + batch.nbytes
        if n > limits.rows:
            raise make_many(limits.rows)
        if nbytes > most_bytes:
            raise make_large(most_bytes)
        if time.monotonic() > until or (stop is not None and stop.is_set):
            raise make_slow(limits.seconds)
        if n == first:
            break
    return pa.Table.from_batches(kept, rows.schema)


def make_large(most_bytes: int) -> QueryError:
    """Make the error of an answer that needs too much memory."""
    what = f"an answer may have {most_bytes / 1e6:,.0f} MB, and these rows have more"
    return QueryError("TOO_LARGE", f"{what}: ask for fewer rows or columns")
