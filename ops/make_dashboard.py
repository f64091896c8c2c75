"""Writes ``dashboard.json``, the Grafana dashboard of the metrics: one panel per line of ``PANELS``."""

import json
from pathlib import Path

STREAM, JOIN = "{{query}} {{stream}}", "{{query}} {{join}}"
"""Legends."""
_PHASES = 'thetastream_epoch_seconds{phase!="triggerExecution"}'


def _rate(counter: str) -> str:
    return f"rate(thetastream_{counter}_total[$__rate_interval])"


PANELS = (
    ("Tuples a second, by stream", "ops", _rate("tuples"), STREAM),
    ("Matches a second (pairs found, unless the join is inner)", "ops", _rate("matches"), JOIN),
    ("Lag in event time", "s", "thetastream_lag_seconds", STREAM),
    ("Time of an epoch", "s", 'thetastream_epoch_seconds{phase="triggerExecution"}', "{{query}}"),
    ("Phases of an epoch", "s", _PHASES, "{{query}} {{phase}}"),
    ("Watermark behind the clock", "s", "time() - thetastream_watermark_seconds", "{{query}}"),
    ("State", "bytes", "thetastream_state_bytes", JOIN),
    ("Memory load volume", "bytes", "thetastream_memory_load_bytes", JOIN),
    ("Stored tuples", "short", "thetastream_held_tuples", JOIN),
    ("Segments", "short", "thetastream_segments", JOIN),
    ("Late tuples a second", "ops", _rate("late_tuples"), STREAM),
    ("Shed tuples a second", "ops", _rate("shed_tuples"), STREAM),
    ("Imbalance of units (1 is even)", "short", "thetastream_imbalance", JOIN),
    ("Bytes received by units", "Bps", _rate("received_bytes"), JOIN),
)  # fmt: skip
"""Title, unit, expression, legend."""
SOURCE = {"type": "prometheus", "uid": "${source}"}


def build() -> dict[str, object]:
    """Build the dashboard: two panels a row."""
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": SOURCE,
            "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": "A", "datasource": SOURCE, "expr": expression, "legendFormat": legend}],
        }
        for number, (title, unit, expression, legend) in enumerate(PANELS)
    ]
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "thetastream",
        "title": "Thetastream",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def write() -> str:
    """Write the dashboard as text."""
    return json.dumps(build(), indent=1) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("dashboard.json").write_text(write())
