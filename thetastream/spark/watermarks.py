"""Reads the plan of a streaming DataFrame: calls of ``withWatermark``, and operators that drop late rows."""

import io
import re
import sys
from contextlib import redirect_stdout
from threading import Lock, get_ident
from typing import Any

from pyspark.sql import DataFrame

_ANALYZED = re.compile(r"== Analyzed Logical Plan ==\n(.*?)\n== Optimized", re.DOTALL)
_NODE = re.compile(r"^[\s:|+\-~]*EventTimeWatermark\b", re.MULTILINE)
_DROPPING = {
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Aggregate": "an aggregation",
}
"""What a user calls the operators of an analyzed plan that drop late rows."""
_OPERATOR = re.compile(r"^[\s:|+\-~]*(Deduplicate\w*|Aggregate)\b", re.MULTILINE)


def count_watermarks(frame: DataFrame) -> int:
    """Count the watermarks in the plan of a streaming DataFrame.

    A union of two streams with watermarks has two, and so has the result of a join of such streams. Spark's
    watermark is the minimum over all of them, so one that stands still holds the others back.
    """
    return len(_NODE.findall(_print_plan(frame)))


def list_dropping(frame: DataFrame) -> list[str]:
    """List the operators in the plan of a streaming DataFrame that drop late rows, as users call them.

    Only operators behind a watermark drop late rows.
    """
    plan = _print_plan(frame)
    before, _, _ = plan.partition("EventTimeWatermark") if _NODE.search(plan) else ("", "", "")
    return sorted({_DROPPING[name] for name in _OPERATOR.findall(before) if name in _DROPPING})


def _print_plan(frame: DataFrame) -> str:
    """Print the analyzed plan. The operators that run last come first."""
    # ``explain`` is the only public view of a plan that classic sessions and Spark Connect have in common.
    with _REDIRECTING:
        printed = _OwnOutput(sys.stdout)
        with redirect_stdout(printed):
            frame.explain(True)
    found = _ANALYZED.search(printed.getvalue())
    return found[1] if found else ""


_REDIRECTING = Lock()


class _OwnOutput(io.StringIO):
    """Keeps what the thread prints that has made it. What other threads print goes where it went before."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self._before = before
        self._owner = get_ident()

    def write(self, text: str) -> int:
        if get_ident() != self._owner:
            return int(self._before.write(text))
        return super().write(text)
