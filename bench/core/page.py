"""Writes tables, sentences and the page of a paper from the JSON, so that numbers and text agree."""

from collections import Counter
from collections.abc import Sequence
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


INDEX = """# The papers' figures, drawn again

`make papers` measures all figures of the four papers and writes this page and the pages of the papers. It
goes on where it was stopped, as long as the commit is the same. A claim is the paper's, in our words. A row
agrees if our measurement has the shape of the claim; the pages of the papers say why where it does not.
"""


def index(figures: list[tuple[str, Figure, dict[str, Any]]]) -> str:
    """Write the page of all figures: for each, its picture, its claim, our answer, and the command."""
    lines = ["| figure | the claim | ours | measured by |", "|---|---|---|---|"]
    for folder, figure, found in figures:
        name, verdict = found["name"], found["verdict"]
        picture = f'<img src="{folder}/{name}.png" width="180" alt="{figure.title}">'
        commit = (found["machine"]["commit"] or "unknown")[:7]
        cells = (
            f"[{figure.title}]({folder}/{name}.md), {figure.source}<br>{picture}",
            figure.claim,
            f"**{verdict['agrees']}**. {figure.ratio_of}: {verdict['ratio']:.2f}",
            f"`python -m bench {name}`, commit {commit}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    counts = Counter(found["verdict"]["agrees"] for _, _, found in figures)
    summary = ", ".join(f"{words} {n}" for words, n in counts.most_common())
    said = f"{len(figures)} figures, of which ours: {summary}. {describe_time([one for *_, one in figures])}"
    return "\n".join((INDEX, said, "", *lines)) + "\n"


def describe_time(found: Sequence[dict[str, Any]]) -> str:
    """Say of how many commits figures are, and how long their measurement took if all of them know it."""
    n_commits = len({one["machine"]["commit"] for one in found})
    of = f"They are of {n_commits} commit{'s' * (n_commits != 1)}"
    if any("seconds" not in one for one in found):
        return f"{of}."
    return f"{of}, and their measurement took {sum(one['seconds'] for one in found) / 60:.0f} minutes."


def describe_machine(machine: dict[str, Any]) -> str:
    """Write the machine of a measurement and its versions, in one line."""
    packages = machine["packages"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, PySpark {packages['pyspark']},"
        f" DuckDB {packages['duckdb']}, Python {machine['python']}"
    )
