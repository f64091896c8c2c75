"""``th.watch`` shows what a query does while it runs, in a notebook or as lines."""

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from thetastream.core.html import render_facts, render_rows
from thetastream.core.spans import Duration, read_positive_span
from thetastream.runtime.observe.epoch_lines import PAIRS_FOUND, count_tuples, read_kind, read_words
from thetastream.spark.observe.metrics import metrics, refuse_no_query
from thetastream.spark.observe.reports import read_reports
from thetastream.spark.session.failure import unwrap_error

COLUMNS = ("epoch", "tuples", "late", "matched", "seconds", "stored tuples", "state, MB", "watermark")
MATCHED = COLUMNS.index("matched")
SHOWN = 5
"""The number of epochs that a notebook shows."""
Entry = Mapping[str, Any]


def watch(query: Any, every: Duration = "1 second") -> None:
    """Show what a query does, until it ends.

    In a notebook, the output of the cell is a table that changes: the name of the query, its state and its
    sink, sums over the epochs that Spark remembers, and the last epochs of each join behind its condition,
    window and model. Elsewhere, lines are printed: one for each join, and one for each of its epochs.
    Interrupt the cell, or press Ctrl-C, to end the view. The query goes on then.

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
    join ab12: a.x < b.x; the full history; Split(cores=2)
    epoch 0, join ab12: tuples 52, late 0, matched 7, seconds 0.8, stored tuples 52, state, MB 0.1, ...
    ended
    """
    refuse_no_query("th.watch", query)
    every_s = read_positive_span(
        every, 'every must be a positive span of time, as in "1 second"'
    ).total_seconds()
    show = _open_view()
    try:
        while True:
            # The state is asked for before the counters, so that the last look has those of the last epoch.
            is_running = bool(query.isActive)
            show(describe_query(query, is_running), metrics(query))
            if not is_running:
                return
            time.sleep(every_s)
    except KeyboardInterrupt:
        return


def describe_query(query: Any, is_running: bool) -> dict[str, str]:
    """Return the name of a query, its sink if Spark has told it, and its state."""
    last = deque(read_reports(query), maxlen=1)
    sink = {"sink": _name_sink(last[0]["sink"]["description"])} if last else {}
    return {"query": str(query.name or query.id), **sink, "state": describe_state(query, is_running)}


def _name_sink(description: str) -> str:
    """Shorten the name of a class by which Spark describes a sink.

    >>> _name_sink("org.apache.spark.sql.execution.streaming.ConsoleTable$@3c1"), _name_sink("FileSink[out]")
    ('ConsoleTable', 'FileSink[out]')
    """
    return re.sub(r"^(?:\w+\.)*(\w+)\$?@\w+$", r"\1", description)


def describe_state(query: Any, is_running: bool) -> str:
    """Say whether a query runs, has ended or has failed, and why."""
    if is_running:
        return "running"
    failure = query.exception()
    if failure is None:
        return "ended"
    return f"failed: {unwrap_error(failure) or failure}".partition("\n")[0]


def _open_view() -> Callable[[Mapping[str, str], Sequence[Entry]], None]:
    """Return the function that shows what is known of a query, its state included, and its entries."""
    # In a notebook, the package is loaded already. A terminal, which has no kernel, cannot show HTML.
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return _Lines().show
    display: Any = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)

    def show(known: Mapping[str, str], entries: Sequence[Entry]) -> None:
        handle.update(display.HTML(render_view(known, entries)))

    return show


class _Lines:
    """Prints a line for each join and each epoch that is new, and the state when it changes."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str]] = set()
        self._joins: set[str] = set()
        self._state = "running"

    def show(self, known: Mapping[str, str], entries: Sequence[Entry]) -> None:
        for entry in entries:
            epoch, join = entry["epoch"], entry["join"]
            if join not in self._joins:
                self._joins.add(join)
                print(name_join(entry), flush=True)
            if (epoch, join) not in self._seen:
                self._seen.add((epoch, join))
                told = zip(name_columns([entry])[1:], summarize(entry)[1:], strict=True)
                figures = ", ".join(f"{name} {value}" for name, value in told)
                print(f"epoch {epoch}, join {join}: {figures}", flush=True)
        if known["state"] != self._state:
            self._state = known["state"]
            print(self._state, flush=True)


def render_view(known: Mapping[str, str], entries: Sequence[Entry]) -> str:
    """Write what is known of a query, sums over its epochs, and the last epochs of each join as HTML."""
    tuples = sum(int(summarize(entry)[1]) for entry in entries)
    facts = {
        **known,
        "epochs": len({entry["epoch"] for entry in entries}),
        "tuples": tuples,
        name_columns(entries)[MATCHED]: sum(entry["matched"] for entry in entries),
    }
    parts = [render_facts("Query", facts)]
    for join in dict.fromkeys(entry["join"] for entry in entries):
        last = [entry for entry in entries if entry["join"] == join][-SHOWN:]
        parts.append(f"<p>{escape(name_join(last[-1]))}</p>")
        parts.append(render_rows(name_columns(last), map(summarize, reversed(last))))
    return "".join(parts)


def name_join(entry: Entry) -> str:
    """Name the join of an entry: its key, and its condition, kind, window and model if the entry has them.

    >>> words = {"the condition": "a.x < b.x", "the model": "Split(cores=2)"}
    >>> name_join({"join": "ab12", "plan": {"words": words}})
    'join ab12: a.x < b.x; Split(cores=2)'
    """
    words = read_words(entry).values()
    return f"join {entry['join']}" + (f": {'; '.join(words)}" if words else "")


def name_columns(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Name the columns of these entries. Joins that are not inner have found pairs, which are not results.

    >>> name_columns([{"plan": {"words": {"the kind of join": "semi"}}}])[MATCHED]
    'pairs found'
    """
    are_inner = all(read_kind(entry) is None for entry in entries)
    return COLUMNS if are_inner else (*COLUMNS[:MATCHED], PAIRS_FOUND, *COLUMNS[MATCHED + 1 :])


def summarize(entry: Entry) -> tuple[Any, ...]:
    """Return the figures of an epoch, in the order of ``COLUMNS``."""
    return (
        entry["epoch"],
        count_tuples(entry),
        entry["late"],
        entry["matched"],
        round(entry["durations_ms"].get("triggerExecution", 0) / 1000, 2),
        entry["held"],
        round(entry["state_bytes"] / 1e6, 1),
        entry["watermark"] or "none",
    )
