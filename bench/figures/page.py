"""Tables, sentences and the page, out of the JSON: numbers and text cannot disagree."""

from collections.abc import Iterable
from typing import Any

from bench.figures.figure import Column, Figure, Row

TRUTH = "DuckDB's"
"""Of figures measured before they said so."""
HEAD = """# The papers' figures, drawn again

`python -m bench figures` measures the figures of BiStream (Lin, Ooi, Wang and Yu, SIGMOD 2015) and SplitJoin
(Najafi, Sadoghi and Jacobsen, USENIX ATC 2016) anew, with Thetastream's models, and writes this page. Shapes
and ratios are what can be compared: the papers had clusters and many cores, this is one machine of two.
Claims are in our words and say the shape only.

JM is `Matrix`, JB is `Biclique` with random routing, JB-CRy is `Biclique` with ContRand routing and y
subgroups a side; "pure hash" has as many subgroups as units. The number of results of every measurement is
compared with DuckDB's.

Q5 and Q7 are the most expensive join of those TPC-H queries: suppliers of a region (Q5) or of two nations
(Q7) with lineitem on suppkey, what stands before it computed first. Band is lineitem by truck with quantity
above 48 against lineitem without shipping instructions, orderkeys at most 1 apart. Conditions on one table
filter first, so the two streams of each are far from equally long. handshake is the two-dimensional band of
SplitJoin's evaluation, with streams of equal length.

Memory, bandwidth and load are counters of units run in one process, exact and repeatable. Throughput and
latency are those of whole queries in Spark, from files to the noop sink, settings in turn. **On two cores
more than two units cannot be faster than two**, so figures against cores also show CPU time per tuple, and
what the busiest unit would allow if each unit had a core: tuples divided by the CPU seconds of that unit, in
one process, without Spark.

The machine is shared. The load average before the runs is given with each figure (the runs themselves make it
about 2); where it is higher, other work took its part of the two cores, rates are too low and noisy, and CPU
time per tuple is the steadier figure.
"""


def table(figure: Figure, rows: Iterable[Row]) -> str:
    """The rows that are shown, as Markdown."""
    lines = [
        "| " + " | ".join(column.title for column in figure.columns) + " |",
        "|---" * len(figure.columns) + "|",
    ]
    for row in rows:
        if figure.is_in_table(row):
            lines.append("| " + " | ".join(_cell(column, row) for column in figure.columns) + " |")
    return "\n".join(lines)


def _cell(column: Column, row: Row) -> str:
    value = row.get(column.key)
    return "-" if value is None else column.pattern.format(value)


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


def section(figure: Figure, found: dict[str, Any], pictures: str) -> str:
    """One figure: title, sentence, picture, table."""
    return "\n\n".join(
        (
            f"## {figure.title} ({figure.source})",
            sentence(found),
            f"![{figure.title}]({pictures}{figure.name}.png)",
            table(figure, found["rows"]),
            conditions(found),
        )
    )


def page(
    figures: list[tuple[Figure, dict[str, Any]]], missing: list[Figure], pictures: str, head: str
) -> str:
    """The whole page; ``pictures`` leads from it to the folder with the PNGs."""
    sections = [section(figure, found, pictures) for figure, found in figures]
    summary = ["| figure | source | ours | ratio | of |", "|---|---|---|---|---|"]
    machine = ""
    for figure, found in figures:
        verdict = found["verdict"]
        cells = (figure.title, figure.source, verdict["agrees"], f"{verdict['ratio']:.2f}", figure.ratio_of)
        summary.append(f"| {' | '.join(cells)} |")
        cpu = found["machine"]
        machine = (
            f"{cpu['cpu']}, {cpu['cores']} cores, PySpark {cpu['packages']['pyspark']},"
            f" DuckDB {cpu['packages']['duckdb']}, Python {cpu['python']}. Runs and machine are in the JSON"
            " beside each picture."
        )
    if missing:
        left = ", ".join(f"{figure.title} ({figure.source})" for figure in missing)
        machine += f" Not measured yet: {left}."
    return "\n\n".join((head.strip(), machine, "\n".join(summary), *sections)) + "\n"
