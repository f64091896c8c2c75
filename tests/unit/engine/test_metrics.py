"""``th.metrics`` computes metrics from the progress reports of a query."""

import json
import uuid
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


def test_an_epoch_that_runs_twice_counts_once() -> None:
    twice = progress(3, Counters(matched=6), Counters(matched=1))
    twice["observedMetrics"]["thetastream_ab_1"]["units"] *= 2
    (epoch,) = th.metrics(SimpleNamespace(recentProgress=[twice]))
    assert epoch["matched"] == 7
    assert [unit["unit"] for unit in epoch["units"]] == [0, 1]


def test_the_plan_is_read_from_the_rows_of_counters() -> None:
    told, untold = progress(3, Counters()), progress(4)
    told["observedMetrics"]["thetastream_ab_1"]["plan"] = '{"words": {"the window": "1 minute"}}'
    untold["observedMetrics"]["thetastream_ab_1"]["plan"] = None
    epochs = th.metrics(SimpleNamespace(recentProgress=[told, untold]))
    assert [epoch["plan"] for epoch in epochs] == [{"words": {"the window": "1 minute"}}, None]


def test_the_run_is_a_text_and_the_backlog_is_that_of_all_sources() -> None:
    # A progress of PySpark has ids as UUIDs, and offsets as texts.
    told = {"description": "k", "endOffset": '{"t": {"0": 5}}', "latestOffset": '{"t": {"0": 9}}'}
    report = {**progress(3, Counters()), "runId": uuid.UUID(int=7), "sources": [told, told]}
    (epoch,) = th.metrics(SimpleNamespace(recentProgress=[report]))
    assert epoch["run"] == "00000000-0000-0000-0000-000000000007"
    assert epoch["backlog"] == {"offsets": 8}


def test_each_stream_has_its_lag_and_its_watermark() -> None:
    def unit(**streams: int) -> Counters:
        counters = Counters()
        for number, (alias, second) in enumerate(streams.items()):
            counters.admit(number, alias, 1, 1, second * 1_000_000)
        counters.list_streams(["a", "b"])
        counters.tell_delays({"a": 5_000_000})
        return counters

    reports = [
        {
            **progress(n, *units),
            "timestamp": f"1970-01-01T00:00:{n}.000Z",
            "durationMs": {"triggerExecution": n},
        }
        for n, units in {20: [unit(a=8, b=3), unit(a=9)], 21: [unit(a=4), unit()], 22: [unit()]}.items()
    ]
    reports[1]["eventTime"] = {"watermark": "1970-01-01T00:00:04.000Z"}
    found = th.metrics(SimpleNamespace(recentProgress=reports))
    assert found[0]["streams"]["a"] == {
        "timely": 2,
        "late": 2,
        "shed": 0,
        "shed_probes": 0,
        "newest_us": 9_000_000,
        "lag_s": 11.0,
        "watermark_us": None,
    }
    assert [epoch["streams"]["a"]["watermark_us"] for epoch in found] == [None, 4_000_000, 4_000_000]
    assert [epoch["streams"]["a"]["lag_s"] for epoch in found] == [11.0, 17.0, None]
    assert [epoch["streams"]["b"]["watermark_us"] for epoch in found] == [None] * 3
    assert [epoch["watermark"] for epoch in found] == [None, "1970-01-01T00:00:04.000Z", None]
    assert [epoch["durations_ms"]["triggerExecution"] for epoch in found] == [20, 21, 22]
    assert found[0]["began"] == "1970-01-01T00:00:20.000Z"


@pytest.mark.parametrize("read", [th.metrics, th.statistics, th.control])
def test_counters_are_those_of_a_query_and_not_of_its_dataframe(read) -> None:
    with pytest.raises(th.QueryError, match=r"BAD_VALUE.*needs a query, which writeStream"):
        read(SimpleNamespace(isStreaming=True))
