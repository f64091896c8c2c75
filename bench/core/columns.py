"""Columns of tables: each value of a row has one title and one pattern in all tables."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bench.core.rows import Row


@dataclass(frozen=True)
class Column:
    title: str
    key: str
    pattern: str = "{}"


_KNOWN = (
    # Settings.
    Column("percentile", "percentile"),
    Column("Zipf", "exponent"),
    Column("partners found by", "kind"),
    Column("window (tuples a stream)", "window", "{:,}"),
    Column("join cores", "cores"),
    Column("band ±", "reach"),
    Column("windows per segment, or copies", "overlap", "{:g}"),
    Column("selectivity", "selectivity", "{:.1e}"),
    Column("arrivals (left, right)", "arrivals"),
    Column("block", "block", "{:,}"),
    Column("input (tuples/s)", "rate", "{:,}"),
    # Memory and copies.
    Column("volume (tuples)", "volume", "{:,}"),
    Column("tuples per unit", "tuples_per_unit", "{:,.0f}"),
    Column("MB per unit", "mb_per_unit", "{:.3f}"),
    Column("MB, largest unit", "mb_of_largest", "{:.3f}"),
    Column("/ JB", "mb_over_jb", "{:.2f}"),
    Column("largest / when full", "growth_once_full", "{:.2f}"),
    Column("MB/s", "mb_per_s", "{:.2f}"),
    Column("copies received per tuple", "received_per_tuple", "{:.2f}"),
    Column("bytes received per tuple", "received_bytes_per_tuple", "{:.0f}"),
    Column("formula", "formula", "{:.2f}"),
    Column("copies stored", "copies", "{:.2f}"),
    Column("tuples held, peak", "tuples_held", "{:,}"),
    Column("of the largest node", "tuples_largest", "{:,}"),
    Column("MB held, peak", "mb_held", "{:.2f}"),
    Column("of the largest node (MB)", "mb_largest", "{:.2f}"),
    Column("in flight, peak (tuples)", "in_flight", "{:,}"),
    Column("in flight, peak (MB)", "mb_in_flight", "{:.2f}"),
    # Load.
    Column("stored: largest / mean", "stored_imbalance", "{:.2f}"),
    Column("received: largest / mean", "received_imbalance", "{:.2f}"),
    Column("received by the busiest / all tuples", "received_by_largest", "{:.2f}"),
    Column("mean load", "mean_load", "{:,.0f}"),
    Column("difference, mean", "apart_mean", "{:,.0f}"),
    Column("difference, most", "apart_most", "{:,}"),
    Column("within the bound", "within", "{:.0%}"),
    Column("tuples moved/epoch", "moved", "{:,.0f}"),
    Column("largest less smallest load", "spread", "{:,.0f}"),
    # Work and time.
    Column("tuples/s", "tuples_per_s", "{:,.0f}"),
    Column("CPU µs/tuple", "cpu_us_per_tuple", "{:.1f}"),
    Column("results/tuple", "results_per_tuple", "{:.2f}"),
    Column("epoch p50 (ms)", "epoch_ms_p50", "{:,.0f}"),
    Column("of unordered", "of_unordered", "{:.2f}"),
    Column("bound (tuples/s)", "bound_tuples_per_s", "{:,.0f}"),
    Column("of one core", "speed_up", "{:.2f}"),
    Column("compared/tuple", "candidates_per_tuple", "{:,.1f}"),
    Column("latency (ms)", "latency_ms", "{:,.0f}"),
    Column("latency p50 (ms)", "latency_ms_p50", "{:,.0f}"),
    Column("response (epochs)", "response_epochs", "{:.0f}"),
    Column("response (ms)", "response_ms", "{:,.0f}"),
    Column("CPU of all nodes (ms)", "busy_ms", "{:,.0f}"),
    Column("probes of a node's store", "probed", "{:,}"),
    Column("pairs looked at", "candidates", "{:,}"),
    Column("results", "results", "{:,}"),
    Column("arrival (share)", "share", "{:.2f}"),
    Column("response (s of event time)", "response_s", "{:.1f}"),
    Column("nodes that take new slices", "nodes_storing", "{:.1f}"),
    Column("rho = matched / candidates", "rho", "{:.2e}"),
    Column("rho, steps counted", "rho_searched", "{:.2e}"),
    Column("bound", "bound", "{:.2e}"),
    Column("candidates/probe", "candidates_per_probe", "{:,.1f}"),
    Column("bisection steps/probe", "steps_per_probe", "{:.1f}"),
    Column("matches/probe", "matches_per_probe", "{:.2f}"),
    Column("epoch, median (ms)", "epoch_ms", "{:,.0f}"),
    Column("in the epoch of the last tuple", "at_once", "{:.0%}"),
    Column("J and rest (ms/epoch)", "model_ms", "{:.1f}"),
    Column("all workers (ms/epoch)", "all_ms", "{:.1f}"),
    Column("blocks sent/epoch", "blocks_sent", "{:.1f}"),
    # Comparisons of engines.
    Column("results/s", "results_per_s", "{:,.0f}"),
    Column("epoch p99 (ms)", "epoch_ms_p99", "{:,.0f}"),
    Column("epoch mean (ms)", "epoch_ms_mean", "{:,.0f}"),
    Column("epochs", "measured_epochs", "{:,.0f}"),
    Column("state (MB)", "state_mb", "{:,.1f}"),
    Column("state / Arrow", "state_per_arrow", "{:.2f}"),
    Column("out of the units (MB/epoch)", "emitted_mb", "{:,.1f}"),
    Column("peak memory (MB)", "peak_rss_mb", "{:,.1f}"),
)
KNOWN = {column.key: column for column in _KNOWN}


def columns(asked: str) -> tuple[Column, ...]:
    """Read a list of columns with semicolons between them: ``key``, ``key|title`` or ``key|title|pattern``.

    >>> columns("volume; setting|routing; units")[1:]
    (Column(title='routing', key='setting', pattern='{}'), Column(title='units', key='units', pattern='{}'))
    """
    found = []
    for words in asked.split("; "):
        key, *rest = words.split("|")
        names = ("title", "pattern")[: len(rest)]
        column = KNOWN.get(key, Column(key, key))
        found.append(replace(column, **dict(zip(names, rest, strict=True))))
    return tuple(found)


def write_table(shown: tuple[Column, ...], rows: Iterable[Row]) -> list[str]:
    """Write the lines of a Markdown table; a value that a row does not have is a hyphen."""
    lines = [f"| {' | '.join(column.title for column in shown)} |", "|---" * len(shown) + "|"]
    for row in rows:
        values = [(column.pattern, row.get(column.key)) for column in shown]
        cells = ["-" if value is None else pattern.format(value) for pattern, value in values]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


RATE = "tuples_per_s; cpu_us_per_tuple; results_per_tuple; epoch_ms_p50"
"""The columns of whole queries in Spark."""
