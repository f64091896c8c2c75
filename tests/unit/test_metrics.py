"""``th.metrics`` computes metrics from the progress reports of a query."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

import thetastream as th
from thetastream.engine.counters import Counters


def progress(number: int, *units: Counters) -> dict:
    """Build a progress report as Spark does, with units in another order."""
    texts = [json.dumps({"unit": n, **asdict(unit)}) for n, unit in enumerate(units)]
    return {"batchId": number, "observedMetrics": {"thetastream_ab_1": {"units": texts[::-1]}}}


def test_rho_is_matches_per_candidate() -> None:
    busy, idle = Counters(matched=6, candidates=8), Counters(candidates=4)
    query = SimpleNamespace(recentProgress=[progress(3, busy, idle), progress(4, Counters(stored=1))])
    first, second = th.metrics(query)
    assert (first["epoch"], first["matched"], first["candidates"]) == (3, 6, 12)
    assert first["rho"] == pytest.approx(0.5)
    assert [unit["rho"] for unit in first["units"]] == [0.75, 0.0]
    assert (second["stored"], second["rho"], second["units"][0]["rho"]) == (1, None, None)
