"""Measured points, and checks of their counts of results."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
"""One measured point: the name of a setting or of a figure -> its value."""


class Rows(list[Row]):
    """A list of measured points.

    >>> rows = Rows([{"model": "Ring", "nodes": 1, "ms": 8.0}, {"model": "Ring", "nodes": 2, "ms": 5.0}])
    >>> rows.at("ms", nodes=2), rows.by("nodes", "ms"), rows.ratio("ms", {"nodes": 1}, {"nodes": 2})
    (5.0, {1: 8.0, 2: 5.0}, 1.6)
    """

    def where(self, **settings: Any) -> "Rows":
        """Select the points that have these settings."""
        return Rows(row for row in self if all(row.get(name) == value for name, value in settings.items()))

    def at(self, figure: str, **settings: Any) -> Any:
        """Read a figure of the first point that has these settings."""
        return self.where(**settings)[0][figure]

    def by(self, name: str, figure: str, **settings: Any) -> dict[Any, Any]:
        """Read a figure for each value of a setting."""
        return {row[name]: row[figure] for row in self.where(**settings) if figure in row}

    def ratio(self, figure: str, settings: Row, other: Row) -> float:
        """Divide a figure at ``settings`` by the same figure at ``other``."""
        return float(self.at(figure, **settings) / self.at(figure, **other))


@dataclass(frozen=True)
class Check:
    """A count of results, and the correct count."""

    what: str
    expected: int
    found: int

    @property
    def is_equal(self) -> bool:
        """Whether the count is correct."""
        return self.expected == self.found


def find_medians(rows: list[Row], names: Iterable[str] | None = None) -> Row:
    """Compute the median of each value, which is None if no row has the value.

    >>> find_medians([{"ms": 3}, {"ms": 8}, {"ms": 4}], ("ms", "bytes"))
    {'ms': 4, 'bytes': None}
    """
    values = {name: [row[name] for row in rows if row.get(name) is not None] for name in names or rows[0]}
    return {name: statistics.median(found) if found else None for name, found in values.items()}


def measure_in_turn(
    names: Iterable[str], repeat: int, measure: Callable[[str, str], Row]
) -> dict[str, list[Row]]:
    """Measure each setting ``repeat`` times; ``measure`` gets a name, and which turn it is for the progress.

    Every second turn is in reverse order, so that no setting always runs after the same one.
    """
    runs: dict[str, list[Row]] = {name: [] for name in names}
    for turn in range(repeat):
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            runs[name].append(measure(name, f"{turn + 1}/{repeat} {name}"))
    return runs
