"""Writes tables, sentences and the page of a paper from the JSON, so that numbers and text agree."""

from typing import Any

from bench.core.columns import write_table
from bench.core.figure import Figure

TRUTH = "DuckDB's"
"""The default of figures that were measured before the JSON contained it."""


def sentence(found: dict[str, Any]) -> str:
    """Write the claim, whether our measurement agrees, and the ratio."""
    verdict = found["verdict"]
    ratio = f"{found['ratio_of']}: {verdict['ratio']:.2f}"
    return f"The paper: {found['claim']} Ours **{verdict['agrees']}** ({ratio}): {verdict['text']}."


def conditions(found: dict[str, Any]) -> str:
    """Write the conditions under which a figure was measured, in one line."""
    parts = [f"{name.replace('_', ' ')} {_plain(value)}" for name, value in found["parameters"].items()]
    parts += [f"scale {found['scale']:g}", f"seed {found['seed']}"]
    if found["runs"]:
        loads = [run["load_before"] for run in found["runs"]]
        spread = f"{min(loads):.1f} to {max(loads):.1f}"
        runs = "single runs" if found["repeat"] == 1 else f"medians of {found['repeat']} runs"
        parts.append(f"{runs}, load average before them {spread}")
    checks = found["checks"]
    wrong = sum(not check["is_equal"] for check in checks)
    parts.append(
        f"{wrong} of {len(checks)} counts WRONG"
        if wrong
        else f"{len(checks)} counts equal to {found.get('truth', TRUTH)}"
    )
    return "; ".join(parts) + "."


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)


def section(name: str, figure: Figure, found: dict[str, Any]) -> str:
    title = f"## {figure.title} ({figure.source})"
    picture = f"![{figure.title}]({name}.png)"
    return "\n\n".join(
        (
            title,
            sentence(found),
            picture,
            "\n".join(write_table(figure.columns, filter(figure.is_in_table, found["rows"]))),
            conditions(found),
        )
    )


def page(head: str, figures: list[tuple[str, Figure, dict[str, Any]]]) -> str:
    """Write the whole page: its head, the verdicts and each figure."""
    summary = ["| figure | source | ours | ratio | of |", "|---|---|---|---|---|"]
    machine = ""
    for _, figure, found in figures:
        verdict, cpu = found["verdict"], found["machine"]
        cells = (figure.title, figure.source, verdict["agrees"], f"{verdict['ratio']:.2f}", figure.ratio_of)
        summary.append(f"| {' | '.join(cells)} |")
        machine = (
            f"{cpu['cpu']}, {cpu['cores']} cores, PySpark {cpu['packages']['pyspark']},"
            f" DuckDB {cpu['packages']['duckdb']}, Python {cpu['python']}. Runs and machine are in the JSON"
            " beside each picture."
        )
    sections = [section(*figure) for figure in figures]
    return "\n\n".join((head.strip(), machine, "\n".join(summary), *sections)) + "\n"
