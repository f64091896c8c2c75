"""Entries of ``th.metrics``, as a query of two units would report them."""

from typing import Any


def make_entry(epoch: int = 3, **others: Any) -> dict[str, Any]:
    """Make the counters of an epoch."""
    streams = {
        "a": {"timely": 30, "late": 2, "shed": 0, "newest_us": 1_500_000, "lag_s": 2.5},
        "b": {"timely": 20, "late": 0, "shed": 0, "newest_us": None, "lag_s": None},
    }
    return {
        "epoch": epoch, "join": "ab12", "run": "r1", "backlog": {}, "began": "2026-01-05T09:30:00.000Z",
        "watermark": "1970-01-01T00:00:01.000Z", "durations_ms": {"triggerExecution": 800, "addBatch": 500},
        "streams": streams, "received": 100, "received_bytes": 4_000, "candidates": 70, "matched": 7,
        "emitted_bytes": 900, "expired": 1, "held": 50, "state_bytes": 2_000, "mlv_bytes": 3_000,
        "segments": 4, "busy_ms": 400, "late": 2, "shed": 0, "plan": None, "control": None,
        "units": [
            {"unit": 0, "received": 75, "held": 30, "state_bytes": 1_200},
            {"unit": 1, "received": 25, "held": 20, "state_bytes": 800},
        ], **others,
    }  # fmt: skip
