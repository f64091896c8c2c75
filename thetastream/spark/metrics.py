"""Reports counters in Spark's query progress, and reads them there.

In every epoch, each unit adds one row of counters to the operator's output. ``observe`` collects these rows
into the query progress and then drops them from the results.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.engine.counters import Counters
from thetastream.spark.emit import COUNTERS

PREFIX = "thetastream"
"""Beginning of the names of observed metrics."""


def observe(results: DataFrame, join: str) -> DataFrame:
    """Report the rows of counters as the observed metric ``thetastream_<join>_<number>``, and drop them.

    ``join`` is the digest of the joined query. A random number follows it, because the names of observed
    metrics must be unique in a Spark query.
    """
    observed = results.observe(f"{PREFIX}_{join}_{uuid.uuid4().hex}", F.collect_list(COUNTERS).alias("units"))
    return observed.where(F.col(COUNTERS).isNull())


def metrics(query: Any) -> list[dict[str, Any]]:
    """Read the counters of a running or finished query, epoch by epoch.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        The query that ``writeStream...start()`` returned.

    Returns
    -------
    list of dict
        One entry for each epoch and join that Spark still remembers
        (``spark.sql.streaming.numRecentProgressUpdates``), oldest first. ``epoch`` and ``join`` say which
        they are. Counters are sums over units, and ``units`` has them unit by unit. The page about metrics in
        the reference explains every counter.
    """
    reports = (
        progress if isinstance(progress, dict) else json.loads(progress.json)
        for progress in query.recentProgress
    )
    return [entry for report in reports for entry in epochs_of(report)]


def epochs_of(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the counters of each join in one progress report, as ``metrics`` describes them."""
    for name, row in (report.get("observedMetrics") or {}).items():
        if not name.startswith(f"{PREFIX}_"):
            continue
        values = row if isinstance(row, dict) else row.asDict()
        # Spark Connect hands out the row as {"values": [units], "schema": ...}.
        texts = (values["units"] if "units" in values else values["values"][0]) or []
        units = sorted((json.loads(text) for text in texts), key=lambda unit: unit["unit"])
        total, tasks = _total(units), _by_task(units)
        yield {
            "epoch": report["batchId"],
            "join": name.split("_")[1],
            **total,
            "streams": _by_stream(units),
            "rho": efficiency(total),
            "order": units[0].get("order", {}) if units else {},  # All units decide the same.
            **({"tasks": tasks} if tasks else {}),
            "units": [{**unit, "rho": efficiency(unit)} for unit in units],
        }


def _total(units: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Sum every counter that is a number over all units."""
    zeros = {name: n for name, n in asdict(Counters()).items() if isinstance(n, int)}
    counters = dict.fromkeys((*zeros, *(name for unit in units for name in unit)))
    return {
        name: sum(unit[name] for unit in units)
        for name in counters
        if name != "unit" and all(isinstance(unit.get(name), int) for unit in units)
    }


def _by_stream(units: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int | None]]:
    """Sum the timely and late tuples of each stream over all units, and find its latest event time."""
    found: dict[str, dict[str, int | None]] = {}
    for unit in units:
        for alias, brought in unit.get("streams", {}).items():
            mine = found.setdefault(alias, {"timely": 0, "late": 0, "newest_us": None})
            for counter in ("timely", "late"):
                mine[counter] = (mine[counter] or 0) + brought[counter]
            known = [time for time in (mine["newest_us"], brought["newest_us"]) if time is not None]
            mine["newest_us"] = max(known, default=None)
    return found


def _by_task(units: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Sum the counters of each task over all units."""
    total: dict[str, dict[str, int]] = {}
    for unit in units:
        for name, counters in unit.get("tasks", {}).items():
            mine = total.setdefault(name, dict.fromkeys(counters, 0))
            for counter, n in counters.items():
                mine[counter] += n
    return total


def efficiency(counters: Mapping[str, int]) -> float | None:
    """Compute ESJ's processing efficiency rho: matches per stored tuple examined, None if none was examined.

    The steps of bisections are not counted, so an index that evaluates the whole condition has rho = 1.
    ``thetastream.plan.efficiency`` documents the bounds of rho.

    >>> efficiency({"matched": 3, "candidates": 12}), efficiency({"matched": 0, "candidates": 0})
    (0.25, None)
    """
    return counters["matched"] / counters["candidates"] if counters["candidates"] else None
