"""Writes joins as SQL for DuckDB, whose plain plan compares all pairs if the condition has no equality."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cells:
    """Cells of a number line for |left - right| <= reach, which give the condition an equality."""

    left: str
    right: str
    reach: float
    width: float


def write_join(
    columns: str,
    aliases: Sequence[str],
    sources: Iterable[str],
    on: str,
    window_us: int | None = None,
    cells: Iterable[Cells] = (),
) -> str:
    """Write the join of two sources, whose ``ts`` is a timestamp.

    Left tuples get the number of their cell, and right tuples are copied to each cell within reach.
    """
    (left, right), rows = aliases, [f"(SELECT * REPLACE (epoch_us(ts) AS ts) FROM {one})" for one in sources]
    conditions = [on]
    for number, cell in enumerate(cells):
        low, high = (
            f"floor(({cell.right}::DOUBLE {sign} {cell.reach}) / {cell.width})::INT" for sign in "-+"
        )
        name = f"cell_{number}"
        rows[0] = f"(SELECT *, floor({cell.left}::DOUBLE / {cell.width})::INT AS {name} FROM {rows[0]})"
        rows[1] = f"(SELECT *, unnest(range({low}, {high} + 1))::INT AS {name} FROM {rows[1]})"
        conditions.append(f"{left}.{name} = {right}.{name}")
    if window_us is not None:
        conditions.append(f"{left}.ts BETWEEN {right}.ts - {window_us} AND {right}.ts + {window_us}")
    return f"SELECT {columns} FROM {rows[0]} {left} JOIN {rows[1]} {right} ON {' AND '.join(conditions)}"
