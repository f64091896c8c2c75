"""``th.subscribe`` yields each snapshot of a store once and in order, as soon as it is made.

A subscriber remembers only the number of the last snapshot that it has seen. With this number it can continue
in any process. It reads committed results, so a slow subscriber delays neither the query nor other readers.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from thetastream.core.arguments import describe_given, hint_unit
from thetastream.core.errors import QueryError
from thetastream.core.spans import read_span
from thetastream.results.loading import load
from thetastream.results.question import ask
from thetastream.results.snapshots import Snapshot
from thetastream.results.store import Store, refuse_other


class Delivery(NamedTuple):
    """A snapshot and its rows.

    Attributes
    ----------
    snapshot : Snapshot
    results : pyarrow.Table
    """

    snapshot: Snapshot
    results: pa.Table


def subscribe(
    store: Store,
    since: int | Snapshot | None = None,
    *,
    sql: str | None = None,
    poll: str | timedelta = "200 ms",
    patience: str | timedelta | None = None,
) -> Iterator[Delivery]:
    """Read each snapshot once, in order, and wait for the next one.

    Parameters
    ----------
    store : Store
    since : int or Snapshot, optional
        The last snapshot that the reader has seen, or its number. 0 means that the reader has seen none. By
        default, the subscription begins with the first snapshot that the store keeps.
    sql : str, optional
        One SELECT over the table ``results``. It runs over the rows of each snapshot, as a filter and a
        projection. By default, results are all rows with all columns. It needs the package duckdb.
    poll : str or timedelta
        The store is asked for new snapshots after this time.
    patience : str or timedelta, optional
        The iteration ends after this time without a new snapshot. By default, it never ends.

    Yields
    ------
    Delivery
        A snapshot, and its rows as a table of Arrow.

    Raises
    ------
    StoreError
        NO_STORE if there is no such store.
    QueryError
        BAD_VALUE, STORE_QUERY, MISSING_PACKAGE, SNAPSHOT_GONE if the store does not keep the next snapshot
        any more, or UNKNOWN_SNAPSHOT if the store has not made the snapshot ``since``, or was restored from a
        backup in which the last snapshot is missing or another one.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.ParquetStore("out/pairs")
    >>> for snapshot, results in th.subscribe(store, since=7):  # doctest: +SKIP
    ...     print(snapshot.number, snapshot.at, results.num_rows)
    """
    refuse_other(store)
    seen, pause_s, patience_s = _read_number(since), _read_span("poll", poll), None
    if patience is not None:
        patience_s = _read_span("patience", patience)
    return _deliver(store, seen, sql, pause_s, patience_s)


def _deliver(
    store: Store, seen: int | None, sql: str | None, pause_s: float, patience_s: float | None
) -> Iterator[Delivery]:
    last: Snapshot | None = None
    waited_since = time.monotonic()
    while True:
        for snapshot in list_later(store, seen, last):
            refuse_gap(seen, snapshot)
            rows = open_rows(store, snapshot)
            yield Delivery(snapshot, load(rows, store) if sql is None else ask(rows, sql))
            last, seen, waited_since = snapshot, snapshot.number, time.monotonic()
        if patience_s is not None and time.monotonic() - waited_since >= patience_s:
            return
        time.sleep(pause_s)


def list_later(store: Store, seen: int | None, last: Snapshot | None = None) -> list[Snapshot]:
    """List the snapshots after number ``seen``, which is that of ``last`` if the reader has the snapshot.

    Raises
    ------
    QueryError
        UNKNOWN_SNAPSHOT if the store has not made the snapshot ``seen``, or has made another one since it was
        restored from a backup or replaced.
    """
    if not seen:
        return store.snapshots()
    found = store.snapshots(after=seen - 1)
    if not found:
        refuse_future(store, seen)
    if not found or found[0].number != seen:
        return found
    refuse_other_snapshot(last, found[0])
    return found[1:]


def refuse_other_snapshot(last: Snapshot | None, found: Snapshot) -> None:
    """Raise unless ``found``, which has the number of the last snapshot of a reader, is this snapshot.

    Raises
    ------
    QueryError
        UNKNOWN_SNAPSHOT.
    """
    if last is not None and found != last:
        what = f"the store has another snapshot {last.number} than before: it was restored or replaced"
        raise QueryError("UNKNOWN_SNAPSHOT", f"{what}. Subscribe with since=0 to read all of it")


def refuse_gap(seen: int | None, found: Snapshot) -> None:
    """Raise unless ``found`` is the next snapshot of a reader that has seen snapshot number ``seen``.

    Raises
    ------
    QueryError
        SNAPSHOT_GONE.
    """
    if seen is not None and found.number != seen + 1:
        what = f"snapshot {seen + 1} is not kept any more; the first one is {found.number}"
        raise QueryError("SNAPSHOT_GONE", f"{what}; subscribe with since={found.number - 1}")


def refuse_future(store: Store, seen: int | None) -> None:
    """Raise unless the store has made snapshot number ``seen``.

    A store that was restored from a backup may not have made it yet.

    Raises
    ------
    QueryError
        UNKNOWN_SNAPSHOT.
    """
    if seen and not store.snapshots(after=seen - 1):
        made = store.snapshots()
        last = made[-1].number if made else 0
        what = f"the last snapshot of the store is {last}, so a reader cannot have seen snapshot {seen}"
        hint = f"If the store was restored from a backup, subscribe with since={last}"
        raise QueryError("UNKNOWN_SNAPSHOT", f"{what}. {hint}")


def open_rows(store: Store, snapshot: Snapshot) -> Any:
    """Open the rows of a snapshot, as a table or a data set of Arrow.

    ``forget`` may have removed the snapshot since it was listed.

    Raises
    ------
    QueryError
        SNAPSHOT_GONE.
    """
    try:
        return store.open_snapshot(snapshot)
    except QueryError as error:
        if error.condition != "UNKNOWN_SNAPSHOT":
            raise
        later = store.snapshots(after=snapshot.number)
        since = later[0].number - 1 if later else snapshot.number
        what = f"snapshot {snapshot.number} is not kept any more; subscribe with since={since}"
        raise QueryError("SNAPSHOT_GONE", what) from error


def _read_number(since: int | Snapshot | None) -> int | None:
    """Read the number of the last snapshot that a reader has seen."""
    if since is None or isinstance(since, Snapshot):
        return None if since is None else since.number
    if isinstance(since, bool) or not isinstance(since, int) or since < 0:
        what = "since must be the number of the last snapshot that was seen, 0 or more, or a Snapshot"
        raise QueryError("BAD_VALUE", f"{what}, not {since!r}")
    return since


def _read_span(name: str, value: str | timedelta) -> float:
    span = read_span(value)
    if span is None or span < timedelta():
        what = f'{name} ({describe_given(value)}) must be a span of time, as in "10 seconds"'
        raise QueryError("BAD_VALUE", what + hint_unit(value))
    return span.total_seconds()
