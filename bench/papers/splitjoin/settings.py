"""Settings that SplitJoin's figures share: kinds of index, windows in tuples, and panels.

nested loop    comparisons per tuple and core    W / k
index          probes per tuple and core         1, of an index over W / k tuples
"""

from typing import Any

from bench.core.figure import Panel
from bench.core.query import Query
from bench.core.rows import Row

KINDS = {"nested loop": "scan", "index": None}
"""The index of the papers, and our default."""
EPOCHS, WARMUP = 6, 3
"""Number of epochs in Spark, and of the first ones, in which the window fills and nothing is measured."""
TUPLES = {"nested loop": 98_304, "index": 393_216}
"""Tuples of a stream in Spark; fewer if every tuple is compared with the whole window."""


def with_window(query: Query, window: int, kind: str) -> Query:
    """Return the query with a window of so many tuples of each stream."""
    return query.within(window / query.tables[0].num_rows).by(KINDS[kind])


def describe_setting(kind: str, window: int, **more: Any) -> Row:
    return {"kind": kind, "window": window, **more, "name": f"{kind}, window {window:,}"}


def panels(figure: str, log: str = "") -> tuple[Panel, ...]:
    titles = {"nested loop": "nested loop, as in the paper", "index": "index, our default"}
    return tuple(Panel(title, "cores", figure, "name", {"kind": kind}, log) for kind, title in titles.items())
