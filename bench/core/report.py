"""A comparison of engines as a Markdown table."""

from typing import Any

COLUMNS = (
    ("tuples/s", "tuples_per_s", "{:,.0f}"),
    ("results/s", "results_per_s", "{:,.0f}"),
    ("results/tuple", "results_per_tuple", "{:.2f}"),
    ("CPU µs/tuple", "cpu_us_per_tuple", "{:,.1f}"),
    ("epoch p50 (ms)", "epoch_ms_p50", "{:,.0f}"),
    ("epoch p99 (ms)", "epoch_ms_p99", "{:,.0f}"),
    ("epoch mean (ms)", "epoch_ms_mean", "{:,.0f}"),
    ("epochs", "measured_epochs", "{:,.0f}"),
    ("state (MB)", "state_bytes", "MB"),
    ("state / Arrow", "state_per_arrow", "{:.2f}"),
    ("out of the units (MB/epoch)", "emitted_bytes", "MB"),
    ("peak memory (MB)", "peak_rss_bytes", "MB"),
)


def cell(value: float | None, pattern: str) -> str:
    """One figure.

    >>> cell(2_500_000, "MB"), cell(None, "{:.2f}")
    ('2.5', '-')
    """
    if value is None:
        return "-"
    return f"{value / 1e6:,.1f}" if pattern == "MB" else pattern.format(value)


def measured(report: dict[str, Any]) -> str:
    if report["rate"]:
        return f"{report['rate']:,} tuples/s for {report['seconds']} s"
    return (
        f"{report['epochs']} epochs measured once the window is full and"
        f" {report['warmup_seconds']:.0f} s are over"
    )


def markdown(report: dict[str, Any]) -> str:
    machine = report["machine"]
    lines = [
        f"### {report['workload']}: `{report['on']}`",
        "",
        f"Window {report['window']:,} tuples per stream, {report['epoch']:,} per stream and epoch,"
        f" {measured(report)}, median of {report['repeat']}, seed {report['seed']}.",
        f"{machine['cpu']}, {machine['cores']} cores, PySpark {machine['packages']['pyspark']},"
        f" DuckDB {machine['packages']['duckdb']}, Python {machine['python']}.",
        "",
        "| engine | " + " | ".join(title for title, _, _ in COLUMNS) + " | count | form |",
        "|---" * (len(COLUMNS) + 3) + "|",
    ]
    for name, summary in report["engines"].items():
        figures = " | ".join(cell(summary.get(key), pattern) for _, key, pattern in COLUMNS)
        lines.append(f"| {name} | {figures} | {verdict(summary)} | {summary.get('form') or ''} |")
    lines += ["", *(f"- {pair}: {ratio:.2f}" for pair, ratio in report.get("ratios", {}).items())]
    for name, summary in report["engines"].items():
        if "error" in summary:
            lines += ["", f"{name} failed:", "", "```", summary["error"].strip(), "```"]
        if "refused" in summary:
            lines += ["", f"{name} refuses: `{summary['refused']}`"]
    return "\n".join(lines).rstrip() + "\n"


def verdict(summary: dict[str, Any]) -> str:
    if "error" in summary:
        return "failed"
    if "refused" in summary:
        return "refused"
    return "equal" if summary["is_correct"] else "**WRONG**"
