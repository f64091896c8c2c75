"""Writes tables, sentences and the page of a paper from the JSON, so that numbers and text agree."""

from typing import Any

from bench.core.columns import columns, write_table, write_value
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
    parts = [f"{name.replace('_', ' ')} {write_value(value)}" for name, value in found["parameters"].items()]
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


def section(figure: Figure, found: dict[str, Any]) -> str:
    """Write the section of a figure: its title, verdict, picture, table and conditions."""
    table = write_table(figure.columns, filter(figure.is_in_table, found["rows"]))
    return "\n\n".join(
        (
            f"## {figure.title} ({figure.source})",
            sentence(found),
            f"![{figure.title}]({found['name']}.png)",
            "\n".join(table),
            conditions(found),
        )
    )


def page(head: str, figures: list[tuple[Figure, dict[str, Any]]]) -> str:
    """Write the whole page: its head, the verdicts and each figure."""
    rows = [
        {**vars(figure), **found["verdict"], "figure": figure.title, "source": figure.source}
        for figure, found in figures
    ]
    summary = write_table(columns("figure; source; agrees|ours; ratio; ratio_of|of"), rows)
    machine = describe_machine(figures[-1][1]["machine"]) if figures else ""
    machine += ". Runs and machine are in the JSON beside each picture."
    sections = [section(figure, found) for figure, found in figures]
    return "\n\n".join((head.strip(), machine, "\n".join(summary), *sections)) + "\n"


def describe_machine(machine: dict[str, Any]) -> str:
    """Write the machine of a measurement and its versions, in one line."""
    packages = machine["packages"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, PySpark {packages['pyspark']},"
        f" DuckDB {packages['duckdb']}, Python {machine['python']}"
    )
