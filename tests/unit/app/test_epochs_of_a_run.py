"""What ``thetastream run`` reads about the epochs of its query."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.metric_entries import make_entry
from thetastream.app.job import run
from thetastream.app.job.run import Totals, describe_epoch, read_epochs
from thetastream.core.identity import KIND


def make_report(epoch: int, *sources: tuple[Any, int], took_ms: int = 2000) -> dict[str, Any]:
    """Make a report as Spark does, with the end offset and the rows of each source."""
    described = [
        {"endOffset": offset if isinstance(offset, str) else json.dumps(offset), "numInputRows": rows}
        for offset, rows in sources
    ]
    return {
        "batchId": epoch,
        "timestamp": "2026-01-05T09:30:00.000Z",
        "durationMs": {"triggerExecution": took_ms} if took_ms else {},
        "numInputRows": sum(rows for _, rows in sources),
        "sources": described,
    }


def test_rows_of_our_own_sources_are_no_tuples_of_a_run() -> None:
    ours, idle = {"query": {}, "writer": {"state": 8}}, {"time_us": 5, "run": "ab"}
    files, rate, kafka = {"logOffset": 0}, "7", {"bids": {"0": 12}}
    reports = [
        make_report(4, (files, 90)),
        # The first epoch of a fork tells each unit whose tuples it has.
        make_report(5, (files, 10), (ours, 2), (rate, 30)),
        make_report(6, (ours, 3), (idle, 1), took_ms=0),
        make_report(7, (kafka, 20), ({**ours, "mailbox": "m", "epoch": 3}, 400), (idle, 1)),
    ]
    query, totals = SimpleNamespace(recentProgress=reports), Totals()
    epochs = list(read_epochs(query, 4))
    assert [(one["epoch"], one["tuples"], one["tuples_per_s"]) for one in epochs] == [
        (5, 40, 20),
        (7, 20, 10),
    ]
    for epoch in epochs:
        totals.add(epoch)
    assert totals.describe() == "total: 2 epochs, 60 tuples in 4.0 s (15/s)"


def test_files_that_arrow_reads_are_no_tuples_of_a_run() -> None:
    report, totals = make_report(5, ({"logOffset": 0}, 90), ({"logOffset": 0}, 3)), Totals()
    report["sources"][1]["description"] = "FileStreamSource[file:/in/a]"
    query = SimpleNamespace(recentProgress=[report])
    for paths, words in (
        (["/in/a"], "90 tuples and 3 files in 2.0 s (45/s)"),
        ([], "93 tuples in 2.0 s (46/s)"),
    ):
        (epoch,) = read_epochs(query, 4, paths)
        assert describe_epoch(epoch) == f"epoch 5: {words}"
    del report["sources"][0]
    (epoch,) = read_epochs(query, 4, ["/in/a"])
    assert describe_epoch(epoch) == "epoch 5: 3 files in 2.0 s"
    totals.add(epoch)
    assert totals.describe() == "total: 1 epochs, 3 files in 2.0 s"


def test_pairs_of_a_join_that_is_not_inner_are_no_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"words": {KIND: "semi"}}
    joins = [make_entry(5, plan=plan), make_entry(5, join="cd34"), make_entry(6, join="cd34")]
    monkeypatch.setattr(run.th, "metrics", lambda _: joins)
    query = SimpleNamespace(recentProgress=[make_report(epoch, ("7", 30)) for epoch in (5, 6)])
    first, second = read_epochs(query, 4)
    assert first["kinds"] == ["semi"]
    assert "14 pairs found" in describe_epoch(first)
    assert "7 matches" in describe_epoch(second)
    totals = Totals()
    for epoch in (first, second):
        totals.add(epoch)
    assert "21 pairs found" in totals.describe()
