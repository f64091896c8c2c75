"""The clients of the benchmark of a service: what they count as an error, a gap or a wrong row."""

import asyncio
from pathlib import Path

import pytest

from bench.core.serving.crowd import Crowd, post
from bench.core.serving.run import Measured, describe, main, read_epochs
from tests.support.service import connect, make_pairs


def test_gaps_and_doubles_of_subscribers_are_listed() -> None:
    crowd = Crowd(0, lambda: 1, snapshots=[[3, 4, 5], [3, 5], [4, 4, 5], []])
    assert [one.partition(":")[0] for one in crowd.list_gaps()] == [
        "subscriber 1",
        "subscriber 2",
        "subscriber 3",
    ]


def test_clients_ask_a_service_and_read_its_events(tmp_path: Path) -> None:
    with connect(make_pairs(tmp_path)) as client:
        port = client.base_url.port
        assert port is not None

        async def ask() -> tuple[int, bytes]:
            crowd = Crowd(port, lambda: 1)
            reading = asyncio.create_task(crowd.subscribe(3))
            while not crowd.snapshots or len(crowd.snapshots[0]) < 2:
                await asyncio.sleep(0.01)
            reading.cancel()
            assert crowd.snapshots == [[1, 2]]
            connected = await asyncio.open_connection("127.0.0.1", port)
            return await post(*connected, "/stores/pairs/query", {"sql": "SELECT 7 AS x"})

        assert asyncio.run(asyncio.wait_for(ask(), 60)) == (200, b'[{"x":7}]')


def test_the_report_has_the_figures_and_the_targets(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"began": "2026-01-05T09:00:00Z", "durations_ms": {"triggerExecution": 1500}}\n'
        '{"began": "2026-01-05T09:00:09Z", "durations_ms": {"triggerExecution": 2500}}\n'
        '{"query": "q", "ended": "2026-01-05T09:00:10Z"}\n'
    )
    begin_s = 1_767_603_600
    assert read_epochs(path, begin_s, begin_s + 5) == [1.5]
    found = Measured(1, 200, 20, 250, alone_s=[1.5], beside_s=[3.0], answer_ms=[10.0, 20.0], errors=["gone"])
    text = describe(found)
    assert "| beside the clients | 3.00 s of 1, 2.00 times | <= 1.1 |" in text
    assert "| errors, gaps, doubles | 1 | 0 |" in text
    assert text.endswith("- gone")


@pytest.mark.slow
def test_a_short_run_counts_no_error() -> None:
    arguments = ["--minutes", "0.2", "--subscribers", "10", "--askers", "2", "--rate", "50"]
    assert main(arguments, print) == 0
