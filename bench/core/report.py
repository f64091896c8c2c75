"""Writes a comparison of engines as a Markdown table."""

from typing import Any

from bench.core.columns import columns, write_table
from bench.core.page import describe_machine

SHOWN = (
    "engine; tuples_per_s; results_per_s; results_per_tuple; cpu_us_per_tuple;"
    " epoch_ms_p50; epoch_ms_p99; epoch_ms_mean; measured_epochs; state_mb; state_per_arrow; emitted_mb;"
    " peak_rss_mb; count; form"
)


def markdown(report: dict[str, Any]) -> str:
    if report["rate"]:
        measured = f"{report['rate']:,} tuples/s for {report['seconds']} s"
    else:
        measured = f"{report['epochs']} epochs measured once the window is full and"
        measured += f" {report['warmup_seconds']:.0f} s have passed"
    joins = [f"{join['workload']}: `{join['on']}` within {join['within']}" for join in report["joins"]]
    head = [f"### {report['workload']}: `{report['on']}`\n"]
    if len(joins) == 1:
        head.append(
            f"Window {report['window']:,} tuples per stream, {report['epoch']:,} per stream and epoch,"
        )
    else:
        head = [f"### {report['workload']}\n", *(f"- {join}" for join in joins), ""]
    lines = [
        *head,
        f"{measured}, median of {report['repeat']}, seed {report['seed']}.",
        f"{describe_machine(report['machine'])}.\n",
        *write_table(columns(SHOWN), [_describe(*item) for item in report["engines"].items()]),
        "",
        *(f"- {pair}: {ratio:.2f}" for pair, ratio in report.get("ratios", {}).items()),
    ]
    for name, summary in report["engines"].items():
        if "error" in summary:
            lines.append(f"\n{name} failed:\n\n```\n{summary['error'].strip()}\n```")
        if "refused" in summary:
            lines.append(f"\n{name} refuses: `{summary['refused']}`")
    return "\n".join(lines).rstrip() + "\n"


def _describe(engine: str, summary: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one task."""
    in_mb = {
        name.replace("_bytes", "_mb"): summary[name] / 1e6
        for name in ("state_bytes", "emitted_bytes", "peak_rss_bytes")
        if summary.get(name) is not None
    }
    count = "equal" if summary["is_correct"] else "**WRONG**"
    count = next(
        (word for key, word in (("error", "failed"), ("refused", "refused")) if key in summary), count
    )
    return {**summary, **in_mb, "engine": engine, "count": count, "form": summary.get("form") or ""}
