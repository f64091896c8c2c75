"""Counters in Spark's query progress.

Every unit's epoch adds one row of counters to the operator's output; ``observe`` collects them
into the progress, and the rows are dropped before anyone sees them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.joiner.unit import COUNTS
from thetastream.spark.emit import COUNTERS

PREFIX = "thetastream"
"""Counters that add up over units."""


def observe(results: DataFrame, join: str, join_id: str) -> DataFrame:
    """Report the counters rows as observed metric ``thetastream_<join>_<join_id>`` and drop them.

    ``join`` names what is joined how, ``join_id`` one join: names must be unique in a query.
    """
    observed = results.observe(f"{PREFIX}_{join}_{join_id}", F.collect_list(COUNTERS).alias("units"))
    return observed.where(F.col(COUNTERS).isNull())


def metrics(query: Any) -> list[dict[str, Any]]:
    """Counters of a running or finished query, epoch by epoch.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        What ``writeStream...start()`` returned.

    Returns
    -------
    list of dict
        One entry per epoch and join that Spark still remembers
        (``spark.sql.streaming.numRecentProgressUpdates``), oldest first: ``epoch``, ``join``, the
        sums over units of ``left`` and ``right`` (timely tuples of each stream, each counted once),
        ``received`` (tuples that reached units, copies included), ``stored``, ``probed``, ``matched``,
        ``late``, ``expired``, ``candidates``, ``segments`` (all counts), ``received_bytes``, ``mlv_bytes``,
        ``state_bytes``, ``emitted_bytes`` (bytes), ``rho`` (see ``efficiency``), ``order`` (of a ring whose
        orders are refined: per alias the other streams, in the order in which its tuples look for partners),
        and ``units``, the same unit by unit. Of ``th.join_many`` also ``tasks``: what each did of it.
    """
    epochs = []
    for progress in query.recentProgress:
        report = progress if isinstance(progress, dict) else json.loads(progress.json)
        for name, row in (report.get("observedMetrics") or {}).items():
            if name.startswith(f"{PREFIX}_"):
                values = row if isinstance(row, dict) else row.asDict()
                # Spark Connect hands out the row as {"values": [units], "schema": ...}.
                texts = (values["units"] if "units" in values else values["values"][0]) or []
                units = sorted((json.loads(text) for text in texts), key=lambda unit: unit["unit"])
                total = {name: sum(unit[name] for unit in units) for name in COUNTS}
                order = units[0]["order"] if units else {}  # all units decide alike
                tasks = _by_task(units)
                entry = {"epoch": report["batchId"], "join": name.split("_")[1], **total}
                entry |= {"rho": efficiency(total), "order": order, **({"tasks": tasks} if tasks else {})}
                epochs.append({**entry, "units": [{**unit, "rho": efficiency(unit)} for unit in units]})
    return epochs


def _by_task(units: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Counters of each task, over all units."""
    total: dict[str, dict[str, int]] = {}
    for unit in units:
        for name, counters in unit.get("tasks", {}).items():
            mine = total.setdefault(name, dict.fromkeys(counters, 0))
            for counter, n in counters.items():
                mine[counter] += n
    return total


def efficiency(counters: Mapping[str, int]) -> float | None:
    """ESJ's processing efficiency rho: matches per stored tuple looked at, None if none was.

    The steps of bisections are not counted, so an index that answers the whole condition has rho = 1
    (``thetastream.plan.efficiency`` has the bounds).

    >>> efficiency({"matched": 3, "candidates": 12}), efficiency({"matched": 0, "candidates": 0})
    (0.25, None)
    """
    return counters["matched"] / counters["candidates"] if counters["candidates"] else None
