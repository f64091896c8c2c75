"""Tables, sentences and a paper's page, out of the JSON: numbers and text cannot disagree."""

from collections.abc import Iterable
from typing import Any

from bench.core.figure import Figure
from bench.core.rows import Row

TRUTH = "DuckDB's"
"""Of figures measured before they said so."""


def table(figure: Figure, rows: Iterable[Row]) -> str:
    lines = [
        "| " + " | ".join(column.title for column in figure.columns) + " |",
        "|---" * len(figure.columns) + "|",
    ]
    for row in rows:
        if figure.is_in_table(row):
            values = [(column.pattern, row.get(column.key)) for column in figure.columns]
            cells = ["-" if value is None else pattern.format(value) for pattern, value in values]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sentence(found: dict[str, Any]) -> str:
    """The claim, whether ours agrees, and the ratio."""
    verdict = found["verdict"]
    ratio = f"{found['ratio_of']}: {verdict['ratio']:.2f}"
    return f"The paper: {found['claim']} Ours **{verdict['agrees']}** ({ratio}): {verdict['text']}."


def conditions(found: dict[str, Any]) -> str:
    """What a figure was measured on, in one line."""
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
    return "\n\n".join((title, sentence(found), picture, table(figure, found["rows"]), conditions(found)))


def page(head: str, figures: list[tuple[str, Figure, dict[str, Any]]]) -> str:
    """The whole page: what is measured, the verdicts, each figure."""
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
