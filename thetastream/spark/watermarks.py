"""Counts the watermarks of a streaming DataFrame: its calls of ``withWatermark``, also before a union."""

import io
import re
from contextlib import redirect_stdout

from pyspark.sql import DataFrame

_ANALYZED = re.compile(r"== Analyzed Logical Plan ==\n(.*?)\n== Optimized", re.DOTALL)
_NODE = re.compile(r"^[\s:|+\-~]*EventTimeWatermark\b", re.MULTILINE)


def count_watermarks(frame: DataFrame) -> int:
    """Count the watermarks in the plan of a streaming DataFrame.

    A union of two streams with watermarks has two, and so has the result of a join of such streams. Spark's
    watermark is the minimum over all of them, so one that stands still holds the others back.
    """
    printed = io.StringIO()
    # ``explain`` is the only public view of a plan that classic sessions and Spark Connect have in common.
    with redirect_stdout(printed):
        frame.explain(True)
    found = _ANALYZED.search(printed.getvalue())
    return len(_NODE.findall(found[1])) if found else 0
