"""Columns of tables and words for values: each value of a row has one title in all tables and pictures."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.core.rows import Row

RATE = "tuples_per_s; cpu_us_per_tuple; results_per_tuple; epoch_ms_p50"
"""The columns of whole queries in Spark."""
TITLES = {
    "exponent": "Zipf",
    "kind": "partners found by",
    "window": "window (tuples a stream)",
    "cores": "join cores",
    "reach": "band ±",
    "segment": "segment (windows)",
    "told": "copies asked for",
    "arrivals": "arrivals (left, right)",
    "arrived": "arrivals (tuples/epoch)",
    "fullest": "fullest unit / capacity",
    "rate": "input (tuples/s)",
    "volume": "volume (tuples)",
    "gb": "GB of the paper",
    "now_per_s": "at present (tuples/s)",
    "mb_of_largest": "MB, largest unit",
    "mb_over_jb": "/ JB",
    "growth_once_full": "largest / when full",
    "received_per_tuple": "copies received per tuple",
    "received_bytes_per_tuple": "bytes received per tuple",
    "copies": "copies stored",
    "tuples_held": "tuples held, peak",
    "tuples_largest": "of the largest node",
    "mb_held": "MB held, peak",
    "mb_largest": "of the largest node (MB)",
    "in_flight": "in flight, peak (tuples)",
    "mb_in_flight": "in flight, peak (MB)",
    "stored_imbalance": "stored: largest / mean",
    "received_imbalance": "received: largest / mean",
    "received_by_largest": "received by the busiest / all tuples",
    "apart_mean": "difference, mean",
    "apart_most": "difference, most",
    "within": "within the bound (share)",
    "moved": "tuples moved/epoch",
    "spread": "largest less smallest load",
    "bound_tuples_per_s": "bound (tuples/s)",
    "speed_up": "of one core",
    "candidates_per_tuple": "compared/tuple",
    "busy_ms": "CPU of all nodes (ms)",
    "probed": "probes of a node's store",
    "candidates": "pairs looked at",
    "share": "arrival (share)",
    "response_s": "response (s of event time)",
    "nodes_storing": "nodes that take new slices",
    "rho": "rho = matched / candidates",
    "rho_searched": "rho, steps counted",
    "steps_per_probe": "bisection steps/probe",
    "at_once": "in the epoch of the last tuple (share)",
    "model_ms": "J and rest (ms/epoch)",
    "all_ms": "all workers (ms/epoch)",
    "blocks_sent": "blocks sent/epoch",
    "measured_epochs": "epochs",
    "state_mb": "state (MB)",
    "state_per_arrow": "state / Arrow",
    "emitted_mb": "out of the units (MB/epoch)",
    "peak_rss_mb": "peak memory (MB)",
}
"""The titles that do not follow from the names of the values."""
MODEL = re.compile(r"^(\w+\(.*\))$")
"""The words of a model, such as ``Matrix(4, 4)``."""
UNITS = {"us": "µs", "mb": "MB", "cpu": "CPU", "ms": "(ms)", "p50": "p50", "p99": "p99"}


@dataclass(frozen=True)
class Column:
    title: str
    key: str


def write_title(key: str) -> str:
    """Write the title of a value.

    >>> write_title("cpu_us_per_tuple"), write_title("epoch_ms_p50"), write_title("reach")
    ('CPU µs/tuple', 'epoch p50 (ms)', 'band ±')
    """
    words = key.split("_")
    if "ms" in words:
        words.append(words.pop(words.index("ms")))
    spelled = " ".join(UNITS.get(word, word) for word in words)
    return TITLES.get(key, spelled.replace(" per ", "/"))


def columns(asked: str) -> tuple[Column, ...]:
    """Read a list of columns with semicolons between them: ``key`` or ``key|title``.

    >>> columns("units; setting|routing")
    (Column(title='units', key='units'), Column(title='routing', key='setting'))
    """
    found = (words.partition("|") for words in asked.split("; "))
    return tuple(Column(title or write_title(key), key) for key, _, title in found)


def write_value(value: Any) -> str:
    """Write a value with as many digits as a reader needs. A missing value is a hyphen.

    >>> [write_value(value) for value in (12345, 1234.5, 12.34, 0.5, 0.0563, "JB", None, [0.5, 2])]
    ['12,345', '1,234', '12.34', '0.50', '0.0563', 'JB', '-', '0.50, 2']
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {write_value(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(write_value, value))
    if isinstance(value, float):
        pattern = ",.0f" if abs(value) >= 100 else ".2f" if abs(value) >= 0.1 or not value else ".3g"
        return f"{value:{pattern}}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def write_table(shown: tuple[Column, ...], rows: Iterable[Row]) -> list[str]:
    """Write the lines of a Markdown table. Models are written as code."""
    lines = [f"| {' | '.join(column.title for column in shown)} |", "|---" * len(shown) + "|"]
    for row in rows:
        cells = [MODEL.sub(r"`\1`", write_value(row.get(column.key))) for column in shown]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
