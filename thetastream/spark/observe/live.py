"""``th.watch`` shows what a query does while it runs, in a notebook or as lines."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from thetastream.core.arguments import describe_given, hint_unit
from thetastream.core.errors import QueryError
from thetastream.core.html import render_facts, render_rows
from thetastream.core.spans import Duration, read_span
from thetastream.spark.observe.metrics import metrics, refuse_no_query
from thetastream.spark.session.failure import unwrap_error

COLUMNS = ("epoch", "tuples", "late", "matched", "seconds", "stored tuples", "state, MB", "watermark")
SHOWN = 5
"""The number of epochs that a notebook shows."""
Entry = Mapping[str, Any]


def watch(query: Any, every: Duration = "1 second") -> None:
    """Show what a query does, until it ends.

    In a notebook, the output of the cell is a table that changes: the state of the query, sums over the
    epochs that Spark remembers, and the last epochs of each join. Elsewhere, a line is printed for each
    epoch. Interrupt the cell, or press Ctrl-C, to end the view. The query goes on then.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        The query that ``writeStream...start()`` or ``th.write`` returned.
    every : str or timedelta
        The time between two looks.

    Raises
    ------
    QueryError
        BAD_VALUE if this is no query, or ``every`` is no positive span of time.

    Examples
    --------
    >>> import thetastream as th
    >>> th.watch(th.write(pairs, store, checkpoint="out/checkpoint"))  # doctest: +SKIP
    """
    refuse_no_query("th.watch", query)
    span = read_span(every)
    if span is None or span.total_seconds() <= 0:
        what = f'every must be a positive span of time, as in "1 second", not {describe_given(every)}'
        raise QueryError("BAD_VALUE", what + hint_unit(every))
    show = _open_view()
    try:
        while True:
            # The state is asked for before the counters, so that the last look has those of the last epoch.
            is_running = bool(query.isActive)
            show(describe_state(query, is_running), metrics(query))
            if not is_running:
                return
            time.sleep(span.total_seconds())
    except KeyboardInterrupt:
        return


def describe_state(query: Any, is_running: bool) -> str:
    """Say whether a query runs, has ended or has failed, and why."""
    if is_running:
        return "running"
    failure = query.exception()
    if failure is None:
        return "ended"
    return f"failed: {unwrap_error(failure) or failure}".partition("\n")[0]


def _open_view() -> Callable[[str, Sequence[Entry]], None]:
    """Return the function that shows the state and the entries of a query."""
    # In a notebook, the package is loaded already. A terminal, which has no kernel, cannot show HTML.
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return _Lines().show
    display: Any = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)

    def show(state: str, entries: Sequence[Entry]) -> None:
        handle.update(display.HTML(render_view(state, entries)))

    return show


class _Lines:
    """Prints a line for each epoch that is new, and the state when it changes."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str]] = set()
        self._state = "running"

    def show(self, state: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            key = entry["epoch"], entry["join"]
            if key not in self._seen:
                self._seen.add(key)
                told = zip(COLUMNS[1:], summarize(entry)[1:], strict=True)
                figures = ", ".join(f"{name} {value}" for name, value in told)
                print(f"epoch {entry['epoch']}: {figures}", flush=True)
        if state != self._state:
            self._state = state
            print(state, flush=True)


def render_view(state: str, entries: Sequence[Entry]) -> str:
    """Write the state of a query, sums over its epochs, and the last epochs of each join as HTML."""
    tuples = sum(int(summarize(entry)[1]) for entry in entries)
    facts = {
        "state": state,
        "epochs": len({entry["epoch"] for entry in entries}),
        "tuples": tuples,
        "matched": sum(entry["matched"] for entry in entries),
    }
    parts = [render_facts("Query", facts)]
    for join in dict.fromkeys(entry["join"] for entry in entries):
        last = [entry for entry in entries if entry["join"] == join][-SHOWN:]
        parts.append(render_rows(COLUMNS, map(summarize, reversed(last))))
    return "".join(parts)


def summarize(entry: Entry) -> tuple[Any, ...]:
    """Return the figures of an epoch, in the order of ``COLUMNS``."""
    streams = entry["streams"].values()
    return (
        entry["epoch"],
        sum(stream["timely"] + stream["late"] for stream in streams),
        entry["late"],
        entry["matched"],
        round(entry["durations_ms"].get("triggerExecution", 0) / 1000, 2),
        entry["held"],
        round(entry["state_bytes"] / 1e6, 1),
        entry["watermark"] or "none",
    )
