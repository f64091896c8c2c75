"""Warnings about running queries: late tuples and a watermark that does not move."""

from typing import Any

from thetastream.runtime.observe.health import (
    FEWEST_TUPLES,
    STALLED_EPOCHS,
    LateTuplesWarning,
    StalledWatermarkWarning,
    Watch,
)

T = "2024-01-01T00:00:00.000Z"


def brought(timely: int = 1, late: int = 0, newest_us: int | None = None) -> dict[str, Any]:
    return {"timely": timely, "late": late, "newest_us": newest_us}


def test_a_stream_that_is_mostly_late_is_reported_once() -> None:
    watch = Watch("q")
    few = {"a": brought(0, FEWEST_TUPLES - 1), "b": brought(FEWEST_TUPLES)}
    assert watch.observe(few, T) == []
    (warning,) = watch.observe({"a": brought(0, 1), "b": brought(0, 2)}, T)
    assert isinstance(warning, LateTuplesWarning)
    assert f"{FEWEST_TUPLES} of {FEWEST_TUPLES} tuples of stream 'a' of query q are late" in str(warning)
    assert watch.observe({"a": brought(0, 50)}, T) == []


def test_half_of_a_stream_may_be_late() -> None:
    watch = Watch("q")
    assert watch.observe({"a": brought(FEWEST_TUPLES, FEWEST_TUPLES)}, T) == []
    assert len(watch.observe({"a": brought(0, 1)}, T)) == 1


def test_the_stream_that_holds_the_watermark_is_named() -> None:
    watch = Watch("q")
    found: list[Warning] = []
    for epoch in range(STALLED_EPOCHS + 5):
        streams = {"a": brought(newest_us=1_000_000 * (epoch + 1)), "b": brought(0)}
        found += watch.observe(streams, "1970-01-01T00:00:00.000Z")
    (warning,) = found
    assert isinstance(warning, StalledWatermarkWarning)
    assert "Stream 'b' holds it: it has brought no event time yet, while 'a' is at 1970-01-01T00:00:" in str(
        warning
    )


def test_a_watermark_that_moves_or_a_query_without_one_is_no_news() -> None:
    watch, without = Watch("q"), Watch("q")
    for epoch in range(3 * STALLED_EPOCHS):
        streams = {"a": brought(newest_us=epoch), "b": brought(newest_us=0)}
        assert watch.observe(streams, f"2024-01-01T00:00:{epoch // 10:02}.000Z") == []
        assert without.observe(streams, None) == []


def test_a_pause_is_no_stall() -> None:
    watch = Watch("q")
    watch.observe({"a": brought(newest_us=5)}, T)
    for _ in range(3 * STALLED_EPOCHS):
        assert watch.observe({"a": brought(0, newest_us=None)}, T) == []
